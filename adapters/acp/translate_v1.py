"""ACP v1 to the vocabulary of the core, and back. Pure: JSON in, facts out, no state, no I/O, nothing raised.

Unknown kinds, unknown fields and malformed updates are kept (``AgentUnknown``, ``Source``), never dropped. An explicit
null is an absent field, but where the protocol says that null clears (``subagent_update``).
"""

from collections.abc import Iterable
from typing import Any, TypeAlias, cast

import msgspec

from adapters.acp.translate_content import block, string, table
from adapters.acp.wire import as_object
from gateway.core import content as blocks
from gateway.core.inputs import (
    UNSET,
    AgentBlock,
    AgentChild,
    AgentCommands,
    AgentConfig,
    AgentFact,
    AgentMode,
    AgentPlan,
    AgentRefs,
    AgentText,
    AgentTitle,
    AgentTool,
    AgentUnknown,
    AgentUsage,
    AgentUser,
)
from gateway.core.model import Error, Outcome, Refs, Role, Source, ToolStatus

Json: TypeAlias = Any
Raw: TypeAlias = msgspec.Raw

WIRE = "acp1"
STATUS = ("pending", "in_progress", "completed", "failed", "cancelled")
STOP = ("end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled")
ROLES: dict[str, Role] = {
    "agent_message_chunk": "agent",
    "agent_thought_chunk": "thought",
    "session_message_chunk": "session",
}


# --- updates -------------------------------------------------------------------------------------------------------


def decode(update: Raw | bytes, session: str = "") -> list[AgentFact]:
    """The facts of one ``update`` object. ``session``: the agent's id of a child session, empty for the root."""
    raw = update if isinstance(update, Raw) else Raw(update)
    value = as_object(raw)
    kind = value.get("sessionUpdate")
    if not isinstance(kind, str):
        kind = ""
    source = Source(WIRE, raw)
    fact = _known(kind, value, session, source)
    return [fact or AgentUnknown(kind=kind, raw=value, agent_session=session, source=source)]


def _known(kind: str, value: dict[str, Json], session: str, source: Source) -> AgentFact | None:
    """The fact of a kind that the core has a word for; None: unknown, or not well-formed."""
    match kind:
        case "agent_message_chunk" | "agent_thought_chunk" | "session_message_chunk":
            return _chunk(ROLES[kind], value, session, source)
        case "user_message_chunk" if isinstance(value.get("content"), dict):
            content = (block(value["content"]),)
            return AgentUser(content=content, agent_id=_id(value), agent_session=session, source=source)
        case "tool_call" | "tool_call_update":
            return tool(value, session, source, new=kind == "tool_call")
        case "plan" if isinstance(value.get("entries"), list):
            return AgentPlan(entries=value["entries"], agent_session=session, source=source)
        case "plan_update":
            plan = table(value.get("plan"))
            if isinstance(plan.get("entries"), list):
                plan_id = string(plan.get("planId")) or ""
                return AgentPlan(entries=plan["entries"], plan_id=plan_id, agent_session=session, source=source)
        case "plan_removed":
            return AgentPlan(
                entries=None, plan_id=string(value.get("planId")) or "", agent_session=session, source=source
            )
        case "available_commands_update" if isinstance(value.get("availableCommands"), list):
            return AgentCommands(commands=value["availableCommands"], agent_session=session, source=source)
        case "current_mode_update" if isinstance(value.get("currentModeId"), str):
            return AgentMode(mode=value["currentModeId"], agent_session=session, source=source)
        case "config_option_update" if isinstance(value.get("configOptions"), list):
            return config(value["configOptions"], session, source)
        case "session_info_update" if isinstance(value.get("title"), str):
            return AgentTitle(title=value["title"], agent_session=session, source=source)
        case "usage_update":
            return _usage(value, session, source)
        case "subagent_update" if isinstance(value.get("sessionId"), str):
            return child(value, session, source)
        case "session_message" if _id(value):
            return _refs(value, session, source)
    return None


def _chunk(role: Role, value: dict[str, Json], session: str, source: Source) -> AgentFact | None:
    raw = value.get("content")
    if not isinstance(raw, dict):
        return None
    content, agent_id = block(raw), _id(value)
    if not isinstance(content, blocks.Text):
        return AgentBlock(role=role, block=content, agent_id=agent_id, agent_session=session, source=source)
    # A source is kept only where the chunk says more than its text and the message's id.
    beside = {key for key, field in value.items() if field is not None} - {"sessionUpdate", "content", "messageId"}
    more = beside or {key for key, field in raw.items() if field is not None} - {"type", "text"}
    return AgentText(
        role=role, text=content.text, agent_id=agent_id, agent_session=session, source=source if more else None
    )


