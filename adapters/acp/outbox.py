"""The frames of one SSE stream of an ACP connection, kept for a while after they were sent.

This is the design's one exception to "no adapter keeps a message": JSON-RPC answers and requests are in no other place,
so a stream that is cut can only go on from here. Both what waits and what is kept is bounded. No I/O.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

HIGH = 1 << 20  # bytes that wait for the client before who sends has to wait
KEPT = 8 << 20  # bytes that were sent and are kept for a reconnect
FULL = 64 << 20  # bytes that wait at most: answers do not wait for room
WRITE = 256 << 10  # bytes of one write, about


class Lost(Exception):
    """A stream cannot go on after the frame that was named."""


class Outbox:
    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()  # encoded; the first one has the number ``_first``
        self._first = 1
        self._sent = 0  # the number of the newest frame that a reader has taken
        self._waiting = 0  # bytes after ``_sent``
        self._kept = 0  # bytes up to it
        self._reader: Reader | None = None
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self.closed = False
        self.opened = False

    def __repr__(self) -> str:
        return f"<Outbox {self._first}..{self._sent}..{self._last} waiting={self._waiting}>"

    @property
    def _last(self) -> int:
        return self._first + len(self._frames) - 1

    @property
    def reading(self) -> bool:
        return self._reader is not None

    @property
    def full(self) -> bool:
        return self._waiting > FULL

    def push(self, frame: str) -> None:
        data = f"id: {self._last + 1}\ndata: {frame}\n\n".encode()
        self._frames.append(data)
        self._waiting += len(data)
        if self._waiting > HIGH:
            self._room.clear()
        self._wake.set()

    async def room(self) -> None:
        """Wait until the client has read on, or the stream is closed."""
        await self._room.wait()

    def check(self, after: int | None) -> None:
        """Raises Lost when a reader cannot go on after this frame: it is older than what is kept, or was never sent."""
        if after is not None and not self._first - 1 <= after <= self._last:
            raise Lost

    def read(self, after: int | None, *, say_start: bool = False) -> "Reader":
        """Frames as they come, after a frame (None: after all that were sent). A reader that comes later ends this
        one; it is the reader from now on, also before it is asked for its first frame.

        ``say_start``: begin with the id that it goes on after, without data, which is no event: a stream that is cut
        before its first frame can go on too.
        """
        self.opened = True
        reader = self._reader = Reader(self, self._sent if after is None else after, say_start)
        self._wake.set()
        return reader

    def pieces(self, position: int) -> list[bytes]:
        """Some frames after a position, not many."""
        found: list[bytes] = []
        size = 0
        for index in range(position + 1 - self._first, len(self._frames)):
            found.append(self._frames[index])
            size += len(found[-1])
            if size > WRITE:
                break
        return found

    async def more(self) -> None:
        self._wake.clear()
        await self._wake.wait()

    def leave(self, reader: "Reader") -> None:
        if self._reader is reader:
            self._reader = None

    def current(self, reader: "Reader") -> bool:
        return self._reader is reader and not self.closed

    def taken(self, position: int) -> None:
        while self._sent < position:
            self._sent += 1
            size = len(self._frames[self._sent - self._first])
            self._waiting -= size
            self._kept += size
        while self._kept > KEPT and self._first <= self._sent:
            self._kept -= len(self._frames.popleft())
            self._first += 1
        if self._waiting <= HIGH // 2:
            self._room.set()

    def close(self) -> None:
        self.closed = True
        self._room.set()
        self._wake.set()


class Reader(AsyncIterator[bytes]):
    """One reading of an outbox: whole frames, many in one piece."""

    def __init__(self, outbox: Outbox, position: int, say_start: bool) -> None:
        self._outbox = outbox
        self._position = position
        self._told = 0  # frames of the last piece, which is on its way when the next is asked for
        self._start = b"id: %d\n\n" % position if say_start else b""

    async def __anext__(self) -> bytes:
        outbox = self._outbox
        self._position += self._told
        self._told = 0
        if outbox.current(self):
            outbox.taken(self._position)
            if self._start:
                start, self._start = self._start, b""
                return start
        while outbox.current(self):
            pieces = outbox.pieces(self._position)
            if pieces:
                self._told = len(pieces)
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)
            await outbox.more()
        await self.aclose()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self._outbox.leave(self)
