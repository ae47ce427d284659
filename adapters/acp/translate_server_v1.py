"""Events of the core to ACP v1 updates and results. Pure."""

from typing import Any, TypeAlias

from adapters.acp.translate_content import encode_block, present, rows, string, table
from adapters.acp.translate_server import (
    CHUNK,
    Names,
    command_rows,
    failure,
    mode_rows,
    option_id,
    raw_of,
    shared,
    stop_reason,
    tokens,
    tool_fields,
)
from adapters.acp.wire import as_object
from adapters.acp.wire_server import Update
from gateway.core import events as ev
from gateway.core.content import Text
from gateway.core.model import Error, Outcome, Request, Tokens, ToolCall, UserMessage
from gateway.core.transcript import Transcript

Json: TypeAlias = Any

WIRE = "acp1"
KINDS = frozenset("read edit delete move search execute think fetch switch_mode other".split())
STATUS = frozenset(("pending", "in_progress", "completed", "failed"))


def updates(event: ev.Event, names: Names) -> list[Update]:
    """What a client of this version is told of an event."""
    match event:
        case ev.MessageDelivered():
            return user(event.message)
        case ev.MessageReplaced():
            return replaced(event)
        case ev.ToolUpdated():
            return [tool_update(event)]
        case ev.PlanUpdated():
            raw = raw_of(event.source, WIRE)
            return [Update("plan", raw) if raw is not None and _kind(raw) == "plan" else plan(event.entries)]
        case ev.ModesUpdated():
            raw = raw_of(event.source, WIRE)
            return [Update("current_mode_update", raw)] if raw is not None else [mode(event.mode)]
        case ev.ConfigUpdated():
            raw = raw_of(event.source, WIRE)
            return [Update("config_option_update", raw)] if raw is not None else [config_update(event.options)]
        case ev.CommandsUpdated():
            raw = raw_of(event.source, WIRE)
            return [Update("available_commands_update", raw)] if raw is not None else [commands(event.commands)]
    return shared(event, WIRE, names)


def _kind(raw: Json) -> str:
    return string(as_object(raw).get("sessionUpdate")) or ""


# --- messages ------------------------------------------------------------------------------------------------------


def user(message: UserMessage) -> list[Update]:
    kind = "user_message_chunk"
    return [
        Update(kind, {"sessionUpdate": kind, "messageId": message.id, "content": encode_block(block)})
        for block in message.content
    ]


def replaced(event: ev.MessageReplaced) -> list[Update]:
    """v1 cannot take back what it said: the new content follows under the same id, marked as such."""
    if event.source is not None and _kind(event.source.raw) == "session_message":
        return []
    kind = CHUNK[event.role]
    mark = {"trunkline": {"replaces": True}}
    out = []
    for part in event.parts:
        block = encode_block(Text(part.text) if part.block is None else part.block)
        out.append(
            Update(kind, {"sessionUpdate": kind, "messageId": event.message_id, "content": block, "_meta": mark})
        )
    return out


# --- tools ---------------------------------------------------------------------------------------------------------


def tool_update(event: ev.ToolUpdated) -> Update:
    raw = raw_of(event.source, WIRE)
    if raw is not None:
        kind = _kind(raw)
        if kind == "tool_call" or (kind == "tool_call_update" and not event.first):
            return Update(kind, raw)
    return tool(event.call, event.first)


def tool(call: ToolCall, first: bool) -> Update:
    """A tool call, whole."""
    kind = "tool_call" if first else "tool_call_update"
    return Update(kind, {"sessionUpdate": kind, **tool_body(call)})


def tool_body(call: ToolCall) -> dict[str, Json]:
    body = tool_fields(call)
    body["kind"] = call.kind if call.kind in KINDS else "other"
    body["status"] = call.status if call.status in STATUS else "failed"
    if call.content is not None:
        body["content"] = [content(each) for each in rows(call.content)]
    return body


