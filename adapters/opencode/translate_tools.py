"""A tool call in the words of ACP → OpenCode's tool part. Pure.

OpenCode's clients draw some tools by name (``bash``, ``edit``, ``read`` …) and look for certain inputs and metadata. A
call gets such a name only when what is drawn is there (or still to come); otherwise it keeps its own name or title.
The fields have the names of Claude's agent (``file_path``, ``old_string``), of Codex's (``command``, ``cwd``), or of
OpenCode's own (``filePath``); Gemini's gives no input, only title, locations and content.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from adapters.opencode import translate_input as inputs
from adapters.opencode.translate_diff import FileDiff, diffs, of_content
from adapters.opencode.wire import Completed, Failed, Pending, Running, Span, ToolPart
from gateway.core.model import TOOL_DONE, Child, ToolCall

ABORTED = "Tool execution aborted"
DIFF_LIMIT = 200_000  # characters of a call's patches

_FENCE = ("```console\n", "```sh\n", "```\n")


def tool_part(call: ToolCall, session_id: str) -> ToolPart:
    """The part as it stands: the same id throughout."""
    tool, given = named(call.kind, call.name, call.title, call.input, call.content, call.locations, call.output)
    return ToolPart(call.part_id, session_id, call.step_id, tool, call.call_id, _state(call, tool, given))


def task_part(
    session_id: str, part_id: str, message_id: str, step_id: str, text: str, created: int, child: Child
) -> ToolPart:
    """A message to a child session, as the task that it is: clients lead from there to the session."""
    kind = child.description or "general"
    given = {"description": child.title or kind, "prompt": text, "subagent_type": kind}
    metadata = {"sessionId": child.session_id, "messageId": message_id}
    state: Running | Completed | Failed = Running(given, Span(created), given["description"], metadata)
    if child.state == "idle" and child.error is not None:
        state = Failed(given, child.error.message, Span(created, created), metadata)
    elif child.state == "idle":
        state = Completed(given, "", given["description"], metadata, Span(created, created))
    return ToolPart(part_id, session_id, step_id, "task", message_id, state)


def named(
    kind: str, name: str, title: str, raw: Any, content: Any, locations: Any, output: Any = None
) -> tuple[str, dict[str, Any]]:
    """OpenCode's tool name and the input that its clients look for."""
    given = _object(raw)
    changed = list(dict.fromkeys(str(item["path"]) for item in diffs(content)))
    said = inputs.Said(
        kind, name, title, given, raw is not None, changed, locations, _object(_object(output).get("metadata"))
    )
    tool, known = inputs.drawn(said) or (name or title or kind or "tool", {})
    return tool, {**given, **known}


def _state(call: ToolCall, tool: str, given: dict[str, Any]) -> Pending | Running | Completed | Failed:
    start = call.started or call.created
    end = max(start, call.ended or start)
    output = output_of(call)
    metadata = _metadata(call, tool, given, output)
    match call.status:
        case "pending":
            if not call.input:
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


def _metadata(call: ToolCall, tool: str, given: Mapping[str, Any], output: str) -> dict[str, Any]:
    """What clients look for beside the input, by the tool's name."""
    found: dict[str, Any] = {}
    told = _object(_object(call.output).get("metadata"))
    match tool:
        case "bash":
            if call.status != "pending":
                found["output"] = output
            code = _exit_code(call, told)
            if code is not None:
                found["exit"] = code
        case "edit" | "write" | "apply_patch":
            found |= _changes(call, tool, given)
        case "grep" if isinstance(told.get("matches"), int):
            found["matches"] = told["matches"]
        case "glob" if isinstance(told.get("count"), int):
            found["count"] = told["count"]
        case "todowrite":
            found["todos"] = given.get("todos")
        case _ if diffs(call.content):
            found["diff"] = unified(call.content)
    if call.locations:
        found["locations"] = call.locations
    if call.rule:
        found["permission"] = call.rule  # a setting answered when the agent asked
    return found


def _changes(call: ToolCall, tool: str, given: Mapping[str, Any]) -> dict[str, Any]:
    files = of_content(call.content, DIFF_LIMIT)
    found: dict[str, Any] = {}
    if tool == "apply_patch":
        found["files"] = [_patched(one) for one in files]
    elif len(files) == 1 and isinstance(files[0].patch, str):
        found["filediff"] = files[0]
    text = "".join(one.patch for one in files if isinstance(one.patch, str))
    if text:
        found["diff"] = text
    if tool == "write" and call.status == "completed":
        found |= {"diagnostics": {}, "filepath": given.get("filePath")}  # the terminal shows the content beside these
    return found


def _patched(one: FileDiff) -> dict[str, Any]:
    kind = "add" if one.status == "added" else "update"
    patch = one.patch if isinstance(one.patch, str) else ""
    head = {"type": kind, "filePath": one.file, "relativePath": one.file}
    return {**head, "patch": patch, "additions": one.additions, "deletions": one.deletions}


def _exit_code(call: ToolCall, told: Mapping[str, Any]) -> int | None:
    output, meta = _object(call.output), _object(_object(call.meta).get("terminal_exit"))
    for place, key in ((output, "exitCode"), (output, "exit_code"), (told, "exit"), (meta, "exit_code")):
        if isinstance(place.get(key), int):
            return int(place[key])
    return None


def output_of(call: ToolCall) -> str:
    """What the tool said, as text: its content blocks, else its raw output."""
    described = _object(call.input).get("description")  # some agents show it until there is something to say
    texts = []
    for item in call.content if isinstance(call.content, list) else ():
        block = item.get("content") if isinstance(item, dict) and item.get("type") == "content" else None
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            if call.kind != "execute" or block["text"] != described or call.status in TOOL_DONE:
                texts.append(_bare(block["text"]) if call.kind == "execute" else block["text"])
    if texts:
        return "\n".join(texts)
    if isinstance(call.output, str):
        return call.output
    if call.output is None:
        return ""
    words = ("output", "formatted_output", "aggregated_output", "stdout", "text", "error")
    found = inputs.word(_object(call.output), *words)
    return found if found else msgspec.json.encode(call.output).decode()


def _bare(text: str) -> str:
    """Without the fence that some agents put around a command's output."""
    for fence in _FENCE:
        if text.startswith(fence) and text.endswith("\n```"):
            return text[len(fence) : -len("\n```")]
    return text


def unified(content: Any) -> str:
    """The diffs of a call as one unified diff; empty if there are none or they are too long."""
    return "".join(one.patch for one in of_content(content, DIFF_LIMIT) if isinstance(one.patch, str))


def _object(raw: Any) -> dict[str, Any]:
    if isinstance(raw, dict):
        return raw
    return {} if raw is None else {"input": raw}
