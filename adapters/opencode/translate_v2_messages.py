"""Sessions, prompts and messages of the core → OpenCode's API version 2. Pure; the answers are plain dicts.

What an assistant's content has no field for (a part's own message id, a foreign role) is in the message's
``metadata``, by part id.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from adapters.opencode import translate_tools
from adapters.opencode.translate_content import META, user_part
from adapters.opencode.translate_messages import BROKEN, FINISH, Messages, default_title, project_id
from adapters.opencode.translate_messages import metadata as part_metadata
from adapters.opencode.wire import FilePart
from adapters.opencode.wire import TextPart as WireText
from gateway.core.content import Audio, Block, Content, Image, Other, Resource, ResourceLink, Text, text_of
from gateway.core.model import Error, Pending, Role, SessionInfo, Step, Tokens, ToolCall, UserMessage
from gateway.core.transcript import BlockPart, Part, StepItem, TextPart, UserItem

STEP_CUT = "Provider turn interrupted"
TOOL_CUT = "Tool execution interrupted"
"""What the real server says of a step or a tool that was cut by an interrupt."""


class MessagesV2:
    """``names``: what agents, models and modes are called on this wire."""

    def __init__(self, names: Messages) -> None:
        self.names = names

    # --- sessions ------------------------------------------------------------------------------------------------

    def session(self, info: SessionInfo) -> dict[str, Any]:
        time = {"created": info.created, "updated": info.updated}
        found: dict[str, Any] = {
            "id": info.id,
            "projectID": project_id(info.cwd),
            "cost": info.tokens.cost,
            "tokens": tokens(info.tokens),
            "time": time if info.archived is None else {**time, "archived": info.archived},
            "title": info.title or default_title(info),
            "location": {"directory": info.cwd},
        }
        if info.parent_id:
            found["parentID"] = info.parent_id
        if info.mode:
            found["agent"] = info.mode
        if info.agent:
            found["model"] = self.model(info.agent, info.model)
        return found

    def model(self, agent: str, model: str) -> dict[str, str]:
        return {"id": self.names.model(model), "providerID": self.names.provider(agent)}

    # --- messages ------------------------------------------------------------------------------------------------

    def item(self, item: UserItem | StepItem) -> dict[str, Any]:
        return self.user(item.message) if isinstance(item, UserItem) else self.assistant(item)

    def user(self, message: UserMessage) -> dict[str, Any]:
        found = {"id": message.ascending_id, "time": {"created": message.created}, "type": "user"}
        if message.id != message.ascending_id:
            found["metadata"] = {"messageId": message.id}
        return {**found, **prompt(message.content)}

    def assistant(self, item: StepItem) -> dict[str, Any]:
        step = item.step
        time = {"created": step.created}
        found: dict[str, Any] = {
            "id": step.id,
            "time": time,
            "type": "assistant",
            "agent": self.names.mode(step.mode),
            "model": self.model(step.agent, step.model),
            "content": [part for one in item.parts for part in content(one)],
        }
        if step.completed is not None:
            time["completed"] = max(step.created, step.completed)
            if step.outcome in BROKEN:
                found |= {"finish": "error", "error": failure(step.outcome, step.error)}
            else:
                found |= ended(step)
        told = {}
        for one in item.parts:
            if isinstance(one, TextPart | BlockPart):
                extra = part_metadata(one.message_id, one.step_id, one.role)
                if extra:
                    told[one.part_id] = extra
        if told:
            found["metadata"] = {"parts": told}
        return found


# --- prompts ---------------------------------------------------------------------------------------------------------


def prompt(given: Content) -> dict[str, Any]:
    """A user's message: ``text``, ``files``, ``agents``."""
    found: dict[str, Any] = {"text": text_of(given)}
    files, agents = [], []
    for block in given:
        kept = _kept(block)
        agents += kept.get("agents", [])
        part = user_part(block, "", "", "", None)
        if isinstance(part, FilePart):
            file = {"uri": part.url, "mime": part.mime, "name": part.filename, "source": _span(kept.get("source"))}
            file["description"] = kept.get("description")
            files.append({key: value for key, value in file.items() if value not in (None, msgspec.UNSET)})
        elif isinstance(block, Other) and isinstance(part, WireText):
            found["text"] = f"{found['text']}\n{part.text}".strip()
    if files:
        found["files"] = files
    if agents:
        found["agents"] = agents
    return found


def _span(source: Any) -> Any:
    """Where a file's mention stood in the text. Version 1 has it inside of a larger object."""
    if isinstance(source, Mapping) and isinstance(source.get("text"), Mapping):
        source = {**source["text"], "text": source["text"].get("value", "")}
    keys = ("start", "end", "text")
    if isinstance(source, Mapping) and all(key in source for key in keys):
        return {key: source[key] for key in keys}
    return None


