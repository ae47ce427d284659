"""A tool call in the words of ACP → OpenCode's tool part. Pure.

OpenCode's clients draw a few tools by name (``bash``, ``edit``, ``read`` …) and need certain inputs for that. A call
gets such a name only when these inputs are there; otherwise it keeps its own name or title.
"""

import difflib
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from adapters.opencode.wire import Completed, Failed, Pending, Running, Span, ToolPart
from gateway.core.model import ToolCall

DIFF_LIMIT = 200_000  # characters of both sides; a diff of more costs too long
ABORTED = "Tool execution aborted"


def tool_part(call: ToolCall, session_id: str) -> ToolPart:
    """The part as it stands: the same id throughout."""
    tool, given = named(call.kind, call.name, call.title, call.input, call.content, call.locations)
    return ToolPart(call.part_id, session_id, call.step_id, tool, call.call_id, _state(call, tool, given))


def named(kind: str, name: str, title: str, raw: Any, content: Any, locations: Any) -> tuple[str, dict[str, Any]]:
    """OpenCode's tool name and the input that its clients look for."""
    given = _object(raw)
    own = name or title or kind or "tool"
    match kind:
        case "execute":
            command = _command(given.get("command")) or _command(given.get("cmd"))
            if command:
                return "bash", {"description": title, **given, "command": command}
        case "read":
            path = _path(given, locations)
            if path:
                return "read", {**given, "filePath": path}
        case "edit":
            path = _path(given, locations) or next((str(d["path"]) for d in diffs(content)), "")
            if path:
                if "content" in given and not diffs(content):
                    return "write", {**given, "filePath": path}
                return "edit", {**given, "filePath": path}
        case "search":
            pattern = _word(given, "pattern", "query", "regex")
            if pattern:
                return "grep", {**given, "pattern": pattern}
        case "fetch":
            url = _word(given, "url")
            if url:
                return "webfetch", {**given, "url": url}
    return own, given


def _state(call: ToolCall, tool: str, given: dict[str, Any]) -> Pending | Running | Completed | Failed:
    start = call.started or call.created
    end = max(start, call.ended or start)
    output = output_of(call)
    metadata = _metadata(call, tool, output)
    match call.status:
        case "pending":
            if call.input is None:
                return Pending({}, "")
            # its input is known: what this wire calls pending is an input that is still being written
            return Running(given, Span(start), call.title or UNSET, metadata or UNSET)
        case "in_progress":
            return Running(given, Span(start), call.title or UNSET, metadata or UNSET)
        case "completed":
            return Completed(given, output, call.title or tool, metadata, Span(start, end))
        case "failed":
            return Failed(given, output or "The tool failed", Span(start, end), metadata or UNSET)
        case "cancelled":
            return Failed(given, output or ABORTED, Span(start, end), {**metadata, "interrupted": True})


def _metadata(call: ToolCall, tool: str, output: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if tool == "bash" and call.status not in ("pending",):
        found["output"] = output
        code = _object(call.output).get("exitCode", _object(call.output).get("exit_code"))
        if isinstance(code, int):
            found["exit"] = code
    if tool in ("edit", "write") or call.kind == "edit":
        text = unified(call.content)
        if text:
            found["diff"] = text
    if call.locations:
        found["locations"] = call.locations
    return found


def output_of(call: ToolCall) -> str:
    """What the tool said, as text: its content blocks, else its raw output."""
    texts = []
    for item in call.content if isinstance(call.content, list) else ():
        block = item.get("content") if isinstance(item, dict) and item.get("type") == "content" else None
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            texts.append(block["text"])
    if texts:
        return "\n".join(texts)
    if isinstance(call.output, str):
        return call.output
    if call.output is None:
        return ""
    found = _word(_object(call.output), "output", "formatted_output", "aggregated_output", "stdout", "text", "error")
    return found if found else msgspec.json.encode(call.output).decode()


def diffs(content: Any) -> list[Mapping[str, Any]]:
    """ACP's diff items of a tool call: ``path``, ``oldText``, ``newText``."""
    if not isinstance(content, list):
        return []
    return [i for i in content if isinstance(i, dict) and i.get("type") == "diff" and isinstance(i.get("path"), str)]


def unified(content: Any) -> str:
    """The diffs of a call as one unified diff; empty if there are none or they are too long."""
    found = []
    for item in diffs(content):
        old, new = str(item.get("oldText") or ""), str(item.get("newText") or "")
        if len(old) + len(new) > DIFF_LIMIT:
            continue
        path = item["path"]
        lines = difflib.unified_diff(old.splitlines(), new.splitlines(), path, path, lineterm="")
        found.append("\n".join(lines))
    return "\n".join(found)


def _object(raw: Any) -> dict[str, Any]:
    if isinstance(raw, dict):
        return raw
    return {} if raw is None else {"input": raw}


def _word(given: Mapping[str, Any], *names: str) -> str:
    return next((given[n] for n in names if isinstance(given.get(n), str) and given[n]), "")


def _command(value: Any) -> str:
    """A command line: a string, or an argv (of which ``bash -lc TEXT`` says TEXT)."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        if len(value) == 3 and value[1] in ("-c", "-lc"):
            return str(value[2])
        return " ".join(value)
    return ""


def _path(given: Mapping[str, Any], locations: Any) -> str:
    found = _word(given, "filePath", "file_path", "path", "abs_path")
    if found:
        return found
    first = locations[0] if isinstance(locations, list) and locations else None
    return first["path"] if isinstance(first, dict) and isinstance(first.get("path"), str) else ""
