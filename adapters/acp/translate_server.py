"""Events of the core to ACP updates: what v1 and v2 say in the same way. Pure; the rest is in ``translate_server_v*``.

An update of an agent that came on the same version goes out with its bytes unchanged. Two things are put right where
they differ: a message id that is another one here, and the session ids of children, which are the gateway's.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias, cast

import msgspec

from adapters.acp.translate_content import encode_block, present, rows, string, table
from adapters.acp.wire import as_object
from adapters.acp.wire_server import Update
from gateway.core import events as ev
from gateway.core.content import Block, Text
from gateway.core.model import Child, Error, Outcome, Refs, Role, SessionInfo, Source, Tokens, ToolCall

Json: TypeAlias = Any
Names: TypeAlias = Mapping[str, str]
"""The agent's id of a session → ours."""

CHUNK: dict[Role, str] = {
    "agent": "agent_message_chunk",
    "thought": "agent_thought_chunk",
    "session": "session_message_chunk",
}
WHOLE: dict[Role, str] = {"agent": "agent_message", "thought": "agent_thought", "session": "session_message"}

# Characters of one chunk. Clients exist that take no frame over 1 MiB (the Python SDK's WebSocket, acpremote).
LONG = 100_000

# Kinds that the core has no word for and both versions have.
SHARED = frozenset(("notice", "compaction_update", "compaction_summary_chunk"))

# Events after which the list of pending messages is another.
PENDING = (
    ev.MessageAdmitted,
    ev.PendingReplaced,
    ev.MessagePromoted,
    ev.MessageDemoted,
    ev.MessageHeld,
    ev.MessageReleased,
    ev.MessageRevoked,
    ev.MessagesOffered,
    ev.MessageReturned,
    ev.MessageDelivered,
)


def shared(event: ev.Event, wire: str, names: Names) -> list[Update]:
    """The updates of an event that both versions tell alike; none for the others."""
    match event:
        case ev.TextDelta():
            return chunk(event.role, event.message_id, Text(event.text), event.source)
        case ev.BlockAdded():
            return chunk(event.role, event.message_id, event.block, event.source)
        case ev.UsageUpdated():
            return [usage(event.used, event.size, event.cost, event.source)]
        case ev.SessionUpdated():
            raw = raw_of(event.source, wire)
            if raw is not None:
                return [Update("session_info_update", raw)]
            return [session_info(event.info)] if event.info.title else []
        case ev.ChildUpdated():
            return [child(event.child, event.source)]
        case ev.MessageRefs():
            return [refs(event.message_id, event.refs, event.source, names)]
        case ev.AgentUpdated():
            source = event.source
            if event.kind and (event.kind in SHARED or (source is not None and source.wire == wire)):
                return [Update(event.kind, event.raw if source is None else source.raw)]
    return []


def chunk(role: Role, message_id: str, block: Block, source: Source | None = None) -> list[Update]:
    kind = CHUNK[role]
    if source is not None:
        value = as_object(source.raw)
        told = value.get("sessionUpdate")
        if told == "session_message":
            return []  # its content went out with it
        if told == kind:
            known = value.get("messageId") == message_id
            return [Update(kind, source.raw if known else {**value, "messageId": message_id})]
    if isinstance(block, Text) and block.meta is None and len(block.text) > LONG:
        pieces: list[Block] = [Text(block.text[at : at + LONG]) for at in range(0, len(block.text), LONG)]
    else:
        pieces = [block]
    return [
        Update(kind, {"sessionUpdate": kind, "messageId": message_id, "content": encode_block(piece)})
        for piece in pieces
    ]


def usage(used: int, size: int, cost: float | None, source: Source | None = None) -> Update:
    if source is not None:
        return Update("usage_update", source.raw)
    body: dict[str, Json] = {"sessionUpdate": "usage_update", "used": used, "size": size}
    if cost is not None:
        body["cost"] = {"amount": cost, "currency": "USD"}
    return Update("usage_update", body)


def session_info(info: SessionInfo) -> Update:
    kind = "session_info_update"
    return Update(kind, {"sessionUpdate": kind, "title": info.title or None, "updatedAt": iso(info.updated)})


def child(value: Child, source: Source | None = None) -> Update:
    """``subagent_update``: as the agent told it, under our id; without its words (a replay) whole."""
    kind = "subagent_update"
    if source is not None:
        return Update(kind, {**as_object(source.raw), "sessionUpdate": kind, "sessionId": value.session_id})
    state: dict[str, Json] | None = {"state": value.state} if value.state else None
    told = table(table(value.raw).get("state"))
    if state is not None and told.get("state") == value.state:
        state = dict(told)
    elif state is not None and value.state == "idle" and value.error is not None:
        state |= {"stopReason": "error", "error": {"code": -32603, "message": value.error.message}}
    body = {
        "title": value.title or None,
        "description": value.description or None,
        "state": state,
        "cwd": value.cwd or None,
    }
    capabilities: dict[str, Json] = {"cancel": {}} if value.can_cancel else {}
    head = {"sessionUpdate": kind, "sessionId": value.session_id, "capabilities": capabilities}
    return Update(kind, {**head, **present(body)})


