"""The real clients of ACP against a gateway as people run it: the TypeScript SDK (v1 and v2) and the Python SDK on all
their transports, and acpx on stdio.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import acp
import acp.schema
import httpx
import pytest
from acp.http.client import create_http_stream
from acp.ws.client import create_websocket_stream

from tests.served import ROOT, Served, serve

CLIENTS = ROOT / "tests" / "clients"
SDK = Path(__file__).parent / "clients" / "sdk.mjs"
ACPX = CLIENTS / "node_modules" / ".bin" / "acpx"
DEADLINE = 90  # seconds; a loaded machine is slow, not wrong

pytestmark = pytest.mark.usefixtures("npm_clients")


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serve(tmp_path, "--agent", f"demo={sys.executable} -m adapters.acp.demo --steer") as one:
        yield one


def stdio(served: Served, *more: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "gateway", "acp", "--url", served.url, *more]


async def run(*command: str, cwd: Path, home: Path) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(ROOT), "CLIENTS": str(CLIENTS)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(DEADLINE):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


# --- the TypeScript SDK ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["http", "ws", "stdio"])
@pytest.mark.parametrize("version", ["1", "2"])
async def test_typescript(served: Served, tmp_path: Path, version: str, transport: str) -> None:
    """Text, a tool with its permission, a form, a child, cancel, a second prompt while busy, load, options, errors."""
    where = {
        "http": served.url + "/acp",
        "ws": served.url.replace("http", "ws") + "/acp",
        "stdio": json.dumps(stdio(served)),
    }[transport]
    command = ("node", str(SDK), version, transport, where, str(served.workspace))
    code, out, err = await run(*command, cwd=served.workspace, home=tmp_path)
    assert code == 0, err
    told = json.loads(out)
    assert told["initialize"]["protocolVersion"] == int(version)
    assert told["text"]["said"] == "hello there"
    assert told["text"]["answer"]["stopReason"] == "end_turn"
    assert told["tool"]["asked"] == 1 and told["tool"]["status"] == "completed"
    assert told["form"]["said"] == "Form: accept fine"
    assert told["child"]["said"] == "bob at work" and told["child"]["messages"] == 4
    assert told["cancel"] == "cancelled"
    assert told["busy"] == {"order": [1, 2], "said": "oneone againtwo"}
    assert told["unknown"] == -32002
    assert told["listed"] == [told["sessionId"]]
    assert told["option"] == ["careful"]
    replay = told["replay"]
    assert replay["users"] == 7
    assert replay["agents"] == replay["live"]  # the same messages, under the same ids
    assert replay["said"] == "hello therelistedForm: accept finegoingoneone againtwo"
    assert replay["state"] == (["idle"] if version == "2" else [])
    assert told["after"] == "end_turn" and told["closed"] == {}


# --- the Python SDK --------------------------------------------------------------------------------------------------


class PythonClient:
    """The SDK runs handlers of updates side by side: only what is in them counts, not when they ran."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.changed = asyncio.Event()
        self.option = "once"

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        self.updates.append(update)
        self.changed.set()

    async def request_permission(self, **kwargs: Any) -> Any:
        outcome = acp.schema.AllowedOutcome(outcome="selected", option_id=self.option)
        return acp.schema.RequestPermissionResponse(outcome=outcome)

    def on_connect(self, conn: Any) -> None:
        pass

    def said(self) -> list[str]:
        return sorted(u.content.text for u in self.updates if u.session_update == "agent_message_chunk")

    async def until_said(self, *texts: str) -> None:
        async with asyncio.timeout(DEADLINE):
            while not set(texts) <= set(self.said()):
                self.changed.clear()
                await self.changed.wait()


