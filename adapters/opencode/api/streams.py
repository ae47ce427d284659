"""The frames of version 2's streams. What they say is ``translate_v2``'s; here is where a reader goes on.

``/api/event`` has the cursors of version 1's streams (``frames.py``). The durable stream reads the store up to the
newest event, then the log; where the log has not all of it, it reads the store again. What is committed is in the
store before it is in the log, so nothing is missing between them, and what has been shown is known by its number.
"""

import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import structlog

from adapters.opencode import frames as fr
from adapters.opencode.translate_v2 import STRIDE, Told, TranslatorV2, asked, envelope
from gateway.controller import SessionController
from gateway.core import events as ev
from gateway.core.errors import NotFound
from gateway.core.ids import SessionId, event_id
from gateway.core.state import Known
from gateway.core.transcript import StepItem, TextPart
from gateway.log import STALE, Closed, Entry, Subscription
from gateway.views import SessionView

KEY = "opencode.api"  # in ``Entry.frames``
BEAT = b": heartbeat\n\n"
RECORDS = 200  # of the store that are read at once
ENTRIES = 1024  # of the log that are read at once

_log = structlog.get_logger("opencode")
_encode = msgspec.json.Encoder().encode


class Reading:
    """The frames of an open stream. It has its place in the log from the beginning, and gives it up at ``aclose``."""

    def __init__(self, frames: AsyncGenerator[bytes, None], reader: Subscription) -> None:
        self._frames = frames
        self._reader = reader

    def __aiter__(self) -> "Reading":
        return self

    async def __anext__(self) -> bytes:
        return await anext(self._frames)

    async def aclose(self) -> None:
        try:
            await self._frames.aclose()
        finally:
            self._reader.close()


