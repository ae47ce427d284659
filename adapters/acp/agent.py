"""An ACP v1 agent over stdio as an AgentPort: effects to JSON-RPC, JSON-RPC to facts.

``factory`` makes the ports, ``AcpAgent`` is one session, ``probe`` tries an agent out. Nothing here decides what a
client sees or keeps a message; ids, order and delivery are the core's. An answer of the agent is handled in its place
among the updates (``Connection``), so that a turn's end is told after everything that was said before it.
"""

import asyncio
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec
import structlog

from adapters.acp import rpc, translate_content, wire
from adapters.acp import translate_v1 as v1
from adapters.acp import translate_v1_calls as calls
from adapters.acp.connection import Connection, agent_error
from adapters.acp.owner import CallFailed, Gone
from adapters.acp.pool import Pool
from gateway.agents import AgentConfig, Sink
from gateway.core import effects, inputs
from gateway.core.content import Content
from gateway.core.errors import AgentError, AgentTimeout, AgentUnavailable, AuthRequired
from gateway.core.ids import OfferId
from gateway.core.inputs import AgentFact
from gateway.core.model import Error, Pending, SessionInfo
from gateway.tasks import Supervisor

_log = structlog.get_logger("agent")


class AcpAgents(Pool):
    """The PortFactory of ACP v1 agents on stdio."""

    def __call__(self, config: AgentConfig, info: SessionInfo, sink: Sink) -> "AcpAgent":
        return AcpAgent(config, sink, self)


def factory(run_dir: Path | None = None) -> AcpAgents:
    """The PortFactory. ``run_dir``: where running processes are recorded, for ``reaper.reap`` at the next start.

    Its ``close`` belongs at the end of the gateway.
    """
    return AcpAgents(run_dir)


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
    flags = {"load": can.load, "resume": can.resume, "close": can.close, "image": can.image, "audio": can.audio}
    flags |= {"embedded context": can.embedded, "steer": can.steer, **{f"mcp {kind}": True for kind in sorted(can.mcp)}}
    found: dict[str, object] = {"name": can.name, "version": can.version, "protocol": f"ACP v{can.protocol}"}
    found["can"] = [name for name, on in flags.items() if on]
    if can.auth:
        found["login"] = list(can.auth)
    return found


def _exception(error: Error) -> AgentError:
    kinds = {"auth_required": AuthRequired, "agent_timeout": AgentTimeout, "agent_error": AgentError}
    return kinds.get(error.code, AgentUnavailable)(error.message)