@pytest.mark.parametrize("transport", ["ws", "http"])
async def test_python(served: Served, transport: str) -> None:
    opened: list[httpx.AsyncClient] = []  # the SDK leaves it open: it is not its own

    async def connect(client: PythonClient) -> Any:
        if transport == "ws":
            stream = await create_websocket_stream(served.url.replace("http", "ws") + "/acp")
        else:
            http = httpx.AsyncClient(timeout=httpx.Timeout(None))
            opened.append(http)
            stream = create_http_stream(served.url + "/acp", client=http)
        connection = acp.connect_to_agent(client, stream)  # type: ignore[arg-type]
        hello = await connection.initialize(protocol_version=1)
        assert hello.protocol_version == 1 and hello.agent_capabilities.load_session
        return connection

    def text(words: str) -> list[Any]:
        return [acp.text_block(words)]

    client = PythonClient()
    connection = await connect(client)
    created = await connection.new_session(cwd=str(served.workspace), mcp_servers=[])
    session_id = created.session_id
    assert created.modes.current_mode_id == "code"
    answer = await connection.prompt(session_id=session_id, prompt=text("say hello"))
    assert answer.stop_reason == "end_turn"
    await client.until_said("hello")
    answer = await connection.prompt(session_id=session_id, prompt=text("ask list files\nsay listed"))
    assert answer.stop_reason == "end_turn"
    await client.until_said("listed")

    long = asyncio.get_running_loop().create_task(
        connection.prompt(session_id=session_id, prompt=text("say going\nsleep 60000"))
    )
    await client.until_said("going")
    queued = asyncio.get_running_loop().create_task(connection.prompt(session_id=session_id, prompt=text("say never")))
    answers = [long, queued]
    await asyncio.wait(answers, timeout=0.1)  # both are on their way
    await connection.cancel(session_id=session_id)
    assert [(await one).stop_reason for one in answers] == ["cancelled", "cancelled"]

    one = asyncio.get_running_loop().create_task(
        connection.prompt(session_id=session_id, prompt=text("say one\nsleep 100"))
    )
    await client.until_said("one")
    two = await connection.prompt(session_id=session_id, prompt=text("say two"))
    assert one.done() and two.stop_reason == "end_turn"
    await client.until_said("two")
    await connection.set_session_mode(session_id=session_id, mode_id="ask")
    listed = await connection.list_sessions()
    assert [s.session_id for s in listed.sessions] == [session_id]
    await connection.close()

    again = PythonClient()
    connection = await connect(again)
    loaded = await connection.load_session(cwd=str(served.workspace), session_id=session_id, mcp_servers=[])
    assert loaded.modes.current_mode_id == "ask"
    await again.until_said("hello", "listed", "going", "one", "two")
    assert "never" not in "".join(again.said())
    answer = await connection.prompt(session_id=session_id, prompt=text("say after"))
    assert answer.stop_reason == "end_turn"
    await again.until_said("after")
    await connection.close()
    for one in opened:
        await one.aclose()


# --- acpx ------------------------------------------------------------------------------------------------------------


async def test_acpx(served: Served, tmp_path: Path) -> None:
    """Attached over stdio: text, a tool with its permission, a session that is loaded, queue and cancel."""
    agent = " ".join(stdio(served))

    async def acpx(*arguments: str) -> str:
        command = (str(ACPX), "--agent", agent, "--cwd", str(served.workspace), *arguments)
        code, out, err = await run(*command, cwd=served.workspace, home=tmp_path)
        assert code == 0, (arguments, out, err)
        return out

    assert "hello acpx" in await acpx("exec", "say hello acpx")
    out = await acpx("--approve-all", "exec", "ask list files\nsay listed")
    assert "[tool] list files (completed)" in out and "listed" in out
    session_id = (await acpx("sessions", "new")).strip()
    assert session_id.startswith("ses_")
    assert "[done] end_turn" in await acpx("prompt", "say one")
    running = asyncio.get_running_loop().create_task(acpx("prompt", "say going\nsleep 60000"))
    async with served.events() as events:
        while not any(m.endswith("going") for m in await served.told(session_id)):
            await events.next()
    assert "[queued]" in await acpx("prompt", "--no-wait", "say queued")
    await acpx("cancel")
    assert "[done] cancelled" in await running
    await acpx("set-mode", "ask")
    await acpx("sessions", "close")
    assert await served.told(session_id) == [
        "user: say one",
        "assistant: one",
        "user: say going\nsleep 60000",
        "assistant: going",
        "user: say queued",
        "assistant: queued",
    ]


async def test_stdio_with_a_gateway_of_its_own(tmp_path: Path) -> None:
    """No gateway runs: ``trunkline acp`` is one, and ends with stdin; what was said is there the next time."""
    work = tmp_path / "work"
    work.mkdir()
    own = [sys.executable, "-W", "error", "-m", "gateway", "acp", "--data", str(tmp_path / "data")]
    own += ["--workspace", str(work), "--agent", f"demo={sys.executable} -m adapters.acp.demo --steer"]
    command = ("node", str(SDK), "1", "stdio", json.dumps(own), str(work))
    code, out, err = await run(*command, cwd=work, home=tmp_path)
    assert code == 0, err
    told = json.loads(out)
    assert told["text"]["said"] == "hello there"
    assert told["replay"]["agents"] == told["replay"]["live"]  # loaded by another process
    assert told["after"] == "end_turn"
