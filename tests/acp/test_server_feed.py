"""A client's feed without a network: a slow client, a log that has lost what it had not read, and the mark."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from adapters.acp import translate_replay as replay
from adapters.acp.agent import factory
from adapters.acp.server import Connection, Server
from gateway.agents import AgentConfig
from gateway.controller import SessionController
from gateway.log import SessionLog
from gateway.settings import Settings
from gateway.store import Store
from tests.acp.clients.raw import V1, V2
from tests.acp.support import DEMO

PATIENCE = 30
Json = dict[str, Any]


class Slow:
    """A transport that takes frames only while its gate is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.changed = asyncio.Event()
        self.got: list[Json] = []

    async def send(self, frame: str, session_id: str, root_id: str) -> None:
        await self.gate.wait()
        self.got.append(json.loads(frame))
        self.changed.set()

    async def answer(self, frame: str, session_id: str, establishes: bool) -> None:
        await self.send(frame, session_id, "")

    def close(self) -> None:
        self.gate.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(self.got) < count:
                self.changed.clear()
                await self.changed.wait()

    async def answer_to(self, number: int) -> Json:
        async with asyncio.timeout(PATIENCE):
            while True:
                self.changed.clear()
                for message in self.got:
                    if message.get("id") == number and "method" not in message:
                        return message
                await self.changed.wait()

    def updates(self, *kinds: str) -> list[Json]:
        found = [m["params"]["update"] for m in self.got if m.get("method") == "session/update"]
        return [u for u in found if u["sessionUpdate"] in kinds]

    def text(self) -> str:
        return "".join(u["content"]["text"] for u in self.updates("agent_message_chunk"))


@asynccontextmanager
async def server(tmp_path: Path, max_entries: int) -> AsyncIterator[Server]:
    settings = Settings(workspace=[tmp_path], data=tmp_path / "data")
    store = Store.open("sqlite://")
    log = SessionLog(store.epoch, max_entries=max_entries)
    env = {"PYTHONPATH": str(Path(__file__).resolve().parents[2]), "TRUNKLINE_DEMO_STATE": str(tmp_path / "demo")}
    agents = {"demo": AgentConfig(name="demo", command=[*DEMO, "--steer"], env=env)}
    ports = factory(tmp_path / "run")
    controller = SessionController(store, log, agents, ports, default_agent="demo")
    await controller.start()
    try:
        yield Server(controller, settings)
    finally:
        await controller.close()
        await ports.close()
        log.close()
        await store.close()


async def call(connection: Connection, number: int, method: str, **params: Any) -> None:
    body = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    await connection.receive(json.dumps(body).encode())


async def joined(one: Server, tmp_path: Path, version: int, session_id: str = "") -> tuple[Connection, Slow, str]:
    """A connection with a new session, or with one that is there already."""
    slow = Slow()
    connection = one.connect(slow, "", "local")
    await call(connection, 0, "initialize", **(V1 if version == 1 else V2))
    where = {"cwd": str(tmp_path), "mcpServers": []}
    if session_id:
        await call(connection, 1, "session/resume", sessionId=session_id, **where)
    else:
        await call(connection, 1, "session/new", **where)
    result = (await slow.answer_to(1))["result"]
    return connection, slow, session_id or result["sessionId"]


def prompt(text: str) -> list[Json]:
    return [{"type": "text", "text": text}]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("script", ["stream 40 0", "say a\ntool x\nsay b\nask y\nthink c\nsay d\nchild bob\nsay e"])
