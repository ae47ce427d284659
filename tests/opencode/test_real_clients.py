"""The real clients of this API against a gateway as people run it: ``opencode run --attach``, ``opencode attach`` (the
terminal client, in tmux) and the npm SDK. They are installed by ``make clients``.
"""

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.served import Served, serve

CLIENTS = Path(__file__).resolve().parent.parent / "clients"
OPENCODE = CLIENTS / "node_modules" / ".bin" / "opencode"
DEADLINE = 60  # seconds; a loaded machine is slow, not wrong

pytestmark = pytest.mark.usefixtures("npm_clients")


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serve(tmp_path) as one:
        yield one


def environment(home: Path) -> dict[str, str]:
    """A home of its own: nothing of the person's configuration, no look for updates."""
    home.mkdir(parents=True, exist_ok=True)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_DATA_HOME": str(home / "data"),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
    }


async def run(*command: str, cwd: Path, env: dict[str, str]) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        env=env,
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


async def test_run_attach_refuses_what_the_agent_asks(tmp_path: Path, served: Served) -> None:
    """``run`` answers a permission with no by itself: the turn goes on without the tool."""
    command = (str(OPENCODE), "run", "--attach", served.url, "ask", "Deploy")
    code, out, err = await run(*command, cwd=served.workspace, env=environment(tmp_path / "home"))
    assert code == 0 and "auto-rejecting" in out + err, err
    listed = (await served.http.get("/session")).json()
    messages = (await served.http.get(f"/session/{listed[0]['id']}/message")).json()
    tools = [part for message in messages for part in message["parts"] if part["type"] == "tool"]
    assert [tool["state"]["status"] for tool in tools] == ["error"]


# --- opencode attach -----------------------------------------------------------------------------------------------


class Terminal:
    """A program in a terminal of 110 × 40: what it shows, and keys for it. A tmux server of its own."""

    def __init__(self, cwd: Path, env: dict[str, str]) -> None:
        self._sockets = tempfile.mkdtemp(prefix="tl-")  # a socket's path must be short
        self._cwd, self._env = cwd, env | {"TMUX_TMPDIR": self._sockets}

    async def tmux(self, *arguments: str) -> str:
        command = ("tmux", "-L", "test", "-f", "/dev/null", *arguments)
        code, out, err = await run(*command, cwd=self._cwd, env=self._env)
        assert code == 0, err
        return out

    async def start(self, *command: str) -> None:
        await self.tmux("new-session", "-d", "-x", "110", "-y", "40", "--", *command)

    async def close(self) -> None:
        await run("tmux", "-L", "test", "kill-server", cwd=self._cwd, env=self._env)
        shutil.rmtree(self._sockets, ignore_errors=True)

    async def screen(self) -> str:
        return await self.tmux("capture-pane", "-p")

    async def until(self, *texts: str, gone: str = "") -> str:
        """The screen when it shows all of these (and no more of ``gone``)."""
        shown = ""
        try:
            async with asyncio.timeout(DEADLINE):
                while True:
                    shown = await self.screen()
                    if all(text in shown for text in texts) and not (gone and gone in shown):
                        return shown
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"not shown: {texts} (or still: {gone!r}) in\n{shown}") from None

    async def keys(self, *keys: str) -> None:
        await self.tmux("send-keys", *keys)

    async def enter(self, text: str) -> None:
        """Type, see it, press Enter."""
        await self.tmux("send-keys", "-l", text)
        await self.until(text)
        await self.keys("Enter")


@pytest.fixture
async def terminal(tmp_path: Path, served: Served) -> AsyncIterator[Terminal]:
    assert shutil.which("tmux"), "tmux is not installed"
    one = Terminal(served.workspace, environment(tmp_path / "home"))
    await one.start(str(OPENCODE), "attach", served.url)
    try:
        await one.until("Ask anything")
        yield one
    finally:
        await one.close()


