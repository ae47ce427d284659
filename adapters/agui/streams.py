"""Open streams: a reader of the log behind each run, what it shows as bytes, and what its client's leaving means.

Nothing here decides what a run shows (``translate_run``) or what a session does (the core).
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass

import structlog

from adapters.agui import wire
from adapters.agui.frames import Frames
from adapters.agui.translate_run import Run, Views
from gateway.controller import SessionController
from gateway.core import events as ev
from gateway.core.errors import GatewayError
from gateway.core.ids import SessionId
from gateway.core.model import By
from gateway.log import Closed, Entry, Subscription
from gateway.views import SessionView

DEBOUNCE = 0.08  # seconds that a request waits for others, so that they end the run together
_log = structlog.get_logger("agui")


@dataclass
class Leaving:
    """What it means that the client closes the stream before its end. ``closing``: the gateway itself ends."""

    by: By
    keep_running: bool
    closing: Callable[[], bool]


class Stream:
    """The frames of one POST, as an async iterator. ``aclose`` tells that the client left, whenever that was."""

    def __init__(
        self,
        owner: "Streams",
        run: Run,
        reader: Subscription,
        sessions: frozenset[SessionId],
        first: bytes,
        frames: Frames,
        leaving: Leaving,
    ) -> None:
        self._owner = owner
        self._run = run
        self._reader = reader
        self._sessions = sessions  # that the reader reads
        self._frames = frames
        self._leaving = leaving
        self._closed = False
        self._more: list[bytes] = []
        self._body = self._generate(first)

    def __repr__(self) -> str:
        return f"<Stream {self._run!r} {self._reader!r}>"

    def __aiter__(self) -> "Stream":
        return self

    async def __anext__(self) -> bytes:
        return await anext(self._body)

    def add(self, events: Sequence[wire.Event]) -> None:
        """More before the first frame of the log: before anything was read."""
        self._more.append(self._frames.beside(events))

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._body.aclose()
        self._reader.close()
        if not self._run.done and not self._leaving.closing():
            self._owner.left(self._run, self._leaving)

    async def _generate(self, first: bytes) -> AsyncGenerator[bytes, None]:
        run, frames = self._run, self._frames
        yield first + b"".join(self._more)
        deadline: float | None = None
        loop = asyncio.get_running_loop()
        try:
            while not run.done:
                if run.wants_snapshot:
                    yield await self._snapshot()
                    continue
                batch = self._reader.poll()
                if batch is None:
                    if run.follows:
                        data = await self._caught_up()
                        if data:
                            yield data
                        continue
                    if run.asked:
                        deadline = deadline or loop.time() + DEBOUNCE
                        try:
                            async with asyncio.timeout_at(deadline):
                                batch = await self._reader.read()
                        except TimeoutError:
                            views, position = await self._owner.look(run.root_id)
                            if position == self._reader.position or not self._reader.pending():
                                deadline = None
                                parked = frames.beside(run.park(views))
                                if parked:
                                    yield parked
                            continue
                    else:
                        batch = await self._reader.read()
                if batch.gap:
                    yield await self._snapshot()
                    continue
                entries = self._grown(batch.entries)
                data = frames.batch(run, entries)
                if data:
                    yield data
        except Closed:
            pass
        except GatewayError as error:  # the session is gone
            yield frames.beside(run.fail(error.code, error.message))
            run.done = True

    def _grown(self, entries: list[Entry]) -> list[Entry]:
        """The entries up to the first new subagent; from there on the reader reads it too."""
        for index, entry in enumerate(entries):
            event = entry.record.event
            if isinstance(event, ev.ChildUpdated) and event.first:
                self._read(self._sessions | {event.child.session_id}, entry.pos)
                return entries[: index + 1]
        return entries

    def _read(self, sessions: frozenset[SessionId], after: int) -> None:
        self._reader.close()
        self._reader, self._sessions = self._owner.controller.subscribe(sessions, after=after), sessions

    async def _snapshot(self) -> bytes:
        views, position = await self._owner.look(self._run.root_id)
        self._read(sessions_of(views), position)
        return self._frames.upto(self._run.resync(views), position)

    async def _caught_up(self) -> bytes:
        """A follower that began at a cursor has read all: it shows the turn that runs to its end, or ends."""
        views, _ = await self._owner.look(self._run.root_id)
        if self._reader.pending():
            return b""
        view, run = views[0][0], self._run
        if view.turn_id is None:
            return self._frames.beside(run.settle(views))
        run.follows, run.turn_id = False, view.turn_id
        run.asked = any(each.requests for each, _ in views)
        return b"" if run.begun else self._frames.beside(run.begin())


def sessions_of(views: Views) -> frozenset[SessionId]:
    return frozenset(view.info.id for view, _ in views)


class Streams:
    def __init__(self, controller: SessionController) -> None:
        self.controller = controller

    # --- reading -----------------------------------------------------------------------------------------------------

    async def look(self, session_id: SessionId) -> tuple[Views, int]:
        """A session and its subagents, as they stand at one position of the log. Read them before the next await."""
        log = self.controller.log
        while True:
            position = log.position
            views: list[tuple[SessionView, SessionId | None]] = [(await self.controller.view(session_id), None)]
            seen = {session_id}
            for view, _ in views:  # it grows: subagents have subagents
                for child in view.transcript.children:
                    if child not in seen:
                        seen.add(child)
                        views.append((await self.controller.view(child), child))
            if log.position == position:
                return views, position

    def subscribe(self, views: Views, after: int) -> Subscription:
        return self.controller.subscribe(sessions_of(views), after=after)

    def stream(
        self, run: Run, reader: Subscription, views: Views, first: bytes, frames: Frames, leaving: Leaving
    ) -> Stream:
        return Stream(self, run, reader, sessions_of(views), first, frames, leaving)

    # --- leaving -----------------------------------------------------------------------------------------------------

    def left(self, run: Run, leaving: Leaving) -> None:
        """The client of a POST has left: what only it waited for is taken back, the turn that it began is cancelled."""
        if not leaving.keep_running:
            self.controller.tasks.start(self._leave(run, leaving.by), name=f"client of {run.root_id} left")

    async def _leave(self, run: Run, by: By) -> None:
        controller, session_id = self.controller, run.root_id
        try:
            view = await controller.view(session_id)
            turn_id = view.turn_id
            abort = run.owner and turn_id is not None and run.turn_id == turn_id
            prompting = turn_id is not None and all(u.turn_id != turn_id for u in view.transcript.users())
            waiting = {pending.id: pending for pending in view.pending}
            for message_id in run.left:
                entry = waiting.get(message_id)
                if entry is None:
                    user = view.transcript.user(message_id)
                    abort |= user is not None and user.turn_id == turn_id and user.how == "prompt"
                elif entry.state == "offered" and prompting:
                    abort = True  # it is being written: that is not to be stopped, its turn is
                else:
                    await controller.revoke(session_id, message_id, by=by)
            if abort:
                await controller.abort(session_id, by=by)
        except GatewayError as error:
            _log.warning("a client left", session=session_id, error=error.message)
