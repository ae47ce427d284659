"""Steers that a turn was offered: what waits in the run's queue, what the run took, and what comes back.

The run's queue is drained between two steps of the run, in the same event loop: nothing here awaits, so a steer is
either still in the queue or taken, never between the two.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from adapters.pydantic_ai import wire
from adapters.pydantic_ai.translate_content import prompt_of, user_content
from gateway.core import effects, inputs
from gateway.core.content import Content
from gateway.core.ids import MessageId, OfferId


@dataclass
class Steer:
    offer_id: OfferId
    message_id: MessageId
    part: wire.UserPromptPart
    enqueue_id: str | None = None  # None: the run has not begun yet


class Steers:
    """The steers of one turn, in order."""

    def __init__(self, tell: Callable[..., None]) -> None:
        self._tell = tell
        self._run: wire.AgentRun[object, object] | None = None
        self._waiting: dict[MessageId, Steer] = {}
        self._fresh: list[wire.UserPromptPart] = []  # taken, and the model has not answered since

    def __repr__(self) -> str:
        return f"<Steers waiting={list(self._waiting)} fresh={len(self._fresh)}>"

    def open(self, run: wire.AgentRun[object, object]) -> None:
        """The run began: what came before goes into its queue."""
        self._run = run
        for steer in list(self._waiting.values()):
            self._enqueue(steer)

    def offer(self, effect: effects.OfferSteer) -> None:
        accepted = True
        for message in effect.messages:
            steer = Steer(effect.offer_id, message.id, _part(message.content))
            self._waiting[message.id] = steer
            if self._run is not None and not self._enqueue(steer):
                accepted = False
        if accepted:  # else each refused one was said; the rest is decided at the end of the turn
            self._tell(inputs.SteerVerdict(offer_id=effect.offer_id, verdict="accepted"))

    def _enqueue(self, steer: Steer) -> bool:
        assert self._run is not None
        try:
            steer.enqueue_id = self._run.enqueue(steer.part)
            return True
        except wire.UserError:  # the run is over
            self._back(steer)
            return False

    def withdraw(self, effect: effects.Withdraw) -> None:
        """Take a steer back, or put another content in its place."""
        steer = self._waiting.get(effect.message_id)
        done = steer is not None and steer.offer_id == effect.offer_id and self._change(steer, effect.content)
        verdict = inputs.WithdrawVerdict(
            offer_id=effect.offer_id, message_id=effect.message_id, question=effect.question, done=done
        )
        self._tell(verdict)

    def _change(self, steer: Steer, content: Content | None) -> bool:
        """False: the run has it, and that is said first."""
        if self._taken(steer):
            self._injected(steer)
            return False
        if content is None:
            self._dequeue(steer)
            del self._waiting[steer.message_id]
            return True
        # It keeps its place: what came after it is taken out and put in again behind it.
        order = list(self._waiting.values())
        tail = order[order.index(steer) :]
        queued = [each for each in tail if self._dequeue(each)]
        steer.part = _part(content)
        for each in queued:
            self._enqueue(each)
        return True

    def _dequeue(self, steer: Steer) -> bool:
        if self._run is None or steer.enqueue_id is None:
            return False
        return self._run.dequeue(steer.enqueue_id)

    def _taken(self, steer: Steer) -> bool:
        """Whether the run took it out of its queue. A queue that was closed keeps what it never gave out."""
        if self._run is None or steer.enqueue_id is None:
            return False
        return all(each.enqueue_id != steer.enqueue_id for each in self._run.pending_messages)

    def drained(self, enqueue_id: str) -> None:
        """The run says that it took a message (the agent's own ones are none of ours)."""
        for steer in list(self._waiting.values()):
            if steer.enqueue_id == enqueue_id:
                self._injected(steer)

    def answered(self) -> None:
        """The model says something: it has seen all that was taken before."""
        self._fresh.clear()

    def settle(self, history: Sequence[wire.ModelMessage]) -> list[wire.ModelMessage]:
        """The run is over: say the fate of all that is left. Returns what was taken and is missing from the history."""
        for steer in list(self._waiting.values()):
            if self._taken(steer):
                self._injected(steer)
            else:
                self._back(steer)
        missing = [part for part in self._fresh if not _holds(history, part)]
        return [wire.ModelRequest(parts=[part]) for part in missing]

    def _injected(self, steer: Steer) -> None:
        del self._waiting[steer.message_id]
        self._fresh.append(steer.part)
        self._say(steer, "injected")

    def _back(self, steer: Steer) -> None:
        del self._waiting[steer.message_id]
        self._say(steer, "refused")

    def _say(self, steer: Steer, verdict: Literal["injected", "refused"]) -> None:
        self._tell(inputs.SteerVerdict(offer_id=steer.offer_id, message_id=steer.message_id, verdict=verdict))


def _part(content: Content) -> wire.UserPromptPart:
    return wire.UserPromptPart(prompt_of(user_content(content)))


def _holds(history: Sequence[wire.ModelMessage], part: wire.UserPromptPart) -> bool:
    """By value: a history processor may have copied the message."""
    return any(part in message.parts for message in history if isinstance(message, wire.ModelRequest))
