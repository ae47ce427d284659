"""The inbox's one decision: what to tell the agent next. Lanes are ordered by ``place``; nothing here changes state."""

from itertools import takewhile
from typing import Literal, TypeAlias

import msgspec

from gateway.core.ids import MessageId
from gateway.core.model import Pending
from gateway.core.state import State
from gateway.core.turn import TurnState


class Start(msgspec.Struct, frozen=True):
    """The agent is absent and there is something for it."""


class Prompt(msgspec.Struct, frozen=True):
    message_ids: tuple[MessageId, ...]


class Steer(msgspec.Struct, frozen=True):
    message_ids: tuple[MessageId, ...]


class Interrupt(msgspec.Struct, frozen=True):
    """Cancel the turn, so that the steers begin the next."""


Move: TypeAlias = Start | Prompt | Steer | Interrupt | None


def lane(state: State, name: Literal["steer", "queue"]) -> list[Pending]:
    """What may be offered of a lane, in order: pending and not held."""
    found = [m for m in state.inbox.values() if m.lane == name and m.state == "pending" and not m.held]
    return sorted(found, key=lambda m: m.place)


def at_rest(state: State) -> bool:
    """No turn runs, and nothing will begin one by itself."""
    return state.turn is TurnState.IDLE and not state.offers and all(m.held for m in state.inbox.values())


def in_order(state: State) -> list[Pending]:
    """Everything that is not delivered, in the order in which it will be: offered, steers, queue."""
    rank = {"steer": 1, "queue": 2}
    return sorted(state.inbox.values(), key=lambda m: (0 if m.state == "offered" else rank[m.lane], m.place))


def next_move(state: State, steer_fallback: Literal["next_turn", "interrupt"], asking: bool) -> Move:
    """The delivery decision; the first match wins. ``asking``: a request of the agent is open.

    Run after every input but a continuing delta. The cases are those of the design's list, in its order.
    """
    # 1 an offer is unanswered: no second one
    if any(not offer.accepted for offer in state.offers.values()):
        return None
    # 2 the turn is beginning or ending
    if state.turn in (TurnState.PROMPTING, TurnState.STILLBORN, TurnState.CANCELLING):
        return None
    steers = lane(state, "steer")
    if state.turn is TurnState.RUNNING:
        # a person's command is no turn of the agent: there is nobody to steer
        if state.cause == "command":
            return None
        # 3 steers wait while a person is asked something
        if asking:
            return None
        # 4 nothing to steer with; the queue waits for the turn's end
        if not steers:
            return None
        # 5 all steers together, unless one was refused in this turn (to ask again at once would never end)
        if state.can_steer and not any(m.refused_in == state.turn_id for m in steers):
            return Steer(tuple(m.id for m in steers))
        # 6 the agent cannot take it: the setting says
        return Interrupt() if steer_fallback == "interrupt" else None
    # 7 idle, but the agent holds an accepted steer: it starts by itself
    if state.offers:
        return None
    queue = lane(state, "queue")
    # 8 nothing to do
    if not steers and not queue:
        return None
    # 9 nobody to tell it to
    if state.agent == "absent":
        return Start()
    if state.agent == "starting":
        return None
    # 10 all steers in one prompt
    if steers:
        return Prompt(tuple(m.id for m in steers))
    # 11 the first of the queue, alone (with those that came in one input with it)
    together = takewhile(lambda m: m.group == queue[0].group, queue)
    return Prompt(tuple(m.id for m in together))
