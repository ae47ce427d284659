"""The turn's table: every pair is in it, or is a fault of the caller; and the diagram in docs/ is made from it."""

from itertools import product
from pathlib import Path

import pytest

from gateway.core.turn import TRANSITIONS, TurnEvent, TurnState, diagram, step

IDLE, P, S, R, C = TurnState.IDLE, TurnState.PROMPTING, TurnState.STILLBORN, TurnState.RUNNING, TurnState.CANCELLING
#            offer written unwritten cancel agent_turn ended
EXPECTED = {
    IDLE: (P, None, None, IDLE, R, IDLE),
    P: (None, R, IDLE, S, None, None),
    S: (None, C, IDLE, S, None, None),
    R: (None, None, None, C, None, IDLE),
    C: (None, None, None, C, None, IDLE),
}


@pytest.mark.parametrize("state, event", list(product(TurnState, TurnEvent)))
def test_the_table_is_total(state: TurnState, event: TurnEvent) -> None:
    expected = EXPECTED[state][list(TurnEvent).index(event)]
    if expected is None:
        assert (state, event) not in TRANSITIONS
        with pytest.raises(KeyError):
            step(state, event)
    else:
        assert step(state, event) is expected


def test_every_turn_can_come_to_its_end() -> None:
    for state in TurnState:
        reached, fresh = {state}, {state}
        while fresh:
            fresh = {after for (before, _), after in TRANSITIONS.items() if before in fresh} - reached
            reached |= fresh
        assert IDLE in reached


def test_the_diagram_in_the_docs_is_the_table() -> None:
    docs = (Path(__file__).parents[2] / "docs" / "flow.md").read_text()
    assert f"```mermaid\n{diagram()}```" in docs, "docs/flow.md is not of this table: put turn.diagram() there"
