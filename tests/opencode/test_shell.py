"""Commands that people run: ``POST /session/:id/shell``, shown on all wires, and ``!`` in the real terminal client."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acp.clients.raw import client
from tests.agui.support import body, user
from tests.opencode.support import task
from tests.opencode.terminal import attached
from tests.served import Served, serve
from tests.test_crash import processes

SHELL = {"TRUNKLINE_SHELL": "true", "SHELL": "/bin/sh"}


async def shell(served: Served, session: str, command: str, **more: Any) -> httpx.Response:
    asked = {"agent": "build", "command": command, **more}
    return await served.http.post(f"/session/{session}/shell", json=asked)


async def listed(served: Served, session: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await served.http.get(f"/session/{session}/message")).json()
    return found


async def test_it_runs_where_the_session_is_and_the_agent_is_told(tmp_path: Path) -> None:
    async with serve(tmp_path, SECRET="hidden", **SHELL) as served:
        session = await served.session()
        answer = await shell(served, session, "pwd; echo to-stderr >&2; echo [$SECRET]; exit 3", messageID="msg_mine")
        assert answer.status_code == 200, answer.text
        [tool] = [part for part in answer.json()["parts"] if part["type"] == "tool"]
        said = f"{served.workspace}\nto-stderr\n[]\n"
        assert (tool["tool"], tool["state"]["status"]) == ("bash", "completed")
        assert tool["state"]["output"] == said and tool["state"]["metadata"] == {"output": said, "exit": 3}
        first, second = await listed(served, session)
        assert first["info"]["id"] == "msg_mine" == second["info"]["parentID"]
        [note] = first["parts"]
        assert note["text"] == "The following tool was executed by the user" and note["synthetic"] is True
        again = await shell(served, session, "pwd; echo to-stderr >&2; echo [$SECRET]; exit 3", messageID="msg_mine")
        assert again.json() == answer.json() and len(await listed(served, session)) == 2
        assert (await shell(served, session, "other", messageID="msg_mine")).status_code == 409

        assert (await served.post(session, "say hello")).status_code == 200
        [history] = (tmp_path / "demo").glob("*.jsonl")
        heard = [json.loads(line) for line in history.read_text().splitlines()]
        texts = [one["content"]["text"] for one in heard if one.get("sessionUpdate") == "user_message_chunk"]
        assert len(texts) == 2 and said in texts[0] and "[exit code 3]" in texts[0] and texts[1] == "say hello"
        assert [line for line in await served.told(session) if line.startswith("user")][1:] == ["user: say hello"]


async def test_a_native_agent_is_told_too(tmp_path: Path) -> None:
    async with serve(tmp_path, "--agent", "bot=examples.pydantic_agent:agent", **SHELL) as served:
        session = await served.session()
        assert (await shell(served, session, "echo from-$((40+2))")).status_code == 200
        assert (await served.post(session, "hello")).status_code == 200
        answer = (await served.told(session))[-1]
        assert "from-42" in answer and "hello (message 1)" in answer


async def test_every_wire_shows_it(tmp_path: Path) -> None:
    async with serve(tmp_path, **SHELL) as served, client(served.url, 1) as one, client(served.url, 2) as two:
        session = await served.session()
        for each in (one, two):
            each.session = session
        await one.call("session/load", sessionId=session, cwd=str(served.workspace), mcpServers=[])
        await two.call("session/resume", sessionId=session, cwd=str(served.workspace), replayFrom={"type": "start"})
        async with served.events() as frames:
            os.mkfifo(served.workspace / "gate")
            running = task(shell(served, session, "echo first; read x < gate; echo last"))
            while True:  # the output is shown while it runs
                part = (await frames.until("message.part.updated"))["properties"]["part"]
                if part.get("state", {}).get("metadata", {}).get("output") == "first\n":
                    assert part["state"]["status"] == "running"
                    break
                if part["type"] == "tool" and part["state"]["status"] in ("completed", "error"):
                    raise AssertionError(part)
            (served.workspace / "gate").write_text("\n")
            assert (await running).status_code == 200
        call = (await running).json()["parts"][1]["callID"]
        ids = [message["info"]["id"] for message in await listed(served, session)]
        await two.state("idle")
        for each in (one, two):
            updates = [u for u in each.updates("tool_call", "tool_call_update") if u["toolCallId"] == call]
            assert updates[-1]["status"] == "completed"
            assert updates[-1]["content"][0]["content"]["text"] == "first\nlast\n"
        [note] = one.updates("user_message_chunk")
        [same] = two.updates("user_message")
        assert note["messageId"] == same["messageId"] == ids[0]
        v2 = (await served.http.get(f"/api/session/{session}/message")).json()["data"]
        assert sorted(m["id"] for m in v2) == sorted(ids)
        given = body(user("m-agui", "say on agui"), thread=session)
        run = await served.http.post("/agui/demo", json=given, headers={"accept": "text/event-stream"})
        events = [json.loads(line[5:]) for line in run.text.splitlines() if line.startswith("data:")]
        [snapshot] = [event["messages"] for event in events if event["type"] == "MESSAGES_SNAPSHOT"][:1]
        assert snapshot[0]["id"] == ids[0] and any(call in json.dumps(m) for m in snapshot)


async def test_busy_abort_and_what_waits(tmp_path: Path) -> None:
    async with serve(tmp_path, **SHELL) as served:
        session = await served.session()
        mark = f"HOME={tmp_path}"
        async with served.events() as frames:
            running = task(shell(served, session, "echo on; sleep 1000 & sleep 1001"))
            output = ""
            while output != "on\n":
                part = (await frames.until("message.part.updated"))["properties"]["part"]
                output = part.get("state", {}).get("metadata", {}).get("output", "")
            refused = await shell(served, session, "ls")
            assert refused.status_code == 409 and refused.json()["name"] == "SessionBusyError"
            assert (await served.http.post(f"/session/{session}/abort")).json() is True
        answer = await running
        [tool] = [part for part in answer.json()["parts"] if part["type"] == "tool"]
        assert answer.json()["info"]["error"]["name"] == "MessageAbortedError"
        assert tool["state"]["status"] == "error" and tool["state"]["metadata"]["output"] == "on\n"
        async with asyncio.timeout(30):
            while processes(mark):
                await asyncio.sleep(0.01)  # the kernel takes them apart
        os.mkfifo(served.workspace / "gate")
        running = task(shell(served, session, "read x < gate"))
        async with asyncio.timeout(30):
            while not (await served.http.get("/session/status")).json():
                await asyncio.sleep(0.01)
        await served.send(session, "say queued")
        (served.workspace / "gate").write_text("\n")
        assert (await running).status_code == 200
        async with asyncio.timeout(30):
            while (await served.http.get("/session/status")).json():
                await asyncio.sleep(0.01)
        assert (await served.told(session))[-1].endswith("queued")


async def test_a_gateway_that_is_killed_takes_it_along(tmp_path: Path) -> None:
    mark = f"HOME={tmp_path}"
    async with serve(tmp_path, **SHELL) as served:
        session = await served.session()
        async with served.events() as frames:
            running = task(shell(served, session, f"{sys.executable} -c 'import time; time.sleep(1000)' & wait"))
            await frames.until("message.part.updated", sessionID=session)
            await served.kill()
        with pytest.raises(httpx.HTTPError):
            await running
    async with serve(tmp_path, **SHELL) as served:
        assert processes(mark) == []
        assert (await listed(served, session))[-1]["info"]["error"]["name"] == "MessageAbortedError"
        assert (await shell(served, session, "echo on")).status_code == 200


async def test_off_and_wrong(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        session = await served.session()
        refused = await shell(served, session, "ls")
        assert refused.status_code == 501 and "setting shell" in refused.text
        assert await listed(served, session) == []
    async with serve(tmp_path, **SHELL) as served:
        for asked, status, word in (
            ({"command": "ls"}, 400, "agent"),
            ({"agent": "build"}, 400, "command"),
            ({"agent": "build", "command": " "}, 400, "empty"),
            ({"agent": "nobody", "command": "ls"}, 400, "nobody"),
            ({"agent": "build", "command": "ls", "messageID": "x"}, 400, "messageID"),
        ):
            answer = await served.http.post(f"/session/{session}/shell", json=asked)
            assert answer.status_code == status and word in answer.text, answer.text
        assert await listed(served, session) == []
        assert (await shell(served, "ses_nobody", "ls")).status_code == 404
        answer = await shell(served, session, "definitely-no-command")
        assert answer.json()["parts"][1]["state"]["metadata"]["exit"] == 127


@pytest.mark.usefixtures("npm_clients")
async def test_in_the_terminal_client(tmp_path: Path) -> None:
    async with serve(tmp_path, **SHELL) as served, attached(served, tmp_path / "home") as terminal:
        await terminal.until("Ask anything")
        await terminal.enter("say hello")
        await terminal.until("     hello")
        await terminal.keys("!")
        await terminal.until("Shell")
        await terminal.enter("echo from-$((40+2))-here")
        await terminal.until("$ echo from-$((40+2))-here", "from-42-here")
        await terminal.enter("say after it")
        await terminal.until("after it")
