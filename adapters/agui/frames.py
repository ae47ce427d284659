"""AG-UI events → bytes of an SSE stream, LF only. The id of a frame is a cursor of the log:

- ``E.P``: everything up to position P was seen; a stream goes on exactly there;
- ``E.P.n``: and n frames of what comes after it, which has more: a stream begins with a snapshot instead.
"""

from collections.abc import Sequence

from adapters.agui import wire
from adapters.agui.translate_run import Run
from gateway.core.errors import ClientError
from gateway.core.events import TextDelta
from gateway.log import STALE, Entry, SessionLog

HEARTBEAT = b": keep-alive\n\n"
KEY = "agui"  # in ``Entry.frames``: of the session itself; a subagent's depend on the client


class Frames:
    """The frames of one stream. ``position``: all of the log up to there is sent, or was never wanted."""

    def __init__(self, epoch: int, position: int) -> None:
        self.epoch = epoch
        self.position = position
        self.count = 0  # frames since ``position``
        self._head: tuple[str, bytes] = ("", b"")  # the constant bytes of the newest text

    def batch(self, run: Run, entries: Sequence[Entry]) -> bytes:
        """The frames of some entries; stops at one after which the run is done or wants a snapshot."""
        out: list[bytes] = []
        for entry in entries:
            event = entry.record.event
            fast = self._delta(run, entry, event) if type(event) is TextDelta else None
            if fast is not None:
                out.append(fast)
                self.position, self.count = entry.pos, 0
                continue
            made = run.feed(entry.record, entry.info, entry.pending)
            if made:
                out.append(self.upto(made, entry.pos))
            if run.done or run.wants_snapshot:
                break
        return b"".join(out)

    def upto(self, events: Sequence[wire.Event], position: int) -> bytes:
        """Frames with the last of which everything up to a position was seen: of an entry there, or of a snapshot."""
        if position <= self.position:
            return self.beside(events)
        last = len(events) - 1
        first = self.count + 1 if position - 1 == self.position else 1
        out = []
        for index, event in enumerate(events):
            place = b"%d" % position if index == last else b"%d.%d" % (position - 1, first + index)
            out.append(self._frame(place, event))
        self.position, self.count = position, 0
        return b"".join(out)

    def beside(self, events: Sequence[wire.Event]) -> bytes:
        """Frames of no entry, after what was sent."""
        out = []
        for event in events:
            self.count += 1
            out.append(self._frame(b"%d.%d" % (self.position, self.count), event))
        return b"".join(out)

    def _frame(self, place: bytes, event: wire.Event) -> bytes:
        return b"id: %d.%b\ndata: %b\n\n" % (self.epoch, place, wire.encode(event))

    def _delta(self, run: Run, entry: Entry, event: TextDelta) -> bytes | None:
        """The short way of nearly all frames: text of a message of the session itself that is open on this wire."""
        text = run.encoder.texts.get(entry.record.session_id)
        if run.turn_id is None or text is None or text.part_id != event.part_id or run.root_id != entry.info.id:
            return None
        if len(event.text) > wire.PIECE:
            return None
        shared = entry.frames.get(KEY)
        if isinstance(shared, bytes):
            return shared
        if self._head[0] != text.name:
            kind = "REASONING_MESSAGE_CONTENT" if text.role == "thought" else "TEXT_MESSAGE_CONTENT"
            self._head = (text.name, b'{"type":"%b","messageId":%b,"delta":' % (kind.encode(), wire.encode(text.name)))
        made = b"id: %d.%d\ndata: %b%b}\n\n" % (self.epoch, entry.pos, self._head[1], wire.encode(event.text))
        entry.frames[KEY] = made
        return made


def parse(log: SessionLog, cursor: str) -> int:
    """Where a stream goes on, or STALE: a snapshot first. Raises ClientError for what no stream of ours has sent."""
    words = cursor.split(".")
    if len(words) > 3 or (len(words) == 3 and not (words[2].isascii() and words[2].isdigit() and len(words[2]) < 10)):
        raise ClientError(f"malformed cursor {cursor[:80]!r}: expected the id of a frame, as it was sent")
    position = log.parse(".".join(words[:2]))
    return STALE if position is None or len(words) == 3 or position > log.position else position
