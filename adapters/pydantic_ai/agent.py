"""Native Pydantic AI agents as AgentPorts, in the gateway's thread: what it needs of a session is sent to the agents'.

``factory`` makes the ports, ``probe`` tries an agent out. The extra is imported when an agent starts, not before.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import structlog

from adapters.pydantic_ai.thread import AgentThread
from gateway.agents import AgentConfig, Sink
from gateway.core import effects, inputs
from gateway.core.errors import of_agent
from gateway.core.inputs import AgentFact
from gateway.core.model import Error, SessionInfo
from gateway.tasks import Supervisor

if TYPE_CHECKING:
    from adapters.pydantic_ai.session import NativeSession

_log = structlog.get_logger("agent")

FOLDER = "pydantic_ai"  # of the data folder: a file a session
HEARD = 1.0  # seconds after which a thread that does not take a kill counts as blocked
CLOSE = 5.0  # seconds to wait for a session's end
NO_EXTRA = "Pydantic AI is not installed: pip install 'trunkline[pydantic-ai]'"


class NativeAgents:
    """The PortFactory of native agents. They share one thread; a blocked one is left and another begun."""

    def __init__(self, data: Path) -> None:
        self.folder = data / FOLDER
        self._threads: list[AgentThread] = []
        self._blocked: set[AgentThread] = set()

    def __call__(self, config: AgentConfig, info: SessionInfo, sink: Sink) -> "NativeAgent":
        return NativeAgent(config, sink, self)

    def thread(self) -> AgentThread:
        for thread in self._threads:
            if thread not in self._blocked:
                return thread
        self._threads.append(AgentThread())
        return self._threads[-1]

    def blocked(self, thread: AgentThread) -> None:
        _log.error("a native agent blocks the thread of the native agents: new sessions get another")
        self._blocked.add(thread)

    async def close(self) -> None:
        threads, self._threads = self._threads, []
        await asyncio.gather(*(asyncio.to_thread(thread.stop) for thread in threads))


def factory(data: Path) -> NativeAgents:
    """The PortFactory. ``data``: the gateway's data folder. Its ``close`` belongs at the end of the gateway."""
    return NativeAgents(data)


async def probe(config: AgentConfig) -> dict[str, object]:
    """Import the agent and say what it is. Raises AgentError with what is wrong."""
    if find_spec("pydantic_ai") is None:
        raise of_agent("agent_exit", NO_EXTRA)
    from adapters.pydantic_ai.loading import CannotLoad, load

    try:
        agent = await asyncio.to_thread(load, config.python)
    except CannotLoad as error:
        raise of_agent(error.error.code, error.error.message) from None
    found: dict[str, object] = {"name": agent.name or config.python, "protocol": f"Pydantic AI {_version()}"}
    model = agent.model
    found["model"] = model if isinstance(model, str) else getattr(model, "model_id", "") or ""
    found["can"] = ["steer", "revoke", "image", "audio", "embedded context", "load"]
    return found


def _version() -> str:
    for name in ("pydantic-ai-slim", "pydantic-ai"):
        with suppress(PackageNotFoundError):
            return version(name)
    return ""


class Line:
    """One start of a session, between the two threads. ``session`` is the agents' thread's only."""

    def __init__(self, port: "NativeAgent", thread: AgentThread) -> None:
        self.thread = thread
        self.session: NativeSession | None = None
        self.dead = False
        self.forsaken = False  # its thread was blocked when it was killed: the conversation goes on elsewhere
        self._port = port
        self._home = asyncio.get_running_loop()
        self._facts: deque[AgentFact] = deque()
        self._due = False

    # --- in the agents' thread -------------------------------------------------------------------------------------

    async def open(self, config: AgentConfig, info: SessionInfo, has_history: bool, folder: Path) -> None:
        try:
            if find_spec("pydantic_ai") is None:
                raise ModuleNotFoundError(NO_EXTRA)
            from adapters.pydantic_ai.loading import CannotLoad, load
            from adapters.pydantic_ai.session import open_session
            from adapters.pydantic_ai.turn import trace
        except ImportError as error:
            self.tell(inputs.AgentGone(error=Error("agent_exit", f"{config.name}: {error}")))
            return
        try:
            session = await open_session(
                load(config.python), info, has_history, folder, self.tell, self.thread.blocking, lambda: not self.dead
            )
        except CannotLoad as failed:
            if failed.__cause__ is not None:
                _log.warning("a native agent cannot be loaded", agent=config.name, trace=trace(failed.__cause__))
            self.tell(inputs.AgentGone(error=failed.error))
        except BaseException as fault:
            _log.error("a native agent cannot be started", agent=config.name, trace=trace(fault))
            self.tell(inputs.AgentGone(error=Error("agent_exit", f"{config.name}: {fault!r}")))
        else:
            self.session = session
            if self.dead:
                session.kill()

    def tell(self, *facts: AgentFact) -> None:
        self._facts.extend(facts)
        if not self._due and not self.dead:
            self._due = True
            with suppress(RuntimeError):  # the gateway's loop is closed
                self._home.call_soon_threadsafe(self._deliver)

    def do(self, batch: Sequence[effects.AnyEffect]) -> None:
        if self.session is not None:
            self.session.do(batch)

    def room(self, free: bool) -> None:
        if self.session is not None:
            (self.session.room.set if free else self.session.room.clear)()

    def kill(self, heard: asyncio.Event) -> None:
        with suppress(RuntimeError):
            self._home.call_soon_threadsafe(heard.set)
        if self.session is not None:
            self.session.kill(keep=not self.forsaken)

    async def close(self) -> None:
        if self.session is not None:
            await self.session.close()

    # --- in the gateway's ------------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        self._due = False
        facts: list[AgentFact] = []
        while self._facts:
            facts.append(self._facts.popleft())
        if facts:
            self._port.heard(self, facts)


