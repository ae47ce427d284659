"""Log entries → bytes of an SSE stream: ids, envelopes, and a short way for text deltas.

A frame is ``id: …\\ndata: …\\n\\n``. The ids rise strictly on a stream and say where to go on:

- ``E.P``: epoch and position of the log (``SessionLog.cursor``), everything up to there was seen;
- ``E.P.n``: and the first ``n`` frames of the entry after it, which has more;
- ``E.P.n.k``: the same, and the k-th frame that is of no entry (a heartbeat);
- ``E.P.4096.k``: inside of a snapshot (``snapshots.py``): it goes on, or a newer one begins.

What is encoded is kept in ``Entry.frames`` and shared by all readers of the same stream kind.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import msgspec
import structlog

from adapters.opencode.translate import Translator
from adapters.opencode.translate_messages import project_id
from adapters.opencode.wire import Event
from gateway.core.errors import ClientError
from gateway.core.events import TextDelta
from gateway.core.ids import BASE62, event_id
from gateway.core.model import SessionInfo
from gateway.log import STALE, Entry, SessionLog

Kind: TypeAlias = Literal["event", "global"]
"""``event``: bare events, of one directory; ``global``: ``{directory, project, payload}``, of all."""

KEYS: dict[Kind, str] = {"event": "opencode.event", "global": "opencode.global"}  # in ``Entry.frames``
IN_SNAPSHOT = 4096
HEADS = 4096  # open parts whose constant bytes are kept

_log = structlog.get_logger("opencode")
_encode = msgspec.json.Encoder().encode
_TWO = [(a + b).encode() for a in BASE62 for b in BASE62]
_FOUR = 62**4


class Frames:
    """The encoder of one gateway. It keeps constant bytes of open parts, nothing about what was said."""

    def __init__(self, translator: Translator, epoch: int, news: Callable[[Entry], bool] | None = None) -> None:
        self._translator = translator
        self._epoch = epoch
        self._news = news
        self._heads: dict[tuple[Kind, str], tuple[bytes, bytes]] = {}
        self._places: dict[str, bytes] = {}
        self._time = (-1, b"")
        self._high = (-1, b"")

    def of_entry(self, entry: Entry, kind: Kind, skip: int = 0) -> bytes:
        """All frames of an entry but the first ``skip``; empty if this API has no word for it."""
        if skip:
            return b"".join(self._list(entry, kind)[skip:])
        cached = entry.frames.get(KEYS[kind])
        if isinstance(cached, bytes):
            return cached
        event = entry.record.event
        try:
            made = (
                self._delta(entry, event, kind) if isinstance(event, TextDelta) else b"".join(self._list(entry, kind))
            )
        except Exception:  # an event that cannot be said here must not end every stream, again and again
            _log.exception("event without a frame", wire=KEYS[kind], position=entry.pos, kind=type(event).__name__)
            made = b""
        entry.frames[KEYS[kind]] = made
        return made

    def _list(self, entry: Entry, kind: Kind) -> list[bytes]:
        events = self._translator.encode(entry.record, entry.info, entry.pending)
        if kind == "global" and self._news is not None and self._news(entry):
            # ``/event`` would have to end with it, as the real server's does; this one makes its clients ask again
            events.append(Event("server.instance.disposed", {"directory": entry.info.cwd}))
        last = len(events) - 1
        out = []
        for index, event in enumerate(events):
            pos = str(entry.pos) if index == last else f"{entry.pos - 1}.{index + 1}"
            data = self.data(event, entry.info, kind, event_id(entry.record.at, entry.pos, index))
            out.append(frame(f"{self._epoch}.{pos}", data))
        return out

    def data(self, event: Event, info: SessionInfo | None, kind: Kind, frame_id: str) -> bytes:
        """One event in its envelope, as JSON."""
        payload = _encode({"id": frame_id, "type": event.type, "properties": event.properties})
        if kind == "event":
            return payload
        if info is None:
            return b'{"payload":' + payload + b"}"
        return self._place(info.cwd) + payload + b"}"

    def _place(self, directory: str) -> bytes:
        place = self._places.get(directory)
        if place is None:
            if len(self._places) >= HEADS:
                self._places.clear()
            head = _encode({"directory": directory, "project": project_id(directory)})
            place = self._places[directory] = head[:-1] + b',"payload":'
        return place

    # --- the short way -------------------------------------------------------------------------------------------

    def _delta(self, entry: Entry, event: TextDelta, kind: Kind) -> bytes:
        """As ``_list`` would write it, in a few microseconds less."""
        parts = self._heads.get((kind, event.part_id))
        if parts is None:
            parts = self._head(entry, event, kind)
        at, pos = entry.record.at, entry.pos
        if self._time[0] != at:
            self._time = (at, event_id(at, 0)[:16].encode())
        high, low = divmod(pos * 4096, _FOUR)
        if self._high[0] != high:
            self._high = (high, _ten(high))
        return b"".join(
            (
                b"id: %d.%d\ndata: " % (self._epoch, pos),
                parts[0],
                self._time[1],
                self._high[1],
                _TWO[low // 3844],
                _TWO[low % 3844],
                parts[1],
                _encode(event.text),
                b"}}\n\n" if kind == "event" else b"}}}\n\n",
            )
        )

    def _head(self, entry: Entry, event: TextDelta, kind: Kind) -> tuple[bytes, bytes]:
        if len(self._heads) >= HEADS:
            self._heads.clear()
        place = b"" if kind == "event" else self._place(entry.info.cwd)
        ids = {
            "sessionID": entry.record.session_id,
            "messageID": event.step_id,
            "partID": event.part_id,
            "field": "text",
        }
        rest = b'","type":"message.part.delta","properties":' + _encode(ids)[:-1] + b',"delta":'
        made = self._heads[kind, event.part_id] = (place + b'{"id":"', rest)
        return made


def _ten(number: int) -> bytes:
    """Ten base62 digits."""
    out = []
    for _ in range(10):
        number, digit = divmod(number, 62)
        out.append(BASE62[digit])
    return "".join(reversed(out)).encode()


def frame(cursor: str, data: bytes) -> bytes:
    return f"id: {cursor}\ndata: ".encode() + data + b"\n\n"


# --- cursors ---------------------------------------------------------------------------------------------------------


class Cursor(NamedTuple):
    """Where to go on: a position of the log (or STALE) and how many frames of the entry after it were seen."""

    position: int
    skip: int = 0
    text: str = ""
    place: tuple[int, ...] = ()  # what is sent next must have a greater one

    @property
    def in_snapshot(self) -> int:
        """The place inside of a snapshot, if it is one."""
        return self.place[3] if len(self.place) == 4 and self.place[2] == IN_SNAPSHOT else 0


def parse(log: SessionLog, cursor: str) -> Cursor:
    """Raises ClientError for what no stream of ours has sent."""
    words = cursor.split(".")
    rest = words[2:]
    if len(words) > 4 or any(not (w.isascii() and w.isdigit() and len(w) < 17) for w in rest):
        raise ClientError(f"malformed cursor {cursor[:80]!r}: expected the id of a frame, as it was sent")
    pos = log.parse(".".join(words[:2]))
    place = tuple(int(word) for word in words)
    if place[:2] > (log.epoch, log.position):  # nothing of ours, or of a database that was put back
        return Cursor(STALE, 0, cursor)
    if pos is None or place[2:3] >= (IN_SNAPSHOT,):
        return Cursor(STALE, 0, cursor, place)
    return Cursor(pos, place[2] if rest else 0, cursor, place)
