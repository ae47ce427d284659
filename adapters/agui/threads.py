"""Threads: which session a ``threadId`` names, and what a POST to it does. Asks the controller, opens streams."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapters.agui import frames as fr
from adapters.agui import translate_messages as msgs
from adapters.agui import translate_requests, wire
from adapters.agui.streams import Leaving, Stream, Streams
from adapters.agui.translate_content import user_content
from adapters.agui.translate_names import user_name
from adapters.agui.translate_run import Run, Views, run_of
from adapters.agui.wire import Invalid, Options, ResumeEntry, RunAgentInput
from gateway.controller import SessionController
from gateway.core.content import Content
from gateway.core.errors import Conflict, NotFound
from gateway.core.ids import MessageId, RequestId, SessionId, TurnId
from gateway.core.model import Answered, By, Cancelled, Request
from gateway.log import STALE
from gateway.paths import confine
from gateway.settings import Settings

KIND = "agui:"  # of aliases, before the agent's name


@dataclass(frozen=True)
class Asked:
    """One RunAgentInput: as it was judged, and its messages as they came."""

    agent: str
    input: RunAgentInput
    raw: Sequence[dict[str, Any]]
    options: Options
    name: str  # of who asks
    closing: Callable[[], bool]

    @property
    def by(self) -> By:
        return By(self.name, "agui", self.input.run_id)

    @property
    def modern(self) -> bool:
        """A client of 1.0 or later says so; an earlier one says nothing."""
        version = self.input.protocol_version or ""
        return version[:1].isdigit() and not version.startswith("0")

    @property
    def has(self) -> frozenset[str]:
        return frozenset(m.id for m in self.input.messages if m.role == "user")


class Threads:
    def __init__(self, controller: SessionController, settings: Settings) -> None:
        self.controller = controller
        self.roots: list[Path] = list(settings.workspace)
        self.keep_running = settings.agui_on_disconnect == "continue"
        self.streams = Streams(controller)

    # --- which session -----------------------------------------------------------------------------------------------

    def agent(self, name: str) -> str:
        if name not in self.controller.agents:
            raise NotFound(f"no agent {name!r} (there are: {', '.join(self.controller.agents)})", agent=name)
        return name

    async def find(self, agent: str, thread: str) -> SessionId | None:
        """The session of a thread; None for a name that nobody used yet. A ``ses_`` id must exist, with this agent."""
        self.agent(agent)
        if not thread.startswith("ses_"):
            return await self.controller.resolve(KIND + agent, thread)
        view = await self.controller.view(SessionId(thread))
        if view.info.agent and view.info.agent != agent:
            raise Conflict(
                f"{thread} is a session of the agent {view.info.agent!r}: post to /agui/{view.info.agent}",
                agent=view.info.agent,
            )
        return view.info.id

    async def known(self, agent: str, thread: str) -> SessionId:
        found = await self.find(agent, thread)
        if found is None:
            raise NotFound(f"no thread {thread!r} of the agent {agent!r}", thread=thread)
        return found

    async def _opened(self, asked: Asked) -> SessionId:
        """The session of the thread, made if there is none, with what the options ask of it."""
        options, thread = asked.options, asked.input.thread_id
        found = await self.find(asked.agent, thread)
        cwd = str(confine(options.cwd, self.roots)) if options.cwd else ""
        if found is None:
            return await self.controller.ensure(
                KIND + asked.agent,
                thread,
                cwd=cwd or str(self.roots[0]),
                agent=asked.agent,
                title=options.title,
                mode=options.mode,
                model=options.model,
                by=asked.by,
            )
        info = (await self.controller.view(found)).info
        if cwd and cwd != info.cwd:
            raise Conflict(f"the thread works in {info.cwd!r}: open another thread for {cwd!r}", cwd=info.cwd)
        changes: dict[str, Any] = {} if info.agent else {"agent": asked.agent}
        if options.mode and options.mode not in (info.mode, info.asked_mode):
            changes["mode"] = options.mode
        if options.model and options.model not in (info.model, info.asked_model):
            changes["model"] = options.model
        if changes:
            await self.controller.update(found, **changes, by=asked.by)
        return found

    # --- a run -------------------------------------------------------------------------------------------------------

    async def run(self, asked: Asked) -> Stream:
        """What a POST of a RunAgentInput does. Raises Invalid and ClientError before anything is sent."""
        session_id = await self._opened(asked)
        views, position = await self.streams.look(session_id)
        new = self._new(asked, views)
        resume = asked.input.resume or []
        if resume:
            asking = {request.id for view, _ in views for request in view.requests}
            away = bool(new) and any(e.status == "cancelled" and e.interrupt_id in asking for e in resume)
            if not away:
                return await self._resume(asked, views, position, new)
            self._answers(resume, views, True)
            await self.controller.abort(session_id, by=asked.by)
            views, position = await self.streams.look(session_id)
        if not new:
            return self._hydrate(asked, views, position)
        if any(view.requests for view, _ in views) and asked.options.delivery is None:
            run = self._bare(asked, views)
            names = [request.id for view, _ in views for request in view.requests]
            head = run.head(views, history=False)
            error = run.fail("interrupt_open", f"the run waits for an answer to {', '.join(names)}: send resume")
            return self._stream(asked, run, views, position, [*head, *error])
        return await self._submit(asked, views, position, new)

    def _new(self, asked: Asked, views: Views) -> list[tuple[MessageId, Content, dict[str, Any]]]:
        """The user messages that this session has not seen, as (id, blocks, as it came). Raises Invalid."""
        view = views[0][0]
        seen = {str(p.id) for p in view.pending} | {user_name(u) for u in view.transcript.users()}
        found = []
        for index, message in enumerate(asked.input.messages):
            if message.role == "user" and message.id not in seen:
                raw = asked.raw[index]
                seen.add(message.id)
                if not message.id or len(message.id) > 256:
                    raise Invalid([(f"messages.{index}.id", "must be 1 to 256 characters")])
                content = user_content(raw["content"], f"messages.{index}", message.id)
                found.append((MessageId(message.id), content, raw))
        return found

    def _bare(self, asked: Asked, views: Views, run_id: str = "") -> Run:
        info = views[0][0].info
        return Run(info.id, asked.input.thread_id, run_id or asked.input.run_id, asked.modern, has=asked.has)

    def _stale(self, asked: Asked, views: Views) -> bool:
        return msgs.stale(asked.input.messages, msgs.messages(views, asked.modern))

    def _stream(
        self, asked: Asked, run: Run, views: Views, position: int, head: list[wire.Event], after: int | None = None
    ) -> Stream:
        reader = self.streams.subscribe(views, position if after is None else after)
        epoch = self.controller.log.epoch
        if after is None:
            frames = fr.Frames(epoch, max(position - 1, 0))
            first = frames.upto(head, position)
        else:
            frames = fr.Frames(epoch, after)
            first = frames.beside(head)
        keep = asked.options.on_disconnect == "continue" or (self.keep_running and not asked.options.on_disconnect)
        return self.streams.stream(run, reader, views, first, frames, Leaving(asked.by, keep, asked.closing))

    async def _submit(
        self,
        asked: Asked,
        views: Views,
        position: int,
        new: Sequence[tuple[MessageId, Content, dict[str, Any]]],
    ) -> Stream:
        view, options = views[0][0], asked.options
        delivery = "steer" if options.delivery == "steer" else "queue"
        busy = view.turn_id is not None or any(not p.held for p in view.pending)
        active = run_of(view.transcript, view.turn_id or view.last_turn_id or TurnId("")) if busy else ""
        run = self._bare(asked, views)
        run.echo = [raw for _, _, raw in new]
        run.left = [message_id for message_id, _, _ in new]
        run.late = busy
        head = run.head(views, not busy and self._stale(asked, views), queued=busy and delivery == "queue")
        stream = self._stream(asked, run, views, position, head)  # reads from before the messages are admitted
        try:
            reconciled = await self.controller.reconcile(
                view.info.id,
                tuple((message_id, content) for message_id, content, _ in new),
                delivery="steer" if delivery == "steer" else "queue",
                if_busy="refuse" if options.delivery == "reject" else "accept",
                on_abort=options.on_abort,
                by=asked.by,
            )
        except BaseException:
            run.done = True
            await stream.aclose()
            raise
        run.left = [admission.message_id for admission in reconciled.new]
        run.mine = frozenset(run.left)
        if not run.left:  # revoked ones, or somebody sent the same at the same time
            run.done = True
            await stream.aclose()
            return self._hydrate(asked, *await self.streams.look(view.info.id))
        if delivery == "steer" and busy:
            stream.add(run.taken("steer", active))
        return stream

    def _hydrate(self, asked: Asked, views: Views, position: int) -> Stream:
        """Nothing new: the run that this one is (or was) goes on; else the client is shown everything, and it ends."""
        view = views[0][0]
        if view.turn_id is not None and run_of(view.transcript, view.turn_id) == asked.input.run_id:
            return self._follow(asked, views, position)
        run = self._bare(asked, views)
        head = run.head(views, history=True)
        head += run.park(views)
        if not run.done:
            run.turn_id = None
            head += run.settled()
        return self._stream(asked, run, views, position, head)

    # --- answers -----------------------------------------------------------------------------------------------------

    def _answers(
        self, resume: Sequence[ResumeEntry], views: Views, away: bool
    ) -> list[tuple[ResumeEntry, SessionId, Request | None, Answered]]:
        """What each entry answers. Raises Invalid for a payload that is no answer."""
        requests = {request.id: (view.info.id, request) for view, _ in views for request in view.requests}
        found: list[tuple[ResumeEntry, SessionId, Request | None, Answered]] = []
        for index, entry in enumerate(resume):
            known = requests.get(RequestId(entry.interrupt_id))
            if known is None:
                found.append((entry, SessionId(""), None, Cancelled()))
            else:
                answer = translate_requests.answer_of(entry, known[1], away, f"resume.{index}")
                found.append((entry, known[0], known[1], answer))
        return found

    async def _late(self, entry: ResumeEntry) -> str:
        """Why an entry answers nothing; empty if it says what was answered already, or only gives up.

        Clients let no other run begin until their interrupts are gone: giving up must always get them out.
        """
        if entry.status == "cancelled":
            return ""
        request_id = RequestId(entry.interrupt_id)
        session_id = self.controller.settled_in(request_id)
        if session_id is None:
            return f"no interrupt {request_id!r} is open"
        settled = await self.controller.answer(session_id, request_id, Cancelled())
        if translate_requests.same(entry, settled.outcome, settled.option_kind):
            return ""
        return f"{request_id} was answered already: {translate_requests.told(settled.outcome, settled.option_kind)}"

    async def _resume(
        self,
        asked: Asked,
        views: Views,
        position: int,
        new: Sequence[tuple[MessageId, Content, dict[str, Any]]],
    ) -> Stream:
        view = views[0][0]
        resume = asked.input.resume or []
        answers = self._answers(resume, views, False)
        run = self._bare(asked, views)
        run.echo = [raw for _, _, raw in new]
        stale = self._stale(asked, views)
        head = run.head(views, stale)
        if stale:
            for each, _ in views:
                texts, calls = msgs.open_parts(each), msgs.open_calls(each)
                if each.turn_id is not None:
                    head += run.encoder.reopen(each.info.id, each.info, texts, calls)
        for each, session_id in views:
            run.encoder.names |= msgs.known_names(each, session_id)
        run.turn_id = view.turn_id
        stream = self._stream(asked, run, views, position, head)
        try:
            problems = [await self._late(entry) for entry, _, request, _ in answers if request is None]
            problems = [problem for problem in problems if problem]
            if not problems:
                for entry, session_id, request, answer in answers:
                    if request is None:
                        continue
                    settled = await self.controller.answer(session_id, request.id, answer, by=asked.by)
                    run.owner |= settled.first
                    if not settled.first and (late := await self._late(entry)):
                        problems.append(late)
            if problems:
                stream.add(run.fail("interrupt_not_open", "; ".join(problems)))
                return stream
            if new:
                reconciled = await self.controller.reconcile(
                    view.info.id, tuple((m, content) for m, content, _ in new), on_abort="keep", by=asked.by
                )
                run.left = [admission.message_id for admission in reconciled.new]
                run.mine = frozenset(run.left)
        except BaseException:
            run.done = True
            await stream.aclose()
            raise
        answered = {request.id for _, _, request, _ in answers if request is not None}
        run.asked = any(request.id not in answered for each, _ in views for request in each.requests)
        if run.turn_id is None and not run.left:
            run.follows = True  # what was answered belongs to no turn, or its turn is over
        return stream

    # --- following ---------------------------------------------------------------------------------------------------

    async def connect(self, asked: Asked, cursor: str) -> Stream | list[wire.Event]:
        """Show a thread as it is, and what runs; leaving changes nothing. An unknown thread is empty, and stays so."""
        after = fr.parse(self.controller.log, cursor) if cursor else None
        session_id = await self.find(asked.agent, asked.input.thread_id)
        if session_id is None:
            run = Run(SessionId(""), asked.input.thread_id, asked.input.run_id, asked.modern)
            return [*run.begin(), wire.MessagesSnapshot(messages=[]), *run.settled()]
        views, position = await self.streams.look(session_id)
        return self._follow(asked, views, position, after)

    def _follow(self, asked: Asked, views: Views, position: int, after: int | None = None) -> Stream:
        view = views[0][0]
        run = self._bare(asked, views)
        run.follows = True
        if after is not None and after != STALE:
            turn_id = view.turn_id or view.last_turn_id
            run.run_id = run_of(view.transcript, turn_id) if turn_id else run.run_id
            for each, session_id in views:
                run.encoder.names |= msgs.known_names(each, session_id)
            return self._stream(asked, run, views, position, run.begin(), after)
        head = run.resync(views)
        if run.asked:
            head += run.park(views)
        elif view.turn_id is None:
            head += run.settle(views)
        run.follows = False
        return self._stream(asked, run, views, position, head)
