"""Snapshots while they are read: planned once for all who ask at the same place of the log, encoded in chunks.

A reader holds a plan and an index. The bytes of a chunk are made when somebody gets there and kept for the others for
a while: a reader that stalls holds no copy. Who was cut inside of a snapshot goes on in the same one as long as it is
kept, else it gets a newer one, of greater ids.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterator

import structlog

from adapters.opencode import frames as fr
from adapters.opencode import snapshot
from adapters.opencode.snapshot import Unit
from adapters.opencode.translate import Translator
from gateway.controller import SessionController
from gateway.core.events import SessionDeleted, TextDelta
from gateway.core.ids import SessionId, event_id

KEEP = 16  # plans: they refer to what was said, and hold no bytes of it
CHUNK = 128 << 10  # bytes, about, beside a message that is larger
CACHE = 16 << 20  # bytes of chunks
PIECE = 64 << 10  # bytes that are written at once
SERIAL = 10_000_000  # frames of one snapshot have fewer numbers than this
FIRST = 2  # the number of a snapshot's first frame: 0 is the connection's, 1 the gap's
LAST_EPOCH = 999_999_999_999  # as a position: later than all of the epoch before

_log = structlog.get_logger("opencode")


class Snapshot:
    """A plan, and what is known of its frames' numbers. It says nothing that is not of ``position``."""

    def __init__(
        self, serial: int, epoch: int, position: int, units: list[Unit], whose: tuple[fr.Kind, str, bool]
    ) -> None:
        self.serial = serial
        self.position = position
        self.whose = whose
        self.at = int(time.time() * 1000)
        self.chunks: list[list[Unit]] = []
        self.firsts = [FIRST]  # number of the first frame of each chunk, and of the one after the last that was made
        self._prefix = f"{epoch}.{position - 1}" if position else f"{epoch - 1}.{LAST_EPOCH}"
        size = CHUNK
        for unit in units:
            if size + unit.weight > CHUNK:
                self.chunks.append([])
                size = 0
            self.chunks[-1].append(unit)
            size += unit.weight

    def __repr__(self) -> str:
        return f"<Snapshot {self.serial} of {self.position}, {len(self.chunks)} chunks, {self.whose}>"

    def cursor(self, number: int) -> str:
        """The id of its frame with this number: less than the position's own."""
        return f"{self._prefix}.{fr.IN_SNAPSHOT}.{self.serial * SERIAL + number}"

    @property
    def place(self) -> tuple[int, ...]:
        return tuple(int(word) for word in self.cursor(0).split("."))