async def test_a_client_that_lagged_too_far_misses_nothing(tmp_path: Path, version: int, script: str) -> None:
    """The log keeps eight entries; the client stops in the middle of a turn and reads on after its end."""
    async with server(tmp_path, 8) as one:
        fast, seen, session_id = await joined(one, tmp_path, version)
        behind, slow, _ = await joined(one, tmp_path, version, session_id)
        before = len(slow.got)
        await call(behind, 2, "session/prompt", sessionId=session_id, prompt=prompt(script))
        await slow.until(before + 3)
        slow.gate.clear()
        while (
            not (asked := [m for m in seen.got if m.get("method") == "session/request_permission"]) and "ask" in script
        ):
            seen.changed.clear()
            await seen.changed.wait()
        for request in asked:
            outcome = {"outcome": {"outcome": "selected", "optionId": "once"}}
            await fast.receive(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": outcome}).encode())
        async with asyncio.timeout(PATIENCE):
            await one.controller.wait(session_id)  # type: ignore[arg-type]
        await call(fast, 2, "session/prompt", sessionId=session_id, prompt=prompt("say over"))
        if version == 1:
            await seen.answer_to(2)
        async with asyncio.timeout(PATIENCE):
            await one.controller.wait(session_id)  # type: ignore[arg-type]
        slow.gate.set()
        answer = await slow.answer_to(2)
        assert "result" in answer, answer
        async with asyncio.timeout(PATIENCE):
            while "over" not in slow.text():
                slow.changed.clear()
                await slow.changed.wait()
        whole, rest, _ = await joined(one, tmp_path, version, session_id)
        await call(whole, 2, "session/load" if version == 1 else "session/resume", sessionId=session_id, cwd="/",
                   **({"mcpServers": []} if version == 1 else {"replayFrom": {"type": "start"}}))  # fmt: skip
        await rest.answer_to(2)
        assert slow.text() == rest.text()
        kind = "tool_call_update" if version == 2 else "tool_call"
        assert {u["toolCallId"] for u in slow.updates("tool_call", "tool_call_update")} == {
            u["toolCallId"] for u in rest.updates(kind)
        }
        # no request is left open at the client
        closed = [m["params"]["requestId"] for m in slow.got if m.get("method") == "$/cancel_request"]
        assert closed == [m["id"] for m in slow.got if m.get("method") == "session/request_permission"]
        for connection in (fast, behind, whole):
            await connection.close()
        assert not one.connections


async def test_a_slow_client_holds_nobody_back(tmp_path: Path) -> None:
    async with server(tmp_path, 65536) as one:
        fast, seen, session_id = await joined(one, tmp_path, 1)
        behind, slow, _ = await joined(one, tmp_path, 1, session_id)
        slow.gate.clear()
        await call(fast, 2, "session/prompt", sessionId=session_id, prompt=prompt("stream 300 0"))
        assert (await seen.answer_to(2))["result"]["stopReason"] == "end_turn"
        assert slow.text() == ""
        slow.gate.set()
        async with asyncio.timeout(PATIENCE):
            while slow.text() != seen.text():
                slow.changed.clear()
                await slow.changed.wait()
        assert len(slow.updates("agent_message_chunk")) < 300  # merged for who lags
        await fast.close()
        await behind.close()


async def test_frames_are_encoded_once_for_all(tmp_path: Path) -> None:
    async with server(tmp_path, 65536) as one:
        connections = [await joined(one, tmp_path, 1)]
        session_id = connections[0][2]
        connections += [await joined(one, tmp_path, 1, session_id) for _ in range(3)]
        made = []
        for connection, _, _ in connections:
            feed = connection.feeds[session_id]  # type: ignore[index]
            feed._updates = lambda event, names, old=feed._updates: made.append(event) or old(event, names)  # type: ignore
        await call(connections[0][0], 2, "session/prompt", sessionId=session_id, prompt=prompt("stream 50 1"))
        await connections[0][1].answer_to(2)
        for connection, _, _ in connections:
            await connection.feeds[session_id].caught_up()  # type: ignore[index]
        assert len({id(event) for event in made}) == len(made)
        assert len({slow.text() for _, slow, _ in connections}) == 1
        for connection, _, _ in connections:
            await connection.close()


def test_the_mark_of_nothing_tells_everything() -> None:
    from gateway.core.transcript import Transcript

    assert replay.end(Transcript()) == replay.Mark()
    assert replay.missed(Transcript(), "acp1", {}, replay.Mark()) == []


ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    "",
    "x",
    [],
    {},
    [None],
    {"type": "text"},
    {"a": {"b": []}},
    "\ud800",
    "ses_x",
]


