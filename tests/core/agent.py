"""A simple model of an agent behind its port: what it was truly given, whatever the gateway has heard of that.

What it says goes on ``wire``, in order, and is heard later; its death loses what the gateway did not hear.
"""

from collections import deque

import msgspec

from gateway.core import effects as fx
from gateway.core.content import Content
from gateway.core.ids import MessageId, OfferId
from gateway.core.inputs import (
    AgentGone,
    AgentReady,
    Input,
    PromptEnded,
    PromptUnwritten,
    PromptWritten,
    SteerVerdict,
    TurnBegan,
    WithdrawVerdict,
)
from gateway.core.model import Error, Outcome

DEAD = Error("agent_exit", "the agent is not running")


class Given(msgspec.Struct):
    """One message that the agent truly has, and how often."""

    content: Content
    times: int = 1


class Steer(msgspec.Struct):
    """A steer in the agent's hands. ``taken``: the model has it, which nobody was told yet."""

    messages: dict[MessageId, Content]
    accepted: bool = False
    taken: set[MessageId] = msgspec.field(default_factory=set)


class Agent:
    def __init__(self, can_steer: bool, can_withdraw: bool) -> None:
        self.can_steer = can_steer
        self.can_withdraw = can_withdraw
        self.state = "absent"
        self.wire: deque[Input] = deque()
        self.given: dict[MessageId, Given] = {}
        self.prompt: fx.OfferPrompt | None = None  # the one open prompt
        self.written = False
        self.own_turn = False
        self.cancelled = False
        self.steers: dict[OfferId, Steer] = {}
        self.withdraws: list[fx.Withdraw] = []
        self.asks: set[str] = set()
        self.asked = 0
        self.kill = False

    @property
    def running(self) -> bool:
        return self.own_turn or (self.prompt is not None and self.written)

    # --- what the gateway does ----------------------------------------------------------------------------------------

    def perform(self, effect: fx.AnyEffect) -> None:
        match effect:
            case fx.StartAgent():
                assert self.state == "absent", "started twice"
                self.state = "starting"
            case fx.OfferPrompt():
                if self.state != "ready":
                    self.wire.append(PromptUnwritten(offer_id=effect.offer_id, error=DEAD))
                    return
                assert self.prompt is None, "a second prompt while one is open"
                self.prompt, self.written = effect, False
            case fx.OfferSteer():
                if self.state != "ready":
                    self.wire.append(SteerVerdict(offer_id=effect.offer_id, verdict="refused"))
                    return
                self.steers[effect.offer_id] = Steer({m.id: m.content for m in effect.messages})
            case fx.Withdraw():
                if self.state != "ready":
                    self.wire.append(_cannot(effect))
                    return
                asked = [(w.offer_id, w.message_id) for w in self.withdraws]
                assert (effect.offer_id, effect.message_id) not in asked, "two questions about a message"
                self.withdraws.append(effect)
            case fx.CancelTurn():
                self.cancelled = self.running
            case fx.AnswerAgent():
                if self.state == "ready":
                    assert effect.agent_ref in self.asks, "an answer to nothing"
                    self.asks.discard(effect.agent_ref)
            case fx.KillAgent():
                self.kill = self.state != "absent"
            case _:
                pass

    # --- what the agent does ------------------------------------------------------------------------------------------

    def take(self, message_id: MessageId, content: Content) -> None:
        if message_id in self.given:
            self.given[message_id].times += 1
            self.given[message_id].content = content
        else:
            self.given[message_id] = Given(content)

    def ready(self) -> None:
        self.state = "ready"
        self.wire.append(AgentReady(own_id="own", can_steer=self.can_steer, can_withdraw=self.can_withdraw))

    def write(self) -> None:
        assert self.prompt is not None
        self.written, self.cancelled = True, False
        for message in self.prompt.messages:
            self.take(message.id, message.content)
        self.wire.append(PromptWritten(offer_id=self.prompt.offer_id))

    def unwrite(self) -> None:
        assert self.prompt is not None
        self.wire.append(PromptUnwritten(offer_id=self.prompt.offer_id, error=DEAD))
        self.prompt = None

    def end(self, outcome: Outcome, error: Error | None = None) -> None:
        offer = self.prompt.offer_id if self.prompt is not None and self.written else None
        self.wire.append(PromptEnded(outcome=outcome, offer_id=offer, error=error))
        if offer is not None:
            self.prompt = None
        self.own_turn = self.cancelled = False

    def begin(self) -> None:
        self.own_turn = True
        self.wire.append(TurnBegan())

    def inject(self, offer_id: OfferId, only: MessageId | None = None, told: bool = True) -> None:
        """The model gets a steer, or one of its messages; ``told`` False: and the word of it comes later."""
        steer = self.steers[offer_id]
        for message_id in [only] if only is not None else list(steer.messages):
            if message_id not in steer.taken:
                self.take(message_id, steer.messages[message_id])
            steer.taken.add(message_id)
            if told:
                del steer.messages[message_id]
        if told:
            self.wire.append(SteerVerdict(offer_id=offer_id, verdict="injected", message_id=only))
        self._over(offer_id)

    def accept(self, offer_id: OfferId) -> None:
        self.steers[offer_id].accepted = True
        self.wire.append(SteerVerdict(offer_id=offer_id, verdict="accepted"))

    def refuse(self, offer_id: OfferId, only: MessageId | None = None) -> None:
        steer = self.steers[offer_id]
        assert not steer.taken
        for message_id in [only] if only is not None else list(steer.messages):
            del steer.messages[message_id]
        self.wire.append(SteerVerdict(offer_id=offer_id, verdict="refused", message_id=only))
        self._over(offer_id)

    def lose(self, offer_id: OfferId) -> None:
        """The port gives up on an answer; the agent may have the messages, or get them still."""
        self.wire.append(SteerVerdict(offer_id=offer_id, verdict="lost"))

    def _over(self, offer_id: OfferId) -> None:
        if not self.steers[offer_id].messages:
            del self.steers[offer_id]

    def answer(self, wish: fx.Withdraw, willing: bool) -> None:
        """Give a message back, or put another content in, if the model does not have it yet."""
        self.withdraws.remove(wish)
        steer = self.steers.get(wish.offer_id)
        here = steer is not None and wish.message_id in steer.messages and wish.message_id not in steer.taken
        if not (willing and here) or steer is None:
            self.wire.append(_cannot(wish))
            return
        if wish.content is None:
            del steer.messages[wish.message_id]
            self._over(wish.offer_id)
        else:
            steer.messages[wish.message_id] = wish.content
        self.wire.append(
            WithdrawVerdict(offer_id=wish.offer_id, message_id=wish.message_id, question=wish.question, done=True)
        )

    def die(self, error: Error | None, took: bool, heard: int) -> None:
        """``took``: the model got what nobody had told about yet. ``heard``: how many words still got out."""
        if took:
            if self.prompt is not None and not self.written:
                for message in self.prompt.messages:
                    self.take(message.id, message.content)
            for steer in self.steers.values():
                for message_id, content in steer.messages.items():
                    if message_id not in steer.taken:
                        self.take(message_id, content)
        while len(self.wire) > heard:
            self.wire.pop()
        self.wire.append(AgentGone(error=error))
        self.state, self.prompt, self.written, self.own_turn, self.kill = "absent", None, False, False, False
        self.steers.clear()
        self.withdraws.clear()
        self.asks.clear()


def _cannot(wish: fx.Withdraw) -> WithdrawVerdict:
    return WithdrawVerdict(offer_id=wish.offer_id, message_id=wish.message_id, question=wish.question, done=False)
