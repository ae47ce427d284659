"""The ACP server: clients come in here, whatever carries their messages. One object behind all transports.

A ``Connection`` is one client: it negotiates the version, reads JSON-RPC, calls the methods (``server_methods``) and
follows sessions (``server_feed``). It keeps which requests are open on the wire; all else is the controller's.
"""

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

import msgspec
import structlog

from adapters.acp import rpc, server_client_calls, wire_server
from adapters.acp import translate_server_calls as calls
from adapters.acp.server_client_calls import Errand
from adapters.acp.server_feed import Ask, Feed
from adapters.acp.server_methods import Methods
from adapters.acp.translate_content import encode_block
from adapters.acp.translate_server_calls import Refused
from gateway.controller import SessionController
from gateway.core.errors import ClientError, GatewayError, NotFound
from gateway.core.ids import RequestId, SessionId
from gateway.core.model import By, Cancelled, Pending
from gateway.settings import Settings
from gateway.tasks import Supervisor

Json = dict[str, Any]
_log = structlog.get_logger("acp")


class Transport(Protocol):
    """Carries frames to one client, in order. Each frame is one JSON-RPC object without a newline."""

    async def send(self, frame: str, session_id: str, root_id: str) -> None:
        """Send; waits while the client is slow. ``session_id``: whose stream it belongs to, empty for the
        connection's; ``root_id``: the session that this one is a child of, or itself.
        """
        ...

    async def answer(self, frame: str, session_id: str, establishes: bool) -> None:
        """Send the answer to a request; never waits for a client that does not read its stream. ``establishes``: the
        request brought the session to this connection.
        """
        ...

    def close(self) -> None:
        """The connection has ended: nobody waits for room any more."""
        ...


class Server:
    """What all connections share."""

    def __init__(self, controller: SessionController, settings: Settings) -> None:
        self.controller = controller
        self.roots = [Path(os.path.realpath(root)) for root in settings.workspace]
        self.max_message = settings.max_body
        self.max_connections = settings.max_subscribers
        self.version = _version()
        self.connections: dict[str, Connection] = {}
        controller.clients.offer(partial(server_client_calls.serving, self))

    def __repr__(self) -> str:
        return f"<Server {len(self.connections)} connections>"

    def connect(self, transport: Transport, agent: str, by_name: str) -> "Connection":
        """A new client. Raises ClientError for an unknown agent or one client too many."""
        if agent and agent not in self.controller.agents:
            known = ", ".join(self.controller.agents)
            raise NotFound(f"no agent {agent!r} (there are: {known})", agent=agent)
        if len(self.connections) >= self.max_connections:
            raise Busy(f"{self.max_connections} ACP connections are open already: close some")
        connection = Connection(self, transport, agent, by_name)
        self.connections[connection.id] = connection
        return connection

    def holders(self, root_id: SessionId) -> list["Connection"]:
        """The clients that follow a session."""
        return [c for c in self.connections.values() if root_id in c.feeds]


class Busy(ClientError):
    code = "limit_reached"
    status = 503


