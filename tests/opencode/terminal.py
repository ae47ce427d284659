"""The real clients as programs: a home of their own, a terminal (tmux), a connection that can be cut."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.served import Served

CLIENTS = Path(__file__).resolve().parent.parent / "clients"
OPENCODE = CLIENTS / "node_modules" / ".bin" / "opencode"
DEADLINE = 60  # seconds; a loaded machine is slow, not wrong


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


@contextmanager
def real_server(folder: Path, settings: dict[str, Any] | None = None) -> Iterator[str]:
    """The url of a real ``opencode serve`` in this folder."""
    config = folder / "home" / "config" / "opencode"
    config.mkdir(parents=True)
    (config / "opencode.json").write_text(json.dumps(settings or {}))
    (folder / "work").mkdir()
    process = subprocess.Popen(
        [str(OPENCODE), "serve", "--hostname", "127.0.0.1", "--port", "0"],
        cwd=folder / "work",
        env=environment(folder / "home"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"listening on (http://\S+)", line):
                break
        else:
            raise AssertionError("opencode serve did not start")
        yield found[1]
    finally:
        process.kill()  # it may take its time to end by itself
        process.communicate()


class Terminal:
    """A program in a terminal of 110 × 40: what it shows, and keys for it. A tmux server of its own."""

    def __init__(self, cwd: Path, env: dict[str, str]) -> None:
        self._sockets = tempfile.mkdtemp(prefix="tl-")  # a socket's path must be short
        self._cwd, self._env = cwd, env | {"TMUX_TMPDIR": self._sockets}
        self._pid = 0

    async def tmux(self, *arguments: str) -> str:
        command = ("tmux", "-L", "test", "-f", "/dev/null", *arguments)
        code, out, err = await run(*command, cwd=self._cwd, env=self._env)
        assert code == 0, err
        return out

    async def start(self, *command: str) -> None:
        pane = ("-P", "-F", "#{pane_pid}")
        self._pid = int(await self.tmux("new-session", "-d", *pane, "-x", "110", "-y", "40", "--", *command))

    async def close(self) -> None:
        """The program too: one whose terminal is gone may run on."""
        with suppress(ProcessLookupError):
            if self._pid:
                os.kill(self._pid, signal.SIGKILL)
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


@asynccontextmanager
async def attached(served: Served, home: Path, *arguments: str, url: str = "", **env: str) -> AsyncIterator[Terminal]:
    """``opencode attach`` in a terminal. ``url``: where, if not straight to the gateway."""
    assert shutil.which("tmux"), "tmux is not installed"
    one = Terminal(served.workspace, environment(home) | env)
    try:
        await one.start(str(OPENCODE), "attach", url or served.url, *arguments)
        yield one
    finally:
        await one.close()


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


@asynccontextmanager
async def cut_proxy(target: str) -> AsyncIterator[CutProxy]:
    proxy = CutProxy(target)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        proxy.cut()
        server.close()
        await server.wait_closed()