class NativeAgent:
    """One session at a native agent."""

    def __init__(self, config: AgentConfig, sink: Sink, agents: NativeAgents) -> None:
        self._config, self._sink, self._agents = config, sink, agents
        self._state: Literal["absent", "starting", "ready"] = "absent"
        self._line: Line | None = None
        self._effects: list[effects.AnyEffect] = []
        self._paused = False
        self._tasks = Supervisor()

    def __repr__(self) -> str:
        return f"<NativeAgent {self._config.name} {self._state}>"

    # --- AgentPort -------------------------------------------------------------------------------------------------

    def start(self, info: SessionInfo, has_history: bool) -> None:
        if self._state != "absent":
            return
        self._state = "starting"
        line = self._line = Line(self, self._agents.thread())
        line.thread.submit(line.open(self._config, info, has_history, self._agents.folder))
        asyncio.get_running_loop().call_later(self._config.start_timeout, self._late, line)

    def perform(self, effect: effects.AnyEffect) -> None:
        if isinstance(effect, effects.KillAgent):
            self._kill(Error("agent_exit", f"{self._config.name} was ended: {effect.why}"))
            return
        # All that was decided together goes together: an answer and the abort that caused it are not apart.
        if not self._effects:
            asyncio.get_running_loop().call_soon(self._send)
        self._effects.append(effect)

    async def close(self) -> None:
        line, self._line = self._line, None
        self._state = "absent"
        if line is not None:
            line.dead = True
            ended = asyncio.wrap_future(line.thread.submit(line.close()))
            done, _ = await asyncio.wait((ended,), timeout=CLOSE)
            if not done:
                _log.warning("a native agent does not end", agent=self._config.name)
        await self._tasks.close()
        self._tasks = Supervisor()

    # --- from and to the agents' thread ------------------------------------------------------------------------------

    def heard(self, line: Line, facts: list[AgentFact]) -> None:
        """Facts in the order they happened. Of a line that was given up, nothing is heard."""
        if line is not self._line:
            return
        for fact in facts:
            if isinstance(fact, inputs.AgentReady):
                self._state = "ready"
            elif isinstance(fact, inputs.AgentGone):
                self._state, self._line = "absent", None
        self._sink(facts)
        if self._sink.full() and not self._paused and self._line is not None:
            self._paused = True
            line.thread.call(line.room, False)
            self._tasks.start(self._resume(line), name=f"room for {self._config.name}")

    async def _resume(self, line: Line) -> None:
        await self._sink.drained()
        self._paused = False
        line.thread.call(line.room, True)

    def _send(self) -> None:
        batch, self._effects = self._effects, []
        line = self._line
        if line is not None and self._state == "ready":
            line.thread.call(line.do, batch)
            return
        facts = [fact for effect in batch if (fact := self._refusal(effect)) is not None]
        if facts:
            self._sink(facts)

    def _refusal(self, effect: effects.AnyEffect) -> AgentFact | None:
        match effect:
            case effects.OfferPrompt(offer_id=offer_id):
                error = Error("agent_exit", f"{self._config.name} is not running")
                return inputs.PromptUnwritten(offer_id=offer_id, error=error)
            case effects.OfferSteer(offer_id=offer_id):
                return inputs.SteerVerdict(offer_id=offer_id, verdict="refused")
            case effects.Withdraw(offer_id=offer_id, message_id=message_id, question=question):
                return inputs.WithdrawVerdict(offer_id=offer_id, message_id=message_id, question=question, done=False)
        return None

    # --- giving up ---------------------------------------------------------------------------------------------------

    def _late(self, line: Line) -> None:
        if line is self._line and self._state == "starting":
            seconds = f"{self._config.start_timeout:g}"
            self._kill(Error("agent_timeout", f"{self._config.name} did not start within {seconds} seconds"))

    def _kill(self, error: Error) -> None:
        """Say that it is gone, whatever its thread does; then see whether that thread still listens."""
        line, self._line = self._line, None
        self._state = "absent"
        if line is None:
            return
        line.dead = True
        heard = asyncio.Event()
        line.thread.call(line.kill, heard)
        loop = asyncio.get_running_loop()

        def look() -> None:
            if not heard.is_set():
                line.forsaken = True
                self._agents.blocked(line.thread)

        loop.call_later(HEARD, look)
        loop.call_soon(self._sink, (inputs.AgentGone(error=error),))
