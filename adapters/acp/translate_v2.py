"""ACP v2 to the vocabulary of the core. Pure: JSON in, facts out, no state, no I/O, nothing raised.

What v2 says as v1 does is ``translate_v1``'s. An upsert keeps a field that is left out and clears one that is null. A
turn's state and a terminal's output mean something only beside what came before: they leave here as ``StateTold`` and
``TerminalTold``, for ``turns_v2``, and never reach the core. Unknown kinds and malformed updates are kept.
"""

from typing import Any, TypeAlias, cast

import msgspec

from adapters.acp import translate_v1 as v1
from adapters.acp.translate_content import block, marked, rows, string, table
from adapters.acp.translate_v2_content import content
from adapters.acp.wire import as_object
from gateway.core.inputs import (
    UNSET,
    AgentCommands,
    AgentFact,
    AgentMessage,
    AgentPlan,
    AgentRefs,
    AgentTool,
    AgentUnknown,
    AgentUser,
)
from gateway.core.model import Role, Source, ToolStatus

Json: TypeAlias = Any
Raw: TypeAlias = msgspec.Raw

WIRE = "acp2"
WHOLE: dict[str, Role] = {"agent_message": "agent", "agent_thought": "thought"}
# A paused call still runs for those who have no word for it.
STATUS = {"paused": "in_progress"}

# A tool call that is told anew only because its terminal has more output: v2 clients got that as it came.
SHOWN = Source(WIRE, Raw(b'{"sessionUpdate":"terminal_update"}'))


class StateTold(AgentFact, frozen=True, kw_only=True):
    """``state_update``: running, requires_action, idle, or a word that this version does not know."""

    state: str
    told: dict[str, Json]


class TerminalTold(AgentFact, frozen=True, kw_only=True):
    """``terminal_update`` or ``terminal_output_chunk``."""

    told: dict[str, Json]


def decode(update: Raw | bytes, session: str = "") -> list[AgentFact]:
    """The facts of one ``update`` object. ``session``: the agent's id of a child session, empty for the root."""
    raw = update if isinstance(update, Raw) else Raw(update)
    value = as_object(raw)
    kind = string(value.get("sessionUpdate")) or ""
    source = Source(WIRE, raw)
    unknown = AgentUnknown(kind=kind, raw=value, agent_session=session, source=source)
    match kind:
        case "state_update" if isinstance(value.get("state"), str):
            return [StateTold(state=value["state"], told=value, agent_session=session)]
        case "user_message" if "content" not in value:
            return []  # only its metadata, under an id that is the agent's own
        case "terminal_update" | "terminal_output_chunk":
            return [unknown, TerminalTold(told=value, agent_session=session)]
    return [_known(kind, value, session, source) or unknown]


def _known(kind: str, value: dict[str, Json], session: str, source: Source) -> AgentFact | None:
    """The fact of a kind that the core has a word for; None: unknown, or not well-formed."""
    message_id = string(value.get("messageId")) or ""
    match kind:
        case "tool_call" | "plan" | "current_mode_update":
            return None  # words of v1 only
        case "user_message" if message_id:
            return AgentUser(content=_blocks(value), agent_id=message_id, agent_session=session, source=source)
        case "agent_message" | "agent_thought" if message_id and "content" in value:
            return AgentMessage(
                role=WHOLE[kind],
                agent_id=message_id,
                content=_blocks(value),
                agent_session=session,
                source=source,
            )
        case "tool_call_update":
            return tool(value, session, source)
        case "tool_call_content_chunk" if isinstance(value.get("toolCallId"), str):
            more = content([value.get("content")])
            return AgentTool(call_id=value["toolCallId"], append=more, agent_session=session, source=source)
        case "plan_update" if table(value.get("plan")).get("type") not in (None, "items"):
            return None
        case "plan_removed":
            plan_id = string(value.get("planId")) or ""
            return AgentPlan(entries=None, plan_id=plan_id, agent_session=session, source=source)
        case "available_commands_update" if isinstance(value.get("availableCommands"), list):
            return AgentCommands(commands=commands(value["availableCommands"]), agent_session=session, source=source)
        case "session_message" if message_id:
            fact = v1.decode(source.raw, session)[0]
            if isinstance(fact, AgentRefs) and "content" in value:
                fact = msgspec.structs.replace(fact, content=_blocks(value))
            return msgspec.structs.replace(fact, source=source)
    (fact,) = v1.decode(source.raw, session)
    if isinstance(fact, AgentUnknown):
        return None
    return msgspec.structs.replace(fact, source=source) if fact.source is not None else fact


def _blocks(value: dict[str, Json]) -> tuple[Any, ...]:
    return tuple(block(each) for each in rows(value.get("content")))


def commands(value: list[Json]) -> list[Json]:
    """The commands that all wires can show; others keep their place in the source."""
    return [c for c in rows(value) if c.get("type", "command") == "command" and isinstance(c.get("name"), str)]


def tool(value: dict[str, Json], session: str, source: Source | None) -> AgentTool | None:
    """A tool call: of ``tool_call_update``, or the subject of a permission request."""
    call_id = value.get("toolCallId")
    if not isinstance(call_id, str):
        return None

    def patched(key: str, kind: type[Any], cleared: Json) -> Json | msgspec.UnsetType:
        if key not in value:
            return UNSET
        field = value[key]
        return cleared if field is None else field if isinstance(field, kind) else UNSET

    status = patched("status", str, "pending")
    status = STATUS.get(cast(str, status), status)
    items = patched("content", list, [])
    return AgentTool(
        call_id=call_id,
        status=cast(ToolStatus, status) if status in v1.STATUS else UNSET,
        title=patched("title", str, ""),
        kind=patched("kind", str, "other"),
        name=patched("name", str, ""),
        input=patched("rawInput", object, None),
        output=patched("rawOutput", object, None),
        content=items if isinstance(items, msgspec.UnsetType) else content(items),
        locations=patched("locations", list, []),
        meta_patch=patched("_meta", dict, UNSET),
        can_cancel=marked(table(value["capabilities"]).get("cancel")) if "capabilities" in value else UNSET,
        agent_session=session,
        source=source,
    )
