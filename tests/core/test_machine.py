"""Random stories against a model of the agent: nothing is lost, doubled, reordered, or said otherwise than it is.

The stories are steered: most begin in a turn, choices are weighted, and what must happen often enough is counted; a run
in which something hardly ever happened fails. TRUNKLINE_STORIES=5000 runs so many, other ones each time;
TRUNKLINE_SHRINK=1 makes a failing story shorter, which takes minutes.
"""

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gateway.core import events as ev
from gateway.core import waits
from gateway.core.content import Image, digest
from gateway.core.effects import AnswerAgent, CancelTurn
from gateway.core.errors import ClientError
from gateway.core.ids import MessageId, SessionId
from gateway.core.inputs import (
    Abort,
    AgentAsk,
    AgentBlock,
    AgentChild,
    AgentMessage,
    AgentText,
    AgentTool,
    AgentUser,
    Answer,
    ClientInput,
    CommandEnded,
    CommandSaid,
    Demote,
    GraceOver,
    Input,
    OfferExpired,
    Promote,
    PromptEnded,
    PromptWritten,
    Quiet,
    Reconcile,
    Recover,
    Replace,
    Revoke,
    RunCommand,
    SteerVerdict,
    Submit,
    Update,
    WithdrawVerdict,
)
from gateway.core.model import Cancelled, Error, Option, Selected
from gateway.core.replies import Admission, Verdict, Wait
from gateway.core.session import Policy
from gateway.core.tree import claims
from gateway.core.turn import TurnState
from tests.core.agent import Agent
from tests.core.ledger import Ledger
from tests.core.play import say
from tests.core.world import T0, WRAP, World

STORIES = int(os.environ.get("TRUNKLINE_STORIES", "0"))
SHRINK = bool(os.environ.get("TRUNKLINE_SHRINK"))
NORMAL = 300
OPTIONS = (Option("yes", "Yes", "allow_once"), Option("no", "No", "reject_once"))

# How often each must have happened in a run of NORMAL stories: an event, an effect, a verdict, or what befell a story.
LEAST = {
    "MessageAdmitted": 2000,
    "PendingReplaced": 400,
    "MessagePromoted": 60,
    "MessageDemoted": 60,
    "MessageHeld": 500,
    "MessageReleased": 500,
    "MessageRevoked": 350,
    "MessagesOffered": 1200,
    "MessageReturned": 350,
    "MessageDelivered": 1400,
    "MessagePlaced": 5000,
    "QuestionAsked": 300,
    "QuestionRefused": 14,
    "AbortAsked": 300,
    "TurnCancelling": 250,
    "TurnEnded": 1000,
    "OfferAccepted": 40,
    "RequestSettled": 300,
    "MessageReplaced": 30,
    "SessionCreated": 90,
    "MessageAliased": 100,
    "BlockAdded": 300,
    "ToolUpdated": 500,
    "OfferPrompt": 900,
    "OfferSteer": 220,
    "Withdraw": 100,
    "StartAgent": 400,
    "command": 60,
    "command completed": 30,
    "command cancelled": 10,
    "told of a command": 20,
    "AgentWorking": 3,
    "CancelTurn": 200,
    "KillAgent": 8,
    "AnswerAgent": 300,
    "returned refused": 80,
    "returned lost": 200,
    "returned unwritten": 40,
    "revoked uncertain": 60,
    "delivered injected": 150,
    "delivered late": 12,
    "delivered after its turn": 10,
    "ended end_turn": 450,
    "ended cancelled": 150,
    "ended error": 150,
    "ended interrupted": 70,
    "ended unwritten": 30,
    "by the agent": 60,
    "interrupt": 25,
    "stillborn": 50,
    "failed commit": 300,
    "taken": 100,
    "restart": 110,
    "batch": 1800,
    "duplicate": 200,
    "conflict": 150,
    "busy": 30,
    "not running": 30,
    "limit": 50,
    "stored": 30,
    "resent": 7,
    "wait": 300,
    "withdrawn": 25,
}