class AcpAgent:
    """One session at an ACP v1 agent."""

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
        self._session = calls.SessionState([], [], "")
        self._asks: dict[str, tuple[rpc.Request, str]] = {}
        self._asked = 0

    def __repr__(self) -> str:
        return f"<AcpAgent {self._config.name} {self._state} {self.own_id} asks={list(self._asks)}>"

    # --- AgentPort -------------------------------------------------------------------------------------------------

    def start(self, info: SessionInfo, has_history: bool) -> None:
        if self._state != "absent":
            return
        self._state = "starting"
        self._leave()
        self._opening = self._tasks.start(self._open(info, has_history), name=f"start {self._config.name}")

    def perform(self, effect: effects.AnyEffect) -> None:
        match effect:
            case effects.OfferPrompt():
                if self._configuring is None or self._configuring.done():
                    self._prompt(effect)
                else:  # the prompt is for the mode and the model that were chosen
                    self._tasks.start(self._prompt_then(self._configuring, effect), name=f"prompt {self._config.name}")
            case effects.OfferSteer():
                self._steer(effect)
            case effects.Withdraw():
                self._say(
                    inputs.WithdrawVerdict(
                        offer_id=effect.offer_id, message_id=effect.message_id, question=effect.question, done=False
                    )
                )
            case effects.CancelTurn():
                self._notify("session/cancel", {"sessionId": self.own_id})
            case effects.CancelChild():
                self._notify("session/cancel", {"sessionId": effect.agent_session})
            case effects.KillAgent():
                if self._connection and self._connection.process:
                    self._connection.process.kill(effect.why)
            case effects.AnswerAgent():
                ask = self._asks.pop(effect.agent_ref, None)
                if ask and self._connection:
                    self._connection.answer(ask[0].id, calls.encode_answer(ask[1], effect.outcome))
            case effects.ConfigureAgent():
                if self._state == "ready":
                    self._configuring = self._tasks.start(
                        self._configure(self._configuring, effect), name=f"configure {self._config.name}"
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
        self._end(None)
        self._leave()
        if self._stopping:
            await asyncio.wait([self._stopping])
        await self._tasks.close()
        self._tasks = Supervisor()

    # --- Owner -----------------------------------------------------------------------------------------------------

    def tell(self, *facts: AgentFact) -> None:
        for fact in facts:
            if not fact.agent_session:
                if isinstance(fact, inputs.AgentConfig):
                    self._session.options = fact.options
                    self._session.mode = fact.mode or self._session.mode
                elif isinstance(fact, inputs.AgentMode):
                    self._session.mode = fact.mode
        (self._facts if self._replay is None else self._replay).extend(facts)

    def flush(self) -> None:
        if self._facts:
            facts, self._facts = self._facts, []
            self._sink(facts)

    def full(self) -> bool:
        return self._sink.full()

    async def drained(self) -> None:
        await self._sink.drained()

    def asked(self, request: rpc.Request, session: str) -> bool:
        self._asked += 1
        # Unlike any ref of a process before: a late answer to that one must not answer this.
        pid = self._connection.process.pid if self._connection and self._connection.process else 0
        ref = f"{pid}.{self._asked}"
        if request.method == "session/request_permission":
            fact = calls.permission(request.params, ref, session)
        elif request.method == "elicitation/create":
            fact = calls.elicitation(request.params, ref, session)
        else:
            return False
        self._asks[ref] = (request, fact.kind)
        self._facts.append(fact)  # never part of a replay: it wants an answer now
        return True

    def withdrawn(self, request: rpc.Id) -> None:
        for ref, (asked, _) in list(self._asks.items()):
            if rpc.id_key(asked.id) == request and self._connection:
                del self._asks[ref]
                self._connection.refuse(asked.id, rpc.CANCELLED, "Request cancelled")
                self._facts.append(inputs.AgentAskWithdrawn(agent_ref=ref))

    def gone(self, error: Error) -> None:
        self._end(error)
        self._leave()

    # --- opening ---------------------------------------------------------------------------------------------------

    async def _open(self, info: SessionInfo, has_history: bool) -> None:
        try:
            if self._config.url or not self._config.command:
                raise Gone(Error("not_supported", f"{self._config.name}: only agents with a command are supported"))
            connection = self._connection = self._pool.connect(self._config, info.cwd)
            can = await connection.ready()
            servers = self._servers(info, can)
            if not (info.agent_session and await self._join(connection, can, info, servers, has_history)):
                await self._new(connection, info, servers)
        except Gone as gone:
            self._end(gone.error)
        except CallFailed as failed:
            self._end(connection.error_of(failed))
        if self._state == "absent":
            self._leave()

    async def _new(self, connection: Connection, info: SessionInfo, servers: list[Any]) -> None:
        def answered(result: msgspec.Raw) -> None:
            self.own_id = str(wire.as_object(result).get("sessionId") or "")
            if self.own_id:
                connection.attach(self.own_id, self)
                self._ready(connection, result)

        params = wire.open_session(info.cwd, servers)
        await connection.ask("session/new", params, self._config.start_timeout, answered, self)
        if not self.own_id:
            raise CallFailed(rpc.RpcError(rpc.INTERNAL, f"{connection.name} opened a session without an id"))

    async def _join(
        self, connection: Connection, can: calls.Abilities, info: SessionInfo, servers: list[Any], has_history: bool
    ) -> bool:
        """Resume or load; False if the agent can do neither with this session: the caller opens a new one."""
        offered = [name for name, on in (("session/resume", can.resume), ("session/load", can.load)) if on]
        if not has_history:
            offered.reverse()  # a resume does not tell what was said before, and here nobody knows
        for method in offered:
            self.own_id, self._replay = info.agent_session, []
            connection.attach(self.own_id, self)

            def answered(result: msgspec.Raw) -> None:
                told, self._replay = v1.join_users(self._replay or ()), None
                if told:
                    self.tell(inputs.Replayed(facts=told))
                self._ready(connection, result)

            params = wire.open_session(info.cwd, servers, self.own_id)
            try:
                await connection.ask(method, params, self._config.start_timeout, answered, self)
                return True
            except CallFailed as failed:
                self._replay = None
                connection.detach(self)
                # Agents do not agree on the code of "not found" (-32002, -32602, -32603).
                if failed.timeout or failed.error.code == rpc.AUTH_REQUIRED:
                    raise
                _log.warning(
                    "agent cannot go on with its session", agent=connection.name, method=method, error=str(failed)
                )
        self.own_id = ""
        return False

    def _ready(self, connection: Connection, result: msgspec.Raw) -> None:
        """In the place of the answer: what it says of modes and options, AgentReady, then what came too early."""
        self._state = "ready"
        self._session = calls.session_state(result)
        steer = connection.can is not None and connection.can.steer
        self.tell(*self._session.facts(), inputs.AgentReady(own_id=self.own_id, can_steer=steer))
        connection.release(self.own_id)

    def _servers(self, info: SessionInfo, can: calls.Abilities) -> list[Any]:
        given = info.mcp_servers if info.mcp_servers is not None else self._config.mcp_servers
        servers = []
        for server in given if isinstance(given, list) else []:
            kind = server.get("type", "stdio") if isinstance(server, dict) else ""
            if kind == "stdio" or kind in can.mcp:
                servers.append(server)
            else:
                _log.warning("agent takes no such MCP server", agent=self._config.name, kind=kind)
        return servers

    # --- turns -----------------------------------------------------------------------------------------------------

    def _prompt(self, offer: effects.OfferPrompt) -> None:
        connection = self._connection
        if self._state == "ready" and connection:
            params = wire.prompt(self.own_id, self._blocks(connection, offer.messages))
            if connection.call("session/prompt", params, partial(self._prompt_ended, offer.offer_id), owner=self):
                self._say(inputs.PromptWritten(offer_id=offer.offer_id))
                return
        error = Error("agent_exit", f"{self._config.name} is not running")
        self._say(inputs.PromptUnwritten(offer_id=offer.offer_id, error=error))

    async def _prompt_then(self, configuring: "asyncio.Task[None]", offer: effects.OfferPrompt) -> None:
        await asyncio.wait((configuring,))
        self._prompt(offer)

    def _prompt_ended(self, offer_id: OfferId, result: msgspec.Raw | None, error: rpc.RpcError | None) -> None:
        if error is not None and error.code != rpc.CANCELLED:
            auth = self._connection.can.auth if self._connection and self._connection.can else ()
            self.tell(inputs.PromptEnded(outcome="error", offer_id=offer_id, error=agent_error(error, auth)))
            return
        value = wire.as_object(result)
        outcome, known = v1.outcome("cancelled" if error else value.get("stopReason"))
        if not known:
            _log.warning("unknown stop reason", agent=self._config.name, reason=value.get("stopReason"))
        self.tell(inputs.PromptEnded(outcome=outcome, offer_id=offer_id, tokens=calls.tokens(value)))

    def _steer(self, offer: effects.OfferSteer) -> None:
        connection = self._connection
        if self._state == "ready" and connection and connection.can and connection.can.steer:
            params = wire.steering(self.own_id, self._blocks(connection, offer.messages))
            answered = partial(self._steer_answered, offer.offer_id)
            if connection.call("_session/steering", params, answered, self._config.steer_timeout, self):
                return
        self._say(inputs.SteerVerdict(offer_id=offer.offer_id, verdict="refused"))

    def _steer_answered(self, offer_id: OfferId, result: msgspec.Raw | None, error: rpc.RpcError | None) -> None:
        verdict: Literal["injected", "refused", "lost"]
        if error is not None:
            verdict = "lost" if Connection.timed_out(error) else "refused"
        else:
            match wire.as_object(result).get("outcome"):
                case "injected" | "startedNewTurn":
                    verdict = "injected"
                case "promptRequired" | "failed":
                    verdict = "refused"
                case _:
                    verdict = "lost"  # it may have it, or not
        self.tell(inputs.SteerVerdict(offer_id=offer_id, verdict=verdict))

    @staticmethod
    def _blocks(connection: Connection, messages: tuple[Pending, ...]) -> list[wire.Json]:
        content: Content = tuple(block for message in messages for block in message.content)
        can = connection.can
        return translate_content.encode_prompt(
            content, bool(can and can.image), bool(can and can.audio), bool(can and can.embedded)
        )

    # --- modes and options -----------------------------------------------------------------------------------------

    async def _configure(self, before: "asyncio.Task[None] | None", wish: effects.ConfigureAgent) -> None:
        if before is not None and not before.done():
            await asyncio.wait((before,))  # one after the other: the last wish is what stays
        if wish.mode is not None:
            if self._session.mode_by_option:
                await self._set(self._session.mode_by_option, wish.mode)
            else:
                await self._request("session/set_mode", {"modeId": wish.mode}, inputs.AgentMode(mode=wish.mode))
        if wish.model is not None:
            await self._set_model(wish.model)
        if wish.config is not None:
            option, value = wish.config
            if self._session.model_by_method and option == "model":
                await self._set_model(value)
            else:
                await self._set(option, value)

    async def _set_model(self, model: str) -> None:
        option = v1.option_of(self._session.options, "model")
        if option is None:
            _log.warning("agent offers no models", agent=self._config.name)
        elif self._session.model_by_method:
            options = [{**o, "currentValue": model} if o is option else o for o in self._session.options]
            await self._request("session/set_model", {"modelId": model}, v1.config(options))
        else:
            await self._set(str(option.get("id")), model)

    async def _set(self, option: str, value: Any) -> None:
        await self._request("session/set_config_option", wire.option(option, value), None)

    async def _request(self, method: str, params: wire.Json, fact: AgentFact | None) -> None:
        """``fact`` is what is true if it succeeds; without one, the answer is the list of options."""

        def answered(result: msgspec.Raw) -> None:
            options = wire.as_object(result).get("configOptions")
            if fact is not None:
                self.tell(fact)
            elif isinstance(options, list):
                self.tell(v1.config(options))

        connection = self._connection
        if connection is None:
            return
        params = {"sessionId": self.own_id, **params}
        try:
            await connection.ask(method, params, self._config.request_timeout, answered, self)
        except Gone:
            return
        except CallFailed as failed:
            _log.warning("agent refused a setting", agent=connection.name, method=method, error=str(failed))
            self._say(*self._session.facts())  # what still is true

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
        self.tell(*facts)
        self.flush()
