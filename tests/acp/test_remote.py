"""Remote agents as people use them: a gateway whose agent is another gateway, or a server of one of the SDKs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.acp import remote
from tests.acp.remote import Program
from tests.served import serve

pytestmark = pytest.mark.usefixtures("npm_clients")
KINDS = ("ws", "http")
SERVERS = ("trunkline", "typescript", "python")


@asynccontextmanager
async def far(server: str, tmp: Path) -> AsyncIterator[Program]:
    work = tmp / "near" / "work"
    work.mkdir(parents=True)
    if server == "trunkline":
        async with remote.trunkline(tmp, work) as one:
            yield one
    else:
        async with (remote.typescript if server == "typescript" else remote.python)(tmp) as one:
            yield one


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("server", SERVERS)
async def test_a_visit(server: str, kind: str, tmp_path: Path) -> None:
    async with (
        far(server, tmp_path) as agent,
        serve(tmp_path / "near", "--agent", f"far={agent.at(kind)}") as near,
    ):
        session = await near.session()
        assert (await near.post(session, "say hello\nsay  there")).status_code == 200
        assert await near.told(session) == ["user: say hello\nsay  there", "assistant: hello there"]

        # a tool with permission
        async with near.events() as frames:
            await near.send(session, "ask list files\nsay listed")
            asked = await frames.until("permission.asked", sessionID=session)
            reply = await near.http.post(f"/permission/{asked['properties']['id']}/reply", json={"reply": "once"})
            assert reply.status_code == 200
            await frames.until("session.idle", sessionID=session)
        messages = (await near.http.get(f"/session/{session}/message")).json()
        [tool] = [part for message in messages for part in message["parts"] if part["type"] == "tool"]
        assert tool["state"]["status"] == "completed"
        assert (await near.told(session))[-1] == "assistant: listed"

        # cancel
        async with near.events() as frames:
            await near.send(session, "say going\nsleep 60000")
            await frames.until("message.part.delta", sessionID=session)
            assert (await near.http.post(f"/session/{session}/abort")).json() is True
            await frames.until("session.idle", sessionID=session)
        last = (await near.http.get(f"/session/{session}/message")).json()[-1]
        assert last["info"]["error"]["name"] == "MessageAbortedError"

        # two more while it is busy
        async with near.events() as frames:
            await near.send(session, "say one\nsleep 300\nsay  again")
            await frames.until("message.part.delta", sessionID=session)
            await near.send(session, "say two")
            assert (await near.post(session, "say three")).status_code == 200
        told = await near.told(session)
        assert [line for line in told if line.startswith("assistant")][-3:] == [
            *("assistant: one again", "assistant: two", "assistant: three"),
        ]

        # the gateway restarts, and the agent goes on with its session; nothing is told twice
        await near.stop()
        await near.start()
        assert (await near.post(session, "say after")).status_code == 200
        assert await near.told(session) == [*told, "user: say after", "assistant: after"]
        opened = [line for line in agent.seen if line in ("session/new", "session/load", "session/resume")]
        if server == "trunkline":
            async with httpx.AsyncClient() as http:
                kept = (await http.get(agent.url.removesuffix("/acp") + "/session")).json()
            assert len(kept) == 1
        elif server == "python" and kind == "http":
            # Its server answers 404 to whatever is said to a session that was loaded: a new one goes on.
            assert opened == ["session/new", "session/load", "session/new"]
        else:
            assert opened[0] == "session/new" and len(opened) == 2 and opened[1] != "session/new"
    assert not [line for line in near.log if "[error" in line]