class Story:
    """One story: ``pick`` chooses, the client and the agent act, the gateway decides."""

    def __init__(self, pick: Callable[[int], int], counts: Counter[str]) -> None:
        self.pick = pick
        self.counts = counts
        policy = Policy("interrupt" if pick(4) == 0 else "next_turn", 20)
        now = WRAP - pick(1500) if pick(6) == 0 else T0
        self.world = World(policy, now, heavy=12)
        self.agent = Agent(can_steer=pick(5) > 0, can_withdraw=True)
        self.ledger = Ledger()
        self.waits: list[Wait] = []
        self.number = 0
        self.submitted: dict[MessageId, Submit] = {}
        self.turn_of_offer: dict[str, Any] = {}
        self.restarting = "run" if pick(3) else "hold"

    # --- choices ------------------------------------------------------------------------------------------------------

    def chance(self, percent: int) -> bool:
        return self.pick(100) >= 100 - percent  # the simplest choice is no

    def one(self, values: Any) -> Any:
        values = list(values)
        return values[self.pick(len(values))]

    def weighted(self, table: list[tuple[int, Any]]) -> Any:
        at = self.pick(sum(weight for weight, _ in table))
        for weight, value in table:
            if at < weight:
                return value
            at -= weight
        raise AssertionError

    # --- the story ----------------------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        if self.chance(85):
            self.tell(Submit(content=say("first"), message_id=MessageId("msg_first")))
            self.agent.ready()
            self.hear()
            if self.agent.prompt is not None and self.chance(85):
                self.agent.write()
                self.hear()
                if self.chance(50):
                    self.tell(*self.steer_and_change())
        for _ in range(steps):
            batch: list[Input] = []
            for _ in range(1 + (self.pick(3) if self.chance(30) else 0)):
                batch += self.weighted(CLIENT)(self) if self.pick(5) < 2 else self.agent_acts()
            if self.chance(75):
                batch += self.heard(len(self.agent.wire) if self.chance(80) else self.pick(3))
            if not batch:
                continue
            befalls = self.pick(100)
            if befalls >= 98:
                self.restart()
            elif befalls >= 91:
                self.world.now += self.one((-5000, 0, 60_000))
                self.fail(batch)
            else:
                self.tell(*batch)
        self.drain()

    def heard(self, count: int) -> list[Input]:
        return [self.agent.wire.popleft() for _ in range(min(count, len(self.agent.wire)))]

    def hear(self) -> None:
        if self.agent.wire:
            self.tell(*self.heard(len(self.agent.wire)))

    def fail(self, batch: list[Input]) -> None:
        """The commit fails: callers are told, facts are decided again. Or somebody else has an id that it takes."""
        decision = self.world.step(*batch, lost=True)
        taken = [i for i, _ in claims(decision.durable)]
        if taken and self.chance(60):
            self.world.foreign.add(self.one(taken))
            self.counts["taken"] += 1
            self.tell(*batch)
            return
        self.counts["failed commit"] += 1
        facts = [item for item in batch if not isinstance(item, ClientInput)]
        if facts:
            self.tell(*facts)

    def tell(self, *batch: Input | tuple[SessionId, Input]) -> None:
        self.world.now += self.one((1, 0, 3, 40))
        self.counts["batch"] += len(batch) > 1
        before = len(self.world.tree.sessions)
        decision = self.world.step(*batch)
        others = [effect for effect in decision.effects if not isinstance(effect, AnswerAgent)]
        assert len(others) <= 4 + 3 * len(batch), "too many effects"
        assert len(decision.durable) <= 60 * (len(batch) + before), "too many events"
        for record in decision.records:
            self.ledger.asked(record.event)
            if record.session_id == self.world.tree.root_id:
                self.ledger.record(record.event, self.agent)
                self.count(record.event)
            else:
                self.counts[type(record.event).__name__] += 1
        for item, reply in zip(batch, decision.replies, strict=True):
            self.judge(item[1] if isinstance(item, tuple) else item, reply)
        self.resolve()
        told = [effect.turn_id for effect in decision.effects if isinstance(effect, CancelTurn)]
        assert told == self.ledger.cancels, "a turn is cancelled once, as soon as it is written, and no other is"
        self.ledger.cancels.clear()
        again = {item.message_id for item in batch if isinstance(item, Submit)}
        assert again.issuperset(self.ledger.resent), "an uncertain one is sent again, but nobody asked for it"
        self.ledger.resent.clear()
        for message_id in self.ledger.lines:
            self.ledger.settlement(message_id, waits.settlement(self.world.root, message_id))
        for effect in decision.effects:
            self.counts[type(effect).__name__] += 1
            self.agent.perform(effect)
        self.ledger.check(self.agent)

    def count(self, e: ev.Event) -> None:
        self.counts[type(e).__name__] += 1
        match e:
            case ev.MessageReturned():
                self.counts[f"returned {e.why}"] += 1
            case ev.MessageRevoked(uncertain=True):
                self.counts["revoked uncertain"] += 1
            case ev.MessagesOffered():
                self.turn_of_offer[e.offer_id] = e.turn_id
                self.counts["told of a command"] += bool(e.context)
            case ev.MessageDelivered(message=m):
                self.counts[f"delivered {m.how}"] += 1
                if m.how == "injected":
                    self.counts["delivered late"] += self.ledger.lines[m.id].uncertain
                    self.counts["delivered after its turn"] += self.ledger.turn is None
            case ev.TurnEnded():
                self.counts[f"ended {e.outcome}"] += 1
            case ev.TurnStarted(cause="command"):
                self.counts["command"] += 1
            case ev.ToolUpdated(call) if call.by_person and e.result:
                self.counts[f"command {call.status}"] += 1
            case ev.TurnStarted(cause="agent"):
                self.counts["by the agent"] += 1
            case ev.TurnCancelling(why="interrupt"):
                self.counts["interrupt"] += 1
            case ev.MessageReleased():
                self.counts["resent"] += self.ledger.lines[e.message_id].uncertain
            case _:
                pass
        self.counts["stillborn"] += (
            isinstance(e, ev.TurnCancelling) and self.agent.prompt is not None and not self.agent.written
        )

    def judge(self, item: Input, reply: Any) -> None:
        """A reply must be true."""
        if isinstance(reply, ClientError):
            self.counts[
                {"Conflict": "conflict", "Busy": "busy", "NotRunning": "not running", "Limit": "limit"}.get(
                    type(reply).__name__, "refused"
                )
            ] += 1
        if isinstance(item, Submit) and item.message_id is not None:
            known = self.submitted.get(item.message_id)
            if isinstance(reply, Admission):
                same = known is None or digest(known.content, known.delivery) == digest(item.content, item.delivery)
                assert same and reply.duplicate == (known is not None), "two admissions of one id"
                self.counts["duplicate"] += reply.duplicate
                self.submitted.setdefault(item.message_id, item)
        if isinstance(reply, Admission) and not isinstance(item, RunCommand):
            assert reply.message_id in self.ledger.lines
            self.counts["stored"] += reply.state == "held" and not reply.duplicate
        self.counts["withdrawn"] += isinstance(item, WithdrawVerdict) and item.done
        if isinstance(reply, Verdict):
            self.true(reply)
        if isinstance(reply, Wait):
            self.waits.append(reply)
            self.counts["wait"] += 1

    def true(self, verdict: Verdict) -> None:
        line = self.ledger.lines.get(verdict.message_id)
        if line is None:
            assert verdict.kind == "unknown"
        elif line.fate == "delivered":
            pass  # what was said before it was delivered was true then
        elif verdict.kind == "already_delivered":
            raise AssertionError("said to be delivered")
        elif verdict.kind == "revoked":
            assert line.fate == "revoked" and (verdict.uncertain or verdict.message_id not in self.agent.given)

    def resolve(self) -> None:
        for wait in list(self.waits):
            verdict = waits.verdict(self.world.root, wait)
            if verdict is not None:
                self.waits.remove(wait)
                self.true(verdict)

    def restart(self) -> None:
        """The gateway is killed, and its agent with it; the store is what is left."""
        self.counts["restart"] += 1
        if self.agent.state != "absent":
            self.agent.die(None, self.chance(50), 0)
        self.agent.wire.clear()
        self.waits.clear()
        texts = self.world.reload()
        self.ledger.accepted.clear()
        self.tell(Recover(checkpoints=texts, on_restart=self.restarting))

    # --- the end ------------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Everybody does what is due, until nothing is: then nobody may be waiting."""
        agent = self.agent
        for _ in range(300):
            if agent.kill:
                agent.die(Error("agent_exit", "killed"), False, 99)
            elif agent.state == "starting":
                agent.ready()
            elif agent.prompt is not None and not agent.written:
                agent.write()
            elif agent.withdraws:
                agent.answer(agent.withdraws[0], True)
            elif any(s.state.requests for s in self.world.tree.sessions.values()):
                self.answer_all()
            elif agent.steers and (agent.running or any(s.accepted or s.taken for s in agent.steers.values())):
                if not agent.running:
                    agent.begin()
                agent.inject(next(iter(agent.steers)))
            elif agent.steers:
                agent.refuse(next(iter(agent.steers)))
            elif agent.running:
                agent.end("end_turn")
            elif self.ledger.command and not agent.wire:
                self.command_ends()
            elif not agent.wire:
                break
            self.hear()
        else:
            raise AssertionError("it never comes to rest")
        self.world.check_all()
        root = self.world.root
        assert root.state.turn is TurnState.IDLE and not root.state.offers and not root.state.requests
        assert waits.idle(root), "something is not held, and was not delivered"
        assert not self.waits, "somebody still waits for a verdict"
        for message_id, line in self.ledger.lines.items():
            assert waits.settlement(root, message_id) is not None, "somebody still waits for a message"
            assert line.fate != "inbox" or root.state.inbox[message_id].held
        self.ledger.check(agent)
        delivered = [m.id for m in root.transcript.users()]
        assert len(set(delivered)) == len(delivered)

    def answer_all(self) -> None:
        for session in self.world.tree.sessions.values():
            for request_id in list(session.state.requests):
                self.tell((session.id, Answer(request_id=request_id, outcome=Cancelled())))

    # --- what a client does -------------------------------------------------------------------------------------------

    def submit(self) -> list[Input]:
        if len(self.world.root.state.inbox) > 8 and self.chance(70):
            return []
        self.number += 1
        new = MessageId(f"msg_{self.number}")
        content = say(self.one(("x", "y")) + str(self.number))
        if self.submitted and self.chance(25):
            new = self.one(list(self.submitted)[-6:])
            known = self.submitted[new]
            if self.chance(80):
                return [
                    Submit(
                        content=known.content,
                        message_id=new,
                        delivery=known.delivery,
                        if_idle=self.one(("start", "start", "store")),
                    )
                ]
        return [
            Submit(
                content=content,
                message_id=new if self.chance(90) else None,
                delivery=self.one(("queue", "steer", "steer")),
                if_idle=self.weighted([(8, "start"), (1, "refuse"), (1, "store")]),
                if_busy="accept" if not self.chance(6) else "refuse",
                on_abort=self.weighted([(5, "hold"), (2, "revoke"), (2, "keep")]),
                local_id=self.chance(10),
            )
        ]

    def run_command(self) -> list[Input]:
        self.number += 1
        return [RunCommand(command="ls", message_id=MessageId(f"msg_{self.number}") if self.chance(50) else None)]

    def command_ends(self) -> None:
        turn_id = self.world.root.state.turn_id
        if turn_id is not None:
            self.agent.wire.append(CommandEnded(turn_id=turn_id, output="a b", exit_code=0))

    def command_says(self) -> None:
        turn_id = self.world.root.state.turn_id
        if turn_id is not None:
            self.agent.wire.append(CommandSaid(turn_id=turn_id, output="a"))

    def steer_and_change(self) -> list[Input]:
        """A steer, and a wish about it while it is on its way."""
        steer = Submit(
            content=say("s"),
            message_id=MessageId(f"msg_s{self.number}"),
            delivery="steer",
            on_abort=self.one(("hold", "revoke", "keep")),
        )
        self.number += 1
        assert steer.message_id is not None
        wish: Input = Replace(message_id=steer.message_id, content=say(f"new{self.number}"))
        return [steer, *self.one(([], [Revoke(message_id=steer.message_id)], [wish], [wish, wish], [Abort()]))]

    def reconcile(self) -> list[Input]:
        self.number += 2
        new = [(MessageId(f"r{self.number - i}"), say(f"r{self.number - i}")) for i in (1, 0)]
        old = [(m, s.content) for m, s in list(self.submitted.items())[-2:]]
        return [Reconcile(messages=(*old, *new), delivery=self.one(("queue", "steer")))]

    def some_message(self) -> MessageId:
        """Mostly one that is not delivered, mostly an offered one."""
        lines = self.ledger.lines
        offered = [m for m, line in lines.items() if line.offered]
        open_ = [m for m, line in lines.items() if line.fate == "inbox"]
        if offered and self.chance(60):
            return self.one(offered)
        if open_ and self.chance(90):
            return self.one(open_)
        return self.one([*lines, MessageId("msg_nobody")])

    def revoke(self) -> list[Input]:
        return [Revoke(message_id=self.some_message())]

    def replace(self) -> list[Input]:
        self.number += 1
        return [Replace(message_id=self.some_message(), content=say(f"new{self.number}") * (1 + self.pick(2)))]

    def promote(self) -> list[Input]:
        return [Promote(message_id=self.some_message())]

    def demote(self) -> list[Input]:
        return [Demote(message_id=self.some_message())]

    def abort(self) -> list[Input]:
        return [Abort()]

    def answer(self) -> list[Input]:
        requests = list(self.world.root.state.requests)
        return (
            [Answer(request_id=self.one(requests), outcome=self.one((Selected("yes"), Cancelled())))]
            if requests
            else []
        )

    def expire(self) -> list[Input]:
        return [OfferExpired(offer_id=o) for o in self.ledger.offers]

    def other(self) -> list[Input]:
        stale = [PromptWritten(offer_id=o) for o in list(self.turn_of_offer)[:2] if o not in self.ledger.offers]
        late = [
            SteerVerdict(offer_id=o, verdict="refused")
            for o in list(self.turn_of_offer)[:1]
            if o not in self.ledger.offers
        ]
        grace = [GraceOver(turn_id=self.ledger.turn)] * (1 + 6 * self.agent.cancelled) if self.ledger.turn else []
        # an agent may say again that it is idle (ACP v2)
        rest = [PromptEnded(outcome="end_turn")] if not self.agent.running and not self.agent.wire else []
        update: list[Input] = [Update(title="t")]
        return [self.one([*grace, *stale, *late, *rest, Quiet(), *update])]

    # --- what the agent does ------------------------------------------------------------------------------------------

    def agent_acts(self) -> list[Input]:
        agent = self.agent
        acts: list[tuple[int, Callable[[], object]]] = [(1, lambda: None)]
        if agent.kill:
            acts = [(1, lambda: self.die(Error("agent_exit", "killed")))]
        elif agent.state == "starting":
            acts += [(12, agent.ready), (1, lambda: self.die(Error("agent_exit", "no")))]
        elif agent.state == "ready":
            acts += [(12, self.speak), (1, lambda: self.die(Error("agent_exit", "crash")))]
            if agent.prompt is not None and not agent.written:
                acts += [(14, agent.write), (1, agent.unwrite)]
            if agent.running:
                acts.append((20 if agent.cancelled else 3, self.end))
            elif agent.prompt is None:
                held = any(s.accepted for s in agent.steers.values())
                acts.append((14 if held else 1, agent.begin))
                if not self.world.tree.busy and not agent.wire:
                    acts.append((2, lambda: self.die(None)))
            if agent.withdraws:
                acts.append((14, lambda: agent.answer(self.one(agent.withdraws), self.chance(65))))
            if agent.steers:
                acts.append((20, self.steer))
        if self.ledger.command:
            acts += [(20, self.command_ends), (5, self.command_says)]
        self.weighted(acts)()
        return []

    def die(self, error: Error | None) -> None:
        self.agent.die(error, self.chance(50), self.pick(3))

    def end(self) -> None:
        if self.agent.cancelled and self.chance(80):
            self.agent.end("cancelled")
        elif self.chance(15):
            self.agent.end("error", Error("auth_required", "log in"))
        else:
            self.agent.end(self.one(("end_turn", "end_turn", "max_tokens")))

    def steer(self) -> None:
        agent = self.agent
        offer_id = self.one(agent.steers)
        steer = agent.steers[offer_id]
        only = self.one(steer.messages) if self.chance(20) else None
        if steer.taken:
            agent.inject(offer_id)
        elif steer.accepted:
            self.weighted([(6, lambda: agent.inject(offer_id, only)), (1, lambda: agent.refuse(offer_id, only))])()
        elif not agent.running:
            self.weighted([(3, lambda: agent.refuse(offer_id)), (1, lambda: agent.accept(offer_id))])()
        else:
            self.weighted(
                [
                    (6, lambda: agent.inject(offer_id, only)),
                    (4, lambda: agent.refuse(offer_id, only)),
                    (4, lambda: agent.accept(offer_id)),
                    (3, lambda: agent.inject(offer_id, told=False)),
                    (2, lambda: agent.lose(offer_id)),
                ]
            )()

    def speak(self) -> None:
        agent = self.agent
        name = self.one(("", "", "m1", "m2", "msg_x", f"msg_agent{self.pick(30)}"))
        role = self.one(("agent", "agent", "thought"))
        child = self.one([*self.world.tree.by_agent]) if self.world.tree.by_agent and self.chance(20) else ""
        what = self.weighted(
            [(8, "text"), (3, "tool"), (3, "ask"), (2, "block"), (2, "message"), (1, "child"), (1, "user")]
        )
        match what:
            case "text":
                agent.wire.append(AgentText(role=role, text="w ", agent_id=name, agent_session=child))
            case "tool":
                agent.wire.append(
                    AgentTool(
                        call_id=f"c{self.pick(3)}",
                        new=self.chance(50),
                        agent_session=child,
                        status=self.one(("pending", "in_progress", "completed")),
                    )
                )
            case "ask":
                agent.asked += 1
                agent.asks.add(f"ask{agent.asked}")
                agent.wire.append(AgentAsk(agent_ref=f"ask{agent.asked}", options=OPTIONS, agent_session=child))
            case "block":
                agent.wire.append(
                    AgentBlock(role=role, block=Image("aGk=", "image/png"), agent_id=name, agent_session=child)
                )
            case "message" if name:
                content = (*say("whole"), Image("aGk=", "image/png"), *say("end"))[: self.pick(4)]
                agent.wire.append(AgentMessage(role=role, agent_id=name, content=content, agent_session=child))
            case "child":
                agent.wire.append(AgentChild(child=f"child{self.pick(2)}", state=self.one(("running", "idle"))))
            case "user":
                agent.wire.append(AgentUser(content=say(f"typed{self.pick(3)}"), agent_id=f"u{self.pick(50)}"))
            case _:
                pass


