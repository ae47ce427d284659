"""The SessionLog: what was published lately, in memory, read by everyone at their own pace.

Pull, not push: a reader holds a position and nothing else, so a slow one costs nothing and slows nobody. The tail is
bounded; who falls out of it is told so (a gap) and shows a snapshot. Everything here belongs to one event loop, and
nothing here does I/O, or knows a wire.

Positions count publications in the gateway: 1, 2, 3 … A cursor is ``<epoch>.<position>``; the epoch
rises at each start.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

import msgspec

from gateway.core.errors import ClientError, Limit
from gateway.core.events import Record, TextDelta
from gateway.core.ids import PartId, SessionId
from gateway.core.model import Pending, SessionInfo

MERGE_FROM = 64  # a reader with more entries than this waiting gets merged deltas
STALE = -1  # ``after`` for somebody whose position means nothing here: a gap first, then live

ENTRY_BYTES = 600  # what an entry weighs beside its text: estimated
_TEXT_FACTOR = 3  # the text, and perhaps two encoded frames of it


class Closed(Exception):
    """The subscription, or the log, was closed."""


class Entry(msgspec.Struct, eq=False, gc=False):  # gc: it refers to no cycle, and there are tens of thousands
    """One publication, shared by all who read it."""

    pos: int
    record: Record
    info: SessionInfo  # the session right after the event
    pending: Pending | None  # the message that the event is about, where the event only names it
    frames: dict[object, object]  # encoder → its frames, encoded once for all readers of a wire
    weight: int = 0  # bytes, estimated


class Batch(msgspec.Struct, gc=False):
    """What one read gave. With a ``gap`` there are no entries, and live ones go on after ``position``."""

    gap: bool
    entries: list[Entry]
    position: int


Wanted: TypeAlias = Callable[[Entry], bool]


def merge(entries: Sequence[Entry]) -> list[Entry]:
    """Neighbouring plain deltas of one part as one entry each: the text joined, the position and info of the last.

    Only neighbours: a cursor between two entries must never hide a part of one that is already passed.
    """
    merged: list[Entry] = []
    part: PartId | None = None
    texts: list[str] = []  # of the newest entry in ``merged``, while it is a plain delta of ``part``
    for entry in entries:
        event = entry.record.event
        if not isinstance(event, TextDelta) or event.source is not None:
            _join(merged, texts)
            merged.append(entry)
            part, texts = None, []
        elif event.part_id == part:
            texts.append(event.text)
            merged[-1] = entry
        else:
            _join(merged, texts)
            merged.append(entry)
            part, texts = event.part_id, [event.text]
    _join(merged, texts)
    return merged


def _join(merged: list[Entry], texts: list[str]) -> None:
    if len(texts) < 2:
        return
    last = merged[-1]
    event = msgspec.structs.replace(last.record.event, text="".join(texts))
    record = msgspec.structs.replace(last.record, event=event)
    merged[-1] = Entry(last.pos, record, last.info, last.pending, {})


def _weigh(record: Record, pending: Pending | None) -> int:
    event = record.event
    if isinstance(event, TextDelta) and event.source is None:  # nearly all of them
        return ENTRY_BYTES + _TEXT_FACTOR * len(event.text)
    size = len(msgspec.json.encode(event))
    if pending is not None:
        size += len(msgspec.json.encode(pending))
    return ENTRY_BYTES + _TEXT_FACTOR * size


class SessionLog:
    """See the module. ``max_entries`` and ``max_bytes`` (estimated) bound the tail; the newest entry always stays."""

    def __init__(
        self, epoch: int, *, max_entries: int = 65536, max_bytes: int = 64 << 20, max_subscribers: int = 4096
    ) -> None:
        self.epoch = epoch
        self.position = 0  # of the newest entry
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._max_subscribers = max_subscribers
        self._bytes = 0
        self._tail: list[Entry] = []  # without holes: the last one is at ``position``
        self._of: dict[SessionId, list[Entry]] = {}  # the same entries, a session's
        self._subscribers: set[Subscription] = set()
        self._waiting: set[Subscription] = set()  # for anything
        self._waiting_for: dict[SessionId, set[Subscription]] = {}

    def __repr__(self) -> str:
        kept = f"{len(self._tail)} entries, {self._bytes >> 10} KiB, {len(self._of)} sessions"
        return f"<SessionLog {self.cursor()} tail={kept}, subscribers={len(self._subscribers)}>"

    @property
    def subscribers(self) -> int:
        """How many read now."""
        return len(self._subscribers)

    def cursor(self, pos: int | None = None) -> str:
        """A position (default: the newest) as clients keep it."""
        return f"{self.epoch}.{self.position if pos is None else pos}"

    def parse(self, cursor: str) -> int | None:
        """The position of a cursor; None if it is of another epoch. Raises ClientError for anything else."""
        epoch, dot, pos = cursor.partition(".")
        if not (dot and epoch.isascii() and epoch.isdigit() and pos.isascii() and pos.isdigit() and len(cursor) < 40):
            raise ClientError(f"malformed cursor {cursor[:80]!r}: expected <epoch>.<position>, as it was sent")
        return int(pos) if int(epoch) == self.epoch else None

    def since(self, cursor: str) -> int:
        """A cursor as ``subscribe(after=…)`` wants it: its position, or STALE. Raises ClientError as ``parse`` does."""
        pos = self.parse(cursor)
        return STALE if pos is None else pos

    def publish(self, items: Sequence[tuple[Record, SessionInfo, Pending | None]]) -> None:
        """Append, in this order; each waiting subscriber whom it concerns is woken once."""
        before = pos = self.position
        new = []
        size = 0
        for record, info, pending in items:
            pos += 1
            weight = _weigh(record, pending)
            size += weight
            new.append(Entry(pos, record, info, pending, {}, weight))
        # Nothing below raises: an event that cannot be weighed changes nothing.
        of = self._of
        for entry in new:
            mine = of.get(entry.record.session_id)
            if mine is None:
                of[entry.record.session_id] = [entry]
            else:
                mine.append(entry)
        self._tail += new
        self._bytes += size
        self.position = pos
        if new and (self._waiting or self._waiting_for):
            self._wake(new, before)
        if len(self._tail) > self._max_entries or self._bytes > self._max_bytes:
            self._trim()

    def subscribe(
        self, wanted: Collection[SessionId] | Wanted | None = None, *, after: int | None = None
    ) -> "Subscription":
        """Read everything (None), some sessions, or what a predicate of the entry takes.

        ``after``: go on after this position, if the tail still has what follows; STALE: a gap first; None: from now.
        Raises Limit when there are too many subscribers.
        """
        if len(self._subscribers) >= self._max_subscribers:
            raise Limit(f"{len(self._subscribers)} streams are open, the most that this gateway serves: close some")
        subscription = Subscription(self, wanted, self.position if after is None else after)
        self._subscribers.add(subscription)
        return subscription

    def after(self, pos: int) -> list[Entry] | None:
        """What was published after a position; None if the tail does not have all of it any more."""
        return self._tail[pos - self._first() :] if self._first() <= pos <= self.position else None

    def close(self) -> None:
        """End every subscription."""
        for subscription in list(self._subscribers):
            subscription.close()

    def _first(self) -> int:
        """The position before the tail: whoever is there or later has missed nothing."""
        return self.position - len(self._tail)

    def _wake(self, new: list[Entry], before: int) -> None:
        woken = self._waiting
        if self._waiting_for:
            for session_id in {entry.record.session_id for entry in new}:
                woken = woken | self._waiting_for.get(session_id, set())
        for subscription in woken:
            subscription._wake(before)

    def _trim(self) -> None:
        """Drop the oldest. A sixteenth more than needed, so that the lists are seldom moved."""
        tail = self._tail
        entries = self._max_entries - (self._max_entries >> 4)
        size = self._max_bytes - (self._max_bytes >> 4)
        count, left = 0, len(tail)
        dropped: dict[SessionId, int] = {}
        while left > 1 and (left > entries or self._bytes > size):
            entry = tail[count]
            self._bytes -= entry.weight
            session_id = entry.record.session_id
            dropped[session_id] = dropped.get(session_id, 0) + 1
            count += 1
            left -= 1
        del tail[:count]
        for session_id, n in dropped.items():
            mine = self._of[session_id]
            if n == len(mine):
                del self._of[session_id]
            else:
                del mine[:n]


def _pos(entry: Entry) -> int:
    return entry.pos


class Subscription:
    """One reader's place in the log. One task reads it."""

    def __init__(self, log: SessionLog, wanted: Collection[SessionId] | Wanted | None, position: int) -> None:
        self.position = position
        self._log = log
        self._sessions: frozenset[SessionId] | None = None
        self._predicate: Wanted | None = None
        if callable(wanted):
            self._predicate = wanted
        elif wanted is not None:
            self._sessions = frozenset(wanted)
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False

    def __repr__(self) -> str:
        whose = "some" if self._predicate else "all" if self._sessions is None else f"{len(self._sessions)} sessions"
        state = "closed" if self._closed else "waiting" if self._waiter else "reading"
        return f"<Subscription {whose} at {self.position}, {self.pending()} behind, {state}>"

    async def read(self, max_entries: int = 4096) -> Batch:
        """Wait until there is something. Raises Closed.

        It returns without a further suspension: what the reader takes in the same step (a snapshot after a gap) is
        of exactly ``Batch.position``.
        """
        while True:
            batch = self.poll(max_entries)
            if batch is not None:
                return batch
            if self._waiter is not None:
                raise RuntimeError("two tasks read one subscription")
            self._waiter = asyncio.get_running_loop().create_future()
            self._enter()
            try:
                await self._waiter
            finally:
                self._waiter = None
                self._leave()

    def poll(self, max_entries: int = 4096) -> Batch | None:
        """What there is now, or None. Raises Closed."""
        if self._closed:
            raise Closed
        if self._gap():
            self.position = self._log.position
            return Batch(True, [], self.position)
        entries, self.position = self._take(max_entries)
        if not entries:
            return None
        if len(entries) > MERGE_FROM:
            entries = merge(entries)
        return Batch(False, entries, self.position)

    def pending(self) -> int:
        """How many entries behind; with a predicate or a gap, whoever's they are."""
        log = self._log
        if self._gap():
            return max(log.position - self.position, 1)
        if self._sessions is None:
            return log.position - self.position
        found = (log._of.get(session_id) for session_id in self._sessions)
        return sum(len(mine) - bisect_right(mine, self.position, key=_pos) for mine in found if mine is not None)

    def close(self) -> None:
        """Give the place up; a read that waits raises Closed."""
        self._closed = True
        self._log._subscribers.discard(self)
        self._wake(self.position)

    def _gap(self) -> bool:
        """Something may be missing here; also for a position later than the newest, which this log never gave."""
        return not self._log._first() <= self.position <= self._log.position

    def _take(self, limit: int) -> tuple[list[Entry], int]:
        """Own entries after the position, and the position after them."""
        log = self._log
        if self._sessions is None:
            start = self.position - log._first()
            entries = log._tail[start : start + limit]
            position = self.position + len(entries)
            if self._predicate is not None:
                while True:
                    wanted = [entry for entry in entries if self._predicate(entry)]
                    if wanted or position == log.position:
                        return wanted, position
                    start += limit
                    entries = log._tail[start : start + limit]
                    position += len(entries)
            return entries, position
        entries = []
        for session_id in self._sessions:
            mine = log._of.get(session_id)
            if mine is not None and mine[-1].pos > self.position:
                start = bisect_right(mine, self.position, key=_pos)
                entries += mine[start : start + limit]
        if len(self._sessions) > 1:
            entries.sort(key=_pos)
        if len(entries) >= limit:  # perhaps there are more
            del entries[limit:]
            return entries, entries[-1].pos
        return entries, log.position

    def _wake(self, before: int) -> None:
        if self._waiter is not None and not self._waiter.done():
            # It has seen all of its own up to ``before``, however long ago it looked: the tail may be far on. (One
            # that was woken already, and did not yet run, must not be moved: it has something to read.)
            self.position = max(self.position, before)
            self._waiter.set_result(None)

    def _enter(self) -> None:
        log = self._log
        if self._sessions is None:
            log._waiting.add(self)
        for session_id in self._sessions or ():
            log._waiting_for.setdefault(session_id, set()).add(self)

    def _leave(self) -> None:
        log = self._log
        log._waiting.discard(self)
        for session_id in self._sessions or ():
            waiting = log._waiting_for.get(session_id)
            if waiting is not None:
                waiting.discard(self)
                if not waiting:
                    del log._waiting_for[session_id]
