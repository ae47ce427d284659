"""``gateway/heads``: a request's head has a size and a time; all else passes as it did."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send
from websockets.asyncio.client import connect

from gateway import heads
from gateway.heads import DISCARDED, MAX_HEAD, BoundedHeads
from gateway.server import Server, listen
from gateway.tasks import Supervisor

GET = b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n"


class App:
    def __init__(self) -> None:
        self.hold = asyncio.Event()
        self.hold.set()
        self.asked: asyncio.Queue[str] = asyncio.Queue()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            while (message := await receive())["type"] == "websocket.receive":
                await send({"type": "websocket.send", "text": message["text"].upper()})
            return
        request = Request(scope, receive)
        self.asked.put_nowait(request.url.path)
        size = len(await request.body())
        await self.hold.wait()
        await self.answer(request, size)(scope, receive, send)

    def answer(self, request: Request, size: int) -> Response:
        return PlainTextResponse(f"{size} {len(request.headers)} {len(request.url.path)}")


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, *parts: bytes) -> None:
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()

    async def answer(self) -> tuple[int, bytes]:
        async with asyncio.timeout(10):
            head = await self.reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            return int(head.split()[1]), await self.reader.readexactly(size)

    async def closed(self) -> bool:
        async with asyncio.timeout(10):
            try:
                return await self.reader.read() == b""
            except ConnectionResetError:
                return True


class Running:
    def __init__(self, app: App, server: Server, port: int) -> None:
        self.app, self.server, self.port = app, server, port

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield Client(reader, writer)
        finally:
            writer.close()

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not true():
                await asyncio.sleep(0.005)


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    app, ready = App(), asyncio.Event()
    sock = listen("127.0.0.1", 0)
    config = uvicorn.Config(app, http=BoundedHeads, ws="websockets-sansio", lifespan="off", log_config=None)
    server = Server(config, ready.set, asyncio.Event())
    tasks = Supervisor()
    task = tasks.start(server.serve(sockets=[sock]), name="server")
    await ready.wait()
    try:
        yield Running(app, server, sock.getsockname()[1])
    finally:
        server.should_exit = server.force_exit = True
        await task
        sock.close()


def head(size: int, url: int = 2) -> bytes:
    """A whole head of exactly so many bytes."""
    start = b"GET /" + b"u" * (url - 1) + b" HTTP/1.1\r\nHost: localhost\r\n"
    lines, rest = divmod(size - len(start) - 2, 100)
    fill = b"".join(b"X-%05d: " % i + b"a" * 89 + b"\r\n" for i in range(lines - 1))
    return start + fill + b"X-Last: " + b"a" * (90 + rest) + b"\r\n" + b"\r\n"


async def test_a_head_up_to_the_limit_is_served(running: Running) -> None:
    whole = head(MAX_HEAD)
    assert len(whole) == MAX_HEAD
    async with running.client() as client:
        for parts in ([whole], [whole[:10], whole[10:60_000], whole[60_000:]], [whole]):
            await client.send(*parts)
            assert (await client.answer())[0] == 200
        await client.send(head(60_000, url=50_000))
        assert (await client.answer())[1].endswith(b" 50000")


@pytest.mark.parametrize("pieces", [1, 7])
@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (head(MAX_HEAD + 1), 431),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 3_000_000, 431),
        (b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 500_000, 431),
        (b"GET /" + b"a" * 3_000_000, 414),
        (b"\r\n" * 1_000_000, 431),
    ],
)
async def test_a_larger_one_is_refused(running: Running, sent: bytes, status: int, pieces: int) -> None:
    step = len(sent) // pieces + 1
    async with running.client() as client:
        await client.send(*(sent[at : at + step] for at in range(0, len(sent), step)))
        got, body = await client.answer()
        assert got == status and b'"error"' in body and b"65536" in body
        assert await client.closed()
    assert running.app.asked.empty()


async def test_also_after_other_requests(running: Running) -> None:
    async with running.client() as client:
        await client.send(GET)
        assert (await client.answer())[0] == 200
        await client.send(b"GET /" + b"a" * 100_000)
        assert (await client.answer())[0] == 414
        assert await client.closed()


async def test_who_writes_on_is_cut_off(running: Running) -> None:
    async with running.client() as client:
        with pytest.raises(ConnectionError):
            for _ in range(20 * DISCARDED // 65_536):
                await client.send(b"a" * 65_536)
    await running.until(lambda: not running.server.server_state.connections)


async def test_bodies_do_not_count(running: Running) -> None:
    post = b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3000000\r\n\r\n" + b"b" * 3_000_000
    chunked = b"POST /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunked += b"30d40\r\n" + b"b" * 200_000 + b"\r\n0\r\n\r\n"
    async with running.client() as client:
        for _ in range(3):
            await client.send(post)
            assert (await client.answer())[1].startswith(b"3000000 ")
            await client.send(chunked)
            assert (await client.answer())[1].startswith(b"200000 ")


async def test_pipelined_requests(running: Running) -> None:
    async with running.client() as client:
        await client.send(GET * 40 + head(60_000) + b"\r\n" + GET * 2000)
        for _ in range(2041):
            assert (await client.answer())[0] == 200


async def test_a_head_that_does_not_come(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "HEAD_SECONDS", 0.05)
    async with running.client() as client:
        assert await client.closed()  # an idle connection: no answer to a question that was not asked
    async with running.client() as client:
        await client.send(b"GET / HT")
        assert (await client.answer())[0] == 408
        assert await client.closed()
    async with running.client() as client:
        await client.send(b"GET /x HTTP/1.1\r\nHost: loc")
        assert (await client.answer())[0] == 408
    assert running.app.asked.empty()


async def test_the_next_head_has_its_own_deadline(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "HEAD_SECONDS", 0.1)
    async with running.client() as client:
        await client.send(GET)
        assert (await client.answer())[0] == 200
        with pytest.raises(TimeoutError):  # nothing began: the connection is kept
            async with asyncio.timeout(0.3):
                await client.reader.read(1)
        await client.send(GET + b"GET /y HT")
        assert (await client.answer())[0] == 200
        assert (await client.answer())[0] == 408
        assert await client.closed()


async def test_no_deadline_while_an_answer_is_awaited(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for that answer, nor for an empty line behind its body, nor for a request that was begun behind it."""
    monkeypatch.setattr(heads, "HEAD_SECONDS", 0.05)
    running.app.hold.clear()
    async with running.client() as client, running.client() as other:
        await client.send(GET + b"\r\n")
        await other.send(GET + b"GET /y HTTP/1.1\r\n")
        for c in (client, other):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.15):
                    await c.reader.read(1)
    async with running.client() as client:
        await client.send(GET + b"GET /y HTTP/1.1\r\n")
        await running.app.asked.get()
        monkeypatch.setattr(heads, "HEAD_SECONDS", 10)
        running.app.hold.set()
        assert (await client.answer())[0] == 200
        await client.send(b"Host: localhost\r\n\r\n")
        assert (await client.answer())[0] == 200


async def test_web_sockets_live_longer(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "HEAD_SECONDS", 0.05)
    async with connect(f"ws://127.0.0.1:{running.port}/ws") as ws:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await ws.recv()
        await ws.send("x" * 200_000)
        assert await ws.recv() == "X" * 200_000
