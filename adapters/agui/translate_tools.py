"""A tool call → AG-UI: its arguments, its activity (the only thing that may change), its one result. Pure."""

from typing import Any

import msgspec

from adapters.agui.translate_names import tool_id
from adapters.agui.wire import Json, encode
from gateway.core.ids import SessionId
from gateway.core.model import TOOL_DONE, ToolCall

ACTIVITY = "acp.tool_call"
CHUNK = 65_536  # characters of one text in an activity or a result; single events stay far below the clients' 10 MB
_SAID = {"failed": "The tool failed", "cancelled": "Cancelled"}


def name_of(call: ToolCall) -> str:
    return call.name or call.kind or "tool"


def metadata_of(call: ToolCall) -> dict[str, Json]:
    return {"acp": {"kind": call.kind, "title": call.title}}


def settled(call: ToolCall) -> bool:
    """Whether its arguments are complete: they came, or it works already. Some agents tell them in a second update."""
    return bool(call.input) or call.status != "pending"


def arguments(call: ToolCall) -> str:
    return "{}" if call.input is None else encode(call.input).decode()


def result_of(call: ToolCall) -> str:
    """What the tool said, as text: its content, else its raw output. Never empty for one that failed."""
    texts = [_text(item) for item in call.content] if isinstance(call.content, list) else []
    said = "\n".join(filter(None, texts))
    if not said and call.output is not None:
        said = call.output if isinstance(call.output, str) else _of_output(call.output)
    return _cut(said or _SAID.get(call.status, ""))


def _of_output(output: Any) -> str:
    if isinstance(output, dict):
        for name in ("output", "stdout", "text", "error"):
            if isinstance(output.get(name), str) and output[name]:
                return str(output[name])
    return encode(output).decode()


def _text(item: Any) -> str:
    if not isinstance(item, dict):
        return ""
    inner = item.get("content")
    if item.get("type") == "content" and isinstance(inner, dict) and isinstance(inner.get("text"), str):
        return str(inner["text"])
    if item.get("type") == "diff":
        return f"{item.get('path')} changed"
    return ""


def _cut(text: str) -> str:
    return text if len(text) <= CHUNK else f"{text[:CHUNK]}\n[{len(text) - CHUNK} more characters]"


def activity(call: ToolCall, session_id: SessionId | None) -> dict[str, Json]:
    """The content of the call's activity, whole. ``session_id``: of a subagent."""
    found: dict[str, Json] = {
        "toolCallId": tool_id(call, session_id),
        "status": call.status,
        "title": call.title,
        "kind": call.kind,
        "locations": call.locations or [],
        "content": _short(call.content) if isinstance(call.content, list) else [],
    }
    if call.status in TOOL_DONE and call.output is not None:
        found["output"] = _short(call.output)
    if call.rule:
        found["permission"] = call.rule  # a setting answered when the agent asked
    return found


def _short(value: Any) -> Any:
    """Long texts cut, wherever they are."""
    if isinstance(value, str):
        return _cut(value)
    if isinstance(value, list):
        return [_short(each) for each in value]
    if isinstance(value, dict):
        return {key: _short(each) for key, each in value.items()}
    if isinstance(value, msgspec.Raw):
        return _short(msgspec.json.decode(value))
    return value


def patch(before: dict[str, Json], after: dict[str, Json]) -> list[dict[str, Json]]:
    """RFC 6902, from one content of an activity to the next; lists that only grew are appended to."""
    ops: list[dict[str, Json]] = []
    for key, value in after.items():
        old = before.get(key)
        if key in before and old == value:
            continue
        if isinstance(old, list) and isinstance(value, list) and old and value[: len(old)] == old:
            ops += [{"op": "add", "path": f"/{key}/-", "value": item} for item in value[len(old) :]]
        else:
            ops.append({"op": "add", "path": f"/{key}", "value": value})
    ops += [{"op": "remove", "path": f"/{key}"} for key in before if key not in after]
    return ops
