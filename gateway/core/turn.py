"""The state machine of a turn, as one table. The state diagram in docs/ is made from it.

Nothing here knows messages, agents or clients.
"""

from enum import StrEnum


class TurnState(StrEnum):
    IDLE = "idle"
    PROMPTING = "prompting"  # a prompt is offered, not yet written to the agent
    STILLBORN = "stillborn"  # aborted before it was written
    RUNNING = "running"
    CANCELLING = "cancelling"


class TurnEvent(StrEnum):
    OFFER = "offer"
    WRITTEN = "written"
    UNWRITTEN = "unwritten"  # could not be written, or was lost with the agent
    CANCEL = "cancel"
    AGENT_TURN = "agent_turn"  # the agent began by itself
    ENDED = "ended"


TRANSITIONS: dict[tuple[TurnState, TurnEvent], TurnState] = {
    (TurnState.IDLE, TurnEvent.OFFER): TurnState.PROMPTING,
    (TurnState.PROMPTING, TurnEvent.WRITTEN): TurnState.RUNNING,
    (TurnState.STILLBORN, TurnEvent.WRITTEN): TurnState.CANCELLING,
    (TurnState.PROMPTING, TurnEvent.UNWRITTEN): TurnState.IDLE,
    (TurnState.STILLBORN, TurnEvent.UNWRITTEN): TurnState.IDLE,
    (TurnState.PROMPTING, TurnEvent.CANCEL): TurnState.STILLBORN,
    (TurnState.RUNNING, TurnEvent.CANCEL): TurnState.CANCELLING,
    (TurnState.IDLE, TurnEvent.CANCEL): TurnState.IDLE,
    (TurnState.STILLBORN, TurnEvent.CANCEL): TurnState.STILLBORN,
    (TurnState.CANCELLING, TurnEvent.CANCEL): TurnState.CANCELLING,
    (TurnState.IDLE, TurnEvent.AGENT_TURN): TurnState.RUNNING,
    (TurnState.RUNNING, TurnEvent.ENDED): TurnState.IDLE,
    (TurnState.CANCELLING, TurnEvent.ENDED): TurnState.IDLE,
    (TurnState.IDLE, TurnEvent.ENDED): TurnState.IDLE,
}


def diagram() -> str:
    """The table as a mermaid state diagram: docs/flow.md shows it, and a test holds the two together."""
    lines = ["stateDiagram-v2", f"    [*] --> {TurnState.IDLE}"]
    arrows: dict[tuple[TurnState, TurnState], list[str]] = {}
    for (before, event), after in TRANSITIONS.items():
        arrows.setdefault((before, after), []).append(event)
    lines += [f"    {before} --> {after}: {', '.join(events)}" for (before, after), events in arrows.items()]
    return "\n".join(lines) + "\n"


def step(state: TurnState, event: TurnEvent) -> TurnState:
    """The state after ``event``; an event that the table does not have is a fault of the caller (KeyError)."""
    return TRANSITIONS[state, event]
