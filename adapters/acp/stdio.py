"""ACP on stdin and stdout (``trunkline acp``): carried to a running gateway's WebSocket, or served in this process.

Stdout carries JSON-RPC and nothing else; what people should read goes to stderr.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import uvloop
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from adapters.acp import rpc
from adapters.acp.server import Server
from gateway.controller import SessionController
from gateway.settings import Settings

READ = 256 * 1024
TRY = 2.0  # seconds to find out whether a gateway runs here
OPEN = 15.0  # seconds for one that was named

InProcess = Callable[[], AbstractAsyncContextManager[SessionController]]


class CannotAttach(Exception):
    """One line for people."""


@dataclass(frozen=True)
class Options:
    """``url``: the gateway to attach to; empty: the one that runs at the settings' address, else one in here."""

    settings: Settings
    agent: str = ""
    url: str = ""
    token: str = ""
    look: bool = True  # whether to look for a running one


def run(options: Options, in_process: InProcess) -> int:
    """Serve stdin until it ends; the exit status. Raises CannotAttach, and what starting a gateway raises."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(options, in_process))


async def _run(options: Options, in_process: InProcess) -> int:
    socket = await _attach(options)
    pipe = Pipe(options.settings.max_body)
    if socket is not None:
        async with socket:
            return await _relay(socket, pipe)
    async with in_process() as controller:
        await _serve(Server(controller, options.settings), pipe, options.agent)
    return 0


# --- attached --------------------------------------------------------------------------------------------------------


def address(url: str, agent: str) -> str:
    """The WebSocket address of a gateway's ACP endpoint. Raises CannotAttach for what is no URL of one."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    scheme = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}.get(parts.scheme)
    if scheme is None or not parts.netloc:
        raise CannotAttach(f"--url {url}: expected http://HOST:PORT, as the gateway says when it starts")
    path = parts.path.rstrip("/")
    if not path.endswith("/acp") and "/acp/" not in path:
        path += "/acp"
    if agent and path.endswith("/acp"):
        path += f"/{quote(agent, safe='')}"
    return f"{scheme}://{parts.netloc}{path}"


async def _attach(options: Options) -> ClientConnection | None:
    """A connection to the gateway that was named or that runs here; None: there is none."""
    if not options.url and not options.look:
        return None
    settings = options.settings
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    named = f"[{host.strip('[]')}]" if ":" in host else host
    url = address(options.url or f"http://{named}:{settings.port}", options.agent)
    headers = {"Authorization": f"Bearer {options.token}"} if options.token else {}
    try:
        return await connect(
            url,
            additional_headers=headers,
            max_size=None,
            compression=None,
            proxy=None,
            open_timeout=OPEN if options.url else TRY,
        )
    except InvalidHandshake as error:
        if not options.url and "404" in str(error):
            return None  # something else listens there
        hint = ": set TRUNKLINE_TOKEN" if "401" in str(error) else ""
        raise CannotAttach(f"{url}: {error}{hint}") from None
    except (OSError, InvalidURI, TimeoutError) as error:
        if options.url:
            raise CannotAttach(f"{url}: {error or 'no answer'}") from None
        return None


async def _relay(socket: ClientConnection, pipe: "Pipe") -> int:
    """Lines to frames and frames to lines, unread. Ends with stdin (0) or with the gateway (1)."""

    async def there() -> None:
        async for line in pipe.lines():
            if isinstance(line, rpc.Overlong):
                await pipe.send(too_long(line.limit))
            else:
                await socket.send(line, text=True)

    async def back() -> None:
        async for frame in socket:
            await pipe.send(frame if isinstance(frame, str) else frame.decode())

    async with asyncio.TaskGroup() as group:
        lines = group.create_task(_until_closed(there()))
        frames = group.create_task(_until_closed(back()))
        done, _ = await asyncio.wait({lines, frames}, return_when=asyncio.FIRST_COMPLETED)
        ended = lines in done and frames not in done
        for task in (lines, frames):
            task.cancel()
    return 0 if ended else 1


async def _until_closed(work: Coroutine[Any, Any, None]) -> None:
    with suppress(ConnectionClosed):
        await work


# --- in this process -------------------------------------------------------------------------------------------------


async def _serve(server: Server, pipe: "Pipe", agent: str) -> None:
    connection = server.connect(pipe, agent, "local")
    try:
        async for line in pipe.lines():
            if isinstance(line, rpc.Overlong):
                await connection.overlong(line.limit)
            else:
                await connection.receive(line)
    finally:
        await connection.close()


def too_long(limit: int) -> str:
    why = f"the message is larger than {limit} bytes"
    return rpc.Peer.error(None, rpc.INVALID_REQUEST, why).decode().rstrip("\n")


# --- stdin and stdout ------------------------------------------------------------------------------------------------


class Pipe:
    """The process's own stdin and stdout, whatever they are: pipes, files, a terminal. Both in threads."""

    def __init__(self, limit: int) -> None:
        self._lines = rpc.Lines(limit)
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[bytes] = asyncio.Queue(4)
        self._writing = asyncio.Lock()
        self._waiting: list[bytes] = []
        self._closed = False
        # A daemon: nothing ends a read from a terminal.
        threading.Thread(target=self._read, name="stdin", daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(0, READ)
            except OSError:
                data = b""
            try:
                asyncio.run_coroutine_threadsafe(self._queue.put(data), self._loop).result()
            except (RuntimeError, asyncio.CancelledError):
                return  # the loop has ended
            if not data:
                return

    async def lines(self) -> AsyncIterator[bytes | rpc.Overlong]:
        """Lines until stdin ends, a last one without a newline too; blank ones are left out."""
        while data := await self._queue.get():
            for line in self._lines.feed(data):
                if isinstance(line, rpc.Overlong) or (line and not line.isspace()):
                    yield line
        for line in self._lines.feed(b"\n"):
            if isinstance(line, rpc.Overlong) or (line and not line.isspace()):
                yield line

    async def send(self, frame: str, session_id: str = "", root_id: str = "") -> None:
        """Write; what others send meanwhile goes with the next write."""
        self._waiting.append(frame.encode() + b"\n")
        async with self._writing:
            if self._waiting and not self._closed:
                data, self._waiting = b"".join(self._waiting), []
                self._closed = not await asyncio.to_thread(_write, data)

    async def answer(self, frame: str, session_id: str, establishes: bool) -> None:
        await self.send(frame)

    def close(self) -> None:
        """Nothing to do: stdout ends with the process."""


def _write(data: bytes) -> bool:
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(1, view) :]
    except OSError:
        return False
    return True
