"""Ids on this wire. AG-UI has one id space for everything a thread shows, and never reopens an id.

The first part of a message has the message's id, later ones ``id#2`` …; thoughts ``r-id``, messages between sessions
``s-id`` (an agent may use one id for all three); what belongs to a subagent begins with its session's id.
"""

from gateway.core.ids import SessionId
from gateway.core.model import Role, ToolCall, UserMessage

_PREFIX: dict[Role, str] = {"agent": "", "thought": "r-", "session": "s-"}


def scoped(name: str, session_id: SessionId | None) -> str:
    return name if session_id is None else f"{session_id}/{name}"


def user_name(message: UserMessage, session_id: SessionId | None = None) -> str:
    """The id that its client gave. One that an agent told of has the agent's, which it may use for its own as well."""
    return scoped(f"u-{message.id}" if message.how == "imported" else message.id, session_id)


def part_name(role: Role, message_id: str, ordinal: int, session_id: SessionId | None) -> str:
    name = f"{_PREFIX[role]}{message_id}"
    return scoped(name if ordinal == 1 else f"{name}#{ordinal}", session_id)


def block_name(part_id: str, session_id: SessionId | None) -> str:
    return scoped(f"block:{part_id}", session_id)


def tool_id(call: ToolCall, session_id: SessionId | None) -> str:
    """The agent's id of the call; where it counts its calls anew, the part's id beside it."""
    return scoped(f"{call.call_id}#{call.part_id}" if call.again else call.call_id, session_id)


def activity_name(tool: str) -> str:
    return f"tool:{tool}"


def result_name(tool: str) -> str:
    return f"res:{tool}"


def plan_name(plan_id: str, session_id: SessionId | None) -> str:
    return scoped(f"plan:{plan_id}" if plan_id else "plan", session_id)


def run_name(turn_id: str) -> str:
    """The run id of a turn that no AG-UI client began."""
    return f"run-{turn_id}"
