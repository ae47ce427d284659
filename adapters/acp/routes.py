"""ACP over HTTP: Streamable HTTP and WebSocket at ``/acp`` and ``/acp/{agent}``. Thin: who comes in and where it goes.

Source: the Streamable HTTP RFD and both SDKs, where they differ as lenient as both.
"""

import asyncio
import time
from typing import Any

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from adapters import sse
from adapters.acp import rpc
from adapters.acp import translate_server_calls as calls
from adapters.acp.outbox import Lost, Outbox
from adapters.acp.server import Connection, Server
from gateway.controller import SessionController
from gateway.core.errors import ClientError, GatewayError, NotFound
from gateway.settings import Settings

CONNECTION, SESSION = "acp-connection-id", "acp-session-id"
KEEP_ALIVE = 15.0  # seconds
EXPIRY = 600.0  # seconds without an open stream or a message after which an HTTP connection is given up
MAX_STREAMS = 1024
MAX_ID = 1024  # characters


def error_response(request: Request, error: GatewayError) -> Response:
    """Any error of the gateway, for a path under ``/acp``: JSON-RPC's form with the HTTP status."""
    refused = calls.refusal(error)
    code = rpc.INVALID_REQUEST if refused.code == rpc.INVALID_PARAMS else refused.code
    return _error(error.status, code, refused.message, refused.data)


def router(controller: SessionController, settings: Settings) -> APIRouter:
    server = Server(controller, settings)
    routes = Routes(server)
    found = APIRouter(tags=["acp"])
    for path in ("/acp", "/acp/{agent}"):
        found.add_api_route(path, routes.post, methods=["POST"])
        found.add_api_route(path, routes.get, methods=["GET"])
        found.add_api_route(path, routes.delete, methods=["DELETE"])
        found.add_api_websocket_route(path, routes.socket)
    return found


