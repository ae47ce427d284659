"""Events of the core to ACP v2 updates and results. Pure."""

import difflib
from collections.abc import Iterable
from typing import Any, TypeAlias

from adapters.acp.translate_content import encode_block, present, rows, string, table
from adapters.acp.translate_server import (
    WHOLE,
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
from gateway.core.model import TOOL_DONE, Error, Outcome, Request, Source, Tokens, ToolCall, UserMessage
from gateway.core.transcript import StepItem, ToolPart, Transcript

Json: TypeAlias = Any

WIRE = "acp2"
PLAN = "plan"  # the id of a plan that has none
MODE = "mode"  # the option that stands for the modes of a v1 agent
LONG = 200_000  # characters beyond which two texts are not compared line by line


def updates(event: ev.Event, names: Names) -> list[Update]:
    """What a client of this version is told of an event. States, modes and options are ``server_feed``'s: they are
    told of a session, not of an event.
    """
    match event:
        case ev.MessageDelivered():
            return [user(event.message)]
        case ev.MessageReplaced():
            return replaced(event)
        case ev.ToolUpdated():
            if _told_as_terminal(event.source):
                return []
            if _tells_terminal(event.source):
                return [*terminals(event.call), tool(event.call)]
            return [tool_update(event.call, event.source)]
        case ev.PlanUpdated():
            raw = raw_of(event.source, WIRE)
            if raw is not None:
                return [Update(string(as_object(raw).get("sessionUpdate")) or "plan_update", raw)]
            return [plan(event.plan_id, event.entries)]
        case ev.CommandsUpdated():
            raw = raw_of(event.source, WIRE)
            return [Update("available_commands_update", raw)] if raw is not None else [commands_update(event.commands)]
    return shared(event, WIRE, names)


# --- messages ------------------------------------------------------------------------------------------------------


def user(message: UserMessage) -> Update:
    content = [encode_block(block) for block in message.content]
    return Update("user_message", {"sessionUpdate": "user_message", "messageId": message.id, "content": content})


def replaced(event: ev.MessageReplaced) -> list[Update]:
    kind = WHOLE[event.role]
    if event.source is not None:
        value = as_object(event.source.raw)
        if value.get("sessionUpdate") == "session_message":
            return []  # its content went out with it
        if event.source.wire == WIRE and value.get("messageId") == event.message_id:
            return [Update(kind, event.source.raw)]
    content = [encode_block(Text(p.text) if p.block is None else p.block) for p in event.parts]
    return [Update(kind, {"sessionUpdate": kind, "messageId": event.message_id, "content": content})]


# --- tools ---------------------------------------------------------------------------------------------------------


def tool_update(call: ToolCall, source: Source | None) -> Update:
    """Of a v1 agent's update only what it said: an upsert keeps the rest. A null of v1 says nothing."""
    kind = "tool_call_update"
    raw = raw_of(source, WIRE)
    said = string(as_object(raw).get("sessionUpdate")) if raw is not None else None
    if raw is not None and said in (kind, "tool_call_content_chunk"):
        return Update(said or kind, raw)
    if source is None or raw is not None:
        return tool(call)
    told = present(as_object(source.raw))
    if "content" in told:
        told["content"] = [content(each) for each in rows(told["content"])]
    return Update(kind, {**told, "sessionUpdate": kind})


def _told_as_terminal(source: Source | None) -> bool:
    """The call was told anew for other wires, because a terminal of it has more output: here that was said already."""
    raw = raw_of(source, WIRE)
    return raw is not None and as_object(raw).get("sessionUpdate") == "terminal_update"


def _tells_terminal(source: Source | None) -> bool:
    """A v1 agent's own terminal, in ``_meta``: what it showed there is in the call's content."""
    if source is None or source.wire == WIRE:
        return False
    return any(key.startswith("terminal_") for key in table(as_object(source.raw).get("_meta")))


def terminals(call: ToolCall) -> list[Update]:
    """The terminals that a call shows, as they stand: for who was not there when the agent told of them."""
    kind = "terminal_update"
    kept = [table(table(table(each).get("_meta")).get("trunkline")).get("terminal") for each in rows(call.content)]
    return [Update(kind, {"sessionUpdate": kind, **each}) for each in kept if isinstance(each, dict)]


def can_cancel_terminal(transcript: Transcript, terminal_id: str) -> bool:
    """Whether the agent offers that, of a terminal that a tool call shows."""
    for item in reversed(transcript.items):
        for part in item.parts if isinstance(item, StepItem) else ():
            for told in terminals(part.call) if isinstance(part, ToolPart) else ():
                if told.body.get("terminalId") == terminal_id:
                    return "capabilities" in told.body and "exitStatus" not in told.body
    return False


def tool(call: ToolCall) -> Update:
    return Update("tool_call_update", {"sessionUpdate": "tool_call_update", **tool_body(call)})


def tool_body(call: ToolCall) -> dict[str, Json]:
    body = {**tool_fields(call), "status": call.status}
    if call.content is not None:
        body["content"] = contents(call.content)
    if call.can_cancel and call.status not in TOOL_DONE:
        body["capabilities"] = {"cancel": {}}
    return body


def contents(value: Json) -> list[dict[str, Json]]:
    """Content of a tool call; what a v2 agent said in another shape is as it was."""
    out = []
    for each in rows(value):
        told = table(table(each.get("_meta")).get("trunkline"))
        if "acp2" not in told:
            out.append(content(each))
        elif isinstance(told["acp2"], dict):  # null: more of the one before
            out.append(told["acp2"])
    return out


def content(value: dict[str, Json]) -> dict[str, Json]:
    """A diff of v1 (two texts) is a change and a patch here."""
    path, new = value.get("path"), value.get("newText")
    if value.get("type") != "diff" or not isinstance(path, str) or not isinstance(new, str):
        return value
    old = string(value.get("oldText"))
    change = {"operation": "add" if old is None else "modify", "path": path}
    body = {"type": "diff", "changes": [change], "patch": {"format": "git_patch", "text": git_patch(path, old, new)}}
    return {**body, **({"_meta": value["_meta"]} if isinstance(value.get("_meta"), dict) else {})}


def git_patch(path: str, old: str | None, new: str) -> str:
    name = path.lstrip("/")
    before, after = (old or "").splitlines(keepends=True), new.splitlines(keepends=True)
    head = f"diff --git a/{name} b/{name}\n" + ("new file mode 100644\n" if old is None else "")
    source = "/dev/null" if old is None else f"a/{name}"
    lines: Iterable[str]
    if len(old or "") + len(new) > LONG:
        span = f"@@ -{min(1, len(before))},{len(before)} +{min(1, len(after))},{len(after)} @@\n"
        both = ["-" + line for line in before] + ["+" + line for line in after]
        lines = [f"--- {source}\n", f"+++ b/{name}\n", span, *both]
    else:
        lines = difflib.unified_diff(before, after, source, f"b/{name}")
    return head + "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)


# --- what the agent says of itself ---------------------------------------------------------------------------------


def plan(plan_id: str, entries: Json) -> Update:
    plan_id = plan_id or PLAN
    if entries is None:
        return Update("plan_removed", {"sessionUpdate": "plan_removed", "planId": plan_id})
    body = {"type": "items", "planId": plan_id, "entries": rows(entries)}
    return Update("plan_update", {"sessionUpdate": "plan_update", "plan": body})


def commands(value: Json) -> list[dict[str, Json]]:
    out = []
    for each in command_rows(value):
        hint = each.pop("input", None)
        out.append({"type": "command", **each, **({"input": {"type": "text", **hint}} if hint else {})})
    return out


def commands_update(value: Json) -> Update:
    kind = "available_commands_update"
    return Update(kind, {"sessionUpdate": kind, "availableCommands": commands(value)})


def config(transcript: Transcript) -> list[dict[str, Json]]:
    """Options in the shape of v2. There are no modes here: those of a v1 agent are an option."""
    out: list[dict[str, Json]] = []
    for each in rows(transcript.config):
        if "configId" not in each:
            each = {"configId": option_id(each), **{k: v for k, v in each.items() if k != "id"}}
            if isinstance(each.get("options"), list):
                each["options"] = [
                    {"groupId": o["group"], **{k: v for k, v in o.items() if k != "group"}} if "group" in o else o
                    for o in rows(each["options"])
                ]
        out.append(each)
    modes = mode_rows(transcript.modes)
    if modes and transcript.mode and not any(o.get("category") == MODE or option_id(o) == MODE for o in out):
        choices = [
            present({"value": m["id"], "name": m.get("name") or m["id"], "description": m.get("description")})
            for m in modes
        ]
        head = {"configId": MODE, "name": "Mode", "category": "mode", "type": "select"}
        out.insert(0, {**head, "currentValue": transcript.mode, "options": choices})
    return out


def config_update(transcript: Transcript) -> Update:
    kind = "config_option_update"
    return Update(kind, {"sessionUpdate": kind, "configOptions": config(transcript)})


def session_state(transcript: Transcript) -> dict[str, Json]:
    """What new and resume answer beside the id."""
    available = commands(transcript.commands) if transcript.commands is not None else None
    return present({"configOptions": config(transcript) or None, "availableCommands": available})


def standing(transcript: Transcript) -> list[Update]:
    """The newest of each kind that is not a message."""
    out = [plan(plan_id, entries) for plan_id, entries in transcript.plans.items()]
    if transcript.commands is not None:
        out.append(commands_update(transcript.commands))
    if transcript.config is not None or transcript.modes is not None:
        out.append(config_update(transcript))
    return out


# --- the turn ------------------------------------------------------------------------------------------------------


def state(word: str, background: Iterable[Json] = (), **more: Json) -> Update:
    """A snapshot. ``background``: child sessions that work on, by our ids, and what else does, as the agent said it."""
    body: dict[str, Json] = {"sessionUpdate": "state_update", "state": word, **present(more)}
    body["background"] = [
        {"type": "subagent", "sessionId": each} if isinstance(each, str) else each for each in background
    ]
    return Update("state_update", body)


def idle(outcome: Outcome | None, error: Error | None, used: Tokens | None, background: Iterable[Json] = ()) -> Update:
    stop = stop_reason(outcome)
    if stop is not None:
        return state("idle", background, stopReason=stop, usage=tokens(used))
    return state("idle", background, stopReason="error", error=failure(outcome, error), usage=tokens(used))


def permission(session_id: str, request: Request, call: ToolCall | None) -> dict[str, Json]:
    """Params of session/request_permission: what a v1 agent says of its tool call is the subject."""
    raw = table(request.raw)
    if isinstance(raw.get("title"), str) and "toolCall" not in raw:
        return {**raw, "sessionId": session_id}
    told = table(raw.get("toolCall"))
    subject = None
    if told or call is not None or request.call_id:
        body: dict[str, Json] = tool_body(call) if call is not None else {"toolCallId": request.call_id}
        if told:
            body = {**body, **present(told)}
        if "content" in body:
            body["content"] = contents(body["content"])
        subject = {"type": "tool_call", "toolCall": body}
    title = request.title or (call.title if call is not None else "") or "Permission"
    options = [{"optionId": o.id, "name": o.name, "kind": o.kind} for o in request.options]
    head: dict[str, Json] = {"sessionId": session_id, "title": title, "options": options}
    return {**head, **present({"description": request.description or None, "subject": subject})}