async def test_the_terminal_client(terminal: Terminal, served: Served) -> None:
    """Prompt, permission, a prompt that waits, abort."""
    await terminal.enter("say hello terminal")
    await terminal.until("┃  say hello terminal", "     hello terminal")

    await terminal.enter("ask Deploy")
    await terminal.until("Permission required", "Allow once", "$ Deploy")
    await terminal.keys("Enter")
    await terminal.until("Deploy: done", gone="Permission required")

    await terminal.enter("stream 100000 20")
    await terminal.until("chunk 3 chunk 4", "esc interrupt")
    await terminal.enter("say queued words")
    await terminal.until("QUEUED")
    await terminal.keys("Escape")
    await terminal.until("again to interrupt")
    await terminal.keys("Escape")
    await terminal.until("interrupted", gone="esc interrupt")

    (session,) = (await served.http.get("/session")).json()
    assert (await served.http.get("/session/status")).json() == {}
    messages = (await served.http.get(f"/session/{session['id']}/message")).json()
    assert messages[-1]["info"]["role"] == "user"  # held, not lost
    assert messages[-2]["info"]["error"]["name"] == "MessageAbortedError"
    assert [m["parts"][0]["text"] for m in messages if m["info"]["role"] == "user"] == [
        "say hello terminal",
        "ask Deploy",
        "stream 100000 20",
        "say queued words",
    ]

    # the next prompt goes first, then what was held; each is shown once
    await terminal.enter("say next words")
    screen = await terminal.until("     next words", "     queued words")
    assert screen.count("┃  say queued words") == 1 and screen.count("┃  say next words") == 1


async def test_a_pending_permission_is_shown_to_a_terminal_that_attaches(tmp_path: Path, served: Served) -> None:
    assert shutil.which("tmux"), "tmux is not installed"
    session_id = await served.session()
    async with served.events() as frames:
        await served.send(session_id, "ask Deploy")
        await frames.until("permission.asked", sessionID=session_id)
    terminal = Terminal(served.workspace, environment(tmp_path / "home"))
    await terminal.start(str(OPENCODE), "attach", served.url, "-s", session_id)
    try:
        await terminal.until("Permission required", "$ Deploy")
        await terminal.keys("Enter")
        await terminal.until("Deploy: done", gone="Permission required")
    finally:
        await terminal.close()


async def test_a_terminal_that_lost_its_connection_shows_what_it_missed(tmp_path: Path, served: Served) -> None:
    """It re-opens only its stream and fetches nothing: all of it comes again on the stream."""
    assert shutil.which("tmux"), "tmux is not installed"
    async with cut_proxy(served.url) as proxy:
        terminal = Terminal(served.workspace, environment(tmp_path / "home"))
        await terminal.start(str(OPENCODE), "attach", proxy.url)
        try:
            await terminal.until("Ask anything")
            await terminal.enter("say before")
            await terminal.until("     before")
            (session,) = (await served.http.get("/session")).json()
            proxy.cut()
            await served.post(session["id"], "say while you were away")
            proxy.mend()
            screen = await terminal.until("     while you were away")
            assert screen.count("┃  say while you were away") == 1 and screen.count("┃  say before") == 1
            await terminal.enter("say after")
            await terminal.until("     after")
        finally:
            await terminal.close()


class CutProxy:
    """Passes TCP connections on; ``cut`` drops all of them and lets no new one in until ``mend``."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.removeprefix("http://").partition(":")
        self._port = int(port)
        self._open: set[asyncio.StreamWriter] = set()
        self._broken = False
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._broken:
            writer.transport.abort()
            return
        up_reader, up_writer = await asyncio.open_connection(self._host, self._port)
        self._open |= {writer, up_writer}
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._copy(reader, up_writer))
                tasks.create_task(self._copy(up_reader, writer))
        finally:
            self._open -= {writer, up_writer}

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
        except OSError:
            pass
        finally:
            target.close()

    def cut(self) -> None:
        self._broken = True
        for writer in self._open:
            writer.transport.abort()

    def mend(self) -> None:
        self._broken = False


class cut_proxy:
    def __init__(self, target: str) -> None:
        self._proxy = CutProxy(target)

    async def __aenter__(self) -> CutProxy:
        self._server = await asyncio.start_server(self._proxy.serve, "127.0.0.1", 0)
        self._proxy.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self._proxy

    async def __aexit__(self, *_: object) -> None:
        self._proxy.cut()
        self._server.close()
        await self._server.wait_closed()


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