class Routes:
    def __init__(self, server: Server) -> None:
        self.server = server

    async def post(self, request: Request) -> Response:
        data = await request.body()
        try:
            message = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            data = rpc.repair(data) or b""
            try:
                message = _decode(data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return _error(400, rpc.PARSE_ERROR, "Parse error: the body is not valid JSON")
        if isinstance(message, list):
            return _error(501, rpc.INVALID_REQUEST, "Invalid request: JSON-RPC batches are not used in ACP")
        if not isinstance(message, dict):
            return _error(400, rpc.INVALID_REQUEST, "Invalid request: the body is no JSON-RPC object")
        if message.get("method") == "initialize" and "id" in message:
            return await self._initialize(request, data)
        connection = self._connection(request)
        http = _http(connection)
        params = message.get("params")
        named = params.get("sessionId") if isinstance(params, dict) else None
        header = request.headers.get(SESSION, "")
        if header and isinstance(named, str) and named != header:
            raise ClientError(f"{SESSION} is {header[:80]!r} and the message is of session {named[:80]!r}")
        if len(header) > MAX_ID:
            raise ClientError(f"{SESSION} is longer than {MAX_ID} characters")
        http.seen = time.monotonic()
        async with http.lock:
            await connection.receive(data)
        return Response(status_code=202)

    async def _initialize(self, request: Request, data: bytes) -> Response:
        if CONNECTION in request.headers:
            connection = self._connection(request)
            if connection.protocol:
                raise ClientError("this connection is initialized already: a new one begins without the header")
        else:
            await self._expire()
            connection = self.server.connect(HttpTransport(), request.path_params.get("agent", ""), _by(request))
            _http(connection).connection = connection
        message = connection.peer.one(data)
        if not isinstance(message, rpc.Request):
            await connection.close()
            return _error(400, rpc.INVALID_REQUEST, "Invalid request")
        try:
            body = connection.peer.result(message.id, connection.initialize(calls.params(message.params)))
        except calls.Refused as refused:
            body = connection.peer.error(message.id, refused.code, refused.message, refused.data)
        headers = {CONNECTION: connection.id, "Cache-Control": "no-store"}
        return Response(body, 200, headers, "application/json")

    async def get(self, request: Request) -> Response:
        accept = request.headers.get("accept", "*/*")
        if "text/event-stream" not in accept and "*/*" not in accept:
            return _error(406, rpc.INVALID_REQUEST, "Accept must allow text/event-stream")
        connection = self._connection(request)
        session_id = request.headers.get(SESSION, "")
        if len(session_id) > MAX_ID:
            raise ClientError(f"{SESSION} is longer than {MAX_ID} characters")
        outbox = _http(connection).outbox(session_id)
        last = request.headers.get("last-event-id")
        if last is not None and not (last.isascii() and last.isdigit() and len(last) < 19):
            raise ClientError(f"Last-Event-ID {last[:80]!r} is no id of this stream")
        after = int(last) if last is not None else None
        if after is None and outbox.reading:
            return _error(409, rpc.INVALID_REQUEST, "this stream is open already")
        try:
            outbox.check(after)
        except Lost:
            # 409 on a session's stream: clients load the session anew; the connection's own cannot be had again.
            how = "load the session again" if session_id else "connect again"
            data = {"reason": "stream_lost", "lastEventId": last}
            return _error(409 if session_id else 410, rpc.INTERNAL, f"what followed is not kept any more: {how}", data)
        return sse.stream(
            outbox.read(after, say_start=True),
            heartbeat=b": keep-alive\n\n",
            heartbeat_seconds=KEEP_ALIVE,
            headers={CONNECTION: connection.id, **({SESSION: session_id} if session_id else {})},
        )

    async def delete(self, request: Request) -> Response:
        await self._connection(request).close()
        return Response(status_code=202)

    def _connection(self, request: Request) -> Connection:
        """The connection that a request names, if it is this client's. Raises ClientError (400), NotFound."""
        named = request.headers.get(CONNECTION, "")
        if not named:
            raise ClientError(f"the header {CONNECTION} is missing: initialize answers with one")
        connection = self.server.connections.get(named)
        agent = request.path_params.get("agent", "")
        if (
            connection is None
            or not isinstance(connection.transport, HttpTransport)
            or connection.by_name != _by(request)
            or connection.agent != agent
        ):
            raise NotFound(f"no such connection: {named[:80]}")
        return connection

    async def _expire(self) -> None:
        now = time.monotonic()
        for connection in list(self.server.connections.values()):
            transport = connection.transport
            if isinstance(transport, HttpTransport) and transport.abandoned(now):
                await connection.close()

    async def socket(self, websocket: WebSocket) -> None:
        agent = websocket.path_params.get("agent", "")
        try:
            connection = self.server.connect(SocketTransport(websocket), agent, _by(websocket))
        except ClientError as error:
            await websocket.send_denial_response(error_response(Request(_as_http(websocket)), error))
            return
        try:
            await websocket.accept(headers=[(CONNECTION.encode(), connection.id.encode())])
            while (message := await websocket.receive())["type"] != "websocket.disconnect":
                text = message.get("text")
                if text is not None:  # binary frames are ignored
                    await connection.receive(text.encode())
        finally:
            await connection.close()


class HttpTransport:
    """Streams by session id, the connection's under the empty one."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.lock = asyncio.Lock()  # messages are taken one at a time, in the order in which they came
        self.seen = time.monotonic()
        self._streams: dict[str, Outbox] = {"": Outbox()}

    def outbox(self, name: str) -> Outbox:
        """The stream of this name. Raises ClientError for one too many."""
        found = self._streams.get(name)
        if found is None:
            if len(self._streams) > MAX_STREAMS:
                raise ClientError(f"{MAX_STREAMS} streams are open on this connection already")
            found = self._streams[name] = Outbox()
        return found

    def abandoned(self, now: float) -> bool:
        return now - self.seen > EXPIRY and not any(outbox.reading for outbox in self._streams.values())

    async def send(self, frame: str, session_id: str, root_id: str) -> None:
        # A child's frames go with its parent's, in their order, unless the client opened a stream for it.
        own = self._streams.get(session_id)
        outbox = own if own is not None and own.opened else self.outbox(root_id or session_id)
        self._push(outbox, frame)
        await outbox.room()

    async def answer(self, frame: str, session_id: str, establishes: bool) -> None:
        own = self._streams.get(session_id)
        strange = self.connection is not None and session_id not in self.connection.feeds
        if (establishes or strange) and not (own is not None and own.reading):
            # The connection's stream, as the RFD says; with the session's open it goes there, behind the replay.
            self._push(self._streams[""], frame)
        else:
            self._push(self.outbox(session_id), frame)

    def _push(self, outbox: Outbox, frame: str) -> None:
        outbox.push(frame)
        if outbox.full and self.connection is not None and not self.connection.closed:
            self.connection.server.controller.tasks.start(self.connection.close(), name="acp close")

    def close(self) -> None:
        for outbox in self._streams.values():
            outbox.close()


class SocketTransport:
    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket
        self._gone = False

    async def send(self, frame: str, session_id: str, root_id: str) -> None:
        if self._gone:
            return
        try:
            await self._websocket.send({"type": "websocket.send", "text": frame})
        except (OSError, RuntimeError, WebSocketDisconnect):  # it has just gone: the reading side tells the rest
            self._gone = True

    async def answer(self, frame: str, session_id: str, establishes: bool) -> None:
        await self.send(frame, session_id, "")

    def close(self) -> None:
        self._gone = True


def _decode(data: bytes) -> Any:
    return msgspec.json.decode(data)


def _http(connection: Connection) -> HttpTransport:
    assert isinstance(connection.transport, HttpTransport)
    return connection.transport


def _by(request: Request | WebSocket) -> str:
    return str(request.scope.get("state", {}).get("by_name", ""))


def _as_http(websocket: WebSocket) -> dict[str, Any]:
    return {**websocket.scope, "type": "http", "method": "GET"}


def _error(status: int, code: int, message: str, data: Any = None) -> Response:
    error = {"code": code, "message": message, **({"data": data} if data else {})}
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": error})
    return Response(body, status, media_type="application/json")
