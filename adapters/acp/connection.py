"""One ACP connection to an agent: routing between its sessions and their owners.

It starts the process, initializes it, gives each update, request and answer to the owner of its session, and tells
all of them of its end, once. All messages of one read are told in one call a session, in their order, an answer among
the updates. Who asked what is the owners' matter (``agent.AcpAgent``); so is every fact.
"""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import msgspec
import structlog

from adapters.acp import duties, rpc, wire
from adapters.acp import translate_v1_calls as calls
from adapters.acp.channel import Channel
from adapters.acp.dialect import Dialect, DialectV1, chosen
from adapters.acp.noise import NoiseReport
from adapters.acp.owner import CallFailed, Gone, Owner
from adapters.acp.process import Process
from adapters.acp.strays import Strays
from adapters.acp.translate_runs import TextRun, coalesce
from adapters.acp.turns import agent_error
from gateway.agents import AgentConfig
from gateway.core.inputs import AgentChild, AgentFact, AgentText
from gateway.core.model import Error
from gateway.spawn import environment
from gateway.tasks import Supervisor

_SESSION = re.compile(rb'"sessionId"\s*:\s*"([^"\\]+)"')
_ANSWER = re.compile(rb'"id"\s*:\s*(\d{1,18})\b')
_log = structlog.get_logger("agent")

Answered = Callable[[msgspec.Raw | None, rpc.RpcError | None], None]


class _Call(msgspec.Struct):
    method: str
    answered: Answered
    lost: Callable[[Error], None] | None = None
    owner: Owner | None = None
    timer: asyncio.TimerHandle | None = None


