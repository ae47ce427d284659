"""The real clients of this API that show nothing on a screen: ``opencode run --attach`` and the npm SDK.

The gateway runs as people run it; the clients are installed by ``make clients``.
"""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.opencode.support import task
from tests.opencode.terminal import CLIENTS, OPENCODE, environment, run
from tests.served import Served, serve

pytestmark = pytest.mark.usefixtures("npm_clients")


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serve(tmp_path) as one:
        yield one


# --- opencode run --attach -----------------------------------------------------------------------------------------


async def test_run_attach_prints_the_answer_every_time(tmp_path: Path, served: Served) -> None:
    """Twenty times, two at once: it stops reading when its POST is answered, and nothing is lost."""

    async def ten(lane: str) -> None:
        env = environment(tmp_path / lane)  # two of them in one home stumble over each other's database
        for number in range(10):
            words = f"hello-{lane}-{number}"
            command = (str(OPENCODE), "run", "--attach", served.url, words)
            code, out, err = await run(*command, cwd=served.workspace, env=env)
            assert code == 0, err
            assert out.strip() == f"You said: {words}"

    await asyncio.gather(ten("a"), ten("b"))


async def test_run_attach_into_a_session_prints_only_its_own_answer(tmp_path: Path, served: Served) -> None:
    session_id = await served.session()
    await served.post(session_id, "say old news")
    command = (str(OPENCODE), "run", "--attach", served.url, "-s", session_id, "news")
    code, out, err = await run(*command, cwd=served.workspace, env=environment(tmp_path / "home"))
    assert code == 0, err
    assert out.strip() == "You said: news"


async def test_run_attach_into_a_running_turn_waits_for_its_own_answer(tmp_path: Path, served: Served) -> None:
    """It is shown the end of the running turn, and stays for its own: between the two the session is not idle."""
    session_id = await served.session()
    async with served.events() as frames:
        await served.send(session_id, "say first\nsleep 12000")  # longer than the client takes to start
        await frames.until("message.part.delta", sessionID=session_id)
        command = (str(OPENCODE), "run", "--attach", served.url, "-s", session_id, "mine")
        running = task(run(*command, cwd=served.workspace, env=environment(tmp_path / "home")))
        pending = await frames.until("message.pending.updated", sessionID=session_id, state="pending")
        assert pending["properties"]["delivery"] == "queue"
        code, out, err = await running
    assert code == 0 and out.split() == ["first", "You", "said:", "mine"], (out, err)


async def test_run_attach_refuses_what_the_agent_asks(tmp_path: Path, served: Served) -> None:
    """``run`` answers a permission with no by itself: the turn goes on without the tool."""
    command = (str(OPENCODE), "run", "--attach", served.url, "ask", "Deploy")
    code, out, err = await run(*command, cwd=served.workspace, env=environment(tmp_path / "home"))
    assert code == 0 and "auto-rejecting" in out + err, err
    listed = (await served.http.get("/session")).json()
    messages = (await served.http.get(f"/session/{listed[0]['id']}/message")).json()
    tools = [part for message in messages for part in message["parts"] if part["type"] == "tool"]
    assert [tool["state"]["status"] for tool in tools] == ["error"]


# --- the SDK -------------------------------------------------------------------------------------------------------


async def test_the_sdk(tmp_path: Path, served: Served) -> None:
    node = shutil.which("node")
    assert node is not None
    code, out, err = await run(node, "sdk.mjs", served.url, cwd=CLIENTS, env=environment(tmp_path / "home"))
    assert code == 0, err
    seen: dict[str, Any] = json.loads(out)
    assert seen["title"] == "from the sdk" and seen["listed"] is True
    assert seen["answer"] == ["hello sdk"] and seen["roles"] == ["user", "assistant"]
    assert seen["aborted"] is True and seen["broken"] == "MessageAbortedError"
    assert seen["missing"] == {"name": "NotFoundError", "data": {"message": "Session not found: ses_nope"}}
    assert {"server.connected", "session.created", "message.updated", "message.part.updated", "session.idle"} <= set(
        seen["events"]
    )
    assert seen["deltas"] > 0