class Connection:
    """One client. ``receive`` takes its messages one at a time; ``close`` disturbs no session."""

    def __init__(self, server: Server, transport: Transport, agent: str, by_name: str) -> None:
        self.server = server
        self.transport = transport
        self.agent = agent
        self.by_name = by_name
        self.id = secrets.token_urlsafe(18)
        self.protocol = 0  # until initialize
        self.can = wire_server.ClientCan()
        self.peer: rpc.Peer[Ask | Errand] = rpc.Peer()
        self.feeds: dict[SessionId, Feed] = {}
        self.tasks = Supervisor()
        self.closed = False
        self._methods: Methods | None = None
        self._running: dict[rpc.Id, asyncio.Task[None]] = {}
        self._open: set[rpc.Id] = set()
        self._used = False  # it has asked something after initialize
        self._tags = 0

    def __repr__(self) -> str:
        return f"<Connection {self.id[:6]} v{self.protocol} {list(self.feeds)} {self.peer}>"

    @property
    def wire(self) -> str:
        return wire_server.WIRES[self.protocol]

    def by(self, tag: str = "") -> By:
        """Whom what this client does is owed to. ``tag``: its prompt, so that its echo and its answer are found."""
        return By(self.by_name, "acp", tag or self.id)

    def tag(self) -> str:
        self._tags += 1
        return f"{self.id}:{self._tags}"

    # --- in ----------------------------------------------------------------------------------------------------------

    async def receive(self, data: bytes) -> None:
        """One message. What it asks for quickly and in order is done when this returns; the rest goes on by itself."""
        if len(data) > self.server.max_message:
            limit = self.server.max_message
            await self._protocol_error(rpc.INVALID_REQUEST, f"the message is larger than {limit} bytes")
            return
        message = self.peer.one(data)
        if isinstance(message, rpc.Noise) and message.code == rpc.PARSE_ERROR and (repaired := rpc.repair(data)):
            message = self.peer.one(repaired)
        match message:
            case rpc.Noise(code=code):
                await self._protocol_error(code, _why(code, data))
            case rpc.Request() as request:
                await self._request(request)
            case rpc.Notification() as notification:
                await self._notification(notification)
            case rpc.Response(call=Errand() as errand) as response:
                errand.answered(response.result, response.error)
            case rpc.Response(call=Ask() as ask) as response:
                self.tasks.start(self._answered(ask, response.result, response.error), name="acp answer")

    async def overlong(self, limit: int) -> None:
        await self._protocol_error(rpc.INVALID_REQUEST, f"the message is larger than {limit} bytes")

    async def _protocol_error(self, code: int, why: str) -> None:
        await self._answer(_text(self.peer.error(None, code, why)), "")

    async def _request(self, request: rpc.Request) -> None:
        key = _key(request.id)
        if key is None or (self.protocol == 2 and key[0] not in ("int", "str")):
            await self._protocol_error(rpc.INVALID_REQUEST, "a request's id must be a string or an integer")
            return
        session_id, establishes = "", False
        try:
            if key in self._open:
                raise Refused(rpc.INVALID_REQUEST, "a request with this id is open already")
            params = calls.params(request.params)
            if request.method == "initialize":
                await self.respond(request.id, self.initialize(params), "")
                return
            if self._methods is None:
                raise Refused(rpc.INVALID_REQUEST, "initialize comes first")
            self._used = True
            named = params.get("sessionId")
            session_id = named if isinstance(named, str) else ""
            handler, ordered, establishes = self._methods.find(request.method)
        except Refused as refused:
            await self.refuse(request.id, refused.code, refused.message, refused.data, session_id)
            return
        self._open.add(key)
        serve = self._serve(request, handler, params, session_id, establishes)
        if ordered:
            await serve
        else:
            task = self._running[key] = self.tasks.start(serve, name=f"acp {request.method}")
            task.add_done_callback(lambda _: self._running.pop(key, None))
            await asyncio.sleep(0)  # it has begun: one that is withdrawn in the next message is answered too

    async def _serve(
        self,
        request: rpc.Request,
        handler: Callable[[Json, "Call"], Awaitable[Json | None]],
        params: Json,
        session_id: str,
        establishes: bool,
    ) -> None:
        """Run a handler and answer; None: the answer comes later, or was given."""
        call = Call(request.id, session_id, establishes)
        if establishes:
            session_id = session_id if request.method != "session/fork" else ""
        try:
            try:
                result = await handler(params, call)
            except GatewayError as error:
                raise calls.refusal(error) from None
        except Refused as refused:
            await self.refuse(request.id, refused.code, refused.message, refused.data, session_id, establishes)
        except asyncio.CancelledError:
            if not self.closed:
                await self.refuse(request.id, rpc.CANCELLED, "Request cancelled", None, session_id, establishes)
            raise
        except Exception:
            _log.exception("request failed", method=request.method)
            await self.refuse(request.id, rpc.INTERNAL, "Internal error", None, session_id, establishes)
        else:
            if result is not None:
                await self.respond(request.id, result, session_id, establishes)

    async def _notification(self, message: rpc.Notification) -> None:
        """Unknown ones and those that make no sense are ignored, as JSON-RPC says."""
        if self._methods is None:
            return
        try:
            params = calls.params(message.params)
            if message.method == "$/cancel_request":
                await self._cancel_request(params.get("requestId"))
            elif message.method == "session/cancel":
                await self._methods.cancel(params)
        except (Refused, GatewayError) as error:
            _log.info("notification ignored", method=message.method, why=error.message)

    async def _cancel_request(self, named: object) -> None:
        key = _key(msgspec.Raw(msgspec.json.encode(named)))
        if key is None:
            return
        task = self._running.get(key)
        if task is not None:
            task.cancel()
            return
        for feed in self.feeds.values():
            ticket = feed.tickets.of(key)
            if ticket is None:
                continue
            if ticket.turn_id is None:
                feed.tickets.revoke(ticket)
            else:
                await self.server.controller.abort(feed.root_id, by=self.by())

    async def _answered(self, ask: Ask, result: msgspec.Raw | None, failed: rpc.RpcError | None) -> None:
        """The client's answer to a request of the agent. One that says nothing leaves it to the others, if any."""
        controller = self.server.controller
        try:
            if result is not None:
                outcome = calls.answer(ask.request.kind, result)
                await controller.answer(ask.session_id, ask.request.id, outcome, by=self.by())
                return
            why = failed.message if failed else ""
        except ClientError as error:
            why = error.message
        except GatewayError as error:
            _log.warning("answer not taken", request=ask.request.id, why=error.message)
            return
        _log.warning("client gave no answer", request=ask.request.id, why=why)
        if not self._asked_elsewhere(ask.request.id):
            try:
                await controller.answer(ask.session_id, ask.request.id, Cancelled(f"no answer: {why}"), by=self.by())
            except GatewayError as error:
                _log.warning("answer not taken", request=ask.request.id, why=error.message)

    def _asked_elsewhere(self, request_id: RequestId) -> bool:
        others = [c for c in self.server.connections.values() if c is not self]
        return any(feed.holds(request_id) for other in others for feed in other.feeds.values())

    def initialize(self, params: Json) -> Json:
        """The result of initialize. Raises Refused."""
        if self.protocol == 1 or self._used:  # v2 allows it again, before anything else
            raise Refused(rpc.INVALID_REQUEST, "this connection is initialized already")
        self.protocol = calls.version(params)
        self.can = wire_server.client_can(self.protocol, params)
        self._methods = Methods(self)
        said = wire_server.initialized(self.protocol, self.server.version, self.agent)
        return {**said, **self._login(said)}

    def _login(self, said: Json) -> Json:
        """How to log in to the agent, if that is known: none is started for it."""
        controller = self.server.controller
        agent, logins = self.agent or controller.default_agent, controller.logins
        if logins is None:
            return {}
        offered = {"authMethods": wire_server.auth_methods(self.protocol, logins.methods(agent))}
        if self.protocol == 1 and logins.can_logout(agent):
            return {**offered, "agentCapabilities": {**said["agentCapabilities"], "auth": {"logout": {}}}}
        return offered

    # --- out ---------------------------------------------------------------------------------------------------------

    async def send(self, frame: str, session_id: str = "", root_id: str = "") -> None:
        if not self.closed:
            await self.transport.send(frame, session_id, root_id)

    async def _answer(self, frame: str, session_id: str, establishes: bool = False) -> None:
        if not self.closed:
            await self.transport.answer(frame, session_id, establishes)

    async def respond(self, request: msgspec.Raw, result: Json, session_id: str, establishes: bool = False) -> None:
        self.done(request)
        await self._answer(_text(self.peer.result(request, result)), session_id, establishes)

    async def refuse(
        self,
        request: msgspec.Raw,
        code: int,
        message: str,
        data: Any = None,
        session_id: str = "",
        establishes: bool = False,
    ) -> None:
        self.done(request)
        if code == rpc.AUTH_REQUIRED and isinstance(data, dict) and "authMethods" in data:
            data = {**data, "authMethods": wire_server.auth_methods(self.protocol, data["authMethods"])}
        await self._answer(_text(self.peer.error(request, code, message, data)), session_id, establishes)

    def done(self, request: msgspec.Raw) -> None:
        key = _key(request)
        if key is not None:
            self._open.discard(key)

    async def tell_pending(self, session_id: SessionId, pending: list[Pending]) -> None:
        waiting = [
            {
                "messageId": m.id,
                "mode": m.lane,
                "state": "held" if m.held else m.state,
                "content": [encode_block(block) for block in m.content],
                **({"held": m.held} if m.held else {}),
                **({"uncertain": True} if m.uncertain else {}),
            }
            for m in pending
        ]
        params = {"sessionId": session_id, "pending": waiting}
        await self.send(_text(self.peer.notify("_trunkline/pending", params)), session_id, session_id)

    # --- sessions ----------------------------------------------------------------------------------------------------

    def feed(self, root_id: SessionId) -> Feed:
        """The client's feed of a session; a new one is not open yet."""
        feed = self.feeds.get(root_id)
        if feed is None:
            feed = self.feeds[root_id] = Feed(self, root_id)
        return feed

    async def leave(self, root_id: SessionId) -> None:
        feed = self.feeds.pop(root_id, None)
        server_client_calls.leave(self, root_id)
        if feed is not None:
            await feed.close()

    async def close(self) -> None:
        """The client is gone. Its prompts run on, its requests are the others'."""
        if self.closed:
            return
        self.closed = True
        self.server.connections.pop(self.id, None)
        server_client_calls.leave(self)
        self.transport.close()
        for feed in list(self.feeds.values()):
            await feed.close()
        self.feeds.clear()
        await self.tasks.close()
        self.peer.drain()


class Call(msgspec.Struct, frozen=True):
    """The request that a handler works for."""

    id: msgspec.Raw
    session_id: str
    establishes: bool


def _text(line: bytes) -> str:
    return line.decode().rstrip("\n")


def _key(raw: msgspec.Raw) -> rpc.Id | None:
    """An id to compare by; None for what is none."""
    try:
        kind, value = rpc.id_key(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return (kind, value) if kind in ("int", "str", "float", "NoneType") else None


def _version() -> str:
    try:
        return version("trunkline")
    except PackageNotFoundError:  # run from its folder, not installed
        return "0"


def _why(code: int, data: bytes) -> str:
    if code == rpc.PARSE_ERROR:
        return "Parse error: the message is not valid JSON"
    if data.lstrip()[:1] == b"[":
        return "Invalid request: JSON-RPC batches are not used in ACP"
    return "Invalid request"