CLIENT: list[tuple[int, Callable[[Story], list[Input]]]] = [
    (20, Story.submit),
    (8, Story.steer_and_change),
    (3, Story.reconcile),
    (3, Story.run_command),
    (7, Story.revoke),
    (7, Story.replace),
    (5, Story.promote),
    (4, Story.demote),
    (6, Story.abort),
    (5, Story.answer),
    (6, Story.other),
    (3, Story.expire),
]


def test_stories() -> None:
    counts: Counter[str] = Counter()
    stories = STORIES or NORMAL

    @settings(
        max_examples=stories,
        deadline=None,
        database=None,
        derandomize=not STORIES,
        report_multiple_bugs=False,
        phases=[Phase.generate, Phase.shrink] if SHRINK else [Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def tell(data: st.DataObject) -> None:
        story = Story(lambda n: data.conjecture_data.draw_integer(0, n - 1) if n > 1 else 0, counts)
        try:
            story.run(steps=60)
        except Exception as error:
            error.add_note("the story:\n" + "\n".join(story.world.lines))
            raise

    tell()
    if STORIES:  # seen with -s
        print(dict(sorted(counts.items())))
    short = {k: (counts[k], n) for k, n in LEAST.items() if counts[k] < n * min(1, stories / NORMAL)}
    assert not short, f"hardly ever reached (count, least): {short}"