def refs(message_id: str, value: Refs, source: Source | None, names: Names, content: Json = None) -> Update:
    """``session_message``. Session ids are ours; a message's references go as they were told, never made up."""
    kind = "session_message"
    if source is not None:
        body = {**as_object(source.raw), "sessionUpdate": kind, "messageId": message_id}
        for key in ("senderSessionId", "recipientSessionId"):
            if isinstance(body.get(key), str):
                body[key] = names.get(body[key], body[key])
        return Update(kind, body)
    told = {
        "senderSessionId": names.get(value.sender_session, value.sender_session) or None,
        "recipientSessionId": names.get(value.recipient_session, value.recipient_session) or None,
        "senderMessageId": value.sender_message or None,
        "recipientMessageId": value.recipient_message or None,
        "content": content,
    }
    return Update(kind, {"sessionUpdate": kind, "messageId": message_id, **present(told)})


# --- small shapes --------------------------------------------------------------------------------------------------


def iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def tokens(value: Tokens | None) -> dict[str, Json] | None:
    if value is None:
        return None
    found = {
        "totalTokens": value.total or value.input + value.output + value.reasoning,
        "inputTokens": value.input,
        "outputTokens": value.output,
        "thoughtTokens": value.reasoning or None,
        "cachedReadTokens": value.cache_read or None,
        "cachedWriteTokens": value.cache_write or None,
    }
    return present(found)


def rpc_error(error: Error) -> dict[str, Json]:
    """An agent's failure as a JSON-RPC error: its own code where it had one, and ``data.reason`` for programs."""
    told = table(error.data)
    code = told.get("code")
    if error.code == "auth_required":
        code = -32000
    elif error.code != "agent_error" or not isinstance(code, int):
        code = -32603
    return {"code": code, "message": error.message or error.code, "data": {**told, "reason": error.code}}


def stop_reason(outcome: Outcome | None) -> str | None:
    """The stop reason of an outcome; None for those that are failures."""
    if outcome in ("error", "interrupted", "unwritten"):
        return None
    return cast(str, outcome or "end_turn")


def failure(outcome: Outcome | None, error: Error | None) -> dict[str, Json]:
    """Why a turn failed. ``interrupted``: the gateway ended in it."""
    if error is not None:
        return rpc_error(error)
    why = "the gateway was stopped during this turn" if outcome == "interrupted" else "the turn failed"
    return {"code": -32603, "message": why, "data": {"reason": outcome or "error"}}


def command_rows(commands: Json) -> list[dict[str, Json]]:
    """Commands without their tags: the shape of v1."""
    out = []
    for each in rows(commands):
        hint = table(each.get("input")).get("hint")
        body = {"name": each.get("name"), "description": each.get("description") or "", "_meta": each.get("_meta")}
        out.append({**present(body), **({"input": {"hint": hint}} if isinstance(hint, str) else {})})
    return out


def tool_fields(call: ToolCall) -> dict[str, Json]:
    """A tool call, whole, but for its content and status."""
    return present(
        {
            "toolCallId": call.call_id,
            "title": call.title or call.name or call.call_id,
            "name": call.name or None,
            "kind": call.kind,
            "locations": call.locations,
            "rawInput": call.input,
            "rawOutput": call.output,
            "_meta": _ruled(call) if call.rule else call.meta,
        }
    )


def _ruled(call: ToolCall) -> dict[str, Json]:
    """A setting answered the agent's question about this call: no client was asked."""
    meta = table(call.meta)
    return {**meta, "trunkline": {**table(meta.get("trunkline")), "permission": {"rule": call.rule}}}


def mode_rows(modes: Json) -> list[dict[str, Json]]:
    return [m for m in rows(modes) if isinstance(m.get("id"), str)]


def raw_of(source: Source | None, wire: str) -> msgspec.Raw | None:
    """The agent's bytes, if they are of this version."""
    return source.raw if source is not None and source.wire == wire else None


def option_id(option: dict[str, Json]) -> str:
    return string(option.get("configId")) or string(option.get("id")) or ""


def mode_ids(modes: Json) -> list[str]:
    return [m["id"] for m in mode_rows(modes)]


def option_values(option: dict[str, Json]) -> list[str] | None:
    """The values of a select, groups opened; None for an option that is true or false."""
    if option.get("type") == "boolean":
        return None
    out: list[str] = []
    for each in rows(option.get("options")):
        inner = rows(each["options"]) if isinstance(each.get("options"), list) else [each]
        out += [o["value"] for o in inner if isinstance(o.get("value"), str)]
    return out