class Snapshots:
    """All snapshots of one gateway."""

    def __init__(self, controller: SessionController, translator: Translator, frames: fr.Frames) -> None:
        self._controller = controller
        self._translator = translator
        self._frames = frames
        self._serial = 0
        self._kept: OrderedDict[int, Snapshot] = OrderedDict()  # the last used one last
        self._cache: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._bytes = 0
        self._asking: asyncio.Task[list[tuple[SessionId, str, int]]] | None = None

    def __repr__(self) -> str:
        return f"<Snapshots {len(self._kept)} kept, {self._bytes >> 10} KiB of chunks>"

    def find(self, cursor: fr.Cursor, kind: fr.Kind, directory: str) -> Snapshot | None:
        """The one that the frame with this cursor was of, if it is kept."""
        found = self._kept.get(cursor.in_snapshot // SERIAL)
        if found is None or found.whose[:2] != (kind, directory) or found.place[:2] != cursor.place[:2]:
            return None
        self._kept.move_to_end(found.serial)
        return found

    async def get(self, kind: fr.Kind, directory: str, fresh: bool, after: tuple[int, ...] = ()) -> Snapshot:
        """The state as it is now; its ids are greater than ``after``. ``fresh``: for a reader without a cursor."""
        log = self._controller.log
        whose = (kind, directory, fresh and kind == "event")  # only a new reader of /event is shown something else
        before = log.position
        deleted = [] if whose[2] else await self._load()
        for one in reversed(self._kept.values()):
            if one.whose == whose and one.place > after and self._is_as_now(one):
                self._kept.move_to_end(one.serial)
                return one
        self._serial += 1
        one = Snapshot(self._serial, log.epoch, log.position, self._plan(whose, before, deleted), whose)
        self._kept[one.serial] = one
        if len(self._kept) > KEEP:
            self._kept.popitem(last=False)
        return one

    def pieces(self, one: Snapshot, number: int) -> Iterator[bytes]:
        """Its bytes from the frame with this number on, a piece at a time; nothing is held between two of them."""
        for index in range(len(one.chunks)):
            known = len(one.firsts) > index + 1
            if known and one.firsts[index + 1] <= number:
                continue
            offset = 0
            if one.firsts[index] < number:
                offset = _offset(self._chunk(one, index), number - one.firsts[index])
            while True:
                piece = self._chunk(one, index)[offset : offset + PIECE]
                if not piece:
                    break
                offset += len(piece)
                yield piece

    # --- inside --------------------------------------------------------------------------------------------------

    def _is_as_now(self, one: Snapshot) -> bool:
        """Nothing but text came since, so that whoever reads on from there sees nothing that is over."""
        entries = self._controller.log.after(one.position)
        return entries is not None and all(isinstance(entry.record.event, TextDelta) for entry in entries)

    async def _load(self) -> list[tuple[SessionId, str, int]]:
        """Bring the sessions that changed last into memory; the deleted ones. Once for all who ask meanwhile."""
        if self._asking is None:
            self._asking = self._controller.tasks.start(self._ask(), name="sessions of a snapshot")
            self._asking.add_done_callback(self._asked)
        return await asyncio.shield(self._asking)

    def _asked(self, _: object) -> None:
        self._asking = None

    async def _ask(self) -> list[tuple[SessionId, str, int]]:
        controller = self._controller
        deleted: list[tuple[SessionId, str, int]] = []
        try:
            deleted = await controller.store.deleted()
            for info in await controller.sessions(limit=snapshot.SESSIONS):
                if info.id not in controller.roots:
                    await controller.view(info.id)
        except Exception:  # what is in memory can be shown all the same
            _log.exception("a snapshot without all sessions")
        return deleted

    def _plan(
        self, whose: tuple[fr.Kind, str, bool], before: int, deleted: list[tuple[SessionId, str, int]]
    ) -> list[Unit]:
        kind, directory, opening = whose
        views = [view for view in self._controller.recent() if not view.transcript.deleted]
        if kind == "event":
            views = [view for view in views if view.info.cwd == directory]
        if opening:
            return snapshot.opening(self._translator, views)
        gone = {one[0]: one for one in deleted}
        for entry in self._controller.log.after(before) or ():  # since the store was asked
            if isinstance(entry.record.event, SessionDeleted):
                gone[entry.info.id] = (entry.info.id, entry.info.cwd, entry.record.at)
        told = [one for one in gone.values() if kind == "global" or one[1] == directory]
        return snapshot.recent(self._translator, views, told)

    def _chunk(self, one: Snapshot, index: int) -> bytes:
        key = (one.serial, index)
        data = self._cache.get(key)
        if data is not None:
            self._cache.move_to_end(key)
            return data
        made = self._encode(one, index)
        data = b"".join(made)
        if len(one.firsts) == index + 1:
            one.firsts.append(one.firsts[index] + len(made))
        self._cache[key] = data
        self._bytes += len(data)
        while self._bytes > CACHE and len(self._cache) > 1:
            _, old = self._cache.popitem(last=False)
            self._bytes -= len(old)
        return data

    def _encode(self, one: Snapshot, index: int) -> list[bytes]:
        kind = one.whose[0]
        last = one.chunks[index][-1] if index == len(one.chunks) - 1 else None
        made: list[bytes] = []
        for unit in one.chunks[index]:
            mine: list[bytes] = []
            try:
                events = unit.make()
                for number, event in enumerate(events, start=one.firsts[index] + len(made)):
                    whole = unit is last and len(mine) == len(events) - 1
                    cursor = self._controller.log.cursor(one.position) if whole else one.cursor(number)
                    frame_id = event_id(one.at, one.position, number)
                    mine.append(fr.frame(cursor, self._frames.data(event, unit.info, kind, frame_id)))
            except Exception:  # what cannot be said here must not end every stream, again and again
                _log.exception("a snapshot leaves something out", session=unit.info.id)
            else:
                made += mine
        return made


def _offset(data: bytes, count: int) -> int:
    """Where the frame after the first ``count`` begins."""
    at = 0
    for _ in range(count):
        found = data.find(b"\n\n", at)
        if found < 0:
            return len(data)
        at = found + 2
    return at