class Connection:
    """``users`` counts who holds it; the pool (``agent.AcpAgents``) ends it when nobody does."""

    def __init__(
        self,
        config: AgentConfig,
        cwd: str,
        run_dir: Path | None,
        cookies: CookieJar | None = None,
        initialized: "Callable[[Connection], Awaitable[None]] | None" = None,
    ) -> None:
        """``initialized``: what else has to be done before the first session is opened."""
        self.config, self.cwd, self.run_dir = config, cwd, run_dir
        self._cookies, self._initialized = cookies, initialized
        self.name = config.name or (config.command[0] if config.command else "agent")
        self.users = 0
        self.dead: Error | None = None
        self.can: calls.Abilities | None = None
        self.dialect: Dialect = DialectV1()  # since initialize the one that the agent speaks
        self.process: Channel | None = None
        self.peer: rpc.Peer[_Call] = rpc.Peer(fast=wire.plain)
        self._routes: dict[str, Owner] = {}
        self._strays = Strays()
        self._touched: dict[Owner, None] = {}
        self._full: set[Owner] = set()
        self._opened = asyncio.Event()
        self._tasks = Supervisor()
        self._loop = asyncio.get_running_loop()
        self._noise = NoiseReport(self.name, self._loop)

    def __repr__(self) -> str:
        return f"<Connection {self.name} {self.process} sessions={list(self._routes)} {self.peer}>"

    # --- life ------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Spawn or connect, and initialize, in the background: ``ready`` waits for it."""
        try:
            self.process = self._channel()
        except (OSError, ValueError) as error:
            self._die(Error("agent_exit", f"{self.name} cannot be started: {error}"))
            return
        self._tasks.start(self._initialize(), name=f"initialize {self.name}")

    def _channel(self) -> Channel:
        """Raises OSError for a program that cannot be started, ValueError for settings that do not do here."""
        if not self.config.url:
            env = environment(os.environ, self.config.pass_env, self.config.env)
            return Process(self.config.command, self.cwd, env, self._on_data, self._on_exit, self.run_dir, self.name)
        from adapters.acp import remote  # its libraries are loaded by who needs them

        return remote.channel(self.config, self.name, os.environ, self._cookies, self._on_data, self._on_exit)

    async def ready(self) -> calls.Abilities:
        """Raises Gone."""
        await self._opened.wait()
        if self.dead is not None or self.can is None:
            raise Gone(self.dead or Error("agent_exit", f"{self.name} is not running"))
        return self.can

    async def _initialize(self) -> None:
        try:
            offer = wire.initialize(_version(), self.config.fs != "off", self.config.terminal != "off")
            if self.config.protocol == 2:
                offer = wire.initialize_v2(_version())
            result = await self.ask("initialize", offer, self.config.start_timeout)
        except Gone:
            return
        except CallFailed as failed:
            self.fail(self.error_of(failed))
            return
        asked = self.config.protocol
        dialect = chosen(asked, result)
        if dialect is None:
            version = wire.as_object(result).get("protocolVersion")
            self.fail(Error("agent_error", f"{self.name} speaks version {version} of ACP, not {asked}"))
            return
        if dialect.version != asked:
            _log.info("agent speaks an older version of ACP", agent=self.name, asked=asked, speaks=dialect.version)
        self.dialect, self.can = dialect, dialect.abilities(result)
        if self._initialized is not None:
            try:
                await self._initialized(self)
            except Gone:
                return
        self._opened.set()

    def fail(self, error: Error) -> None:
        """Give the agent up: everybody is told ``error``, the process group is killed."""
        self._die(error)
        if self.process:
            self.process.kill(error.message)

    async def stop(self) -> None:
        """The usual ladder; returns when no process is left."""
        await self._tasks.close()
        if self.process:
            await self.process.stop()
        self._die(Error("agent_exit", f"{self.name} was stopped"))

    def _on_exit(self, how: str, code: str = "agent_exit") -> None:
        self._die(Error(code, self._with_stderr(f"{self.name} {how}")))

    def _with_stderr(self, message: str) -> str:
        if self.can is None and self.peer.noise:  # that may be why
            message += f"; it wrote {self.peer.noise} line{'s' * (self.peer.noise > 1)} that are no ACP messages"
        said = self.process.last_stderr() if self.process else ""
        return f"{message}; last stderr: {said}" if said else message

    def _die(self, error: Error) -> None:
        if self.dead is not None:
            return
        self.dead = error
        self._noise.tell()
        self._opened.set()
        for call in self.peer.drain():
            if call.timer:
                call.timer.cancel()
            if call.lost:
                call.lost(error)
        for owner in dict.fromkeys(self._routes.values()):
            owner.gone(error)
        self._routes.clear()
        self._strays.clear()

    def error_of(self, failed: CallFailed) -> Error:
        """A failed call as people see it."""
        if failed.timeout:
            return Error("agent_timeout", self._with_stderr(failed.error.message))
        return agent_error(failed.error, self.can)

    # --- calls -----------------------------------------------------------------------------------------------------

    def call(
        self,
        method: str,
        params: object,
        answered: Answered,
        timeout: float | None = None,
        owner: Owner | None = None,
        lost: Callable[[Error], None] | None = None,
    ) -> bool:
        """Write a request. ``answered`` is called in its place among the updates, or with an error after ``timeout``
        seconds; ``lost`` if the agent dies before. False: it could not be written, and neither will be called.
        """
        if self.dead is not None or self.process is None:
            return False
        call = _Call(method, answered, lost, owner)
        number, line = self.peer.request(method, params, call)
        if not self.process.write(line):
            self.peer.forget(number)
            return False
        if timeout is not None:
            call.timer = self._loop.call_later(timeout, self._expired, number, timeout)
        return True

    async def ask(
        self,
        method: str,
        params: object,
        timeout: float,
        answered: Callable[[msgspec.Raw], None] | None = None,
        owner: Owner | None = None,
    ) -> msgspec.Raw:
        """A request awaited. ``answered`` is called in place, before the caller wakes. Raises CallFailed, Gone."""
        future: asyncio.Future[msgspec.Raw] = self._loop.create_future()

        def done(result: msgspec.Raw | None, error: rpc.RpcError | None) -> None:
            if result is not None and answered:
                answered(result)
            if future.done():
                return
            if result is not None:
                future.set_result(result)
            else:
                failure = error or rpc.RpcError(rpc.INTERNAL, "no answer")
                future.set_exception(CallFailed(failure, timeout=self.timed_out(failure)))

        def lost(error: Error) -> None:
            if not future.done():
                future.set_exception(Gone(error))

        if not self.call(method, params, done, timeout, owner, lost):
            raise Gone(self.dead or Error("agent_exit", f"{self.name} does not read its input"))
        return await future

    @staticmethod
    def timed_out(error: rpc.RpcError) -> bool:
        """Whether no answer came in time, rather than an error."""
        return error.data is _TIMED_OUT

    def _expired(self, number: int, timeout: float) -> None:
        call = self.peer.forget(number)
        if call:
            message = f"{self.name} did not answer {call.method} within {timeout:g} s"
            if call.owner:
                self._touched[call.owner] = None
            call.answered(None, rpc.RpcError(rpc.INTERNAL, message, _TIMED_OUT))
            self._flush()

    def notify(self, method: str, params: object) -> None:
        self._write(self.peer.notify(method, params))

    def answer(self, request: msgspec.Raw, result: object) -> None:
        self._write(self.peer.result(request, result))

    def refuse(self, request: msgspec.Raw, code: int, message: str, data: object = None) -> None:
        self._write(self.peer.error(request, code, message, data))

    def _write(self, line: bytes) -> None:
        if self.dead is None and self.process:
            self.process.write(line)

    # --- sessions --------------------------------------------------------------------------------------------------

    def attach(self, session_id: str, owner: Owner) -> None:
        """From now on ``owner`` has this session. What came for it before: ``release``."""
        self._routes[session_id] = owner

    def release(self, session_id: str) -> None:
        """Tell the owner what came before it was known."""
        for message in self._strays.take(session_id):
            self._one(message)

    def detach(self, owner: Owner) -> None:
        """Forget an owner, all its sessions (children too) and all that it waits for: it is told nothing more."""
        for number, call in self.peer.pending():
            if call.owner is owner:
                self.peer.forget(number)
                if call.timer:
                    call.timer.cancel()
                if call.lost:
                    call.lost(Error("agent_exit", f"{self.name} was left"))
        self._routes = {key: value for key, value in self._routes.items() if value is not owner}
        self._touched.pop(owner, None)
        self._unhold(owner)

    # --- in --------------------------------------------------------------------------------------------------------

    def _on_data(self, data: bytes) -> None:
        for message in coalesce(self.peer.feed(data)):
            try:
                self._one(message)
            except Exception:  # one message that we cannot take must not end the session
                _log.exception("agent message failed", agent=self.name)
        self._flush()

    def _flush(self) -> None:
        touched, self._touched = self._touched, {}
        for owner in touched:
            owner.flush()
            if owner.full() and owner not in self._full and self.process and self.dead is None:
                self._full.add(owner)
                self.process.pause()
                self._tasks.start(self._wait(owner), name=f"back-pressure {self.name}")

    async def _wait(self, owner: Owner) -> None:
        await owner.drained()
        self._unhold(owner)

    def _unhold(self, owner: Owner) -> None:
        self._full.discard(owner)
        if not self._full and self.process and self.dead is None:
            self.process.resume()

    def _one(self, message: Any) -> None:
        match message:
            case TextRun():
                owner = self._routes.get(message.session_id)
                if owner is None:
                    self._stray(message.session_id, message)
                    return
                session = "" if message.session_id == owner.own_id else message.session_id
                self._tell(
                    owner,
                    AgentText(role=message.role, text=message.text, agent_id=message.agent_id, agent_session=session),
                )
            case rpc.Notification(method="session/update"):
                self._update(message)
            case rpc.Notification(method="$/cancel_request"):
                wanted = rpc.id_key(wire.scope.decode(message.params).request_id)
                for owner in dict.fromkeys(self._routes.values()):
                    self._touched[owner] = None
                    owner.withdrawn(wanted)
            case rpc.Notification(method="elicitation/complete"):
                done = wire.as_object(message.params).get("elicitationId")
                for owner in dict.fromkeys(self._routes.values()):
                    self._touched[owner] = None
                    owner.completed(str(done))
            case rpc.Request():
                self._request(message)
            case rpc.Response():
                call: _Call = message.call
                if call.timer:
                    call.timer.cancel()
                if call.owner:
                    self._touched[call.owner] = None
                call.answered(message.result, message.error)
            case rpc.Overlong():
                self._overlong(message)
            case rpc.Noise():
                self._noise.seen(self.peer.noise)

    def _tell(self, owner: Owner, fact: AgentFact) -> None:
        self._touched[owner] = None
        owner.tell(fact)

    def _update(self, message: rpc.Notification) -> None:
        try:
            params = wire.update_params.decode(message.params)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self.peer.noise += 1
            self._noise.seen(self.peer.noise)
            return
        owner = self._routes.get(params.session_id)
        if owner is None:
            self._stray(params.session_id, message)
            return
        session = "" if params.session_id == owner.own_id else params.session_id
        for fact in self.dialect.decode(params.update, session):
            self._tell(owner, fact)
            if isinstance(fact, AgentChild) and fact.child not in self._routes:
                self.attach(fact.child, owner)
                self.release(fact.child)

    def _stray(self, session_id: str, message: Any) -> None:
        dropped = self._strays.add(session_id, message, self._loop.time())
        if dropped:
            _log.warning("dropped updates of unknown sessions", agent=self.name, sessions=dropped)

    def _request(self, request: rpc.Request) -> None:
        try:
            scope = wire.scope.decode(request.params) if request.params else wire.Scope()
        except (msgspec.DecodeError, UnicodeDecodeError):
            self.refuse(request.id, rpc.INVALID_PARAMS, "Invalid params")
            return
        session_id, owner = scope.session_id, None
        if session_id is not None:
            owner = self._routes.get(session_id)
        elif scope.request_id and (number := rpc.request_id(scope.request_id)) is not None:
            owner = next((call.owner for key, call in self.peer.pending() if key == number), None)
            session_id = owner.own_id if owner else None
        known = ("session/request_permission", "elicitation/create", *duties.methods(self.config))
        if request.method not in known:
            self.refuse(request.id, rpc.METHOD_NOT_FOUND, f"Method not found: {request.method}")
        elif owner is None:
            self.refuse(request.id, rpc.NOT_FOUND, "Session not found", {"sessionId": session_id})
        else:
            self._touched[owner] = None
            if not owner.asked(request, "" if session_id == owner.own_id else session_id or ""):
                self.refuse(request.id, rpc.METHOD_NOT_FOUND, f"Method not found: {request.method}")

    def _overlong(self, line: rpc.Overlong) -> None:
        _log.warning("agent wrote a line over the limit", agent=self.name, limit=line.limit)
        answer = None if b'"method"' in line.head else _ANSWER.search(line.head)
        call = self.peer.forget(int(answer[1])) if answer else None
        if call:
            if call.timer:
                call.timer.cancel()
            if call.owner:
                self._touched[call.owner] = None
            call.answered(None, rpc.RpcError(rpc.INTERNAL, f"The answer to {call.method} was too long."))
            return
        named = _SESSION.search(line.head)
        owner = self._routes.get(named[1].decode("utf-8", "replace")) if named else None
        for each in [owner] if owner else dict.fromkeys(self._routes.values()):
            self._tell(each, calls.overlong_notice(line.limit))


_TIMED_OUT = object()


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("trunkline")
    except PackageNotFoundError:
        return "0"
