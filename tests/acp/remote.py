"""For the tests of remote agents: servers of ACP as processes, and a proxy whose connections can be cut."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from adapters.acp.agent import AcpAgents
from gateway.agents import AgentConfig
from tests.acp.support import DEMO, ROOT, Driver
from tests.served import START, serve

PROGRAMS = Path(__file__).parent / "clients"
CLIENTS = ROOT / "tests" / "clients"


class Program:
    """A server process: its ``url``, and the lines that it printed."""

    def __init__(self, url: str, seen: list[str], kill: Callable[[], None] = lambda: None) -> None:
        self.url, self.seen, self.kill = url, seen, kill

    def at(self, kind: str) -> str:
        return self.url.replace("http", kind, 1)


@asynccontextmanager
async def trunkline(tmp: Path, cwd: Path, *more: str) -> AsyncIterator[Program]:
    """Another gateway, with the demo agent."""
    async with serve(tmp / "far", "--agent", "demo", "--workspace", str(cwd), *more) as served:
        yield Program(served.url + "/acp", served.log)


@asynccontextmanager
async def typescript(tmp: Path, port: int = 0) -> AsyncIterator[Program]:
    env = {"CLIENTS": str(CLIENTS), "PYTHONPATH": str(ROOT), "TRUNKLINE_DEMO_STATE": str(tmp / "far")}
    async with program("node", str(PROGRAMS / "far.mjs"), str(port), json.dumps(DEMO), **env) as found:
        yield found


@asynccontextmanager
async def python(tmp: Path, port: int = 0, **env: str) -> AsyncIterator[Program]:
    async with program(sys.executable, str(PROGRAMS / "far.py"), str(port), str(tmp / "far"), **env) as found:
        yield found


@asynccontextmanager
async def program(*command: str, **env: str) -> AsyncIterator[Program]:
    process = await asyncio.create_subprocess_exec(
        *command, env={"PATH": os.environ["PATH"], **env}, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    out = process.stdout
    seen: list[str] = []

    async def read() -> None:
        while line := await out.readline():
            seen.append(line.decode().strip())

    reader = None
    try:
        async with asyncio.timeout(START):
            while not (found := re.search(r"listening on (http://\S+)", (line := (await out.readline()).decode()))):
                assert line, "the server ended"
        reader = asyncio.get_running_loop().create_task(read())
        yield Program(found[1] + "/acp", seen, process.kill)
    finally:
        with suppress(ProcessLookupError):  # the agents that it started too: one that hangs ends with nobody
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        if reader:
            await reader


class Proxy:
    """Passes TCP connections on to ``to``. ``requests``: their first lines."""

    def __init__(self) -> None:
        self.port = 0
        self.to = 0
        self.busy = 0  # so many connections more are answered with 503
        self.swallow = b""  # the answer to what has these bytes is not passed on: the connection is cut
        self.requests: list[str] = []
        self._open: dict[asyncio.StreamWriter, asyncio.StreamWriter] = {}
        self._streams: set[asyncio.StreamWriter] = set()  # the server's ends of those whose last request is a GET

    def cut(self, only_streams: bool = False) -> int:
        """Reset open connections: all, or those that carry a GET. How many."""
        found = [pair for pair in self._open.items() if pair[1] in self._streams or not only_streams]
        for client, server in found:
            client.transport.abort()
            server.transport.abort()
        return len(found)

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.read(65536)
            if not head:
                return
            if self.busy > 0:
                self.busy -= 1
                self.requests.append(head.split(b"\r\n", 1)[0].decode())
                writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbusy")
                await writer.drain()
                return writer.close()
            upper, lower = await asyncio.open_connection("127.0.0.1", self.to)
        except OSError:
            writer.transport.abort()
            return
        self._open[writer] = lower
        swallowed = asyncio.Event()
        try:
            await asyncio.gather(self._up(head, reader, lower, swallowed), self._down(upper, writer, swallowed))
        except OSError:
            pass
        finally:
            self._open.pop(writer, None)
            self._streams.discard(lower)
            lower.transport.abort()
            writer.transport.abort()

    async def _up(
        self, data: bytes, source: asyncio.StreamReader, sink: asyncio.StreamWriter, swallowed: asyncio.Event
    ) -> None:
        while data:
            if data.startswith((b"GET ", b"POST ", b"DELETE ")):
                self.requests.append(data.split(b"\r\n", 1)[0].decode())
                (self._streams.add if data.startswith(b"GET ") else self._streams.discard)(sink)
            if self.swallow and self.swallow in data:
                swallowed.set()
            sink.write(data)
            await sink.drain()
            data = await source.read(65536)
        sink.close()

    async def _down(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, swallowed: asyncio.Event) -> None:
        while data := await source.read(65536):
            if swallowed.is_set():
                return sink.transport.abort()
            sink.write(data)
            await sink.drain()
        sink.close()


@asynccontextmanager
async def proxy(url: str, at: int = 0) -> AsyncIterator[Proxy]:
    """In front of ``url``, an ``http://127.0.0.1:PORT/…``, on a free port or ``at`` one."""
    one = Proxy()
    match = re.search(r":(\d+)/", url)
    assert match
    one.to = int(match[1])
    server = await asyncio.start_server(one._one, "127.0.0.1", at)
    one.port = server.sockets[0].getsockname()[1]
    try:
        yield one
    finally:
        one.cut()
        server.close()


@asynccontextmanager
async def port(tmp: Path, url: str, pool: AcpAgents | None = None, **fields: Any) -> AsyncIterator[Driver]:
    """A port to the remote agent, as ``support.demo`` is to the local one; not started."""
    driver = Driver(AgentConfig(**{"name": "far", "url": url, **fields}), tmp, pool)
    try:
        yield driver
    finally:
        await driver.port.close()
        if pool is None:
            await driver.pool.close()
