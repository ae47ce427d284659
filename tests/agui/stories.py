"""Stories of one session for the tests of the encoder: real decisions of the core, from inputs that a test draws.

``Story`` is the session with a log beside it; ``Watcher`` does what ``streams.Stream`` does, without a loop.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from adapters.agui import wire
from adapters.agui.frames import Frames
from adapters.agui.translate_run import Run, Views
from gateway.core import effects as fx
from gateway.core import events as ev
from gateway.core.content import Audio, Block, Image, ResourceLink, Text
from gateway.core.ids import MessageId, SessionId
from gateway.core.inputs import (
    Abort,
    AgentAsk,
    AgentBlock,
    AgentChild,
    AgentCommands,
    AgentConfig,
    AgentGone,
    AgentMessage,
    AgentMode,
    AgentPlan,
    AgentReady,
    AgentText,
    AgentTitle,
    AgentTool,
    AgentUnknown,
    AgentUsage,
    AgentUser,
    Answer,
    Create,
    Input,
    PromptEnded,
    PromptWritten,
    Quiet,
    Reconcile,
    Replace,
    Revoke,
    SteerVerdict,
    Submit,
)
from gateway.core.model import Accepted, By, Cancelled, Error, Option, Selected, Tokens
from gateway.core.tree import create
from gateway.log import Entry, merge
from gateway.views import view_of
from tests.agui.client import Client, frames

T0 = 1_770_000_000_000
OPTIONS = (Option("yes", "Yes", "allow_once"), Option("no", "No", "reject_once"))
BLOCKS: tuple[Block, ...] = (
    Text("plain", {"annotations": {}}),
    Image("aGk=", "image/png"),
    Audio("aGk=", "audio/wav"),
    ResourceLink("file:///a", "a"),
)
Pick = Callable[[int], int]


class Story:
    def __init__(self) -> None:
        self.now = T0
        self.count = 0
        self.tree, decision = create(Create(cwd="/w", agent="demo"), self.now, self._entropy())
        self.log: list[Entry] = []
        self.prompt: fx.OfferPrompt | None = None
        self.steer: fx.OfferSteer | None = None
        self.children: list[str] = []
        self.calls: list[tuple[str, str]] = []  # (agent session, call id)
        self._keep(decision.records)

    def _entropy(self) -> bytes:
        self.count += 1
        return self.count.to_bytes(16, "big")

    @property
    def position(self) -> int:
        return len(self.log)

    @property
    def root_id(self) -> SessionId:
        return self.tree.root_id

    def _keep(self, records: tuple[ev.Record, ...]) -> None:
        for record in records:
            self.tree.apply((record,))
            info, pending = self.tree.context(record)
            self.log.append(Entry(len(self.log) + 1, record, info, pending, {}))

    def tell(self, *inputs: Input) -> None:
        self.now += 1
        decision = self.tree.decide([(self.root_id, item) for item in inputs], self.now, self._entropy())
        self._keep(decision.records)
        for effect in decision.effects:
            if isinstance(effect, fx.OfferPrompt):
                self.prompt = effect
            elif isinstance(effect, fx.OfferSteer):
                self.steer = effect

    def views(self) -> Views:
        found: list[Any] = [(view_of(self.tree.root), None)]
        seen = set()
        for view, _ in found:
            new = [child for child in view.transcript.children if child not in seen]
            seen.update(new)
            found += [(view_of(self.tree.sessions[child]), child) for child in new]
        return found

    # --- what may happen ---------------------------------------------------------------------------------------------

    def act(self, pick: Pick) -> None:
        """One thing, drawn; the turn moves on more often than not."""
        state = self.tree.root.state
        if state.agent != "ready" and pick(3):
            self.tell(AgentReady(can_steer=bool(pick(2))))
            return
        if self.prompt is not None and pick(4):
            self.tell(PromptWritten(offer_id=self.prompt.offer_id))
            self.prompt = None
            return
        if self.steer is not None and pick(2):
            verdict = ("injected", "injected", "refused", "accepted")[pick(4)]
            self.tell(SteerVerdict(offer_id=self.steer.offer_id, verdict=verdict))  # type: ignore[arg-type]
            if verdict != "accepted":
                self.steer = None
            return
        if state.turn_id is None and not state.inbox or not pick(12):
            self.client(pick)
        elif not pick(14):
            self.end(pick)
        else:
            self.agent(pick)

    def client(self, pick: Pick) -> None:
        number = pick(30)
        by = By("me", "agui" if pick(3) else "opencode", f"run{number}")
        content = (Text(f"words {number}"), *BLOCKS[1 : 1 + (not pick(5))])
        messages = ((MessageId(f"u{number}"), content), (MessageId(f"v{number}"), content))
        delivery = "steer" if pick(2) else "queue"
        inbox = list(self.tree.root.state.inbox)
        match pick(8):
            case 0:
                self.tell(Abort(by=by))
            case 1 if inbox:
                self.tell(Revoke(by=by, message_id=inbox[pick(len(inbox))]))
            case 2 if inbox:
                self.tell(Replace(by=by, message_id=inbox[pick(len(inbox))], content=(Text("other words"),)))
            case 3:
                self.tell(Submit(by=by, content=content, delivery="steer"))
            case _:
                self.tell(Reconcile(by=by, messages=messages[: 1 + pick(2)], delivery=delivery))

    def end(self, pick: Pick) -> None:
        tokens = Tokens(input=3, output=4, total=7) if pick(2) else None
        match pick(6):
            case 0:
                self.tell(AgentGone(error=Error("agent_exit", "it died") if pick(2) else None))
                self.prompt = self.steer = None
            case 1:
                self.tell(PromptEnded(outcome="error", error=Error("agent_error", "it failed")))
            case 2:
                self.tell(PromptEnded(outcome="cancelled", tokens=tokens))
            case 3:
                self.tell(PromptEnded(outcome="refusal"))
            case _:
                self.tell(PromptEnded(outcome="end_turn", tokens=tokens))

    def agent(self, pick: Pick) -> None:
        where = self.children[pick(len(self.children))] if self.children and not pick(3) else ""
        name = ("", "", "1", "2", "msg_a")[pick(5)]
        role = ("agent", "agent", "thought", "session")[pick(4)]
        match pick(18):
            case 0 | 1 | 2 | 3 | 4 | 5:
                for _ in range(1 + pick(3)):
                    self.tell(AgentText(role=role, text=f"t{pick(100)} é\n", agent_id=name, agent_session=where))  # type: ignore[arg-type]
            case 6:
                self.tell(AgentBlock(role=role, block=BLOCKS[pick(4)], agent_id=name, agent_session=where))  # type: ignore[arg-type]
            case 7:
                new = tuple(Text(f"new {i}") for i in range(pick(3)))
                self.tell(AgentMessage(role="agent", agent_id=name or "1", content=new, agent_session=where))
            case 8 | 9:
                self.calls.append((where, f"call{pick(4)}"))
                given: Any = ({"a": 1}, {}, None)[pick(3)]
                start = AgentTool(call_id=self.calls[-1][1], new=True, title="run", kind="execute", agent_session=where)
                if given is not None:
                    start = msgspec.structs.replace(start, input=given)
                self.tell(start)
            case 10 | 11 | 12 if self.calls:
                where, call_id = self.calls[pick(len(self.calls))]
                status: Any = ("pending", "in_progress", "completed", "failed")[pick(4)]
                item = [{"type": "content", "content": {"type": "text", "text": f"out {pick(9)}"}}]
                update = AgentTool(call_id=call_id, status=status, agent_session=where)
                if pick(2):
                    update = msgspec.structs.replace(update, append=item)
                if not pick(3):
                    update = msgspec.structs.replace(update, input={"late": 1})
                self.tell(update)
            case 13:
                self.ask(pick, where)
            case 14:
                self.answer(pick)
            case 15:
                self.child(pick)
            case 16 if pick(2):
                self.tell(Quiet())
            case 16:
                self.tell(AgentUser(content=(Text("told"),), agent_id=name))
            case _:
                self.about(pick, where)

    def ask(self, pick: Pick, where: str) -> None:
        self.calls.append((where, f"call{pick(6)}"))
        call = AgentTool(call_id=self.calls[-1][1], title="rm", input={"x": 1}, agent_session=where)
        ref = f"ask{self.count}"
        if pick(3):
            self.tell(AgentAsk(agent_ref=ref, title="rm?", tool=call, options=OPTIONS, agent_session=where))
        else:
            schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
            self.tell(AgentAsk(agent_ref=ref, kind="elicitation", title="n?", schema=schema, agent_session=where))

    def answer(self, pick: Pick) -> None:
        for session in self.tree.sessions.values():
            for request in session.state.requests.values():
                yes = Selected("yes") if request.kind == "permission" else Accepted({"n": 1})
                outcome = Cancelled() if not pick(4) else yes
                self.now += 1
                decision = self.tree.decide(
                    [(session.id, Answer(request_id=request.id, outcome=outcome))], self.now, self._entropy()
                )
                self._keep(decision.records)
                return

    def child(self, pick: Pick) -> None:
        if not self.children or not pick(3):
            self.children.append(f"kid{len(self.children)}")
            parent = self.children[-2] if len(self.children) > 1 and not pick(3) else ""
            self.tell(AgentChild(child=self.children[-1], title="kid", state="running", agent_session=parent))
        else:
            kid = self.children[pick(len(self.children))]
            state = ("idle", "running")[pick(2)]
            error = Error("agent_error", "no") if state == "idle" and not pick(3) else None
            self.tell(AgentChild(child=kid, state=state, error=error))

    def about(self, pick: Pick, where: str) -> None:
        match pick(7):
            case 0:
                self.tell(AgentPlan(entries=[{"content": "a", "status": "pending"}], agent_session=where))
            case 1:
                self.tell(AgentUsage(used=1 + pick(9), size=100))
            case 2:
                self.tell(AgentMode(mode="m", modes=[{"id": "m"}]))
            case 3:
                self.tell(AgentConfig(options=[], model="big"))
            case 4:
                self.tell(AgentCommands(commands=[{"name": "x"}]))
            case 5:
                self.tell(AgentTitle(title=f"title {pick(9)}"))
            case _:
                self.tell(AgentUnknown(kind="vendor", raw={"a": 1}, agent_session=where))


class Watcher:
    """One stream of a run into a strict client, reading when it is told to."""

    def __init__(
        self, story: Story, run: Run, client: Client, position: int, head: list[wire.Event], cursor: bool = False
    ) -> None:
        self.story = story
        self.run = run
        self.client = client.stream()
        self.position = position
        self.frames = Frames(1, position if cursor else position - 1)
        self.ids: list[str] = []
        self.sent: list[dict[str, Any]] = []
        self.settled = -1  # the position after which it ended
        self._show(self.frames.beside(head) if cursor else self.frames.upto(head, position))

    def _show(self, data: bytes) -> None:
        for cursor, event in frames(data):
            self.ids.append(cursor)
            self.sent.append(event)
            self.client.take(event)

    def read(self, merged: bool = False) -> None:
        """All that there is; then what a loop does when nothing comes."""
        story, run = self.story, self.run
        while not run.done:
            if run.wants_snapshot:
                self.resync()
                continue
            entries = story.log[self.position :]
            if not entries:
                if run.follows:
                    view = story.views()[0][0]
                    if view.turn_id is None:
                        self._show(self.frames.beside(run.settle(story.views())))
                    else:
                        run.follows, run.turn_id = False, view.turn_id
                        run.asked = any(each.requests for each, _ in story.views())
                        if not run.begun:
                            self._show(self.frames.beside(run.begin()))
                    continue
                if run.asked:
                    self._show(self.frames.beside(run.park(story.views())))
                return
            if merged:
                entries = merge(entries)
            self._show(self.frames.batch(run, entries))
            self.position = entries[-1].pos

    def resync(self) -> None:
        self.position = self.story.position
        self._show(self.frames.upto(self.run.resync(self.story.views()), self.position))