@pytest.mark.parametrize("version", [1, 2])
async def test_no_params_are_an_internal_error(tmp_path: Path, version: int) -> None:
    """Every method with every odd value in every field: an answer each time, and never that we broke."""
    import random

    rng = random.Random(version)
    async with server(tmp_path, 4096) as one:
        connection, slow, session_id = await joined(one, tmp_path, version)
        good: dict[str, Json] = {
            "session/new": {"cwd": str(tmp_path), "mcpServers": [], "_meta": {}},
            "session/load": {"sessionId": session_id, "cwd": str(tmp_path), "mcpServers": []},
            "session/resume": {"sessionId": session_id, "cwd": str(tmp_path), "replayFrom": {"type": "start"}},
            "session/list": {"cursor": None, "cwd": None, "archived": None},
            "session/close": {"sessionId": "ses_nobody"},
            "session/delete": {"sessionId": "ses_nobody"},
            "session/prompt": {"sessionId": session_id, "prompt": prompt("say x"), "_meta": {}},
            "session/inject": {"sessionId": session_id, "mode": "queue", "content": prompt("say x")},
            "session/revoke_inject": {"sessionId": session_id, "messageId": "m"},
            "session/replace_inject": {"sessionId": session_id, "messageId": "m", "content": prompt("x")},
            "_session/steering": {"sessionId": session_id, "prompt": prompt("say x"), "_meta": {"steering": {}}},
            "session/set_mode": {"sessionId": session_id, "modeId": "code"},
            "session/set_config_option": {"sessionId": session_id, "configId": "model", "value": "quick"},
            "authenticate": {"methodId": "x"},
            "initialize": V1,
            "session/cancel": {"sessionId": session_id},
            "$/cancel_request": {"requestId": 1},
        }
        number = 100
        for method, params in good.items():
            for key in params:
                for value in rng.sample(ODD, 6):
                    number += 1
                    body = {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, key: value}}
                    await connection.receive(json.dumps(body).encode())
            for value in (None, [], "x", 3):
                number += 1
                body = {"jsonrpc": "2.0", "id": number, "method": method, "params": value}
                await connection.receive(json.dumps(body).encode())
                body = {"jsonrpc": "2.0", "method": method, "params": value}
                await connection.receive(json.dumps(body).encode())
        await call(connection, 2, "session/list")
        await slow.answer_to(2)
        for wanted in range(101, number + 1):
            await slow.answer_to(wanted)
        broken = [m for m in slow.got if m.get("error", {}).get("message") == "Internal error"]
        assert not broken
        await connection.close()


async def test_caught_up_does_not_wait_for_other_sessions(tmp_path: Path) -> None:
    """The client is in the middle of a batch while another session goes on and its own does not."""
    async with server(tmp_path, 65536) as one:
        fast, seen, mine = await joined(one, tmp_path, 1)
        other, theirs, elsewhere = await joined(one, tmp_path, 1)
        behind, slow, _ = await joined(one, tmp_path, 1, mine)
        slow.gate.clear()
        await call(fast, 2, "session/prompt", sessionId=mine, prompt=prompt("say x"))
        await seen.answer_to(2)
        await call(other, 2, "session/prompt", sessionId=elsewhere, prompt=prompt("say y"))
        await theirs.answer_to(2)
        waiting = asyncio.get_running_loop().create_task(behind.feeds[mine].caught_up())  # type: ignore[index]
        await asyncio.wait([waiting], timeout=0)
        assert not waiting.done()
        slow.gate.set()
        async with asyncio.timeout(PATIENCE):
            await waiting
        assert slow.text() == "x"
        for connection in (fast, other, behind):
            await connection.close()
