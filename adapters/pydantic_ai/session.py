"""One session at a native agent, in the agents' thread: effects in, facts out, one run a turn.

It keeps the conversation as the agent knows it (``messages``), on disk too. Ids, order and delivery are the core's.
"""

import asyncio
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import msgspec
import structlog

from adapters.pydantic_ai import wire
from adapters.pydantic_ai.approvals import AskPeople
from adapters.pydantic_ai.deps import NoDeps, Session, make_deps
from adapters.pydantic_ai.history import History, is_own_id
from adapters.pydantic_ai.loading import CannotLoad, unloadable
from adapters.pydantic_ai.turn import Turn
from gateway.core import effects, inputs
from gateway.core.model import Answered, Error, SessionInfo
from gateway.tasks import Supervisor

_log = structlog.get_logger("agent")

CLOSE = 3.0  # seconds that a run has to end when its session is closed
GONE = "[The agent's memory of this conversation is gone ({}). It goes on without it.]"

Tell = Callable[..., None]


async def open_session(
    agent: "wire.AbstractAgent[Any, Any]",
    info: SessionInfo,
    has_history: bool,
    folder: Path,
    tell: Tell,
    blocking: Executor,
    alive: Callable[[], bool] = lambda: True,
) -> "NativeSession":
    """What the agent knows of this session, or a new conversation; tells AgentReady. Raises CannotLoad."""
    own = info.agent_session if is_own_id(info.agent_session) else ""
    own_id = own or uuid.uuid4().hex
    file = History(folder, own_id)
    messages = file.load()
    if messages is None and not own and is_own_id(info.fork_of):
        messages = History(folder, info.fork_of).load()
        if messages is not None:
            file.save(messages, file.ticket())
    try:
        deps = await make_deps(agent.deps_type, Session(info.id, info.cwd, info.agent))
    except NoDeps as error:
        raise CannotLoad(Error("agent_exit", f"{info.agent}: {error}")) from None
    except Exception as error:
        raise CannotLoad(unloadable(info.agent, error)) from error
    session = NativeSession(agent, own_id, messages or [], file, deps, tell, blocking, alive)
    if messages is None and has_history and (info.agent_session or info.fork_of):
        _log.warning("the agent's memory of a session is gone", agent=info.agent, session=info.id)
        tell(inputs.AgentText(role="agent", text=GONE.format("its file is missing or cannot be read")))
    tell(inputs.AgentReady(own_id=own_id, can_steer=True, can_withdraw=True, can_fork=True, hears=True))
    return session


class NativeSession:
    """See the module. ``room``: cleared while the gateway is behind. ``dead``: killed; it says and stores nothing."""

    def __init__(
        self,
        agent: "wire.AbstractAgent[Any, Any]",
        own_id: str,
        messages: "list[wire.ModelMessage]",
        file: History,
        deps: Any,
        tell: Tell,
        blocking: Executor,
        alive: Callable[[], bool],
    ) -> None:
        self.own_id, self.messages = own_id, messages
        self.dead = False
        self.room = asyncio.Event()
        self.room.set()
        self._agent, self._file, self._deps, self._tell, self._blocking = agent, file, deps, tell, blocking
        self._alive = alive
        self._tasks = Supervisor()
        self._turn: Turn | None = None
        self._asks: dict[str, asyncio.Future[Answered]] = {}
        self._asked = 0
        self._always: set[str] = set()  # tools that a person allowed for as long as this session is open

    def __repr__(self) -> str:
        return f"<NativeSession {self.own_id} messages={len(self.messages)} turn={self._turn} asks={list(self._asks)}>"

    def do(self, batch: Sequence[effects.AnyEffect]) -> None:
        """Effects that were decided together: nothing of the run happens between them."""
        for effect in batch:
            self._do(effect)

    def _do(self, effect: effects.AnyEffect) -> None:
        turn = self._turn
        match effect:
            case effects.OfferPrompt():
                if turn is not None or self.dead:
                    error = Error("agent_error", "the agent is in a turn")
                    self.tell(inputs.PromptUnwritten(offer_id=effect.offer_id, error=error))
                    return
                self._turn = Turn(self, effect)
                self._turn.task = self._tasks.start(self._turn.run(), name=f"turn of {self.own_id}")
            case effects.OfferSteer():
                if turn is None or turn.steers is None:
                    self.tell(inputs.SteerVerdict(offer_id=effect.offer_id, verdict="refused"))
                else:
                    turn.steers.offer(effect)
            case effects.Withdraw():
                if turn is None or turn.steers is None:
                    verdict = inputs.WithdrawVerdict(
                        offer_id=effect.offer_id, message_id=effect.message_id, question=effect.question, done=False
                    )
                    self.tell(verdict)
                else:
                    turn.steers.withdraw(effect)
            case effects.CancelTurn():
                if turn is not None:
                    turn.cancel()
            case effects.AnswerAgent():
                future = self._asks.pop(effect.agent_ref, None)
                if future is not None and not future.done():
                    future.set_result(effect.outcome)
            case effects.ConfigureAgent():
                _log.warning("native agents have no modes, models or options to set", session=self.own_id)
            case effects.CancelChild() | effects.KillAgent() | effects.StartAgent():
                pass  # no children here; the other two are the port's

    def tell(self, *facts: inputs.AgentFact) -> None:
        if not self.dead:
            self._tell(*facts)

    def kill(self, keep: bool = True) -> None:
        """Give up a run that does not listen. What it did so far stays in the conversation (``keep``)."""
        if self.dead:
            return
        turn, self._turn = self._turn, None
        if turn is not None and keep:
            messages = turn.outcome_messages()
            try:
                self._file.save(messages, self._file.ticket())
            except (OSError, ValueError) as error:
                _log.error("conversation not stored", session=self.own_id, error=str(error))
        self.dead = True
        if turn is not None and turn.task is not None:
            turn.task.cancel()

    async def close(self) -> None:
        """End the run, if one is on, and keep what it did."""
        turn = self._turn
        if turn is not None and turn.task is not None:
            turn.cancel()
            await asyncio.wait((turn.task,), timeout=CLOSE)
        self.kill()

    # --- for the turn ----------------------------------------------------------------------------------------------

    def over(self) -> None:
        self._turn = None

    def iterate(self, prompt: "str | list[wire.UserContent]") -> Any:
        """The run of a turn, to be entered."""
        return self._agent.iter(
            prompt,
            message_history=self.messages or None,
            deps=self._deps,
            conversation_id=self.own_id,
            capabilities=[AskPeople(self._ask, self._always)],
            infer_name=False,
        )

    def blocking_calls(self) -> Any:
        return self._agent.using_thread_executor(self._blocking)

    async def save(self, messages: "Sequence[wire.ModelMessage]") -> None:
        if self.dead or not self._alive():
            return
        try:
            saving = self._blocking.submit(self._file.save, list(messages), self._file.ticket())
            await asyncio.wrap_future(saving)
        except (OSError, ValueError) as error:
            _log.error("conversation not stored", session=self.own_id, error=str(error))

    async def _ask(self, ask: inputs.AgentAsk) -> Answered:
        self._asked += 1
        ref = f"{self.own_id}.{uuid.uuid4().hex[:8]}.{self._asked}"
        future: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._asks[ref] = future
        self.tell(msgspec.structs.replace(ask, agent_ref=ref))
        try:
            return await future
        finally:
            if self._asks.pop(ref, None) is not None:  # nobody answered
                self.tell(inputs.AgentAskWithdrawn(agent_ref=ref))
