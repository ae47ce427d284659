"""One live root session: its inputs are decided, committed, applied, published, answered and performed, in that order.

While a commit is on its way everything else waits in ``queue`` and is decided together afterwards. Nothing here decides
about ids, order or delivery (``gateway/core`` does), and performing an effect never waits for an agent.
"""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import structlog

from gateway.agents import AgentConfig, AgentPort
from gateway.checkpoints import Checkpoints
from gateway.commands import Command
from gateway.core import effects as fx
from gateway.core import events as ev
from gateway.core.errors import AgentUnavailable, GatewayError, StoreError, Unstorable
from gateway.core.ids import SessionId, TurnId
from gateway.core.inputs import (
    Abort,
    AgentFact,
    AgentGone,
    CommandEnded,
    GraceOver,
    Input,
    OfferExpired,
    PromptUnwritten,
    Quiet,
    SteerVerdict,
    WithdrawVerdict,
)
from gateway.core.model import Error, Pending, SessionInfo
from gateway.core.replies import Reply
from gateway.core.tree import Decision, Tree, claims
from gateway.core.turn import TurnState
from gateway.sink import FULL, HEAVY, Sink, storable, weight
from gateway.store_writer import Commit, Taken

if TYPE_CHECKING:
    from gateway.residents import Residents

_log = structlog.get_logger("session")

QUIET = 0.2  # seconds without a word after which what is open outside a turn ends
RETRY = (0.05, 0.2, 1.0)  # seconds between tries to store what an agent told


Batch: TypeAlias = list[tuple[SessionId, Input, asyncio.Future[Reply] | None]]


class Waiter(msgspec.Struct):
    check: Callable[[], object | None]
    future: asyncio.Future[Any]


