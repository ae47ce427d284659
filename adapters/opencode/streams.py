"""The open event streams: a reader's frames from where it left off, and waiting until all have written so far.

``opencode run --attach`` stops reading when its POST is answered, so an answer waits for the streams (``flushed``).
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable

from adapters.opencode import frames as fr
from adapters.opencode.snapshots import SERIAL, Snapshot, Snapshots
from adapters.opencode.translate import Translator
from adapters.opencode.wire import Event
from gateway.controller import SessionController
from gateway.core.errors import Limit
from gateway.core.ids import event_id
from gateway.log import STALE, Closed, Entry, Subscription

HEARTBEAT = 10.0  # seconds of silence, as the real server
FEW, MANY = 64, 4096  # entries of the log that are read at once: by what they weigh
BATCH = 512 << 10  # bytes
FLUSH = 1.0  # seconds that an answer waits for the slowest stream, once
SETTLE = 0.05  # seconds that a reader of /event gets to read what was written before its answer


class Stream:
    """One reader. ``written``: everything up to this position of the log was handed to its socket."""

    def __init__(self, kind: fr.Kind, directory: str) -> None:
        self.kind = kind
        self.directory = directory
        self.written = -1
        self.slow = False  # it held an answer back for the whole time: nobody waits for it until it has caught up
        self.waiters: list[tuple[int, asyncio.Future[None]]] = []

    def wrote(self, position: int) -> None:
        self.written = position
        self.slow = False
        if self.waiters:
            for target, future in self.waiters:
                if target <= position and not future.done():
                    future.set_result(None)
            self.waiters = [(t, f) for t, f in self.waiters if not f.done()]

    def ended(self) -> None:
        for _, future in self.waiters:
            if not future.done():
                future.set_result(None)


class Reading:
    """The frames of an open stream. It has its place from the beginning, and gives it up at ``aclose``, read or not."""

    def __init__(self, stream: Stream, frames: AsyncGenerator[bytes, None], leave: Callable[[], None]) -> None:
        self.stream = stream
        self._frames = frames
        self._leave = leave

    def __aiter__(self) -> "Reading":
        return self

    async def __anext__(self) -> bytes:
        return await anext(self._frames)

    async def aclose(self) -> None:
        try:
            await self._frames.aclose()
        finally:
            self._leave()


class Streams:
    def __init__(
        self,
        controller: SessionController,
        translator: Translator,
        limit: int,
        news: Callable[[Entry], bool] | None = None,
    ) -> None:
        """``news``: whether an entry gives clients a reason to read again what there is to choose from."""
        self._controller = controller
        self._frames = fr.Frames(translator, controller.log.epoch, news)
        self._snapshots = Snapshots(controller, translator, self._frames)
        self._limit = limit
        self._open: set[Stream] = set()

    def __repr__(self) -> str:
        return f"<Streams {len(self._open)} open, {self._snapshots}>"

    def open(self, kind: fr.Kind, directory: str, cursor: str) -> Reading:
        """A new stream; pieces of many frames as one ``bytes`` each. ``cursor`` is empty for a new reader.

        Raises ClientError for a malformed cursor and Limit for one stream too many, before anything is sent.
        """
        log = self._controller.log
        start = fr.parse(log, cursor) if cursor else None
        if len(self._open) >= self._limit:
            raise Limit(f"{self._limit} event streams are open already: close some")
        reader = log.subscribe(after=log.position if start is None else start.position)
        stream = Stream(kind, directory)
        self._open.add(stream)

        def leave() -> None:
            reader.close()
            self._open.discard(stream)
            stream.ended()

        return Reading(stream, self._run(stream, reader, start), leave)

    async def _run(self, stream: Stream, reader: Subscription, start: fr.Cursor | None) -> AsyncGenerator[bytes, None]:
        log, encode, kind = self._controller.log, self._frames.of_entry, stream.kind
        skip = 0
        shown: Snapshot | None = None
        if start is None or start.position == STALE:
            number = 0
            if start is not None and start.in_snapshot:
                shown = self._snapshots.find(start, kind, stream.directory)
                number = start.in_snapshot % SERIAL + 1 if shown is not None else 0
            if shown is None:
                shown = await self._snapshots.get(
                    kind, stream.directory, start is None, () if start is None else start.place
                )
            head = self._own(stream, "server.connected", shown.cursor(number - 1 if number else 0))
            if number <= 1 and start is not None and not shown.whose[2]:
                head += self._gap(stream, shown)
            yield head
            for piece in self._snapshots.pieces(shown, number):
                yield piece
                await asyncio.sleep(0)
            reader.position = shown.position
        else:
            skip = start.skip
            yield self._own(stream, "server.connected", start.text)
        after = reader.position + 1  # the entry of which ``skip`` frames were seen
        beats, take = 0, FEW
        while True:
            shown = None
            if not skip:
                stream.wrote(reader.position)
            before = reader.position
            try:
                batch = reader.poll(take)
                if batch is None:
                    async with asyncio.timeout(HEARTBEAT):
                        batch = await reader.read(take)
            except TimeoutError:
                beats += 1
                yield self._own(stream, "server.heartbeat", f"{log.epoch}.{reader.position}.{skip}.{beats}")
                continue
            except Closed:
                return
            if batch.gap:
                skip = 0
                shown = await self._snapshots.get(kind, stream.directory, False, (log.epoch, before))
                yield self._gap(stream, shown)
                for piece in self._snapshots.pieces(shown, 0):
                    yield piece
                    await asyncio.sleep(0)
                reader.position = shown.position
                continue
            wanted = [e for e in batch.entries if kind == "global" or e.info.cwd == stream.directory]
            if skip:
                data = b"".join([encode(e, kind, skip if e.pos == after else 0) for e in wanted])
                skip = 0
            else:
                data = b"".join([encode(e, kind) for e in wanted])
            # The next batch is of about so many bytes: what a reader that stalls holds.
            take = max(FEW, min(MANY, BATCH * (reader.position - before) // max(len(data), 1)))
            del batch, wanted
            if data:
                yield data

    # --- frames of no entry --------------------------------------------------------------------------------------

    def _own(self, stream: Stream, kind: str, cursor: str) -> bytes:
        now = int(time.time() * 1000)
        frame_id = event_id(now, self._controller.log.position)
        return fr.frame(cursor, self._frames.data(Event(kind, {}), None, stream.kind, frame_id))

    def _gap(self, stream: Stream, shown: Snapshot) -> bytes:
        """What stands before a snapshot where something was missed."""
        after = self._controller.log.cursor(shown.position)
        gap = Event("server.gap", {"cursor": after})
        frame_id = event_id(shown.at, shown.position)
        return fr.frame(shown.cursor(1) if shown.chunks else after, self._frames.data(gap, None, stream.kind, frame_id))

    # --- waiting -------------------------------------------------------------------------------------------------

    async def flushed(self, position: int) -> None:
        """Wait until every stream has written up to ``position``, at most ``FLUSH`` seconds."""
        if not self._open:
            return
        loop = asyncio.get_running_loop()
        behind = [stream for stream in self._open if stream.written < position and not stream.slow]
        if behind:
            waits = []
            for stream in behind:
                future = loop.create_future()
                stream.waiters.append((position, future))
                waits.append(future)
            await asyncio.wait(waits, timeout=FLUSH)
            for stream, future in zip(behind, waits, strict=True):
                if not future.done():
                    stream.slow = True
                    future.cancel()
        if any(stream.kind == "event" for stream in self._open):
            # Two sockets of one client: it must have read the stream when it sees the answer on the other. Without
            # this, 1 of 24 busy ``run --attach`` lost its text; the real server takes 100 ms at this place.
            await asyncio.sleep(SETTLE)
