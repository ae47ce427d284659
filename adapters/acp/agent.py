"""An ACP agent as an AgentPort: effects to JSON-RPC, JSON-RPC to facts; what differs by version is its ``Dialect``'s.

``factory`` makes the ports, ``AcpAgent`` is one session, ``probe`` tries an agent out. Nothing here decides what a
client sees or keeps a message; ids, order and delivery are the core's. An answer of the agent is handled in its place
among the updates (``Connection``), so that a turn's end is told after everything that was said before it.
"""

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec
import structlog

from adapters.acp import rpc, translate_content, wire
from adapters.acp import translate_v1 as v1
from adapters.acp import translate_v1_calls as calls
from adapters.acp.asks import Asks
from adapters.acp.connection import Answered, Connection
from adapters.acp.dialect import Dialect, DialectV1
from adapters.acp.duties import Duties
from adapters.acp.options import Options
from adapters.acp.owner import CallFailed, Gone
from adapters.acp.pool import Pool
from adapters.acp.steering import NoSteering, Steering
from adapters.acp.turns import Turns, TurnsV1
from gateway.agents import AgentConfig, Sink
from gateway.client_calls import ClientCalls
from gateway.core import effects, inputs
from gateway.core.content import Content
from gateway.core.errors import AgentError, AgentTimeout, AgentUnavailable, AuthRequired
from gateway.core.ids import OfferId
from gateway.core.inputs import AgentFact
from gateway.core.model import Error, SessionInfo
from gateway.tasks import Supervisor

_log = structlog.get_logger("agent")


class AcpAgents(Pool):
    """The PortFactory of ACP agents."""

    def __call__(self, config: AgentConfig, info: SessionInfo, sink: Sink) -> "AcpAgent":
        return AcpAgent(config, sink, self)


def factory(run_dir: Path | None = None, roots: Sequence[Path] = (), clients: ClientCalls | None = None) -> AcpAgents:
    """The PortFactory. ``run_dir``: where running processes are recorded, for ``reaper.reap`` at the next start;
    ``roots``, ``clients``: where, and by whom, files and terminals are served for agents.

    Its ``close`` belongs at the end of the gateway.
    """
    return AcpAgents(run_dir, roots, clients)


async def probe(config: AgentConfig) -> dict[str, object]:
    """Start the agent once, initialize it, say what it is, end it. Raises AgentError with its last words."""
    with tempfile.TemporaryDirectory(prefix="trunkline-probe-") as cwd:
        connection = Connection(config.model_copy(update={"process": "session"}), cwd, None)
        connection.open()
        try:
            can = await connection.ready()
        except Gone as gone:
            raise _exception(gone.error) from None
        finally:
            await connection.stop()
    return can.shown()


def _exception(error: Error) -> AgentError:
    kinds = {"auth_required": AuthRequired, "agent_timeout": AgentTimeout, "agent_error": AgentError}
    return kinds.get(error.code, AgentUnavailable)(error.message)


