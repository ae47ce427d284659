"""``trunkline acp`` as an editor starts it: lines in, lines out, and nothing else on stdout."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from adapters.acp.stdio import CannotAttach, address
from tests.acp.clients.raw import V1
from tests.served import ROOT, serve

DEMO = f"demo={sys.executable} -m adapters.acp.demo --steer"
PATIENCE = 60  # seconds; a loaded machine is slow, not wrong
Json = dict[str, Any]


class Agent:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.got: list[Json] = []

    def write(self, message: Json | str) -> None:
        assert self.process.stdin is not None
        text = message if isinstance(message, str) else json.dumps(message)
        self.process.stdin.write(text.encode() + b"\n")

    async def next(self) -> Json:
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            line = await self.process.stdout.readline()
        assert line, "it ended"
        found: Json = json.loads(line)
        self.got.append(found)
        return found

    async def call(self, number: int, method: str, **params: Any) -> Json:
        self.write({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        while (found := await self.next()).get("id") != number or "method" in found:
            pass
        return found

    async def end(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        async with asyncio.timeout(PATIENCE):
            return await self.process.wait()


@asynccontextmanager
async def started(folder: Path, *arguments: str, **environment: str) -> AsyncIterator[Agent]:
    home = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(ROOT)}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-m", "gateway", "acp", *arguments),
        cwd=folder,
        env={**home, "TRUNKLINE_DEMO_STATE": str(folder / "demo"), **environment},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )
    agent = Agent(process)
    try:
        yield agent
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def visit(agent: Agent, folder: Path) -> None:
    """A turn, and what should not be said between."""
    hello = await agent.call(1, "initialize", **V1)
    assert hello["result"]["protocolVersion"] == 1
    created = await agent.call(2, "session/new", cwd=str(folder), mcpServers=[])
    session_id = created["result"]["sessionId"]
    for text, code in (("{", -32700), ("[]", -32600), ("   ", 0), ("7", -32600)):
        agent.write(text)
        if code:
            while (found := await agent.next()).get("method"):
                pass
            assert found["id"] is None and found["error"]["code"] == code
    prompt = [{"type": "text", "text": "say hello\nbig 200000"}]
    answer = await agent.call(3, "session/prompt", sessionId=session_id, prompt=prompt)
    assert answer["result"]["stopReason"] == "end_turn"
    updates = [m["params"]["update"] for m in agent.got if m.get("method") == "session/update"]
    text = "".join(u["content"]["text"] for u in updates if u["sessionUpdate"] == "agent_message_chunk")
    assert text == "hello" + "x" * 200_000


async def test_a_gateway_of_its_own(tmp_path: Path) -> None:
    own = ("--data", str(tmp_path / "data"), "--workspace", str(tmp_path), "--agent", DEMO)
    async with started(tmp_path, *own) as agent:
        await visit(agent, tmp_path)
        assert await agent.end() == 0


async def test_a_line_that_is_too_long(tmp_path: Path) -> None:
    own = ("--data", str(tmp_path / "data"), "--workspace", str(tmp_path), "--agent", DEMO)
    async with started(tmp_path, *own, TRUNKLINE_MAX_BODY="65536") as agent:
        agent.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "x", "params": {"a": "x" * 70_000}}))
        found = await agent.next()
        assert found["id"] is None and found["error"]["code"] == -32600
        assert (await agent.call(2, "initialize", **V1))["result"]["protocolVersion"] == 1
        assert await agent.end() == 0


async def test_attached_by_its_url(tmp_path: Path) -> None:
    async with serve(tmp_path, "--agent", DEMO, TRUNKLINE_TOKEN="the-token") as served:
        async with started(tmp_path, "--url", served.url) as agent:
            assert await agent.end() == 1
            assert agent.process.stderr is not None
            assert b"TRUNKLINE_TOKEN" in await agent.process.stderr.read()
        async with started(tmp_path, "--url", served.url, "--agent", "demo", TRUNKLINE_TOKEN="the-token") as agent:
            await visit(agent, served.workspace)
            assert await agent.end() == 0
        async with started(tmp_path, "--url", served.url, TRUNKLINE_TOKEN="the-token") as agent:
            await agent.call(1, "initialize", **V1)
            await served.kill()
            async with asyncio.timeout(PATIENCE):
                assert await agent.process.wait() == 1  # the gateway is gone


async def test_attached_to_the_one_that_runs_here(tmp_path: Path) -> None:
    async with serve(tmp_path, "--agent", DEMO) as served:
        port = served.url.rpartition(":")[2]
        async with started(tmp_path, TRUNKLINE_PORT=port) as agent:
            await visit(agent, served.workspace)
            assert await agent.end() == 0
        sessions = (await served.http.get("/session")).json()
        assert len(sessions) == 1


async def test_nobody_there(tmp_path: Path) -> None:
    async with started(tmp_path, "--url", "http://127.0.0.1:9") as agent:
        async with asyncio.timeout(PATIENCE):
            assert await agent.process.wait() == 1
        assert agent.process.stderr is not None
        said = (await agent.process.stderr.read()).decode()
        assert said.startswith("trunkline: ws://127.0.0.1:9/acp: ") and len(said.splitlines()) == 1


def test_addresses() -> None:
    assert address("http://127.0.0.1:4096", "") == "ws://127.0.0.1:4096/acp"
    assert address("https://box.example/", "claude") == "wss://box.example/acp/claude"
    assert address("127.0.0.1:4096", "a b") == "ws://127.0.0.1:4096/acp/a%20b"
    assert address("ws://h/acp/demo", "other") == "ws://h/acp/demo"
    with pytest.raises(CannotAttach):
        address("ftp://h", "")
