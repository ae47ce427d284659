"""The SessionController: the one door to all sessions. Adapters call it; it loads, asks, waits and shows.

It decides nothing (``gateway/core`` does) and keeps no message: sessions that are not used leave the memory.
"""

import asyncio
import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import structlog

from gateway.agents import AgentConfig, PortFactory
from gateway.core import waits
from gateway.core.content import Content, Json
from gateway.core.errors import (
    AgentError,
    AgentTimeout,
    AgentUnavailable,
    AuthRequired,
    GatewayError,
    Limit,
    NotFound,
    StoreError,
)
from gateway.core.ids import MessageId, RequestId, SessionId, TurnId
from gateway.core.inbox import in_order
from gateway.core.inputs import (
    UNSET,
    Abort,
    Answer,
    Create,
    Delete,
    Demote,
    Input,
    Promote,
    Reconcile,
    Recover,
    Replace,
    Revoke,
    Submit,
    UnsetType,
    Update,
    Wake,
)
from gateway.core.model import Answered, By, Delivery, Error, OnAbort, Pending, Request, SessionInfo
from gateway.core.replies import Admission, Reconciled, Settled, Settlement, Verdict, Wait
from gateway.core.session import Policy, Session, dump, load
from gateway.core.transcript import Transcript
from gateway.core.tree import Tree, create
from gateway.core.turn import TurnState
from gateway.live import Live, now_ms
from gateway.log import Entry, SessionLog, Subscription
from gateway.store import Store
from gateway.store_writer import Commit, Taken
from gateway.tasks import Supervisor

_log = structlog.get_logger("controller")


@dataclass(frozen=True)
class Options:
    """Settings of the controller. Times in seconds."""

    on_restart: Literal["run", "hold"] = "run"
    idle_unload: float = 900.0
    max_sessions: int = 10_000
    max_pending: int = 256


@dataclass(frozen=True)
class SessionView:
    """A session as it stands now. The transcript is the live object: read it before the next await."""

    info: SessionInfo
    transcript: Transcript
    pending: list[Pending]
    requests: list[Request]
    turn_state: TurnState
    turn_id: TurnId | None
    last_turn_id: TurnId | None = None
    agent_state: str = "absent"
    commands: Json = field(default=None)

    @property
    def busy(self) -> bool:
        """In a turn, or the agent is being started for one."""
        return self.turn_state is not TurnState.IDLE or self.agent_state == "starting"


def view_of(session: Session) -> SessionView:
    s = session.state
    return SessionView(
        session.info,
        session.transcript,
        in_order(s),
        list(s.requests.values()),
        s.turn,
        s.turn_id,
        s.last_turn_id,
        s.agent,
        session.transcript.commands,
    )


def agent_failure(error: Error | None) -> AgentError:
    """Why an agent is not there, as something to raise."""
    if error is None:
        return AgentUnavailable("the agent is not running")
    kinds: dict[str, type[AgentError]] = {"auth_required": AuthRequired, "agent_timeout": AgentTimeout}
    data = error.data if isinstance(error.data, dict) else {}
    return kinds.get(error.code, AgentUnavailable)(error.message, reason=error.code, agent=data)


