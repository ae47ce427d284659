"""A channel to an ACP agent over Streamable HTTP: a POST a message, a stream for the connection and one a session.

Source: the Streamable HTTP RFD, and what the servers of the TypeScript SDK 2.4.0 and the Python SDK 0.12.1 do where
they differ. A cut stream goes on after its last event id where the server gives ids; else the channel is lost. A
request whose POST failed on the way is never sent again: the agent may have it.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Any
from urllib.request import getproxies

import httpx
import msgspec

from adapters.acp import rpc
from adapters.acp.channel import Ended
from adapters.acp.remote_base import (
    MAX_MESSAGE,
    TOO_LONG,
    NotYet,
    Refused,
    RemoteChannel,
    Target,
    Waits,
    lost,
    network_error,
    refusal,
)
from adapters.acp.remote_sse import Event, Events, TooLong

CONNECTION, SESSION, VERSION = "Acp-Connection-Id", "Acp-Session-Id", "Acp-Protocol-Version"
AGAIN = 15.0  # seconds for which a cut stream, or a message that could not be sent, is tried again
OPENING = 1.0  # seconds that a message waits for its session's stream: some servers send no headers before an event
QUIET = 0.15  # seconds without an update after which a session's replay is taken for complete
LATEST = 3.0  # seconds that an answer waits for that
POST = 300.0  # seconds for the whole answer to a POST: a server may let who is behind wait
ERROR_BODY = 8192
KEEP_ALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPIDLE", socket.SO_KEEPALIVE), 20),
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPINTVL", socket.SO_KEEPALIVE), 10),
    (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPCNT", socket.SO_KEEPALIVE), 3),
]

_JOINS = ("session/load", "session/resume")
_ENDS = ("session/close", "session/delete")


class _Params(msgspec.Struct, rename="camel", gc=False):
    session_id: str | None = None
    update: msgspec.Raw = msgspec.Raw()


class _Line(msgspec.Struct, gc=False):
    """What is needed of a message, to or from the agent."""

    method: str | None = None
    id: msgspec.Raw = msgspec.Raw()
    params: _Params | None = None
    result: msgspec.Raw = msgspec.Raw()


class _Result(msgspec.Struct, rename="camel", gc=False):
    session_id: str | None = None
    protocol_version: int = 1


class _Update(msgspec.Struct, rename="camel", gc=False):
    session_update: str = ""
    session_id: str | None = None


_line = msgspec.json.Decoder(_Line)
_result = msgspec.json.Decoder(_Result)
_update = msgspec.json.Decoder(_Update)


class _Stream:
    def __init__(self, session: str) -> None:
        self.session = session
        self.settled = asyncio.Event()  # the server has taken it, or does not know the session
        self.unknown = False
        self.over = False  # the session is closed: what becomes of its stream is no loss
        self.last: bytes | None = None  # the id of the last event
        self.heard = 0.0  # when something came, by the loop's clock
        self.task: asyncio.Task[None] | None = None


class RemoteHttp(RemoteChannel):
    def __init__(self, target: Target, on_data: Callable[[bytes], None], on_exit: Ended) -> None:
        self._client: httpx.AsyncClient | None = None
        self._id = ""
        self._version: dict[str, str] = {}
        self._first: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._connected = asyncio.Event()
        self._streams: dict[str, _Stream] = {}
        self._queues: dict[str, deque[tuple[bytes, _Line]]] = {}  # lines to be sent, by session, in order
        self._calls: dict[bytes, tuple[str, str]] = {}  # our requests that open or end a session: method, session
        self._asked: dict[bytes, str] = {}  # the agent's requests: their session
        self._children_apart = True
        super().__init__(target, on_data, on_exit)

    # --- out -------------------------------------------------------------------------------------------------------

    def _send(self, data: bytes) -> None:
        if not self._first.done():  # initialize
            self._sent(data)
            self._first.set_result(data)
            return
        line = _line.decode(data)
        session = (line.params.session_id if line.params else None) or ""
        if line.method is None:  # an answer goes where the request came from
            session = self._asked.pop(bytes(line.id), "")
        elif line.id and line.method.startswith("session/"):
            self._calls[bytes(line.id)] = (line.method, session)
        queue = self._queues.get(session)
        if queue is not None:
            queue.append((data, line))
            return
        self._queues[session] = deque([(data, line)])
        self._start(self._post_all(session), "post")

    async def _post_all(self, session: str) -> None:
        """One message after the other: the order within a session is that of the writes."""
        await self._connected.wait()
        queue = self._queues[session]
        while queue:
            data, line = queue.popleft()
            await self._post(session, data, line)
            self._sent(data)
        del self._queues[session]

    async def _post(self, session: str, data: bytes, line: _Line) -> None:
        headers = dict(self._headers())
        if session:
            stream = await self._opened(session)
            # A server that does not know the session yet learns of it by this message, or never.
            if not (stream.unknown and line.method in _JOINS):
                headers[SESSION] = session
        request = line.id if line.method else None
        waits, end = Waits(), self._loop.time() + AGAIN
        while True:
            try:
                answer, body = await self._exchange(data, headers, AGAIN, POST)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                why = network_error(error)  # nothing was sent
            except httpx.TransportError as error:
                why = network_error(error)
                if request:
                    raise lost(f"it is not known whether it has taken {line.method}: {why}") from None
            else:
                if answer.is_success:
                    if answer.status_code == 200 and body.strip():
                        self._heard(None, [Event(None, body.replace(b"\n", b" "))])
                    return
                failed = refusal(self.target, answer.status_code, line.method or "an answer", body)
                why = str(failed)
                if answer.status_code in (401, 403):
                    raise failed
                if answer.status_code in (404, 410):
                    raise lost(f"the server does not know it any more: {why}")
                if answer.status_code not in (429, 503):
                    if not request:
                        raise lost(why)
                    self._calls.pop(bytes(request), None)
                    refused = {"status": answer.status_code}
                    return self._arrived(rpc.Peer.error(request, rpc.INTERNAL, why, refused))
            wait = waits.next()
            if self._loop.time() + wait > end:
                raise lost(f"{line.method or 'an answer'} could not be sent: {why}")
            await asyncio.sleep(wait)

    async def _exchange(
        self, data: bytes, headers: dict[str, str], connect: float, whole: float
    ) -> tuple[httpx.Response, bytes]:
        """POST a line: the answer and its body, of one that says nothing or refuses only the beginning. ``connect``,
        ``whole``: seconds. Raises httpx.TransportError, Refused for a body over the limit.
        """
        headers = {**headers, "Accept-Encoding": "identity"}
        url, timeout = self.target.url.text, httpx.Timeout(whole, connect=connect)
        try:
            async with asyncio.timeout(whole):
                async with self._http().stream(
                    "POST", url, content=data.rstrip(b"\n"), headers=headers, timeout=timeout
                ) as answer:
                    body = await _body(answer, MAX_MESSAGE if answer.status_code == 200 else ERROR_BODY)
        except TimeoutError:
            raise httpx.ReadTimeout(f"no whole answer within {whole:g} s") from None
        if answer.status_code == 200 and len(body) > MAX_MESSAGE:
            raise lost(TOO_LONG)
        return answer, body

    # --- in --------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        data = await self._first
        self._client = self._new_client()
        answer, body = await self._attempts(lambda seconds: self._initialize(data, seconds))
        body = body.strip().replace(b"\n", b" ")
        self._id = answer.headers.get(CONNECTION, "")
        try:
            result = _result.decode(_line.decode(body).result or b"{}")
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise Refused("it does not answer initialize with JSON-RPC: is this the address of an agent?") from None
        if not self._id and b'"error"' not in body:
            raise Refused(f"it answers initialize without {CONNECTION}: is this the address of an agent?")
        if self._id:
            self._version = {VERSION: str(result.protocol_version)}
            # Trunkline tells what a child says on its parent's stream, in order.
            self._children_apart = b'"trunkline"' not in body
            await self._opened("")
            self._connected.set()
        self._arrived(body + b"\n")

    async def _initialize(self, data: bytes, seconds: float) -> tuple[httpx.Response, bytes]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        try:
            # Who is connected and gets no answer is told so by the call itself, when its time is over.
            answer, body = await self._exchange(data, headers, seconds, self.target.start_timeout)
        except httpx.TransportError as error:
            raise NotYet(network_error(error)) from None
        if answer.status_code != 200:
            location = answer.headers.get("Location", "")
            raise refusal(self.target, answer.status_code, "initialize", body, location)
        return answer, body

    async def _opened(self, session: str) -> _Stream:
        """The stream of a session, when the server has taken it, or after a while."""
        stream = self._streams.get(session)
        if stream is None or stream.unknown:
            stream = self._streams[session] = _Stream(session)
            stream.task = self._start(self._read(stream), "stream")
        if not stream.settled.is_set():
            try:
                async with asyncio.timeout(OPENING):
                    await stream.settled.wait()
            except TimeoutError:
                stream.settled.set()
        return stream

    async def _read(self, stream: _Stream) -> None:
        """A stream to its end, through cuts."""
        waits, end = Waits(), self._loop.time() + AGAIN
        while True:
            before = stream.heard
            try:
                await self._read_once(stream)
                why = "the stream ended"
            except httpx.TransportError as error:
                why = network_error(error)
            except NotYet as failed:
                why = str(failed)
            if stream.unknown or stream.over:
                return
            if stream.heard and stream.last is None:
                raise lost(why)  # what came meanwhile would be missing
            now = self._loop.time()
            if stream.heard > before:
                waits, end = Waits(), now + AGAIN
            wait = waits.next()
            if now + wait > end:
                raise lost(why)
            await asyncio.sleep(wait)

    async def _read_once(self, stream: _Stream) -> None:
        """Read until the end of the response, or find the session unknown."""
        headers = {**self._headers(), "Accept": "text/event-stream", "Accept-Encoding": "identity"}
        if stream.session:
            headers[SESSION] = stream.session
        raw: list[tuple[bytes, bytes]] = [(name.encode(), value.encode()) for name, value in headers.items()]
        if stream.last:
            raw.append((b"Last-Event-ID", stream.last))
        timeout = httpx.Timeout(AGAIN, read=None)
        async with self._http().stream("GET", self.target.url.text, headers=raw, timeout=timeout) as answer:
            if answer.status_code != 200:
                try:
                    async with asyncio.timeout(AGAIN):
                        body = await _body(answer, ERROR_BODY)
                except TimeoutError:
                    body = b""
                if answer.status_code == 404 and stream.session and not stream.heard:
                    stream.unknown = True
                    stream.settled.set()
                    return
                failed = refusal(self.target, answer.status_code, "the stream", body)
                if isinstance(failed, Refused) and failed.code == "agent_error":
                    raise lost(f"its stream cannot be read on: {failed}" if stream.heard else str(failed))
                raise failed
            kind = answer.headers.get("Content-Type", "")
            if not kind.startswith("text/event-stream"):
                raise Refused(f"its stream is {kind or 'of no type'}, not text/event-stream")
            stream.heard = self._loop.time()
            stream.settled.set()
            events = Events(MAX_MESSAGE)
            async for chunk in answer.aiter_raw():
                try:
                    self._heard(stream, events.feed(chunk))
                except TooLong:
                    raise lost(TOO_LONG) from None
                if stream.over:
                    return
                await self._reading.wait()

    def _heard(self, stream: _Stream | None, events: list[Event]) -> None:
        """What came together. What says something about streams is looked at; all of it is passed on."""
        lines: list[bytes] = []
        for event in events:
            if stream and event.id is not None:
                stream.last = event.id or None
            if event.data and (b'"id"' not in event.data and b'"subagent_update"' not in event.data):
                lines.append(event.data)
            elif event.data and self._passes(stream, event.data):
                lines.append(event.data)
        if stream and events:
            stream.heard = self._loop.time()
        if lines:
            lines.append(b"")
            self._arrived(b"\n".join(lines))

    def _passes(self, stream: _Stream | None, data: bytes) -> bool:
        """False: it is an answer that has to wait for its session's stream."""
        try:
            line = _line.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return True
        if line.method is not None:
            session = line.params.session_id if line.params else None
            if line.id:
                self._asked[bytes(line.id)] = session or (stream.session if stream else "")
            elif line.params and self._children_apart and (child := _child(line.params.update)):
                self._open(child)
            return True
        call = self._calls.pop(bytes(line.id), None)
        if call is None or not line.result:
            return True
        method, session = call
        if method in _ENDS and session in self._streams:
            ended = self._streams.pop(session)
            ended.over = True
            if ended.task and ended is not stream:
                ended.task.cancel()
        elif method in ("session/new", "session/fork") and (named := _session_of(line.result)):
            if method == "session/fork":
                return self._after_replay(named, method, line.id, data)
            self._open(named)
        elif method in _JOINS and not (stream and stream.session == session):
            return self._after_replay(session, method, line.id, data)
        return True

    def _open(self, session: str) -> None:
        self._start(self._opened(session), "open")

    def _after_replay(self, session: str, method: str, id_: msgspec.Raw, answer: bytes) -> bool:
        self._start(self._pass_after_replay(session, method, id_, answer), "answer")
        return False

    async def _pass_after_replay(self, session: str, method: str, id_: msgspec.Raw, answer: bytes) -> None:
        """The replay comes on another stream than the answer, and nothing but its silence says that it is over."""
        stream = await self._opened(session)
        if stream.unknown and method in _JOINS:
            why = f"the server does not know the session after {method}"
            self._arrived(rpc.Peer.error(id_, rpc.NOT_FOUND, why))
            return
        began = self._loop.time()
        while True:
            await self._reading.wait()
            now = self._loop.time()
            left = max(stream.heard, began) + QUIET - now
            if left <= 0 or now > began + LATEST:
                break
            await asyncio.sleep(left)
        self._arrived(answer + b"\n")

    # --- the rest --------------------------------------------------------------------------------------------------

    def _headers(self) -> dict[str, str]:
        return {"Content-Type": "application/json", CONNECTION: self._id, **self._version}

    def _http(self) -> httpx.AsyncClient:
        assert self._client is not None
        return self._client

    def _new_client(self) -> httpx.AsyncClient:
        url = self.target.url
        options: dict[str, Any] = {}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        if url.loopback or not getproxies():
            options["transport"] = httpx.AsyncHTTPTransport(verify=url.secure, limits=limits, socket_options=KEEP_ALIVE)
        return httpx.AsyncClient(
            headers={**self.target.headers, "User-Agent": "trunkline"},
            cookies=self.target.cookies,
            limits=limits,
            trust_env=not url.loopback,
            **options,
        )

    async def _close(self) -> None:
        if self._client is None:
            return
        try:
            if self._id:
                url, headers = self.target.url.text, self._headers()
                async with self._client.stream("DELETE", url, headers=headers, timeout=2.0):
                    pass
        except httpx.TransportError:
            pass  # it is gone
        finally:
            await self._client.aclose()


async def _body(answer: httpx.Response, limit: int) -> bytes:
    """As it came; of one over ``limit`` the beginning, a byte more than that. Raises Refused for an encoded answer."""
    encoding = answer.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        if answer.status_code == 200:
            raise lost(f"its answer is encoded as {encoding}, which was not asked for")
        return b""
    body = bytearray()
    async for chunk in answer.aiter_raw():
        body += chunk[: limit + 1 - len(body)]
        if len(body) > limit:
            break
    return bytes(body)


def _session_of(result: msgspec.Raw) -> str | None:
    try:
        return _result.decode(result).session_id
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _child(update: msgspec.Raw) -> str | None:
    try:
        found = _update.decode(update)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found.session_id if found.session_update == "subagent_update" else None