class AcpAgent:
    """One session at an ACP agent."""

    def __init__(self, config: AgentConfig, sink: Sink, pool: Pool) -> None:
        self.own_id = ""
        self._config, self._sink, self._pool = config, sink, pool
        self._state: Literal["absent", "starting", "ready"] = "absent"
        self._connection: Connection | None = None
        self._opening: asyncio.Task[None] | None = None
        self._configuring: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None  # ends the process that was left last
        self._tasks = Supervisor()
        self._facts: list[AgentFact] = []
        self._replay: list[AgentFact] | None = None  # collects while the agent tells an old session
        self._options = Options(self, config.name)
        self._turns: Turns = TurnsV1(config.name)
        self._steering: Steering = NoSteering(self)
        self._asks = Asks()
        self._duties = Duties(config, pool.clients, pool.roots, pool.run_dir)

    def __repr__(self) -> str:
        return f"<AcpAgent {self._config.name} {self._state} {self.own_id} asks={self._asks}>"

    # --- AgentPort -------------------------------------------------------------------------------------------------

    def start(self, info: SessionInfo, has_history: bool) -> None:
        if self._state != "absent":
            return
        self._state = "starting"
        self._leave()
        self._duties.begin(info)
        self._opening = self._tasks.start(self._open(info, has_history), name=f"start {self._config.name}")

    def perform(self, effect: effects.AnyEffect) -> None:
        match effect:
            case effects.OfferPrompt():
                if self._configuring is None or self._configuring.done():
                    self._prompt(effect)
                else:  # the prompt is for the mode and the model that were chosen
                    self._tasks.start(self._prompt_then(self._configuring, effect), name=f"prompt {self._config.name}")
            case effects.OfferSteer():
                self._steering.offer(effect)
                self.flush()
            case effects.Withdraw():
                self._steering.withdraw(effect)
                self.flush()
            case effects.CancelTurn():
                self._notify("session/cancel", {"sessionId": self.own_id})
            case effects.CancelChild():
                self._notify("session/cancel", {"sessionId": effect.agent_session})
            case effects.CancelWork():
                self._cancel_work(effect)
            case effects.KillAgent():
                if self._connection and self._connection.process:
                    self._connection.process.kill(effect.why)
            case effects.AnswerAgent():
                self._asks.answer(self._connection, effect.agent_ref, effect.outcome)
            case effects.ConfigureAgent():
                if self._state == "ready":
                    self._configuring = self._tasks.start(
                        self._options.configure(self._configuring, effect), name=f"configure {self._config.name}"
                    )
            case effects.StartAgent():
                raise ValueError("StartAgent is start()")

    async def close(self) -> None:
        opening, self._opening = self._opening, None
        if opening and not opening.done():
            opening.cancel()
            await asyncio.wait([opening])
        connection = self._connection
        if connection and self._state == "ready" and connection.users > 1 and connection.can and connection.can.close:
            with suppress(CallFailed, Gone):
                await connection.ask("session/close", {"sessionId": self.own_id}, self._config.request_timeout)
        await self._duties.close()
        self._end(None)
        self._leave()
        if self._stopping:
            await asyncio.wait([self._stopping])
        await self._tasks.close()
        self._tasks = Supervisor()

    # --- Owner -----------------------------------------------------------------------------------------------------

    def tell(self, *facts: AgentFact) -> None:
        for fact in facts:
            if self._replay is None:
                self.add(*self._turns.take(fact))
            else:
                told = self._turns.replayed(fact)
                self._replay += told
                for each in told:
                    self._options.note(each)

    def add(self, *facts: AgentFact) -> None:
        """Facts for the core, as they are; they are passed on at ``flush``."""
        for fact in facts:
            self._facts.append(fact)
            if type(fact) is not inputs.AgentText:
                self._facts += self._options.note(fact)

    def flush(self) -> None:
        if self._replay is None:
            self.add(*self._turns.flush())
        if self._facts:
            facts, self._facts = self._facts, []
            self._sink(facts)

    def full(self) -> bool:
        return self._sink.full()

    async def drained(self) -> None:
        await self._sink.drained()

    def asked(self, request: rpc.Request, session: str) -> bool:
        if self._connection is None:
            return False
        fact = self._asks.take(self._connection, request, session)
        if fact is None:
            return self._duties.asked(self._connection, request, session)
        self.add(*self._turns.take(fact))  # never part of a replay: it wants an answer now
        return True

    def withdrawn(self, request: rpc.Id) -> None:
        self._duties.withdrawn(request)
        if self._connection:
            self.add(*self._asks.withdrawn(self._connection, request))

    def completed(self, elicitation: str) -> None:
        if self._connection:
            self.add(*self._asks.completed(self._connection, elicitation))

    def gone(self, error: Error) -> None:
        self._end(error)
        self._leave()

    # --- opening ---------------------------------------------------------------------------------------------------

    async def _open(self, info: SessionInfo, has_history: bool) -> None:
        try:
            if not (self._config.url or self._config.command):
                raise Gone(Error("not_supported", f"{self._config.name} has neither a command nor a url"))
            connection = self._connection = self._pool.connect(self._config, info.cwd)
            can = await connection.ready()
            self._anew(can)
            servers = self._servers(info, can)
            if info.fork_of and not info.agent_session:
                await self._new(connection, "session/fork", wire.open_session(info.cwd, servers, info.fork_of))
            elif not (info.agent_session and await self._join(connection, can, info, servers, has_history)):
                await self._new(connection, "session/new", wire.open_session(info.cwd, servers))
        except Gone as gone:
            self._end(gone.error)
        except CallFailed as failed:
            self._end(connection.error_of(failed))
        if self._state == "absent":
            self._leave()

    def _anew(self, can: calls.Abilities) -> None:
        """Nothing is known of the session yet."""
        self._steering = self._dialect.steering(can, self)
        self._turns = self._dialect.turns(self._config.name, self._steering.landed)
        self._turns.can = can

    async def _new(self, connection: Connection, method: str, params: wire.Json) -> None:
        """A session that the agent names: new, or a copy of another."""

        def answered(result: msgspec.Raw) -> None:
            self.own_id = str(wire.as_object(result).get("sessionId") or "")
            if self.own_id:
                connection.attach(self.own_id, self)
                if method == "session/fork":  # what came before the answer is the copied history
                    self._replay = []
                    connection.release(self.own_id)
                    self._replayed()
                self._ready(connection, result)

        await connection.ask(method, params, self._config.start_timeout, answered, self)
        if not self.own_id:
            raise CallFailed(rpc.RpcError(rpc.INTERNAL, f"{connection.name} opened a session without an id"))

    async def _join(
        self, connection: Connection, can: calls.Abilities, info: SessionInfo, servers: list[Any], has_history: bool
    ) -> bool:
        """Resume or load; False if the agent can do neither with this session: the caller opens a new one."""
        for join in self._dialect.joins(can, has_history, info.cwd, servers, info.agent_session):
            self.own_id, self._replay = info.agent_session, []
            connection.attach(self.own_id, self)

            def answered(result: msgspec.Raw) -> None:
                self._replayed()
                self._ready(connection, result)

            try:
                await connection.ask(join.method, join.params, self._config.start_timeout, answered, self)
                return True
            except CallFailed as failed:
                self._replay = None
                self._anew(can)
                connection.detach(self)
                # Agents do not agree on the code of "not found" (-32002, -32602, -32603).
                if failed.timeout or failed.error.code == rpc.AUTH_REQUIRED:
                    raise
                _log.warning(
                    "agent cannot go on with its session", agent=connection.name, method=join.method, error=str(failed)
                )
        self.own_id = ""
        return False

    def _replayed(self) -> None:
        told, self._replay = v1.join_users(self._replay or ()), None
        if told:
            self.add(inputs.Replayed(facts=told))

    def _ready(self, connection: Connection, result: msgspec.Raw) -> None:
        """In the place of the answer: what it says of modes and options, AgentReady, then what came too early."""
        self._state = "ready"
        can = connection.can
        ready = inputs.AgentReady(
            own_id=self.own_id,
            can_steer=bool(can and can.steer),
            can_withdraw=bool(can and can.inject),
            can_fork=bool(can and can.fork),
        )
        options = self._options.opened(self._dialect, result)
        self.add(*options, *self._dialect.told(result), ready, *self._turns.ready())
        connection.release(self.own_id)

    @property
    def _dialect(self) -> Dialect:
        return self._connection.dialect if self._connection else DialectV1()

    def _servers(self, info: SessionInfo, can: calls.Abilities) -> list[Any]:
        given = info.mcp_servers if info.mcp_servers is not None else self._config.mcp_servers
        servers, refused = self._dialect.servers(given if isinstance(given, list) else [], can)
        for kind in refused:
            _log.warning("agent takes no such MCP server", agent=self._config.name, kind=kind)
        return servers

    # --- turns -----------------------------------------------------------------------------------------------------

    def _prompt(self, offer: effects.OfferPrompt) -> None:
        connection = self._connection
        if self._state == "ready" and connection:
            params = wire.prompt(self.own_id, self.blocks(offer.content))
            if connection.call("session/prompt", params, partial(self._answered, offer.offer_id), owner=self):
                self._turns.written(offer.offer_id)
                self._say(inputs.PromptWritten(offer_id=offer.offer_id))
                return
        error = Error("agent_exit", f"{self._config.name} is not running")
        self._say(inputs.PromptUnwritten(offer_id=offer.offer_id, error=error))

    async def _prompt_then(self, configuring: "asyncio.Task[None]", offer: effects.OfferPrompt) -> None:
        await asyncio.wait((configuring,))
        self._prompt(offer)

    def _answered(self, offer_id: OfferId, result: msgspec.Raw | None, error: rpc.RpcError | None) -> None:
        self.add(*self._turns.answered(offer_id, result, error))

    def _cancel_work(self, effect: effects.CancelWork) -> None:
        """``tool_call/cancel`` or ``terminal/cancel``: the update that follows says what came of it."""
        connection = self._connection
        if not (connection and self._state == "ready") or not self._turns.can_cancel(
            effect.agent_session, effect.kind, effect.id
        ):
            return

        def answered(result: msgspec.Raw | None, error: rpc.RpcError | None) -> None:
            if error is not None:
                _log.warning("agent did not cancel", agent=self._config.name, kind=effect.kind, error=error.message)

        key = "toolCallId" if effect.kind == "tool_call" else "terminalId"
        params = {"sessionId": effect.agent_session or self.own_id, key: effect.id}
        connection.call(f"{effect.kind}/cancel", params, answered, self._config.request_timeout, self)

    # --- what steers and options need --------------------------------------------------------------------------------

    def blocks(self, content: Content) -> list[wire.Json]:
        """For a prompt: what the agent does not take is told in words."""
        can = self._connection.can if self._connection else None
        return translate_content.encode_prompt(
            content, bool(can and can.image), bool(can and can.audio), bool(can and can.embedded)
        )

    def steer_call(self, method: str, params: wire.Json, answered: Answered) -> bool:
        connection = self._connection
        if self._state != "ready" or connection is None:
            return False
        return connection.call(method, params, answered, self._config.steer_timeout, self)

    def timed_out(self, error: rpc.RpcError) -> bool:
        return Connection.timed_out(error)

    async def request(self, method: str, params: wire.Json, answered: Callable[[msgspec.Raw], None]) -> None:
        if self._connection is None:
            raise Gone(Error("agent_exit", f"{self._config.name} is not running"))
        params = {"sessionId": self.own_id, **params}
        await self._connection.ask(method, params, self._config.request_timeout, answered, self)

    # --- the end ---------------------------------------------------------------------------------------------------

    def _end(self, error: Error | None) -> None:
        if self._state == "absent":
            return
        self._state, self._replay = "absent", None
        self._asks.clear()
        self._say(inputs.AgentGone(error=error))

    def _leave(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.detach(self)
            self._stopping = self._pool.leave(connection) or self._stopping

    def _notify(self, method: str, params: wire.Json) -> None:
        if self._connection and self._state == "ready":
            self._connection.notify(method, params)

    def _say(self, *facts: AgentFact) -> None:
        self.add(*facts)
        self.flush()