class SessionController:
    """``agents`` by name, ``factory`` makes a port for any of them; ``default_agent`` is for sessions without one."""

    def __init__(
        self,
        store: Store,
        log: SessionLog,
        agents: Mapping[str, AgentConfig],
        factory: PortFactory,
        *,
        default_agent: str,
        options: Options = Options(),
    ) -> None:
        self.store = store
        self.log = log
        self.agents = dict(agents)
        self.factory = factory
        self.default_agent = default_agent
        self.options = options
        self.tasks = Supervisor()
        self.live: dict[SessionId, Live] = {}
        self.roots: dict[SessionId, SessionId] = {}  # of every session in memory
        self._loading: dict[SessionId, asyncio.Task[Live | GatewayError]] = {}
        self._closed = False

    async def start(self) -> None:
        """Bring back what was unfinished when the gateway ended."""
        for root_id in await self.store.unfinished():
            try:
                await self._get(root_id)
            except Exception:
                _log.exception("session not recovered", session=root_id)
        self.tasks.start(self._sweep(), name="sweep")

    def end_waits(self) -> None:
        """The gateway is about to end: who waits for a turn is told now, the message itself stays."""
        for live in self.live.values():
            live.end_waits(StoreError("the gateway is shutting down: the message is stored, look again later"))

    async def close(self) -> None:
        """End all agents; running turns are ``interrupted`` at the next start. Does not close the store."""
        self._closed = True
        lives = list(self.live.values())
        await asyncio.gather(*(live.close() for live in lives), return_exceptions=True)
        await self.tasks.close()
        self.live.clear()

    def policy(self, agent: str) -> Policy:
        config = self.agents.get(agent)
        fallback = config.steer_fallback if config is not None else "next_turn"
        return Policy(fallback, self.options.max_pending)

    # --- sessions --------------------------------------------------------------------------------------------------

    async def create(
        self,
        *,
        cwd: str,
        agent: str = "",
        title: str = "",
        mode: str = "",
        model: str = "",
        mcp_servers: Json = None,
        meta: Json = None,
        aliases: Collection[tuple[str, str]] = (),
        by: By = By(),
    ) -> SessionInfo:
        """A new session. ``cwd`` is absolute and confined by the caller. Limit when there are too many in memory.

        ``aliases``: (kind, name) that ``resolve`` finds it by. Raises Taken when another session has one of them.
        """
        if len(self.live) >= self.options.max_sessions:
            raise Limit(f"{self.options.max_sessions} sessions are open already")
        if agent and agent not in self.agents:
            raise NotFound(f"no agent {agent!r} (there are: {', '.join(self.agents)})")
        wish = Create(
            by=by, cwd=cwd, agent=agent, title=title, mode=mode, model=model, mcp_servers=mcp_servers, meta=meta
        )
        tree, decision = create(wish, now_ms(), os.urandom(16), self.policy(agent))
        info = decision.replies[0]
        assert isinstance(info, SessionInfo)
        named = tuple((kind, alias, info.id) for kind, alias in aliases)
        stored = self.store.commit(Commit(info.id, decision.durable, (info,), aliases=named))

        def show(done: asyncio.Future[None]) -> None:  # also when whoever asked has left
            if not done.cancelled() and done.exception() is None:
                tree.apply(decision.records)
                self._adopt(tree)
                self.log.publish([(record, *tree.context(record)) for record in decision.records])

        stored.add_done_callback(show)
        await asyncio.shield(stored)
        return info

    async def resolve(self, kind: str, alias: str) -> SessionId | None:
        """The session that a client of some protocol calls by this name."""
        return await self.store.resolve(kind, alias)

    async def ensure(self, kind: str, alias: str, **wish: Any) -> SessionId:
        """The session of an alias; where there is none, a new one (``wish`` as for ``create``). Of several that ask at
        once for the same unknown alias, all get the same session.
        """
        found = await self.resolve(kind, alias)
        if found is None:
            try:
                return (await self.create(**wish, aliases=((kind, alias),))).id
            except Taken as taken:
                found = taken.session_id
        return found

    async def update(
        self,
        session_id: SessionId,
        *,
        title: str | UnsetType = UNSET,
        archived: int | None | UnsetType = UNSET,
        agent: str | UnsetType = UNSET,
        mode: str | UnsetType = UNSET,
        model: str | UnsetType = UNSET,
        config: tuple[str, Json] | UnsetType = UNSET,
        meta: Json | UnsetType = UNSET,
        by: By = By(),
    ) -> SessionInfo:
        """Change what a session is; unset fields stay. Conflict for a second agent, NotFound for an unknown one."""
        if isinstance(agent, str) and agent not in self.agents:
            raise NotFound(f"no agent {agent!r} (there are: {', '.join(self.agents)})")
        wish = Update(
            by=by, title=title, archived=archived, agent=agent, mode=mode, model=model, config=config, meta=meta
        )
        reply = await self._ask(session_id, wish)
        assert isinstance(reply, SessionInfo)
        return reply

    async def wake(self, session_id: SessionId, *, by: By = By()) -> SessionView:
        """The session with its agent running, so that its modes, options and commands are known.

        Raises AuthRequired, AgentTimeout or AgentUnavailable with the agent's words when it does not start.
        """
        live = await self._get(session_id)
        root = live.tree.root
        if root.state.agent != "ready":
            await live.ask(root.id, *self._bind(live, by), Wake(by=by))
            state = await live.until(lambda: None if root.state.agent == "starting" else root.state.agent)
            if state != "ready":
                raise agent_failure(root.state.agent_error)
        return view_of(live.tree.sessions[session_id])

    async def delete(self, session_id: SessionId, *, by: By = By()) -> None:
        """The session, its children and all that was said are gone; its agent ends."""
        live = await self._get(session_id)
        await live.ask(session_id, Delete(by=by))
        self._forget(live)
        await live.close()

    async def sessions(
        self,
        *,
        roots: bool = False,
        cwd: str | None = None,
        search: str | None = None,
        start: int | None = None,
        archived: bool | None = None,
        limit: int | None = None,
        parent_id: SessionId | None = None,
    ) -> list[SessionInfo]:
        """Newest first. ``start``: changed at or after that time (ms)."""
        return await self.store.sessions(
            roots=roots, cwd=cwd, search=search, start=start, archived=archived, limit=limit, parent_id=parent_id
        )

    async def view(self, session_id: SessionId) -> SessionView:
        live = await self._get(session_id)
        return view_of(live.tree.sessions[session_id])

    def family(self, session_id: SessionId) -> list[SessionView]:
        """A session in memory with its root and all of its children, root first; empty if it is not in memory."""
        live = self.live.get(self.roots.get(session_id, session_id))
        return [] if live is None else [view_of(session) for session in live.tree.sessions.values()]

    def busy(self) -> dict[SessionId, TurnState]:
        """Sessions in a turn, or about to be: their agent is being started for a message."""
        return {
            s.id: s.state.turn
            for live in self.live.values()
            for s in live.tree.sessions.values()
            if not waits.idle(s)
        }

    def requests(self) -> list[tuple[SessionId, Request]]:
        """Open requests, everywhere."""
        return [
            (s.id, request)
            for live in self.live.values()
            for s in live.tree.sessions.values()
            for request in s.state.requests.values()
        ]

    async def find_request(self, request_id: RequestId) -> tuple[SessionId, Request] | None:
        return next(((s, r) for s, r in self.requests() if r.id == request_id), None)

    def settled_in(self, request_id: RequestId) -> SessionId | None:
        """The session in memory where this request was answered already."""
        return next(
            (s.id for live in self.live.values() for s in live.tree.sessions.values() if request_id in s.state.settled),
            None,
        )

    def recent(self) -> list[SessionView]:
        """Sessions in memory, the last changed first."""
        views = [view_of(s) for live in self.live.values() for s in live.tree.sessions.values()]
        return sorted(views, key=lambda v: v.info.updated, reverse=True)

    # --- messages --------------------------------------------------------------------------------------------------

    async def submit(
        self,
        session_id: SessionId,
        content: Content,
        *,
        delivery: Delivery = "queue",
        message_id: MessageId | None = None,
        part_ids: tuple[str, ...] = (),
        if_idle: Literal["start", "refuse", "store"] = "start",
        if_busy: Literal["accept", "refuse"] = "accept",
        on_abort: OnAbort = "hold",
        local_id: bool = False,
        by: By = By(),
    ) -> Admission:
        """Admit a message; it is stored when this returns. Errors: Conflict, Busy, NotRunning, Limit, NotFound."""
        wish = Submit(
            by=by,
            content=content,
            delivery=delivery,
            message_id=message_id,
            part_ids=part_ids,
            if_idle=if_idle,
            if_busy=if_busy,
            on_abort=on_abort,
            local_id=local_id,
        )
        live = await self._get(session_id)
        reply = await live.ask(session_id, *self._bind(live, by), wish)
        assert isinstance(reply, Admission)
        return reply

    async def reconcile(
        self,
        session_id: SessionId,
        messages: tuple[tuple[MessageId, Content], ...],
        *,
        delivery: Delivery = "queue",
        if_busy: Literal["accept", "refuse"] = "accept",
        on_abort: OnAbort = "hold",
        by: By = By(),
    ) -> Reconciled:
        """Admit the messages of a whole history that are unknown."""
        wish = Reconcile(by=by, messages=messages, delivery=delivery, if_busy=if_busy, on_abort=on_abort)
        live = await self._get(session_id)
        reply = await live.ask(session_id, *self._bind(live, by), wish)
        assert isinstance(reply, Reconciled)
        return reply

    async def revoke(self, session_id: SessionId, message_id: MessageId, *, by: By = By()) -> Verdict:
        return await self._verdict(session_id, Revoke(by=by, message_id=message_id))

    async def replace(
        self, session_id: SessionId, message_id: MessageId, content: Content, *, by: By = By()
    ) -> Verdict:
        return await self._verdict(session_id, Replace(by=by, message_id=message_id, content=content))

    async def promote(self, session_id: SessionId, message_id: MessageId, *, by: By = By()) -> Verdict:
        return await self._verdict(session_id, Promote(by=by, message_id=message_id))

    async def demote(self, session_id: SessionId, message_id: MessageId, *, by: By = By()) -> Verdict:
        return await self._verdict(session_id, Demote(by=by, message_id=message_id))

    async def abort(self, session_id: SessionId, *, by: By = By()) -> None:
        """Cancel the turn; without one, hold what would begin one. Nothing to do is a success."""
        await self._ask(session_id, Abort(by=by))

    async def answer(
        self, session_id: SessionId, request_id: RequestId, outcome: Answered, *, by: By = By()
    ) -> Settled:
        """Answer a request; ``first`` is False when somebody was faster (or the turn's end)."""
        reply = await self._ask(session_id, Answer(by=by, request_id=request_id, outcome=outcome))
        assert isinstance(reply, Settled)
        return reply

    async def wait(
        self, session_id: SessionId, message_id: MessageId | None = None, timeout: float | None = None
    ) -> Settlement:
        """Wait for the fate of a message, or (without one) until the session is idle.

        Raises TimeoutError after ``timeout`` seconds, NotFound for a message that was never admitted.
        """
        live = await self._get(session_id)
        session = live.tree.sessions[session_id]

        def check() -> Settlement | None:
            if message_id is not None:
                return waits.settlement(session, message_id)
            if not waits.idle(session):
                return None
            turn = session.transcript.turns.get(session.state.last_turn_id or TurnId(""))
            if turn is None:
                return Settlement("ended", MessageId(""))
            return Settlement("ended", MessageId(""), turn.id, turn.outcome, turn.error)

        async with asyncio.timeout(timeout):
            found: Settlement = await live.until(check)
        return found

    def subscribe(
        self,
        which: Collection[SessionId] | Callable[[Entry], bool] | None = None,
        *,
        after: int | None = None,
    ) -> Subscription:
        """Events of some sessions, or of all, after a position of the log (``log.since(cursor)``)."""
        return self.log.subscribe(which, after=after)

    # --- inside ----------------------------------------------------------------------------------------------------

    def _bind(self, live: Live, by: By) -> tuple[Input, ...]:
        """The first prompt binds a session to the default agent."""
        return () if live.tree.root.info.agent else (Update(by=by, agent=self.default_agent),)

    async def _ask(self, session_id: SessionId, wish: Input) -> Any:
        live = await self._get(session_id)
        return await live.ask(session_id, wish)

    async def _verdict(self, session_id: SessionId, wish: Input) -> Verdict:
        live = await self._get(session_id)
        reply = await live.ask(session_id, wish)
        if isinstance(reply, Wait):
            session, wait = live.tree.sessions[session_id], reply
            reply = await live.until(lambda: waits.verdict(session, wait))
        assert isinstance(reply, Verdict)
        return reply

    def _adopt(self, tree: Tree) -> Live:
        live = self.live[tree.root_id] = Live(self, tree)
        for session_id in tree.sessions:
            self.roots[session_id] = tree.root_id
        return live

    def give_up(self, live: Live) -> None:
        """Leave a session that is not what the store says; whoever asks for it next gets it from there."""
        self._forget(live)
        self.tasks.start(live.close(), name=f"give up {live.tree.root_id}")

    def _forget(self, live: Live) -> None:
        self.live.pop(live.tree.root_id, None)
        for session_id in live.tree.sessions:
            self.roots.pop(session_id, None)

    async def _get(self, session_id: SessionId) -> Live:
        """The live tree of a session, loaded if it is not in memory. NotFound."""
        live = self.live.get(self.roots.get(session_id, session_id))
        if live is not None and not live.closed:
            return live
        loading = self._loading.get(session_id)
        if loading is None:
            # a task of its own: whoever asked first may leave, the others still want it
            loading = self.tasks.start(self._try_load(session_id), name=f"load {session_id}")
            self._loading[session_id] = loading
            loading.add_done_callback(lambda _: self._loading.pop(session_id))
        found = await asyncio.shield(loading)
        if isinstance(found, GatewayError):
            raise found
        return found

    async def _try_load(self, session_id: SessionId) -> Live | GatewayError:
        try:
            return await self._load(session_id)
        except GatewayError as error:
            return error

    async def _load(self, session_id: SessionId) -> Live:
        loaded = await self.store.load(session_id)
        if not loaded:
            raise NotFound(f"Session not found: {session_id}", session_id=session_id)
        root_id = loaded[0].info.id
        checkpoints = await self.store.checkpoints(root_id)
        live = self.live.get(root_id)  # another of the tree was faster
        if live is not None and not live.closed:
            return live
        sessions = [load(one.info.id, one.snapshot, one.records) for one in loaded]
        tree = Tree.of(sessions, self.policy(sessions[0].info.agent))
        live = self._adopt(tree)
        if tree.busy:
            try:
                await live.ask(root_id, Recover(checkpoints=checkpoints, on_restart=self.options.on_restart))
            except GatewayError:  # not stored: as it stands it would look like a turn that runs
                self._forget(live)
                await live.close()
                raise
        return live

    async def _sweep(self) -> None:
        """Stop agents and unload sessions that were not used for long."""
        while True:
            stops = [c.idle_stop for c in self.agents.values()]
            await asyncio.sleep(max(min(self.options.idle_unload, *stops, 60.0) / 4, 0.05))
            now = time.monotonic()
            for live in list(self.live.values()):
                if not live.idle():
                    continue
                quiet = now - max(live.touched, live.heard)
                config = live.config
                if live.port is not None and config is not None and quiet > config.idle_stop:
                    live.stop_agent()
                elif quiet > self.options.idle_unload:
                    await self.unload(live.tree.root_id)

    async def unload(self, root_id: SessionId) -> bool:
        """Take an idle session out of the memory, with a snapshot for the next load. False if it is not idle."""
        live = self.live.get(root_id)
        if live is None or not live.idle():
            return False
        images = [(s.id, s.state.seq, dump(s)) for s in live.tree.sessions.values()]
        self._forget(live)
        await live.close()
        await self.store.save_snapshot(images)
        return True
