"""Every operation of our own OpenAPI document with generated requests: no answer is a fault of the gateway.

Bounded: the same requests each time, a few an operation. The streams are left out (they do not end).
"""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.core.result import Ok

from tests.served import Served, serve

STREAMS = {"/event", "/global/event", "/api/event", "/api/session/{sessionID}/event"}
FEW = 4
DOCUMENTED = {501, 502, 503}


async def test_no_operation_answers_with_a_fault_of_the_gateway(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        document = (await served.http.get("/doc")).json()
        ids = await inhabited(served)
        answers = await loop_free(lambda: attack(served.url, document, ids))
    paths = {path for path in document["paths"] if path not in STREAMS}
    assert {path for _, path, _ in answers} == paths, "every path was asked"
    faults = {key: count for key, count in answers.items() if key[2] >= 500 and key[2] not in DOCUMENTED}
    assert not faults
    statuses = Counter[int]()
    for (_, _, status), count in answers.items():
        statuses[status // 100] += count
    assert statuses[2] > 50 and statuses[4] > 50, "it reached both what works and what does not"


async def loop_free(work: Any) -> Any:
    """Generating and asking is not asynchronous: beside the loop, which reads the gateway's log."""
    import asyncio

    return await asyncio.to_thread(work)


async def inhabited(served: Served) -> dict[str, str]:
    """Ids that are somebody's, so that not everything is 404."""
    session = await served.session()
    answer = (await served.post(session, "say hello", messageID="msg_known")).json()
    await served.send(session, "say kept", noReply=True)
    (served.workspace / "a.txt").write_text("text")
    assert answer["info"]["finish"] == "stop"
    return {"sessionID": session, "messageID": "msg_known", "providerID": "demo"}


Answers = Counter[tuple[str, str, int]]


def attack(url: str, document: dict[str, Any], ids: dict[str, str]) -> Answers:
    seen: Answers = Counter()
    pick = random.Random(20)
    for result in schemathesis.openapi.from_dict(document).get_all_operations():
        assert isinstance(result, Ok), result
        if result.ok().path not in STREAMS:
            generate(url, result.ok(), ids, pick, seen)
    assert httpx.get(f"{url}/api/health").json() == {"healthy": True}
    return seen


def generate(url: str, operation: Any, ids: dict[str, str], pick: random.Random, seen: Answers) -> None:
    method, path = operation.method.upper(), operation.path
    health = list(HealthCheck)

    @settings(max_examples=FEW, deadline=None, derandomize=True, database=None, suppress_health_check=health)
    @given(case=operation.as_strategy())
    def ask(case: Any) -> None:
        for name, value in ids.items():
            if name in (case.path_parameters or {}) and pick.random() < 0.7:
                case.path_parameters[name] = value
        if (method, path) == ("DELETE", "/session/{sessionID}"):
            case.path_parameters["sessionID"] = "ses_gone"  # the others still need it
        answer = case.call(base_url=url, timeout=60)
        seen[method, path, answer.status_code] += 1
        if answer.status_code >= 400:
            json.loads(answer.content or b"{}")

    ask()


@pytest.mark.parametrize("kind", ["4XX", "501", "502", "503"])
async def test_the_errors_are_in_the_document(tmp_path: Path, kind: str) -> None:
    async with serve(tmp_path) as served:
        document = (await served.http.get("/doc")).json()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert kind in operation["responses"], (method, path)
