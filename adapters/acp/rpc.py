"""A JSON-RPC 2.0 peer without I/O: bytes in, messages out; either side of ACP can use it.

It splits lines, parses envelopes (``params`` and ``result`` stay raw), allocates ids and remembers pending calls. It
never reads, writes, waits or decides what a message means. Noise on the stream is counted and told, never raised.
"""

import json
import re
from collections.abc import Iterable
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

Raw: TypeAlias = msgspec.Raw
Call = TypeVar("Call")  # what the owner wants to remember of a call until its answer
Id: TypeAlias = tuple[str, object]

MAX_LINE = 32 * 1024 * 1024
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603
CANCELLED, AUTH_REQUIRED, NOT_FOUND = -32800, -32000, -32002

_HEAD = 4096
_NOTHING = Raw()


class Request(msgspec.Struct, gc=False):
    """``id`` is the JSON of the peer's id: it goes back verbatim."""

    id: Raw
    method: str
    params: Raw


class Notification(msgspec.Struct, gc=False):
    method: str
    params: Raw


class RpcError(msgspec.Struct, gc=False):
    code: int
    message: str
    data: Any = None


class Response(msgspec.Struct, Generic[Call]):
    """The answer to ``call``: a result, or an error."""

    call: Call
    result: Raw | None = None
    error: RpcError | None = None


class Overlong(msgspec.Struct, gc=False):
    """A line over the limit: dropped to its newline. ``head`` is how it began, to guess whom it concerned."""

    head: bytes
    limit: int


class Noise(msgspec.Struct, gc=False):
    """A line that is no message. ``code`` is what a server answers: parse error or invalid request."""

    code: int
    line: bytes


Message: TypeAlias = Request | Notification | Response[Call] | Overlong | Noise


class _Envelope(msgspec.Struct, gc=False):
    method: str | None = None
    id: Raw = _NOTHING
    params: Raw = _NOTHING
    result: Raw = _NOTHING
    error: Raw = _NOTHING


_envelope = msgspec.json.Decoder(_Envelope)
_encode = msgspec.json.Encoder().encode


def id_key(raw: Raw) -> Id:
    """What two ids are compared by: their type and value, so that 0, "0" and false differ."""
    value = msgspec.json.decode(raw)
    return type(value).__name__, value if isinstance(value, str | int | float) else None


def request_id(raw: Raw) -> int | None:
    """One of our own ids, as the peer names it; None if it cannot be one."""
    text = bytes(raw)
    return int(text) if text.isdigit() and len(text) < 19 else None


class Lines:
    """Splits a byte stream into lines in O(n), whatever the chunks. Not-yet-complete bytes are scanned once."""

    def __init__(self, limit: int = MAX_LINE) -> None:
        self.limit = limit
        self._chunks: list[bytes] = []  # of the line that is not complete; none has a newline
        self._size = 0
        self._dropping = False

    def feed(self, data: bytes) -> list[bytes | Overlong]:
        """The lines that ``data`` completes, without their newline, in order."""
        first, whole = self.take(data)
        return first + self.split(whole)

    def take(self, data: bytes) -> tuple[list[bytes | Overlong], bytes]:
        """The same, in two: what became of the line that was begun before, and the whole lines after it, unsplit."""
        first: list[bytes | Overlong] = []
        if self._chunks or self._dropping:
            end = data.find(b"\n")
            if end < 0:
                self._keep(data, first)
                return first, b""
            self._keep(data[:end], first)
            if not self._dropping:
                first.append(b"".join(self._chunks))
            self._reset()
            data = data[end + 1 :]
        end = data.rfind(b"\n") + 1
        if end < len(data):
            # What comes before the unfinished line is told before its being too long.
            late: list[bytes | Overlong] = []
            self._keep(data[end:], late)
            if late:
                return first + self.split(data[:end]) + late, b""
        return first, data[:end]

    def split(self, whole: bytes) -> list[bytes | Overlong]:
        lines = whole.split(b"\n")[:-1]
        if len(whole) <= self.limit:
            return list(lines)
        return [line if len(line) <= self.limit else Overlong(line[:_HEAD], self.limit) for line in lines]

    def _keep(self, data: bytes, out: list[bytes | Overlong]) -> None:
        if self._dropping:
            return
        self._chunks.append(data)
        self._size += len(data)
        if self._size > self.limit:
            # Told when the limit is passed, not at the newline: that may never come.
            out.append(Overlong(b"".join(self._chunks)[:_HEAD], self.limit))
            self._reset()
            self._dropping = True

    def _reset(self) -> None:
        self._chunks, self._size, self._dropping = [], 0, False