def _kept(block: Block) -> Mapping[str, Any]:
    meta = None if isinstance(block, Other) else block.meta
    kept = meta.get(META) if isinstance(meta, dict) else None
    return kept if isinstance(kept, dict) else {}


def noted(block: Block, **fields: Any) -> Block:
    """The block with more of what this wire says of it, for ``prompt`` to give back."""
    more = {key: value for key, value in fields.items() if value}
    if not more or isinstance(block, Other):
        return block
    meta = block.meta if isinstance(block.meta, dict) else {}
    kept: Block = msgspec.structs.replace(block, meta={**meta, META: {**_kept(block), **more}})
    return kept


def pending(message: Pending) -> dict[str, Any]:
    """Ours: a message that is not delivered."""
    found: dict[str, Any] = {
        "id": message.ascending_id,
        "prompt": prompt(message.content),
        "delivery": message.lane,
        "state": message.state,
        "timeCreated": message.created,
    }
    if message.held:
        found["held"] = message.held
    if message.uncertain:
        found["uncertain"] = True
    return found


# --- an assistant's content ------------------------------------------------------------------------------------------


def content(part: Part) -> list[dict[str, Any]]:
    if isinstance(part, TextPart):
        return [text(part.part_id, part.role, part.text, part.created, part.ended)]
    if isinstance(part, BlockPart):
        return [text(part.part_id, part.role, block_text(part.block), part.created, part.created)]
    return [tool(part.call)]


def text(part_id: str, role: Role, said: str, created: int, done: int | None) -> dict[str, Any]:
    if role != "thought":
        return {"type": "text", "id": part_id, "text": said}
    time = {"created": created} if done is None else {"created": created, "completed": max(created, done)}
    return {"type": "reasoning", "id": part_id, "text": said, "time": time}


def block_text(block: Block) -> str:
    """A block of the agent as text: this wire has no other content for an assistant."""
    match block:
        case Text():
            return block.text
        case Image() | Audio():
            return f"![{block.mime_type}](data:{block.mime_type};base64,{block.data})"
        case Resource():
            return block.text if block.text is not None else f"[{block.uri}]({block.uri})"
        case ResourceLink():
            return f"[{block.title or block.name}]({block.uri})"
        case Other():
            return msgspec.json.encode(block.raw).decode()


def tool(call: ToolCall) -> dict[str, Any]:
    name, given = named(call)
    time = {"created": call.created}
    if call.started is not None or call.called:
        time["ran"] = call.started or call.created
    if call.ended is not None:
        time["completed"] = max(call.ended, call.created)
    state: dict[str, Any]
    if call.status in ("failed", "cancelled"):
        state = {"status": "error", "input": given, "error": tool_error(call), **result(call)}
    elif call.status == "completed":
        state = {"status": "completed", "input": given, **result(call)}
    elif call.called:
        state = {"status": "running", "input": given, **result(call)}
    else:
        state = {"status": "pending", "input": ""}
    provider = {"executed": False}
    return {"type": "tool", "id": call.call_id, "name": name, "provider": provider, "state": state, "time": time}


def named(call: ToolCall) -> tuple[str, dict[str, Any]]:
    return translate_tools.named(call.kind, call.name, call.title, call.input, call.content, call.locations)


def result(call: ToolCall) -> dict[str, Any]:
    """What a tool has said so far: ``content`` for people, ``structured`` for programs."""
    structured: dict[str, Any] = {}
    if call.title:
        structured["title"] = call.title
    if call.locations:
        structured["locations"] = call.locations
    diff = translate_tools.unified(call.content)
    if diff:
        structured["diff"] = diff
    output = call.output
    code = output.get("exitCode", output.get("exit_code", output.get("exit"))) if isinstance(output, dict) else None
    if isinstance(code, int):
        structured["exit"] = code
    said = translate_tools.output_of(call)
    return {"structured": structured, "content": [{"type": "text", "text": said}] if said else []}


def tool_error(call: ToolCall) -> dict[str, str]:
    said = translate_tools.output_of(call)
    message = TOOL_CUT if call.status == "cancelled" else said or "The tool failed"
    return {"type": "unknown", "message": message}


# --- ends ------------------------------------------------------------------------------------------------------------


def ended(step: Step) -> dict[str, Any]:
    finish = FINISH.get(step.outcome or "", "unknown")
    return {"finish": finish, "cost": step.tokens.cost, "tokens": tokens(step.tokens)}


def failure(outcome: str | None, error: Error | None) -> dict[str, str]:
    if outcome == "cancelled":
        message = STEP_CUT
    elif error is not None:
        message = error.message
    else:
        message = "The gateway restarted" if outcome == "interrupted" else "The agent failed"
    return {"type": "unknown", "message": message}


def tokens(count: Tokens) -> dict[str, Any]:
    cache = {"read": count.cache_read, "write": count.cache_write}
    return {"input": count.input, "output": count.output, "reasoning": count.reasoning, "cache": cache}
