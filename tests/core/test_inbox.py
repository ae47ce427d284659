"""The delivery decision, case by case, and the order of the lanes."""

from typing import Any

import msgspec
import pytest

from gateway.core.content import Text
from gateway.core.ids import MessageId, OfferId, TurnId
from gateway.core.inbox import Interrupt, Move, Prompt, Start, Steer, in_order, lane, next_move
from gateway.core.model import Pending
from gateway.core.state import Offer, State
from gateway.core.turn import TurnState

T1, T2 = TurnId("trn_1"), TurnId("trn_2")


def pending(name: str, at: Any, place: int, **more: Any) -> Pending:
    own = MessageId(name)
    return Pending(own, (Text(name),), (), name, at, place, place, more.pop("group", own), **more)


def state(*entries: Pending, turn: TurnState = TurnState.IDLE, agent: Any = "ready", **more: Any) -> State:
    return State(
        turn=turn,
        turn_id=T1 if turn is not TurnState.IDLE else None,
        agent=agent,
        inbox={m.id: m for m in entries},
        **more,
    )


def offer(name: str, accepted: bool, how: Any = "injected") -> dict[OfferId, Offer]:
    return {OfferId("off_1"): Offer(OfferId("off_1"), how, T1, (MessageId(name),), accepted)}


S1, S2 = pending("s1", "steer", 2), pending("s2", "steer", 5)
Q1, Q2 = pending("q1", "queue", 1), pending("q2", "queue", 3)
RUNNING = TurnState.RUNNING


def decide(s: State, fallback: Any = "next_turn", asking: bool = False) -> Move:
    return next_move(s, fallback, asking)


@pytest.mark.parametrize("turn", [TurnState.IDLE, RUNNING])
def test_1_an_offer_is_unanswered(turn: TurnState) -> None:
    out = pending("o", "steer", 0, state="offered", offer_id=OfferId("off_1"))
    assert decide(state(out, S1, Q1, turn=turn, can_steer=True, offers=offer("o", False)), "interrupt") is None


@pytest.mark.parametrize("turn", [TurnState.PROMPTING, TurnState.STILLBORN, TurnState.CANCELLING])
def test_2_the_turn_begins_or_ends(turn: TurnState) -> None:
    assert decide(state(S1, Q1, turn=turn, can_steer=True), "interrupt") is None


def test_3_a_request_is_open() -> None:
    assert decide(state(S1, turn=RUNNING, can_steer=True), "interrupt", asking=True) is None


def test_4_no_steer_that_is_not_held() -> None:
    held = pending("h", "steer", 1, held="abort")
    assert decide(state(held, Q1, turn=RUNNING, can_steer=True), "interrupt") is None


def test_5_all_steers_together() -> None:
    assert decide(state(S2, Q1, S1, turn=RUNNING, can_steer=True)) == Steer((S1.id, S2.id))


def test_5_one_that_was_refused_in_an_earlier_turn_is_offered() -> None:
    again = msgspec.structs.replace(S1, refused_in=T2)
    assert decide(state(again, turn=RUNNING, can_steer=True)) == Steer((S1.id,))


def test_5_a_second_offer_beside_an_accepted_one() -> None:
    out = pending("o", "steer", 0, state="offered", offer_id=OfferId("off_1"))
    assert decide(state(out, S1, turn=RUNNING, can_steer=True, offers=offer("o", True))) == Steer((S1.id,))


@pytest.mark.parametrize("fallback, move", [("next_turn", None), ("interrupt", Interrupt())])
def test_6_not_steerable_or_refused(fallback: str, move: Move) -> None:
    assert decide(state(S1, turn=RUNNING), fallback) == move
    refused = msgspec.structs.replace(S1, refused_in=T1)
    assert decide(state(refused, S2, turn=RUNNING, can_steer=True), fallback) == move


def test_7_idle_and_the_agent_holds_a_steer() -> None:
    out = pending("o", "steer", 0, state="offered", offer_id=OfferId("off_1"))
    assert decide(state(out, S1, Q1, offers=offer("o", True))) is None


@pytest.mark.parametrize("agent", ["absent", "starting", "ready"])
def test_8_nothing_to_do(agent: str) -> None:
    held = pending("h", "queue", 1, held="stored")
    assert decide(state(agent=agent)) is None
    assert decide(state(held, agent=agent)) is None


def test_9_nobody_there() -> None:
    assert decide(state(Q1, agent="absent")) == Start()
    assert decide(state(Q1, agent="starting")) is None


def test_10_all_steers_in_one_prompt() -> None:
    assert decide(state(Q1, S2, S1)) == Prompt((S1.id, S2.id))


def test_11_the_first_of_the_queue_alone() -> None:
    assert decide(state(Q2, Q1)) == Prompt((Q1.id,))


def test_11_with_those_that_came_in_one_input_with_it() -> None:
    g1, g2 = pending("g1", "queue", 1), pending("g2", "queue", 2, group=MessageId("g1"))
    far = pending("g3", "queue", 9, group=MessageId("g1"))
    assert decide(state(g1, g2, Q2, far)) == Prompt((g1.id, g2.id))
    held = msgspec.structs.replace(g1, held="abort")
    assert decide(state(held, g2)) == Prompt((g2.id,))


def test_lanes_and_order() -> None:
    out = pending("o", "queue", 9, state="offered", offer_id=OfferId("off_1"))
    held = pending("h", "steer", 1, held="abort")
    s = state(Q2, S2, out, held, Q1, S1)
    assert [m.id for m in lane(s, "steer")] == ["s1", "s2"]
    assert [m.id for m in lane(s, "queue")] == ["q1", "q2"]
    assert [m.id for m in in_order(s)] == ["o", "h", "s1", "s2", "q1", "q2"]