class Live:
    """See the module. ``queue`` holds (session, input, who waits for the reply)."""

    def __init__(self, owner: "Residents", tree: Tree) -> None:
        self.owner = owner
        self.tree = tree
        self.queue: deque[tuple[SessionId, Input, asyncio.Future[Reply] | None]] = deque()
        self.weight = 0  # of the facts in it, in bytes
        self.working = False
        self.closed = False
        self.tries = 0
        self.port: AgentPort | None = None
        self.sink: Sink | None = None
        self.command: Command | None = None  # the newest that a person ran here
        self.waiters: list[Waiter] = []
        self.draining: list[asyncio.Future[None]] = []
        self.checkpoints = Checkpoints(owner.store)
        self.careful = 0  # how many of the queue are decided one at a time
        self.touched = time.monotonic()
        self.heard = 0.0
        self._quiet: asyncio.TimerHandle | None = None
        self._timers: set[asyncio.TimerHandle] = set()
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        return f"<Live {self.tree.root!r} queue={len(self.queue)} waiters={len(self.waiters)} port={self.port!r}>"

    # --- in ------------------------------------------------------------------------------------------------------

    async def ask(self, session_id: SessionId, *items: Input) -> Reply:
        """Put inputs in, together; the reply of the last one. Raises what the first refused one was refused with."""
        futures = [self._loop.create_future() for _ in items]
        for item, future in zip(items, futures, strict=True):
            self.queue.append((session_id, item, future))
        self._pump()
        results = await asyncio.gather(*futures, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        reply: Reply = results[-1]  # type: ignore[assignment]
        return reply

    def tell(self, facts: Sequence[Input], sink: Sink | None = None) -> None:
        """Put facts in, in order. Never blocks."""
        if self.closed:
            return
        self.heard = time.monotonic()
        root_id = self.tree.root_id
        for fact in facts:
            if isinstance(fact, AgentGone) and sink is not None and sink is self.sink:
                self._drop_port()
            self.queue.append((root_id, storable(fact), None))
            self.weight += weight(fact)
        self._pump()

    def _behind(self) -> bool:
        return len(self.queue) >= FULL // 2 or self.weight >= HEAVY // 2

    async def drained(self) -> None:
        while self._behind() and not self.closed:
            future = self._loop.create_future()
            self.draining.append(future)
            await future

    # --- decide, commit, apply, publish, answer, perform --------------------------------------------------------------

    def _pump(self) -> None:
        if self.working:
            return
        while self.queue and not self.closed:
            # one at a time while something among them is at fault, else all that wait
            batch = [self.queue.popleft()] if self.careful else list(self.queue)
            if self.careful:
                self.careful -= 1
            else:
                self.queue.clear()
            self.weight -= sum(weight(item) for _, item, future in batch if future is None)
            if not self._decide(batch):
                return

    def _put_back(self, batch: Batch) -> None:
        self.queue.extendleft(reversed(batch))
        self.weight += sum(weight(item) for _, item, future in batch if future is None)

    def _decide(self, batch: Batch, taken: frozenset[str] = frozenset()) -> bool:
        """Decide a batch. False if it has to wait for its commit.

        A fault of ours in one input must not cost the others: they are decided one by one then, and the guilty one
        alone is refused.
        """
        self.tree.policy = self.owner.policy(self.tree.root.info.agent)
        try:
            decision = self.tree.decide([(s, i) for s, i, _ in batch], self.owner.clock(), os.urandom(16), taken)
        except Exception as fault:
            self._fault(batch, fault)
            return True
        durable = decision.durable
        if not durable:
            return self._finish(batch, decision)
        self.working = True
        commit = self.owner.store.commit(self._commit(decision, durable))
        commit.add_done_callback(lambda done: self._committed(batch, decision, taken, done))
        return False

    def _commit(self, decision: Decision, durable: Sequence[ev.Record]) -> Commit:
        infos = {
            r.session_id: r.event.info for r in durable if isinstance(r.event, ev.SessionCreated | ev.SessionUpdated)
        }
        return Commit(
            self.tree.root_id,
            tuple(durable),
            tuple(infos.values()),
            claims(durable),
            deleted=tuple(r.session_id for r in durable if isinstance(r.event, ev.SessionDeleted)),
            ended_parts=tuple(r.event.part_id for r in durable if isinstance(r.event, ev.PartEnded)),
            busy=decision.busy,
        )

    def _committed(
        self,
        batch: Batch,
        decision: Decision,
        taken: frozenset[str],
        done: asyncio.Future[None],
    ) -> None:
        self.working = False
        if self.closed or done.cancelled():
            self._refuse(batch, StoreError("the gateway is shutting down"))
            return
        error = done.exception()
        if error is None:
            self.tries = 0
            if not self._finish(batch, decision):
                return
        elif isinstance(error, Taken) and error.id not in taken:
            # somebody else has this id: the same inputs again, with that known
            if not self._decide(batch, taken | {error.id}):
                return
        elif isinstance(error, Unstorable):
            self._fault(batch, error)
        else:
            self._failed(batch, error)
            return
        self._pump()

    def _fault(self, batch: Batch, fault: BaseException) -> None:
        """One of these inputs cannot be decided or stored, ever. Nothing changed yet."""
        if len(batch) > 1:
            self._put_back(batch)
            self.careful = len(batch)
            return
        [(session_id, item, _)] = batch
        _log.error("input refused", session=session_id, input=type(item).__name__, exc_info=fault)
        told = fault if isinstance(fault, GatewayError) else GatewayError(f"a fault of the gateway: {fault!r}")
        self._refuse(batch, told)

    def _failed(self, batch: Batch, error: BaseException) -> None:
        """Nothing was stored, nothing changed. Callers are told; facts have none, so they are decided again."""
        told = error if isinstance(error, GatewayError) else StoreError(f"the change could not be stored: {error}")
        self._refuse(batch, told)
        turn_id = self.tree.root.state.turn_id
        if turn_id is not None and any(isinstance(item, Abort) for _, item, _ in batch):
            # the one effect without its event: with a full disk, too, a person can stop an agent that works on. Its
            # word on it is a fact, and comes into the history when that can be written again.
            if self.tree.root.state.cause == "command":
                self._stop_command(turn_id)
            elif self.port is not None:
                self.port.perform(fx.CancelTurn(turn_id))
        facts = [entry for entry in batch if entry[2] is None]
        self._put_back(facts)
        _log.error("commit failed", session=self.tree.root_id, error=str(error), facts=len(facts), tries=self.tries)
        if not self.queue:
            return
        self.working = True
        delay = RETRY[min(self.tries, len(RETRY) - 1)]
        self.tries += 1
        self._later(delay, self._again)

    def _again(self) -> None:
        self.working = False
        self._pump()

    @staticmethod
    def _refuse(batch: Batch, error: BaseException) -> None:
        for _, _, future in batch:
            if future is not None and not future.done():
                future.set_exception(error)

    def _finish(self, batch: Batch, decision: Decision) -> bool:
        """Apply, publish, answer, perform. False if this session had to be given up."""
        try:
            self._apply(decision)
        except Exception as fault:
            # stored, but not applied: memory and store disagree, and the store is the truth
            _log.error("session given up, to be loaded again", session=self.tree.root_id, exc_info=fault)
            self._refuse(batch, GatewayError(f"a fault of the gateway, the session is loaded again: {fault!r}"))
            self.owner.give_up(self)
            return False
        for (_, item, future), reply in zip(batch, decision.replies, strict=True):
            if future is None:
                if isinstance(reply, GatewayError):
                    _log.warning("fact ignored", session=self.tree.root_id, fact=type(item).__name__, why=reply.message)
            elif not future.done():
                if isinstance(reply, GatewayError):
                    future.set_exception(reply)
                else:
                    future.set_result(reply)
        for effect in decision.effects:
            self._perform(effect)
        self._schedule()
        if self.draining and not self._behind():
            waiting, self.draining = self.draining, []
            for one in waiting:
                if not one.done():
                    one.set_result(None)
        return True

    def _apply(self, decision: Decision) -> None:
        """Change, and show it."""
        tree, more = self.tree, False
        items: list[tuple[ev.Record, SessionInfo, Pending | None]] = []
        for record in decision.records:
            event = record.event
            if type(event) is ev.TextDelta:  # the hot path
                session = tree.sessions[record.session_id]
                session.apply(record)
                items.append((record, session.info, None))
                self.checkpoints.add(record.session_id, event.part_id, event.text)
                continue
            more = True
            tree.apply((record,))
            items.append((record, *tree.context(record)))
            if type(event) is ev.PartEnded:
                self.checkpoints.end(event.part_id)
            elif type(event) is ev.SessionCreated:
                self.owner.roots[record.session_id] = tree.root_id
        if items:
            self.owner.log.publish(items)
        if more:
            self.touched = time.monotonic()
            self._check()

    # --- those who wait --------------------------------------------------------------------------------------------

    async def until(self, check: Callable[[], object | None]) -> Any:
        """Wait until ``check`` says something; it is asked again after every change."""
        found = check()
        if found is not None:
            return found
        waiter = Waiter(check, self._loop.create_future())
        self.waiters.append(waiter)
        try:
            return await waiter.future
        finally:
            if waiter in self.waiters:
                self.waiters.remove(waiter)

    def _check(self) -> None:
        for waiter in list(self.waiters):
            if waiter.future.done():
                continue
            try:
                found = waiter.check()
            except GatewayError as error:
                waiter.future.set_exception(error)
                continue
            if found is not None:
                waiter.future.set_result(found)

    # --- effects ---------------------------------------------------------------------------------------------------

    def _perform(self, effect: fx.AnyEffect) -> None:
        match effect:
            case fx.StartAgent():
                self._start()
                return
            case fx.StartCommand():
                self._run(effect)
                return
            case fx.StopCommand():
                self._stop_command(effect.turn_id)
                return
        config = self.config
        match effect:
            case fx.CancelTurn(turn_id=turn_id) if config is not None:
                self._later(config.cancel_grace, lambda: self.tell((GraceOver(turn_id=turn_id),)))
            case fx.OfferSteer(offer_id=offer_id) if config is not None:
                self._later(config.steer_timeout + 1, lambda: self.tell((OfferExpired(offer_id=offer_id),)))
        if self.port is not None:
            self.port.perform(effect)
            return
        fact: AgentFact
        match effect:  # nobody there: say so, as the port would
            case fx.OfferPrompt(offer_id=offer_id):
                fact = PromptUnwritten(offer_id=offer_id, error=Error("agent_exit", "the agent is not running"))
            case fx.OfferSteer(offer_id=offer_id):
                fact = SteerVerdict(offer_id=offer_id, verdict="refused")
            case fx.Withdraw(offer_id=offer_id, message_id=message_id, question=question):
                fact = WithdrawVerdict(offer_id=offer_id, message_id=message_id, question=question, done=False)
            case _:
                return
        self.tell((fact,))

    @property
    def config(self) -> AgentConfig | None:
        return self.owner.agents.get(self.tree.root.info.agent)

    def _start(self) -> None:
        info, config = self.tree.root.info, self.config
        if config is None:
            names = ", ".join(self.owner.agents) or "none"
            error = Error("agent_unknown", f"no agent {info.agent!r} in the settings (there are: {names})")
            self.tell((AgentGone(error=error),))
            return
        self.sink = Sink(self)
        try:
            self.port = self.owner.factory(config, info, self.sink)
            self.port.start(info, bool(self.tree.root.transcript.items))
        except AgentUnavailable as error:
            self.tell((AgentGone(error=Error(error.code, error.message)),), self.sink)

    def _run(self, effect: fx.StartCommand) -> None:
        commands = self.owner.commands
        if commands is None:
            self.tell((CommandEnded(turn_id=effect.turn_id, error="people may not run commands here"),))
            return
        self.command = command = commands.start(effect, lambda fact: self.tell((fact,)))
        if command is not None:
            self.owner.tasks.start(command.run(), name=f"command in {self.tree.root_id}")

    def _stop_command(self, turn_id: TurnId) -> None:
        if self.command is not None and self.command.turn_id == turn_id:
            self.command.stop()

    def _drop_port(self) -> None:
        port, self.port = self.port, None
        if self.sink is not None:
            self.sink.closed = True
        if port is not None:
            self.owner.tasks.start(port.close(), name=f"close agent of {self.tree.root_id}")

    # --- timers ----------------------------------------------------------------------------------------------------

    def _later(self, delay: float, call: Callable[[], object]) -> None:
        def run() -> None:
            self._timers.discard(handle)
            if not self.closed:
                call()

        handle = self._loop.call_later(delay, run)
        self._timers.add(handle)

    def _schedule(self) -> None:
        if self._quiet is None and any(
            s.state.step is not None and s.state.turn is TurnState.IDLE for s in self.tree.sessions.values()
        ):
            self._quiet = self._loop.call_later(QUIET, self._end_quiet)

    def _end_quiet(self) -> None:
        self._quiet = None
        if time.monotonic() - self.heard < QUIET:
            self._schedule()
        else:
            self.tell((Quiet(),))

    # --- the end ---------------------------------------------------------------------------------------------------

    def idle(self) -> bool:
        """Nothing runs, waits or is asked: it may leave the memory."""
        return not (self.working or self.queue or self.waiters or self.tree.busy) and self.checkpoints.idle

    def stop_agent(self) -> None:
        """The agent has had nothing to do for long."""
        if self.port is not None:
            self._drop_port()
            self.tell((AgentGone(),))

    def end_waits(self, error: GatewayError) -> None:
        """Tell those who wait that there is nothing more to wait for here."""
        for waiter in self.waiters:
            if not waiter.future.done():
                waiter.future.set_exception(error)

    async def close(self) -> None:
        """Leave: no more inputs, the agent ends, who waits is told. Nothing is decided any more."""
        self.closed = True
        port, self.port = self.port, None
        if self.sink is not None:
            self.sink.closed = True
        self.checkpoints.close()
        for handle in (self._quiet, *self._timers):
            if handle is not None:
                handle.cancel()
        gone = StoreError("the session was closed")
        self._refuse(list(self.queue), gone)
        self.queue.clear()
        self.end_waits(gone)
        for one in self.draining:
            if not one.done():
                one.set_result(None)
        if self.command is not None:
            await self.command.close()
        if port is not None:
            await port.close()
