"""The open event streams: a reader's frames from where it left off, and waiting until all have written so far.

``opencode run --attach`` stops reading when its POST is answered, so an answer waits for the streams (``flushed``).
"""

import asyncio
import time
from collections.abc import AsyncGenerator

from adapters.opencode import frames as fr
from adapters.opencode import snapshot
from adapters.opencode.translate import Translator
from adapters.opencode.wire import Event
from gateway.controller import SessionController
from gateway.core.errors import Limit
from gateway.core.ids import event_id
from gateway.log import STALE, Closed

HEARTBEAT = 10.0  # seconds of silence, as the real server
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


class Streams:
    def __init__(self, controller: SessionController, translator: Translator, limit: int) -> None:
        self._controller = controller
        self._translator = translator
        self._frames = fr.Frames(translator, controller.log.epoch)
        self._limit = limit
        self._open: set[Stream] = set()

    def __repr__(self) -> str:
        return f"<Streams {len(self._open)} open>"

    def open(self, kind: fr.Kind, directory: str, cursor: str) -> AsyncGenerator[bytes, None]:
        """The frames of a new stream, batches as one ``bytes`` each. ``cursor`` is empty for a new reader.

        Raises ClientError for a malformed cursor and Limit for one stream too many, before anything is sent.
        """
        position, skip = fr.parse(self._controller.log, cursor) if cursor else (None, 0)
        if len(self._open) >= self._limit:
            raise Limit(f"{self._limit} event streams are open already: close some")
        stream = Stream(kind, directory)
        return self._run(stream, position, skip)

    async def _run(self, stream: Stream, position: int | None, skip: int) -> AsyncGenerator[bytes, None]:
        log, encode = self._controller.log, self._frames.of_entry
        kind, directory = stream.kind, stream.directory
        reader = log.subscribe(after=log.position if position is None else position)
        after = reader.position + 1  # the entry of which ``skip`` frames were seen
        self._open.add(stream)
        try:
            if position is None or position == STALE:
                head = self._own(stream, "server.connected", _before(log.epoch, log.position, 0))
            else:
                head = self._own(stream, "server.connected", f"{log.epoch}.{position}" + (f".{skip}" if skip else ""))
            if position is None:
                head += self._snapshot(stream, fresh=True)
            yield head
            beats = 0
            while True:
                if not skip:
                    stream.wrote(reader.position)
                batch = reader.poll()
                if batch is None:
                    try:
                        async with asyncio.timeout(HEARTBEAT):
                            batch = await reader.read()
                    except TimeoutError:
                        beats += 1
                        yield self._own(stream, "server.heartbeat", f"{log.epoch}.{reader.position}.{skip}.{beats}")
                        continue
                if batch.gap:
                    skip = 0
                    yield self._snapshot(stream, fresh=False)
                    continue
                wanted = [e for e in batch.entries if kind == "global" or e.info.cwd == directory]
                if skip:
                    data = b"".join([encode(e, kind, skip if e.pos == after else 0) for e in wanted])
                    skip = 0
                else:
                    data = b"".join([encode(e, kind) for e in wanted])
                if data:
                    yield data
        except Closed:
            return
        finally:
            reader.close()
            self._open.discard(stream)
            stream.ended()

    # --- frames of no entry --------------------------------------------------------------------------------------

    def _own(self, stream: Stream, kind: str, cursor: str) -> bytes:
        now = int(time.time() * 1000)
        frame_id = event_id(now, self._controller.log.position)
        return _frame(cursor, self._frames.data(Event(kind, {}), None, stream.kind, frame_id))

    def _snapshot(self, stream: Stream, fresh: bool) -> bytes:
        """The state as it is now, for this reader alone. Without a gap (``fresh``) ``/event`` gets what goes on."""
        log = self._controller.log
        views = self._controller.recent()
        if stream.kind == "event":
            views = [view for view in views if view.info.cwd == stream.directory]
        if stream.kind == "event" and fresh:
            shown = snapshot.opening(self._translator, views)
        else:
            shown = snapshot.recent(self._translator, views, snapshot.revoked_lately(log))
        now, position = int(time.time() * 1000), log.position
        out = []
        if not fresh:
            gap = Event("server.gap", {"cursor": log.cursor()})
            frame_id = event_id(now, position)
            cursor = _before(log.epoch, position, 1) if shown else log.cursor()
            out.append(_frame(cursor, self._frames.data(gap, None, stream.kind, frame_id)))
        for index, (info, event) in enumerate(shown, start=2):
            data = self._frames.data(event, info, stream.kind, event_id(now, position, index))
            whole = index == len(shown) + 1
            out.append(_frame(log.cursor() if whole else _before(log.epoch, position, index), data))
        return b"".join(out)

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


def _frame(cursor: str, data: bytes) -> bytes:
    return f"id: {cursor}\ndata: ".encode() + data + b"\n\n"


def _before(epoch: int, position: int, index: int) -> str:
    """An id inside of a snapshot at ``position``: less than the position's own, and nothing can go on from it."""
    if position == 0:
        return f"{epoch - 1}.0.{fr.IN_SNAPSHOT}.{index}"
    return f"{epoch}.{position - 1}.{fr.IN_SNAPSHOT}.{index}"
