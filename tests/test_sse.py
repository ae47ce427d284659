"""Event streams: bytes pass as they are, and every stream ends when it must."""

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.types import Message

from adapters.sse import stream


class Client:
    """The other side of one response: what the server's ``receive`` and ``send`` would do."""

    def __init__(self, method: str = "GET", shutdown: asyncio.Event | None = None) -> None:
        self.sent: list[Message] = []
        self.gone = asyncio.Event()
        self._news = asyncio.Condition()
        app = SimpleNamespace(state=SimpleNamespace(shutdown=shutdown))
        self.scope = {"type": "http", "method": method, "path": "/event", "headers": [], "app": app}

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        async with self._news:
            self.sent.append(message)
            self._news.notify_all()

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(5), self._news:
            await self._news.wait_for(done)

    @property
    def bodies(self) -> list[bytes]:
        return [message["body"] for message in self.sent if message.get("body")]

    @property
    def ended(self) -> bool:
        return bool(self.sent) and self.sent[-1].get("more_body") is False


class Frames:
    """Yields what it is given, then waits; knows whether it was closed."""

    def __init__(self, *frames: bytes, stay: bool = True) -> None:
        self.frames = frames
        self.stay = stay
        self.closed = False
        self.waiting = asyncio.Event()

    async def __call__(self) -> AsyncIterator[bytes]:
        try:
            for frame in self.frames:
                yield frame
            self.waiting.set()
            if self.stay:
                await asyncio.Event().wait()
        finally:
            self.closed = True


def respond(frames: Frames, **options: Any) -> Any:
    return stream(frames(), **{"heartbeat": None, "heartbeat_seconds": 0, **options})


async def test_one_send_a_batch_and_nothing_encoded_again() -> None:
    client, frames = Client(), Frames(b"data: 1\n\ndata: 2\n\n", b"id: 3\ndata: \xc3\xa4\n\n", stay=False)
    await respond(frames)(client.scope, client.receive, client.send)
    assert client.bodies == list(frames.frames)
    assert client.ended and frames.closed


async def test_headers() -> None:
    client = Client()
    await respond(Frames(stay=False), headers={"x-own": "1"})(client.scope, client.receive, client.send)
    start = client.sent[0]
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    assert start["status"] == 200
    assert headers["content-type"].startswith("text/event-stream")
    assert headers["cache-control"] == "no-cache, no-transform"
    assert headers["x-accel-buffering"] == "no"
    assert headers["x-own"] == "1"
    assert "content-length" not in headers


@pytest.mark.parametrize("beat", [b": heartbeat\n\n", lambda: b": heartbeat\n\n"])
async def test_heartbeat(beat: Any) -> None:
    client, frames = Client(), Frames(b"data: 1\n\n")
    response = respond(frames, heartbeat=beat, heartbeat_seconds=0.01)
    async with asyncio.TaskGroup() as group:
        group.create_task(response(client.scope, client.receive, client.send))
        await client.until(lambda: client.bodies[:3] == [b"data: 1\n\n", b": heartbeat\n\n", b": heartbeat\n\n"])
        client.gone.set()


async def test_it_ends_when_the_client_leaves() -> None:
    client, frames = Client(), Frames(b"data: 1\n\n")
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(respond(frames)(client.scope, client.receive, client.send))
        await frames.waiting.wait()
        client.gone.set()
    assert frames.closed and not client.ended


async def test_it_ends_properly_on_shutdown() -> None:
    """With its last chunk: the client sees an end and not a broken connection."""
    shutdown = asyncio.Event()
    client, frames = Client(shutdown=shutdown), Frames(b"data: 1\n\n")
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(respond(frames)(client.scope, client.receive, client.send))
        await frames.waiting.wait()
        shutdown.set()
    assert frames.closed and client.ended
    assert sum(message.get("more_body") is False for message in client.sent) == 1


async def test_a_stream_that_begins_during_shutdown_ends_at_once() -> None:
    shutdown = asyncio.Event()
    shutdown.set()
    client = Client(shutdown=shutdown)
    async with asyncio.timeout(5):
        await respond(Frames())(client.scope, client.receive, client.send)
    assert client.ended


async def test_what_the_frames_raise_is_raised() -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        raise LookupError("lost")

    client = Client()
    with pytest.raises(LookupError, match="lost"):
        await stream(broken(), heartbeat=None, heartbeat_seconds=0)(client.scope, client.receive, client.send)
    assert not client.ended


async def test_head_opens_no_stream() -> None:
    client, frames = Client("HEAD"), Frames()
    await respond(frames)(client.scope, client.receive, client.send)
    assert client.ended and not client.bodies and not frames.waiting.is_set()
