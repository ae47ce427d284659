"""One session as one ACP client follows it: events of the session and its children out, in order, each once.

A feed pulls from the log and waits for its client, so a slow client costs nothing. It remembers how far it has told
(``Mark``), and what is open on the wire: prompts that wait for an answer, requests that the client was asked. The rest
is read from the session when it is needed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from adapters.acp import translate_replay as replay
from adapters.acp import translate_server_v1 as v1
from adapters.acp import translate_server_v2 as v2
from adapters.acp.server_tickets import Tickets
from adapters.acp.translate_server import PENDING
from adapters.acp.translate_server import child as announced
from adapters.acp.translate_server_calls import elicitation
from adapters.acp.wire_server import Update, notification
from gateway.core import events as ev
from gateway.core.errors import NotFound
from gateway.core.ids import RequestId, SessionId, TurnId
from gateway.core.model import Cancelled, Request, SessionInfo
from gateway.log import Closed, Entry, Subscription
from gateway.views import SessionView

if TYPE_CHECKING:
    from adapters.acp.server import Connection

CHILD_KINDS = frozenset(("subagent_update", "session_message", "session_message_chunk"))


class Ask(msgspec.Struct, frozen=True):
    """A request of the agent that this client was asked."""

    session_id: SessionId
    request: Request
    shown: SessionId  # the session that the client knows it under


class Feed:
    def __init__(self, connection: "Connection", root_id: SessionId) -> None:
        self.connection = connection
        self.root_id = root_id
        self.wire = connection.wire
        self.names: dict[str, str] = {}
        self.tickets = Tickets(connection, root_id, self.caught_up)
        self._asked: dict[RequestId, tuple[SessionId, int | None]] = {}
        self._marks: dict[SessionId, replay.Mark] = {}
        self._turns: dict[SessionId, TurnId] = {}
        self._children: dict[SessionId, str] = {}  # and their state
        self._working: dict[SessionId, tuple[Any, ...]] = {}  # tool calls and terminals beside the turn
        self._subscription: Subscription | None = None
        self._pump: asyncio.Task[None] | None = None
        self._reading = False
        self._opening = asyncio.Lock()
        self.standing = asyncio.Event()  # it follows the session: nothing that happens from now on is missed
        self._position = -1
        self._behind: list[tuple[int, asyncio.Future[None]]] = []
        self._listeners: list[tuple[Callable[[ev.Record], bool], asyncio.Future[ev.Record]]] = []
        self._key = (connection.wire, connection.can.plans)
        self._updates = replay.translator(connection.wire).updates

    def __repr__(self) -> str:
        return f"<Feed {self.root_id} {self.tickets} asked={len(self._asked)} {self._subscription}>"

    # --- begin and end -----------------------------------------------------------------------------------------------

    async def open(self, *, whole: bool, snapshot: bool, respond: Callable[[], Awaitable[None]] | None = None) -> None:
        """Follow the session from now on. ``whole``: its history first; ``snapshot``: its state, before ``respond``.

        NotFound for an unknown session. A feed that is open already begins anew.
        """
        async with self._opening:
            await self._open(whole, snapshot, respond)

    async def _open(self, whole: bool, snapshot: bool, respond: Callable[[], Awaitable[None]] | None) -> None:
        controller = self.connection.server.controller
        await controller.view(self.root_id)
        await self._stop()
        # No suspension from here to the subscription: what is told is of exactly this position.
        views = controller.family(self.root_id)
        self._read(views)
        updates = self._history(views) if whole else []
        if snapshot and self.wire == v2.WIRE:
            updates += [(view.info.id, self._state(view)) for view in views if whole or view.info.id == self.root_id]
        self._subscribe(controller.log.position)
        self.standing.set()
        try:
            for session_id, update in updates:
                await self.tell(session_id, update)
            if respond is not None:
                await respond()
            await self._present(views)
        finally:  # also for who withdrew the request in the middle: the session is followed
            if not self.connection.closed:
                self._pump = self.connection.tasks.start(self._run(), name=f"acp feed {self.root_id}")
                self.tickets.recheck()

    async def close(self) -> None:
        await self._stop()
        self._asked.clear()

    async def _stop(self) -> None:
        pump, self._pump = self._pump, None
        if pump is not None:
            pump.cancel()
            if pump is not asyncio.current_task():
                await asyncio.wait([pump])
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None
        for _, future in self._behind:
            if not future.done():
                future.set_result(None)
        self._behind.clear()
        for _, listener in self._listeners:
            listener.cancel()
        self._listeners.clear()

    def _read(self, views: list[SessionView]) -> None:
        for view in views:
            info = view.info
            if info.agent_session:
                self.names[info.agent_session] = info.id
            self._marks[info.id] = replay.end(view.transcript)
            self._working[info.id] = view.background
            for child in view.transcript.children.values():
                self._children[child.session_id] = child.state
            if view.turn_id is not None:
                self._turns[info.id] = view.turn_id
            else:
                self._turns.pop(info.id, None)

    def _subscribe(self, position: int) -> None:
        if self._subscription is not None:
            self._subscription.close()
        log = self.connection.server.controller.log
        self._subscription = log.subscribe((self.root_id, *self._children), after=position)
        self._position = position

    def _history(self, views: list[SessionView]) -> list[tuple[SessionId, Update]]:
        """Announcements of children before all that may name them; what children said after what their parents did."""
        out = [(view.info.id, u) for view in views for u in replay.children(view.transcript)]
        for view in views:
            said = replay.history(view.transcript, self.wire, self.names) + replay.standing(view.transcript, self.wire)
            out += [(view.info.id, update) for update in said]
        return out

    async def _present(self, views: list[SessionView]) -> None:
        """What goes on: children that work, requests that are open."""
        for view in views:
            for child in view.transcript.children.values():
                if child.state in ("running", "requires_action"):
                    await self.tell(view.info.id, announced(child))
        for view in views:
            for request in view.requests:
                await self._ask(view.info.id, request)
        if self.connection.can.pending and views and views[0].pending:
            await self._tell_pending()

    # --- the way out -------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        with suppress(Closed):
            while True:
                assert self._subscription is not None
                self._reading = True
                if self._behind and not self._subscription.pending():
                    self._passed(self.connection.server.controller.log.position)
                batch = await self._subscription.read()
                self._reading = False
                if batch.gap:
                    await self._catch_up()
                elif await self._entries(batch.entries):
                    self._passed(batch.position)

    async def _entries(self, entries: list[Entry]) -> bool:
        """Tell some entries. False: a new child joined, and what follows it is read again, with the child's own."""
        pending = False
        complete = True
        for entry in entries:
            event = entry.record.event
            mark = self._marks.setdefault(entry.record.session_id, replay.Mark())
            if type(event) is ev.TextDelta:  # the hot path
                for kind, frame in self._frames(entry):
                    if self._shown(entry.record.session_id, kind):
                        await self.connection.send(frame, entry.record.session_id, self.root_id)
                mark.see(event)
                continue
            pending = pending or isinstance(event, PENDING)
            await self._event(entry)
            mark.see(event)
            if isinstance(event, ev.ChildUpdated) and event.child.session_id not in self._children:
                self._children[event.child.session_id] = event.child.state
                self.names[event.child.agent_session] = event.child.session_id
                self._subscribe(entry.pos)
                complete = False
                break
        if pending and self.connection.can.pending:
            await self._tell_pending()
        return complete

    def _frames(self, entry: Entry) -> list[tuple[str, str]]:
        """An entry's frames, encoded once for all clients of this version."""
        found: Any = entry.frames.get(self._key)
        if found is None:
            record = entry.record
            found = [(u.kind, notification(record.session_id, u.body)) for u in self._of(record)]
            entry.frames[self._key] = found
        frames: list[tuple[str, str]] = found
        return frames

    def _of(self, record: ev.Record) -> list[Update]:
        event = record.event
        if isinstance(event, ev.PlanUpdated) and self.wire == v1.WIRE and self.connection.can.plans:
            source = event.source
            if source is not None and source.wire == v1.WIRE:
                return [Update("plan_update", source.raw)]
        updates: list[Update] = self._updates(event, self.names)
        return updates

    def _shown(self, session_id: SessionId, kind: str) -> bool:
        can = self.connection.can
        if not can.subagents and (session_id != self.root_id or kind in CHILD_KINDS):
            return False
        if kind == "notice":
            return can.notices
        return can.compaction or not kind.startswith("compaction_")

    async def tell(self, session_id: SessionId, update: Update) -> None:
        if self._shown(session_id, update.kind):
            await self.connection.send(notification(session_id, update.body), session_id, self.root_id)

    async def _event(self, entry: Entry) -> None:
        """Anything but text: what the client is told of it, and what it answers."""
        record, event = entry.record, entry.record.event
        session_id = record.session_id
        if entry.info.agent_session:
            self.names[entry.info.agent_session] = entry.info.id
        if not (isinstance(event, ev.MessageDelivered) and self._own(event)):
            for kind, frame in self._frames(entry):
                if self._shown(session_id, kind):
                    await self.connection.send(frame, session_id, self.root_id)
        match event:
            case ev.TurnStarted():
                self._turns[session_id] = event.turn_id
                await self._state_update(session_id, v2.state("running", self._background(session_id)))
            case ev.TurnEnded():
                self._turns.pop(session_id, None)
                idle = v2.idle(event.outcome, event.error, event.tokens, self._background(session_id))
                await self._state_update(session_id, idle)
            case ev.RequestOpened():
                if session_id in self._turns:
                    await self._state_update(session_id, v2.state("requires_action", self._background(session_id)))
                await self._ask(session_id, event.request)
            case ev.RequestSettled():
                await self._settled(session_id, event)
            case ev.ChildUpdated() if event.child.session_id in self._children:
                was, now = self._children[event.child.session_id], event.child.state
                self._children[event.child.session_id] = now
                if was != now and session_id not in self._turns:
                    await self._state_update(session_id, v2.state("idle", self._background(session_id)))
            case ev.AgentUpdated(kind="elicitation/complete") if self.connection.can.url:
                frame = self.connection.peer.notify(event.kind, event.raw).decode().rstrip("\n")
                await self.connection.send(frame, session_id, self.root_id)
            case ev.BackgroundUpdated():
                self._working[session_id] = event.items
                asked = any(session == session_id for session, _ in self._asked.values())
                word = "idle" if session_id not in self._turns else "requires_action" if asked else "running"
                await self._state_update(session_id, v2.state(word, self._background(session_id)))
            case ev.ModesUpdated() | ev.ConfigUpdated() if self.wire == v2.WIRE:
                for view in self.connection.server.controller.family(session_id):
                    if view.info.id == session_id:
                        await self.tell(session_id, v2.config_update(view.transcript))
        await self.tickets.see(event)
        for each in list(self._listeners):
            if each[0](record):
                self._listeners.remove(each)
                if not each[1].done():
                    each[1].set_result(record)

    def _own(self, event: ev.MessageDelivered) -> bool:
        """A prompt of this very client, which on v1 is not told what it said."""
        return self.wire == v1.WIRE and event.message.by.connection in self.tickets

    # --- states (v2) -------------------------------------------------------------------------------------------------

    async def _state_update(self, session_id: SessionId, update: Update) -> None:
        if self.wire == v2.WIRE:
            await self.tell(session_id, update)

    def _background(self, session_id: SessionId) -> list[Any]:
        working = list(self._working.get(session_id, ()))
        if session_id != self.root_id:
            return working
        return [*working, *(c for c, state in self._children.items() if state in ("running", "requires_action"))]

    def _state(self, view: SessionView) -> Update:
        background = self._background(view.info.id)
        if view.turn_id is not None:
            return v2.state("requires_action" if view.requests else "running", background)
        turn = view.transcript.turns.get(view.last_turn_id or TurnId(""))
        if turn is None or turn.ended is None:
            return v2.state("idle", background)
        return v2.idle(turn.outcome, turn.error, turn.tokens, background)

    # --- requests of the agent ---------------------------------------------------------------------------------------

    async def _ask(self, session_id: SessionId, request: Request) -> None:
        if request.id in self._asked:
            return
        connection = self.connection
        shown = session_id if connection.can.subagents else self.root_id
        self._asked[request.id] = (session_id, None)
        if request.kind == "elicitation":
            if not (connection.can.url if request.url else connection.can.form):
                return
            method, params = "elicitation/create", elicitation(shown, request)
        else:
            views = connection.server.controller.family(session_id)
            call = next((v.transcript.tool(request.call_id) for v in views if v.info.id == session_id), None)
            made = v1.permission if self.wire == v1.WIRE else v2.permission
            method, params = "session/request_permission", made(shown, request, call)
        number, line = connection.peer.request(method, params, Ask(session_id, request, shown))
        self._asked[request.id] = (session_id, number)
        await connection.send(line.decode().rstrip("\n"), shown, self.root_id)

    async def _settled(self, session_id: SessionId, event: ev.RequestSettled) -> None:
        if event.request_id not in self._asked:
            return  # a rule answered: nobody was asked
        _, number = self._asked.pop(event.request_id)
        if number is not None and self.connection.peer.forget(number) is not None:
            frame = self.connection.peer.notify("$/cancel_request", {"requestId": number}).decode().rstrip("\n")
            await self.connection.send(frame, self.root_id, self.root_id)
        if session_id in self._turns and all(session != session_id for session, _ in self._asked.values()):
            await self._state_update(session_id, v2.state("running", self._background(session_id)))

    def holds(self, request_id: RequestId) -> bool:
        """Whether the client was asked this, and has not answered."""
        _, number = self._asked.get(request_id, (None, None))
        return number is not None and any(key == number for key, _ in self.connection.peer.pending())

    # --- who asks ----------------------------------------------------------------------------------------------------

    async def caught_up(self) -> None:
        """Wait until everything that has happened by now was told."""
        position = self.connection.server.controller.log.position
        while self._pump is not None and not self._pump.done() and self._position < position:
            if self._reading and self._subscription is not None and not self._subscription.pending():
                return
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._behind.append((position, future))
            await future

    def listen(self, wanted: Callable[[ev.Record], bool]) -> "asyncio.Future[ev.Record]":
        """The next event that ``wanted`` likes, once it was told."""
        future: asyncio.Future[ev.Record] = asyncio.get_running_loop().create_future()
        self._listeners.append((wanted, future))
        return future

    def _passed(self, position: int) -> None:
        """Everything of this session up to here was told."""
        self._position = position
        if self._behind:
            for target, future in self._behind:
                if target <= position and not future.done():
                    future.set_result(None)
            self._behind = [(t, f) for t, f in self._behind if not f.done()]

    # --- after a gap -------------------------------------------------------------------------------------------------

    async def _catch_up(self) -> None:
        """The log has lost what this client had not read: tell the rest from the session as it stands."""
        controller = self.connection.server.controller
        try:
            await controller.view(self.root_id)
        except NotFound:
            await self.tickets.see(ev.SessionDeleted(SessionInfo(self.root_id, self.root_id, "", 0, 0)))
            return
        views, position = controller.family(self.root_id), controller.log.position
        marks = dict(self._marks)
        updates: list[tuple[SessionId, Update]] = []
        for view in views:
            updates += [(view.info.id, u) for u in replay.children(view.transcript)]
        for view in views:
            mark = marks.get(view.info.id, replay.Mark())
            said = replay.missed(view.transcript, self.wire, self.names, mark)
            said += replay.standing(view.transcript, self.wire)
            if self.wire == v2.WIRE:
                said.append(self._state(view))
            updates += [(view.info.id, update) for update in said]
        self._read(views)
        self._subscribe(position)
        open_now = {request.id for view in views for request in view.requests}
        for session_id, update in updates:
            await self.tell(session_id, update)
        for request_id in [r for r in self._asked if r not in open_now]:
            session_id = self._asked[request_id][0]
            await self._settled(session_id, ev.RequestSettled(request_id, Cancelled("gone")))
        await self._present(views)
        self.tickets.recheck()

    async def _tell_pending(self) -> None:
        """Our own notification: what waits, for clients that asked to see it."""
        for view in self.connection.server.controller.family(self.root_id)[:1]:
            await self.connection.tell_pending(self.root_id, view.pending)
