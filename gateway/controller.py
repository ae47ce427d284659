"""The SessionController: the one door to all sessions. Adapters call it; it loads, asks, waits and shows.

It decides nothing (``gateway/core`` does) and keeps no message: sessions that are not used leave the memory.
"""

import asyncio
import os
from collections.abc import Callable, Collection
from typing import Any, Literal

import structlog

from gateway.core import fork as forks
from gateway.core import waits
from gateway.core.content import Content, Json
from gateway.core.errors import Busy, GatewayError, Limit, NotFound, NotSupported
from gateway.core.events import Record
from gateway.core.ids import MessageId, RequestId, SessionId, TurnId
from gateway.core.inputs import (
    UNSET,
    Abort,
    Answer,
    CancelWork,
    Create,
    Delete,
    Demote,
    Input,
    Promote,
    Reconcile,
    Replace,
    Revoke,
    RunCommand,
    Submit,
    UnsetType,
    Update,
    Wake,
)
from gateway.core.model import Answered, By, Delivery, OnAbort, Request, SessionInfo
from gateway.core.replies import Admission, Reconciled, Settled, Settlement, Verdict, Wait
from gateway.core.tree import claims, create
from gateway.core.turn import TurnState
from gateway.live import Live
from gateway.log import Entry, Subscription
from gateway.residents import Residents
from gateway.store_writer import Commit, Taken
from gateway.views import SessionView, agent_failure, view_of

_log = structlog.get_logger("controller")


class SessionController(Residents):
    """``agents`` by name, ``factory`` makes a port for any of them; ``default_agent`` is for sessions without one."""

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
        session_id: SessionId | None = None,
        by: By = By(),
    ) -> SessionInfo:
        """A new session. ``cwd`` is absolute and confined by the caller. Limit when there are too many in memory.

        ``aliases``: (kind, name) that ``resolve`` finds it by; ``session_id``: where the client brings one, of the
        layout ``ses…``. Raises Taken when another session has, or had, one of them.
        """
        if agent and agent not in self.agents:
            raise NotFound(f"no agent {agent!r} (there are: {', '.join(self.agents)})")
        wish = Create(
            by=by,
            cwd=cwd,
            session_id=session_id,
            agent=agent,
            title=title,
            mode=mode,
            model=model,
            mcp_servers=mcp_servers,
            meta=meta,
        )
        return await self._create(wish, aliases)

    async def fork(
        self, session_id: SessionId, *, cwd: str | None = None, mcp_servers: Json = None, by: By = By()
    ) -> SessionInfo:
        """A new session that begins as a copy of this one, here and at the agent; all ids are new.

        Raises NotSupported where the agent cannot, Busy in a turn, and what ``wake`` raises.
        """
        view = await self.wake(session_id, by=by)
        if view.info.parent_id is not None:
            raise NotSupported("a subagent's session cannot be forked: fork its parent")
        if not view.can_fork:
            raise NotSupported(f"the agent {view.info.agent!r} does not offer to fork a session")
        if view.turn_id is not None:
            raise Busy("the session is busy: fork it when its turn is over", session_id=session_id)
        of = view.info
        wish = Create(
            by=by,
            cwd=cwd or of.cwd,
            agent=of.agent,
            title=forks.title(of.title),
            mode=of.mode,
            model=of.model,
            mcp_servers=of.mcp_servers if mcp_servers is None else mcp_servers,
            meta=of.meta,
            fork_of=of.agent_session,
            history=forks.history(view.transcript),
        )
        info = await self._create(wish)
        try:  # now, so that both go on from the same place, and a failure is told to whoever asked
            return (await self.wake(info.id, by=by)).info
        except (GatewayError, asyncio.CancelledError):
            await asyncio.shield(self.delete(info.id, by=by))
            raise

    async def _create(self, wish: Create, aliases: Collection[tuple[str, str]] = ()) -> SessionInfo:
        if len(self.live) >= self.options.max_sessions:
            raise Limit(f"{self.options.max_sessions} sessions are open already")
        tree, decision = create(wish, self.clock(), os.urandom(16), self.policy(wish.agent))
        info = decision.replies[0]
        assert isinstance(info, SessionInfo)
        named = tuple((kind, alias, info.id) for kind, alias in aliases)
        taken = claims(decision.records)
        if wish.session_id is not None:
            taken = (*taken, (info.id, info.id))  # two clients may bring the same
        stored = self.store.commit(Commit(info.id, decision.durable, (info,), claims=taken, aliases=named))

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

    async def page(
        self,
        *,
        limit: int,
        ascending: bool = False,
        after: tuple[int, str] | None = None,
        cwd: str | None = None,
        search: str | None = None,
    ) -> list[SessionInfo]:
        """Sessions by the time of their creation, as ``Store.page``."""
        return await self.store.page(limit=limit, ascending=ascending, after=after, cwd=cwd, search=search)

    async def info(self, session_id: SessionId) -> SessionInfo | None:
        """What a session is, without loading it."""
        return await self.store.info(session_id)

    async def history(self, session_id: SessionId, after: int, limit: int) -> list[Record]:
        """What was committed of a session after a seq, by seq. NotFound."""
        records = await self.store.history(session_id, after, limit)
        if not records and await self.store.info(session_id) is None:
            raise NotFound(f"Session not found: {session_id}", session_id=session_id)
        return records

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
            s.id: s.state.turn for live in self.live.values() for s in live.tree.sessions.values() if not waits.idle(s)
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

    async def run_command(
        self, session_id: SessionId, command: str, *, message_id: MessageId | None = None, by: By = By()
    ) -> Admission:
        """Run a person's command line in the session's folder: ``wait`` for the message to know its end.

        Raises NotSupported where the setting ``shell`` is off, Busy while anything runs or waits in the session.
        """
        live = await self._get(session_id)
        if self.commands is None:
            raise NotSupported("people may not run commands here: the setting shell is off")
        wish = RunCommand(by=by, command=command, message_id=message_id)
        reply = await live.ask(session_id, *self._bind(live, by), wish)
        assert isinstance(reply, Admission)
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

    async def cancel_work(
        self, session_id: SessionId, kind: Literal["tool_call", "terminal"], name: str, *, by: By = By()
    ) -> None:
        """Cancel one tool call or terminal, by the agent's name of it. NotSupported where it does not offer that."""
        await self._ask(session_id, CancelWork(by=by, kind=kind, id=name))

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