def tool(value: dict[str, Json], session: str, source: Source | None, new: bool = False) -> AgentTool | None:
    """A tool call: of ``tool_call``, ``tool_call_update``, or the ``toolCall`` of a permission request."""
    call_id = value.get("toolCallId")
    if not isinstance(call_id, str):
        return None
    status = value.get("status")

    def text(key: str) -> str | msgspec.UnsetType:
        field = value.get(key)
        return field if isinstance(field, str) else UNSET

    def anything(key: str, kind: type[Any] = object) -> Json | msgspec.UnsetType:
        field = value.get(key)
        return field if field is not None and isinstance(field, kind) else UNSET

    return AgentTool(
        call_id=call_id,
        new=new,
        status=cast(ToolStatus, status) if status in STATUS else UNSET,
        title=text("title"),
        kind=text("kind"),
        name=text("name"),
        input=anything("rawInput"),
        output=anything("rawOutput"),
        content=anything("content", list),
        locations=anything("locations", list),
        meta=anything("_meta", dict),
        agent_session=session,
        source=source,
    )


def config(options: list[Json], session: str = "", source: Source | None = None) -> AgentConfig:
    """The agent's options, with the model and the mode read from them."""
    model, mode = option_of(options, "model"), option_of(options, "mode")
    return AgentConfig(
        options=options,
        model=model["currentValue"] if model else UNSET,
        mode=mode["currentValue"] if mode else UNSET,
        agent_session=session,
        source=source,
    )


def option_of(options: list[Json], what: str) -> dict[str, Json] | None:
    """The select option of the category ``what`` (model, mode), else the one with that id (v2: ``configId``)."""
    selects = [o for o in options if isinstance(o, dict) and isinstance(o.get("currentValue"), str)]
    for key in ("category", "id", "configId"):
        for option in selects:
            if option.get(key) == what:
                return option
    return None


def option_id(option: dict[str, Json]) -> str:
    """``id`` on v1, ``configId`` on v2."""
    return string(option.get("id")) or string(option.get("configId")) or ""


def _usage(value: dict[str, Json], session: str, source: Source) -> AgentFact | None:
    used, size, cost = value.get("used"), value.get("size"), table(value.get("cost"))
    if not isinstance(used, int) or not isinstance(size, int):
        return None
    amount = cost.get("amount")
    dollars = float(amount) if isinstance(amount, int | float) and cost.get("currency", "USD") == "USD" else None
    return AgentUsage(used=used, size=size, cost=dollars, agent_session=session, source=source)


def child(value: dict[str, Json], session: str, source: Source | None) -> AgentChild:
    """Here null clears: a title to nothing, capabilities to none; a null state is not idle."""
    state = table(value.get("state"))
    word = string(state.get("state")) or ("unknown" if "state" in value else "")
    failure = table(state.get("error"))
    over: Outcome | msgspec.UnsetType = UNSET
    error: Error | None | msgspec.UnsetType = UNSET
    if word == "idle":
        stop = state.get("stopReason")
        over = "error" if stop == "error" or failure else outcome(stop)[0] if stop else UNSET
        error = Error("agent_error", str(failure.get("message", "")), failure) if failure else None
    return AgentChild(
        child=value["sessionId"],
        title=string(value["title"]) or "" if "title" in value else UNSET,
        description=string(value["description"]) or "" if "description" in value else UNSET,
        state=word or UNSET,
        outcome=over,
        error=error,
        can_cancel=table(value["capabilities"]).get("cancel") is not None if "capabilities" in value else UNSET,
        cwd=string(value["cwd"]) or "" if "cwd" in value else UNSET,
        raw=value,
        agent_session=session,
        source=source,
    )


def _refs(value: dict[str, Json], session: str, source: Source) -> AgentRefs:
    refs = Refs(
        string(value.get("senderSessionId")) or "",
        string(value.get("recipientSessionId")) or "",
        string(value.get("senderMessageId")) or "",
        string(value.get("recipientMessageId")) or "",
    )
    raw = value.get("content")
    content = tuple(block(each) for each in raw) if isinstance(raw, list) else UNSET
    return AgentRefs(agent_id=_id(value), refs=refs, content=content, agent_session=session, source=source)


def outcome(stop: Json) -> tuple[Outcome, bool]:
    """The outcome of a stop reason, and whether it is a known one: an unknown one is an ordinary end."""
    return (cast(Outcome, stop), True) if stop in STOP else ("end_turn", False)


def _id(value: dict[str, Json]) -> str:
    return string(value.get("messageId")) or ""


def join_users(facts: Iterable[AgentFact]) -> tuple[AgentFact, ...]:
    """A replay with the blocks of each user message together, and the text of each stretch in one piece."""
    out: list[AgentFact] = []
    for fact in facts:
        last = out[-1] if out else None
        if isinstance(fact, AgentUser) and isinstance(last, AgentUser) and _same(fact, last):
            out[-1] = msgspec.structs.replace(last, content=last.content + fact.content, source=None)
        elif (
            isinstance(fact, AgentText)
            and isinstance(last, AgentText)
            and fact.source is None
            and last.source is None
            and fact.role == last.role
            and _same(fact, last)
        ):
            out[-1] = msgspec.structs.replace(last, text=last.text + fact.text)
        else:
            out.append(fact)
    return tuple(out)


def _same(a: AgentUser | AgentText, b: AgentUser | AgentText) -> bool:
    return a.agent_id == b.agent_id and a.agent_session == b.agent_session
