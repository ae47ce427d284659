"""Server-sent events, read: bytes in, events out. No I/O. Source: the HTML standard, "Interpreting an event stream"."""

from typing import NamedTuple


class Event(NamedTuple):
    id: bytes | None
    """The id that the stream goes on after; None where the event has none."""
    data: bytes
    """Its lines joined by a space: in JSON a line's end is only white space. Empty for an event without data."""


class TooLong(Exception):
    """An event over the limit."""


class Events:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._scanned = 0
        self._held = b""  # a CR that may be half of a CRLF
        self._begun = False

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that ``chunk`` completes. Raises TooLong."""
        if self._held or b"\r" in chunk:
            chunk = self._held + chunk
            self._held = b"\r" if chunk.endswith(b"\r") else b""
            chunk = chunk.removesuffix(self._held).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        rest = self._rest
        rest += chunk
        if not self._begun and len(rest) >= 3:
            self._begun = True
            if rest.startswith(b"\xef\xbb\xbf"):
                del rest[:3]
        end = rest.rfind(b"\n\n", max(self._scanned - 1, 0))
        if end < 0:
            self._scanned = len(rest)
            if len(rest) > self._limit + 1024:
                raise TooLong
            return []
        whole = bytes(rest[:end])
        del rest[: end + 2]
        self._scanned = len(rest)
        return [event for block in whole.split(b"\n\n") if (event := _event(block, self._limit)) is not None]


def _event(block: bytes, limit: int) -> Event | None:
    """None for a block without data and id: comments, the server's ``retry``."""
    id_: bytes | None = None
    data: list[bytes] = []
    for line in block.split(b"\n"):
        if line.startswith(b"data:"):
            data.append(line[6:] if line[5:6] == b" " else line[5:])
        elif line.startswith(b"id:") and b"\0" not in line:
            id_ = line[3:].removeprefix(b" ")
    if sum(map(len, data)) > limit:
        raise TooLong
    if not data and id_ is None:
        return None
    return Event(id_, data[0] if len(data) == 1 else b" ".join(data))