def content(value: dict[str, Json]) -> dict[str, Json]:
    """Content of a tool call in the shape of v1. A diff of v2 that is more than one file becomes its patch as text."""
    if value.get("type") == "diff" and "changes" in value:
        text = string(table(value.get("patch")).get("text"))
        if text is None:
            text = "\n".join(f"{c.get('operation')} {c.get('path')}" for c in rows(value.get("changes")))
        return {"type": "content", "content": {"type": "text", "text": text}}
    meta = table(value.get("_meta"))
    if "acp2" in table(meta.get("trunkline")):  # what it was on v2 is not for these clients
        left = {key: field for key, field in meta.items() if key != "trunkline"}
        return {**{key: field for key, field in value.items() if key != "_meta"}, **({"_meta": left} if left else {})}
    return value


# --- what the agent says of itself ---------------------------------------------------------------------------------


def plan(entries: Json) -> Update:
    return Update("plan", {"sessionUpdate": "plan", "entries": rows(entries)})


def mode(value: str) -> Update:
    return Update("current_mode_update", {"sessionUpdate": "current_mode_update", "currentModeId": value})


def config_update(options: Json) -> Update:
    kind = "config_option_update"
    return Update(kind, {"sessionUpdate": kind, "configOptions": config(options)})


def commands(value: Json) -> Update:
    kind = "available_commands_update"
    return Update(kind, {"sessionUpdate": kind, "availableCommands": command_rows(value)})


def config(options: Json) -> list[dict[str, Json]]:
    """Options in the shape of v1, whatever the agent's version."""
    out = []
    for each in rows(options):
        if "configId" in each:
            each = {"id": option_id(each), **{k: v for k, v in each.items() if k != "configId"}}
            if isinstance(each.get("options"), list):
                each["options"] = [
                    {"group": o["groupId"], **{k: v for k, v in o.items() if k != "groupId"}} if "groupId" in o else o
                    for o in rows(each["options"])
                ]
        out.append(each)
    return out


def modes(transcript: Transcript) -> dict[str, Json] | None:
    found = mode_rows(transcript.modes)
    if not found or not transcript.mode:
        return None
    return {"currentModeId": transcript.mode, "availableModes": found}


def session_state(transcript: Transcript) -> dict[str, Json]:
    """What new, load and resume answer beside the id."""
    options = config(transcript.config) or None
    return present({"modes": modes(transcript), "configOptions": options})


def standing(transcript: Transcript) -> list[Update]:
    """The newest of each kind that is not a message."""
    out = [plan(entries) for entries in transcript.plans.values()]
    if transcript.commands is not None:
        out.append(commands(transcript.commands))
    if transcript.mode:
        out.append(mode(transcript.mode))
    if transcript.config is not None:
        out.append(config_update(transcript.config))
    return out


# --- the turn ------------------------------------------------------------------------------------------------------


def prompt_result(message_id: str, outcome: Outcome | None, used: Tokens | None) -> dict[str, Json] | None:
    """The answer to session/prompt; None where the turn failed (``failure``)."""
    stop = stop_reason(outcome)
    if stop is None:
        return None
    body = {"stopReason": stop, "usage": tokens(used)}
    return {**present(body), "_meta": {"trunkline": {"messageId": message_id}}}


def prompt_error(outcome: Outcome | None, error: Error | None) -> dict[str, Json]:
    return failure(outcome, error)


def permission(session_id: str, request: Request, call: ToolCall | None) -> dict[str, Json]:
    """Params of session/request_permission."""
    raw = table(request.raw)
    if isinstance(raw.get("toolCall"), dict):
        return {**raw, "sessionId": session_id}
    body: dict[str, Json] = tool_body(call) if call is not None else {"toolCallId": request.call_id or request.id}
    if request.title:
        body["title"] = request.title
    subject = table(raw.get("subject"))
    if subject.get("type") == "command":
        body["kind"] = "execute"
        body["rawInput"] = present({"command": subject.get("command"), "cwd": subject.get("cwd")})
    options = [{"optionId": o.id, "name": o.name, "kind": o.kind} for o in request.options]
    return {"sessionId": session_id, "toolCall": body, "options": options}
