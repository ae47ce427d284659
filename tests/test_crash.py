"""The gateway killed with -9 at bad moments, as people would see it."""

import asyncio
import sys
from pathlib import Path

from tests.served import Served, serve


async def test_killed_in_a_turn_with_two_queued(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        session = await served.session()
        async with served.events() as frames:
            await served.send(session, "stream 100000 5")
            text = ""
            while "chunk 100 " not in text:  # half a second: the first words were checkpointed long ago
                text += (await frames.until("message.part.delta", sessionID=session))["properties"]["delta"]
            await served.send(session, "say second")
            await served.send(session, "say third")
        before = [m["info"]["id"] for m in (await served.http.get(f"/session/{session}/message")).json()]
        await served.kill()
    again = Served(tmp_path, [], {})
    await again.start()
    try:
        async with asyncio.timeout(60):
            while (await again.http.get("/session/status")).json():
                await asyncio.sleep(0.05)  # the status has no event for somebody who was not there
        messages = (await again.http.get(f"/session/{session}/message")).json()
        told = await again.told(session)
        assert [line for line in told if line.startswith("user")] == [
            "user: stream 100000 5",
            "user: say second",
            "user: say third",
        ]
        assert told[-3:] == ["assistant: second", "user: say third", "assistant: third"]
        assert told[1].startswith("assistant: chunk 0 chunk 1")
        assert messages[1]["info"]["error"]["name"] == "MessageAbortedError"
        ids = [m["info"]["id"] for m in messages]
        assert ids[: len(before) - 2] == before[:-2] and set(before) <= set(ids), "a message changed its id"
    finally:
        assert await again.stop() == 0


async def test_no_agent_outlives_a_killed_gateway(tmp_path: Path) -> None:
    launcher = f"demo2=sh -c '{sys.executable} -m adapters.acp.demo; :'"
    async with serve(tmp_path, "--agent", launcher) as served:
        session = await served.session()
        async with served.events() as frames:
            await served.send(session, "hang")
            await frames.until("session.status", sessionID=session, status={"type": "busy"})
            await frames.until("message.updated", sessionID=session)
        mark = f"HOME={tmp_path}"
        async with asyncio.timeout(30):
            while len(processes(mark)) < 3:  # launcher, agent and the child of its hang
                await asyncio.sleep(0.01)
        await served.kill()
    async with serve(tmp_path):
        assert processes(mark) == []


def processes(mark: str) -> list[int]:
    """Processes, other than the gateway, whose environment has the mark."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                environment = (folder / "environ").read_bytes()
                command = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in environment and b"serve" not in command:
                found.append(int(folder.name))
    return found