class StreamsV2:
    def __init__(self, controller: SessionController, translator: TranslatorV2) -> None:
        self._controller = controller
        self._translator = translator

    # --- everything ------------------------------------------------------------------------------------------------

    def events(self, cursor: str) -> Reading:
        """Raises ClientError for a malformed cursor and Limit for one stream too many."""
        log = self._controller.log
        start = fr.parse(log, cursor) if cursor else None
        reader = log.subscribe(after=log.position if start is None else start.position)
        return Reading(self._events(reader, start), reader)

    async def _events(self, reader: Subscription, start: fr.Cursor | None) -> AsyncGenerator[bytes, None]:
        log = self._controller.log
        skip = start.skip if start is not None and start.position != STALE else 0
        after = reader.position + 1  # the entry of which ``skip`` frames were seen
        place = log.cursor(reader.position) if start is None else start.text
        yield fr.frame(place, self._own("server.connected", {})) + BEAT
        while True:
            try:
                batch = reader.poll(ENTRIES) or await reader.read(ENTRIES)
            except Closed:
                return
            if batch.gap:
                yield self._gap(batch.position)
            else:
                pieces = [self.of_entry(entry, skip if entry.pos == after else 0) for entry in batch.entries]
                data = b"".join(pieces)
                if data:
                    yield data
            skip = 0

    def of_entry(self, entry: Entry, skip: int = 0) -> bytes:
        """All frames of an entry but the first ``skip``."""
        if skip:
            return b"".join(self._list(entry)[skip:])
        cached = entry.frames.get(KEY)
        if isinstance(cached, bytes):
            return cached
        try:
            made = b"".join(self._list(entry))
        except Exception:  # an event that cannot be said here must not end every stream, again and again
            kind = type(entry.record.event).__name__
            _log.exception("event without a frame", wire=KEY, position=entry.pos, kind=kind)
            made = b""
        entry.frames[KEY] = made
        return made

    def _list(self, entry: Entry) -> list[bytes]:
        log, record = self._controller.log, entry.record

        def ascending(message_id: str) -> str:
            if entry.pending is not None and entry.pending.id == message_id:
                return entry.pending.ascending_id
            for view in self._controller.family(record.session_id):
                if view.info.id == record.session_id:
                    return of_known(view.known)(message_id)
            return message_id

        told = self._translator.encode(record, ascending)
        last = len(told) - 1
        out = []
        for index, one in enumerate(told):
            pos = str(entry.pos) if index == last else f"{entry.pos - 1}.{index + 1}"
            found = envelope(record, one, index, entry.pos, entry.info.cwd)
            out.append(fr.frame(f"{log.epoch}.{pos}", _encode(found)))
        return out

    def _own(self, kind: str, data: dict[str, Any], directory: str = "") -> bytes:
        found: dict[str, Any] = {"id": event_id(int(time.time() * 1000), self._controller.log.position), "type": kind}
        if directory:
            found["location"] = {"directory": directory}
        return _encode({**found, "data": data})

    def _gap(self, position: int) -> bytes:
        """What stands where something was missed: the mark, and what is open in the sessions in memory, as it is.

        Only the last frame has an id: who is cut before it is shown all of this again. What is complete is in the
        history.
        """
        cursor = self._controller.log.cursor(position)
        shown = [self._own("server.gap", {"cursor": cursor})]
        for view in self._controller.recent():
            shown += [self._own(one.type, one.data, view.info.cwd) for one in self._open(view)]
        return b"".join(b"data: " + data + b"\n\n" for data in shown[:-1]) + fr.frame(cursor, shown[-1])

    def _open(self, view: SessionView) -> Iterable[Told]:
        def said(event: ev.Event) -> list[Told]:
            return self._translator.encode(ev.Record(view.info.id, 0, int(time.time() * 1000), 0, event), str)

        yield from said(ev.SessionUpdated(view.info))
        last = view.transcript.items[-1] if view.transcript.items else None
        if isinstance(last, StepItem) and last.step.completed is None:
            yield from said(ev.StepStarted(last.step))
            for part in last.parts:
                if isinstance(part, TextPart) and part.ended is None:
                    ids = (part.part_id, part.message_id, part.step_id)
                    yield from said(ev.PartOpened(*ids, part.turn_id, part.role, part.created))
                    yield from said(ev.TextDelta(*ids, part.role, part.text))
        for request in view.requests:
            yield asked(view.info.id, request)

    # --- one session, what is committed ------------------------------------------------------------------------------

    async def history(self, session_id: SessionId, after: int, limit: int) -> tuple[list[dict[str, Any]], bool]:
        """At most ``limit`` events with a greater number than ``after``, and whether there are more. NotFound."""
        found: list[dict[str, Any]] = []
        last = after // STRIDE - 1
        while len(found) <= limit:
            records = await self._controller.history(session_id, last, RECORDS)
            found += self._shown(records, after, await self._known(session_id))
            if len(records) < RECORDS:
                break
            last = records[-1].seq
        return found[:limit], len(found) > limit

    async def durable(self, session_id: SessionId, after: int) -> Reading:
        """Raises NotFound, and Limit for one stream too many, before anything is sent."""
        await self._controller.view(session_id)
        reader = self._controller.log.subscribe([session_id])
        return Reading(self._durable(reader, session_id, after), reader)

    async def _durable(self, reader: Subscription, session_id: SessionId, after: int) -> AsyncGenerator[bytes, None]:
        yield BEAT
        last = after // STRIDE - 1  # the record after it may have been seen in part
        while True:
            while True:
                try:
                    records: Sequence[ev.Record] = await self._controller.history(session_id, last, RECORDS)
                    known = await self._known(session_id)
                except NotFound:  # it was deleted meanwhile
                    return
                data = self._durable_frames(records, after, known)
                if data:
                    yield data
                if not records:
                    break
                last = records[-1].seq
            following = True
            while following:
                try:
                    batch = reader.poll(ENTRIES) or await reader.read(ENTRIES)
                except Closed:
                    return
                records = [entry.record for entry in batch.entries if entry.record.seq > last]
                following = not batch.gap and (not records or records[0].seq == last + 1)  # else: from the store
                if following and records:
                    if isinstance(records[-1].event, ev.SessionDeleted):
                        return
                    try:
                        known = await self._known(session_id)
                    except NotFound:
                        return
                    data = self._durable_frames(records, after, known)
                    if data:
                        yield data
                    last = records[-1].seq

    def _durable_frames(self, records: Sequence[ev.Record], after: int, known: Mapping[str, Known]) -> bytes:
        shown = self._shown(records, after, known)
        return b"".join(fr.frame(str(one["durable"]["seq"]), _encode(one)) for one in shown)

    def _shown(self, records: Sequence[ev.Record], after: int, known: Mapping[str, Known]) -> list[dict[str, Any]]:
        ascending = of_known(known)
        found = []
        for record in records:
            for index, told in enumerate(self._translator.durable(record, ascending)):
                if record.seq * STRIDE + index > after:
                    found.append(envelope(record, told, index, 0))
        return found

    async def _known(self, session_id: SessionId) -> Mapping[str, Known]:
        return (await self._controller.view(session_id)).known


def of_known(known: Mapping[str, Known]) -> Callable[[str], str]:
    """A message's id on this wire, for messages that other protocols call otherwise."""

    def ascending(message_id: str) -> str:
        found = known.get(message_id)
        return message_id if found is None else found.ascending_id

    return ascending