class Peer(Generic[Call]):
    """One connection. ``fast``: a decoder that is tried first on each line; what it yields comes out as it is."""

    def __init__(self, limit: int = MAX_LINE, fast: msgspec.json.Decoder[Any] | None = None) -> None:
        self._lines = Lines(limit)
        self._fast = fast
        self._next = 0
        self._pending: dict[int, Call] = {}
        self.noise = 0
        self.strays = 0  # answers to nothing that we asked, or that came after we gave up
        self.overlong = 0

    def __repr__(self) -> str:
        return f"<Peer pending={sorted(self._pending)} noise={self.noise} strays={self.strays}>"

    # --- in --------------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> list[Any]:
        """The messages that ``data`` completes, in order: ``Message``s, and what ``fast`` made."""
        first, whole = self._lines.take(data)
        out = self._parse(first) if first else []
        if whole and self._fast is not None:
            # A burst is mostly lines of one kind: one call for all of them.
            try:
                out += self._fast.decode_lines(whole)
                return out
            except (msgspec.DecodeError, UnicodeDecodeError):
                pass
        return out + self._parse(self._lines.split(whole))

    def one(self, line: bytes) -> Message[Call] | None:
        """A message that came alone, as a WebSocket frame or a POST; None for an answer to nothing that we asked."""
        return self._message(line)

    def _parse(self, lines: Iterable[bytes | Overlong]) -> list[Any]:
        out: list[Any] = []
        for line in lines:
            if isinstance(line, Overlong):
                self.overlong += 1
                out.append(line)
                continue
            if self._fast is not None:
                try:
                    out.append(self._fast.decode(line))
                    continue
                except (msgspec.DecodeError, UnicodeDecodeError):
                    pass
            if line and not line.isspace():
                message = self._message(line)
                if message is not None:
                    out.append(message)
        return out

    def _message(self, line: bytes) -> Message[Call] | None:
        if _HALF.search(line):
            line = repair(line) or line
        try:
            envelope = _envelope.decode(line)
        except msgspec.ValidationError:
            return self._noise(INVALID_REQUEST, line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return self._noise(PARSE_ERROR, line)
        if envelope.method is not None:
            if envelope.id:
                return Request(envelope.id, envelope.method, envelope.params)
            return Notification(envelope.method, envelope.params)
        if not envelope.id or not (envelope.result or envelope.error):
            return self._noise(INVALID_REQUEST, line)
        number = request_id(envelope.id)
        if number is None or number not in self._pending:
            self.strays += 1
            return None
        call = self._pending.pop(number)
        # ``"error": null`` beside a result is what some peers write.
        if envelope.error and bytes(envelope.error) != b"null":
            return Response(call, error=_rpc_error(envelope.error))
        return Response(call, result=envelope.result or Raw(b"null"))

    def _noise(self, code: int, line: bytes) -> Noise:
        self.noise += 1
        return Noise(code, line[:_HEAD])

    # --- out -------------------------------------------------------------------------------------------------------

    def request(self, method: str, params: object, call: Call) -> tuple[int, bytes]:
        """The id and the line of a new request. ``call`` comes back in its Response."""
        number = self._next
        self._next += 1
        self._pending[number] = call
        return number, _line({"jsonrpc": "2.0", "id": number, "method": method, "params": params})

    def forget(self, number: int) -> Call | None:
        """Give up waiting: a late answer is a stray. None if it was answered."""
        return self._pending.pop(number, None)

    def pending(self) -> list[tuple[int, Call]]:
        return list(self._pending.items())

    def drain(self) -> list[Call]:
        """All calls that will not be answered any more, in the order they were made."""
        calls = list(self._pending.values())
        self._pending.clear()
        return calls

    @staticmethod
    def notify(method: str, params: object) -> bytes:
        return _line({"jsonrpc": "2.0", "method": method, "params": params})

    @staticmethod
    def result(request: Raw, result: object) -> bytes:
        return _line({"jsonrpc": "2.0", "id": request, "result": result})

    @staticmethod
    def error(request: Raw | None, code: int, message: str, data: object = None) -> bytes:
        error: dict[str, object] = {"code": code, "message": message}
        if data is not None:
            error["data"] = data
        return _line({"jsonrpc": "2.0", "id": request, "error": error})


# Half of a surrogate pair, as an escape: agents in JavaScript write one wherever they cut a string inside an emoji.
_HALF = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)


def repair(data: bytes) -> bytes | None:
    """JSON without halves of surrogate pairs, which no decoder of UTF-8 takes: each becomes "?". None: not needed."""
    if b"\\u" not in data:
        return None
    try:
        return json.dumps(json.loads(data), ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return None


def _line(message: dict[str, object]) -> bytes:
    return _encode(message) + b"\n"


def _rpc_error(raw: Raw) -> RpcError:
    """Agents use codes outside JSON-RPC's ranges, and leave fields out: nothing is refused."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        value = None
    if not isinstance(value, dict):
        return RpcError(INTERNAL, str(value))
    return error_of(value)


def error_of(value: dict[str, Any]) -> RpcError:
    code, message = value.get("code"), value.get("message")
    return RpcError(
        code if isinstance(code, int) else INTERNAL,
        message if isinstance(message, str) and message else "The peer gave no reason.",
        value.get("data"),
    )
