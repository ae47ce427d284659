"""A transcript → the messages of a thread, as a client that saw everything has them; and whether a client does. Pure.

The order is the reducer's of the official clients: a tool's result stands right behind the message with its call.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from adapters.agui import translate_tools as tools
from adapters.agui import wire
from adapters.agui.translate_content import plain, user_value
from adapters.agui.translate_names import (
    activity_name,
    block_name,
    part_name,
    plan_name,
    result_name,
    scoped,
    tool_id,
    user_name,
)
from adapters.agui.translate_state import View
from adapters.agui.wire import PIECE, Json, encode
from gateway.core.content import Text
from gateway.core.ids import SessionId, TurnId
from gateway.core.model import TOOL_DONE, ToolCall, UserMessage
from gateway.core.transcript import BlockPart, Part, StepItem, TextPart, ToolPart, UserItem

BLOCK = "acp.content"
PLAN = "PLAN"
SNAPSHOT = 4 << 20  # bytes of texts in one snapshot


def user_message(message: UserMessage, session_id: SessionId | None = None) -> dict[str, Json]:
    found = {"id": user_name(message, session_id), "role": "user", "content": user_value(message.content)}
    if message.how == "injected":
        found["metadata"] = {"delivery": "steered"}
    return found


class _Thread:
    """The list while it grows. ``tag``: the subagent's run id, for clients that know it."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Json]] = []
        self.by_id: dict[str, dict[str, Json]] = {}

    def put(self, message: dict[str, Json], tag: dict[str, Json]) -> dict[str, Json]:
        known = self.by_id.get(message["id"])
        if known is not None:
            return known
        made = {**message, **tag}
        self.messages.append(made)
        self.by_id[made["id"]] = made
        return made

    def text(self, name: str, role: str, text: str, tag: dict[str, Json]) -> None:
        known = self.by_id.get(name)
        if known is None:
            self.put({"id": name, "role": role, "content": text}, tag)
        elif known["role"] != "activity":
            known["content"] = (known.get("content") or "") + text


def messages(views: Sequence[tuple[View, SessionId | None]], modern: bool) -> list[dict[str, Json]]:
    """All messages of a session and its subagents' (``views``: root first, a subagent's with its id), in order."""
    thread = _Thread()
    results: dict[str, list[tuple[int, dict[str, Json]]]] = {}
    turns = {session_id: view.turn_id for view, session_id in views}
    for _, _, session_id, part in sorted(_parts(views), key=lambda found: found[:2]):
        tag = {"subagentRunId": session_id} if session_id is not None and modern else {}
        _show(thread, results, part, session_id, tag, turns[session_id])
    ordered: list[dict[str, Json]] = []
    for message in thread.messages:
        ordered.append(message)
        ordered += [result for _, result in sorted(results.get(message["id"], ()), key=lambda found: found[0])]
    for view, session_id in views:
        tag = {"subagentRunId": session_id} if session_id is not None and modern else {}
        for plan_id, entries in view.transcript.plans.items():
            plan = {"id": plan_name(plan_id, session_id), "role": "activity", "activityType": PLAN}
            ordered.append({**plan, "content": {"entries": entries}, **tag})
    return ordered


def _parts(
    views: Sequence[tuple[View, SessionId | None]],
) -> Iterator[tuple[int, int, SessionId | None, Part | UserItem]]:
    """(time, number, session, what): times rise strictly inside of a session; sessions are merged by them."""
    number = 0
    for view, session_id in views:
        latest = 0
        for item in view.transcript.items:
            for part in [item] if isinstance(item, UserItem) else item.parts:
                number += 1
                latest = max(latest, _created(part))
                yield latest, number, session_id, part


def _created(part: Part | UserItem) -> int:
    if isinstance(part, UserItem):
        return part.message.created
    return part.call.created if isinstance(part, ToolPart) else part.created


def _show(
    thread: _Thread,
    results: dict[str, list[tuple[int, dict[str, Json]]]],
    part: Part | UserItem,
    session_id: SessionId | None,
    tag: dict[str, Json],
    turn_id: TurnId | None,
) -> None:
    match part:
        case UserItem():
            thread.put(user_message(part.message, session_id), tag)
        case TextPart():
            name = part_name(part.role, part.message_id, part.ordinal, session_id)
            thread.text(name, "reasoning" if part.role == "thought" else "assistant", part.text, tag)
        case BlockPart() if isinstance(part.block, Text):
            name = part_name(part.role, part.message_id, part.ordinal, session_id)
            thread.text(name, "reasoning" if part.role == "thought" else "assistant", part.block.text, tag)
        case BlockPart():
            activity = {"id": block_name(part.part_id, session_id), "role": "activity", "activityType": BLOCK}
            thread.put({**activity, "content": plain(part.block)}, tag)
        case ToolPart():
            call = part.call
            name = tool_id(call, session_id)
            parent = thread.put({"id": scoped(call.step_id, session_id), "role": "assistant"}, tag)
            unsaid = not tools.settled(call) and call.turn_id == turn_id  # a stream opens it again
            function = {"name": tools.name_of(call), "arguments": "" if unsaid else tools.arguments(call)}
            made = {"id": name, "type": "function", "function": function, "metadata": tools.metadata_of(call)}
            parent.setdefault("toolCalls", []).append(made)
            content = tools.activity(call, session_id)
            thread.put(
                {
                    "id": activity_name(name),
                    "role": "activity",
                    "activityType": tools.ACTIVITY,
                    "content": content,
                },
                tag,
            )
            if call.told:
                result: dict[str, Json] = {"id": result_name(name), "role": "tool", "toolCallId": name}
                result |= {"content": tools.result_of(call), "metadata": {"acp": {"status": call.status}}}
                results.setdefault(parent["id"], []).append((call.ended or call.created, {**result, **tag}))


def open_parts(view: View) -> list[TextPart]:
    """Parts that more text may come for."""
    found: list[TextPart] = []
    for item in reversed(view.transcript.items):
        if isinstance(item, StepItem):
            found += [part for part in item.parts if isinstance(part, TextPart) and part.ended is None]
            break
    return found


def open_calls(view: View) -> list[ToolCall]:
    """Calls of the open turn that are not done."""
    if view.turn_id is None:
        return []
    return [
        part.call
        for item in view.transcript.items
        if isinstance(item, StepItem) and item.step.turn_id == view.turn_id
        for part in item.parts
        if isinstance(part, ToolPart) and part.call.status not in TOOL_DONE
    ]


def known_names(view: View, session_id: SessionId | None, items: int = 64) -> dict[str, str]:
    """Part id → id on the wire, of the newest steps: for a stream that goes on inside of one."""
    return {
        part.part_id: part_name(part.role, part.message_id, part.ordinal, session_id)
        for item in view.transcript.items[-items:]
        if isinstance(item, StepItem)
        for part in item.parts
        if isinstance(part, TextPart)
    }


def stale(theirs: Sequence[Any], ours: Sequence[dict[str, Json]]) -> bool:
    """Whether a client with the history ``theirs`` (judged) needs a snapshot: something is missing, foreign, or other.

    Activities never travel back, so nothing is said about them. User messages that are new, or wait, are the client's.
    """
    mine = {message["id"]: message for message in ours if message["role"] != "activity"}
    seen = set()
    for message in theirs:
        if message.role == "activity":
            continue
        known = mine.get(message.id)
        if known is None:
            if message.role in ("user", "system", "developer"):
                continue
            return True
        seen.add(message.id)
        if known["role"] != message.role:
            return True
        if known["role"] != "user" and (known.get("content") or "") != (message.content or ""):
            return True
        if known["role"] == "assistant" and _calls(known) != _their_calls(message):
            return True
    return len(seen) != len(mine)


def _calls(message: dict[str, Json]) -> list[tuple[str, str]]:
    return [(call["id"], call["function"]["arguments"]) for call in message.get("toolCalls", ())]


def _their_calls(message: Any) -> list[tuple[str, str]]:
    return [(call.id, call.function.arguments) for call in message.tool_calls or ()]


# --- what is too large for one event ---------------------------------------------------------------------------------


def spilled(messages: list[dict[str, Json]]) -> tuple[list[dict[str, Json]], list[wire.Event]]:
    """A snapshot that fits into one event, and the events that append to it what did not: right for every client,
    since text under the id of a message goes on with it.
    """
    room, kept, more = SNAPSHOT, list[dict[str, Json]](), list[wire.Event]()
    for message in messages:
        size = len(encode(message))
        room -= size
        if size <= PIECE and room > 0 or message["role"] not in ("assistant", "reasoning"):
            kept.append(message)
            continue
        room += size
        name, tag, text = message["id"], message.get("subagentRunId"), message.get("content") or ""
        made = {**message, "content": ""} if text else dict(message)
        if message["role"] == "reasoning":
            more.append(wire.ReasoningStart(message_id=name, subagent_run_id=tag))
            more.append(wire.ReasoningMessageStart(message_id=name, role="reasoning", subagent_run_id=tag))
            more += [wire.ReasoningContent(message_id=name, delta=d, subagent_run_id=tag) for d in wire.pieces(text)]
            more.append(wire.ReasoningMessageEnd(message_id=name, subagent_run_id=tag))
            more.append(wire.ReasoningEnd(message_id=name, subagent_run_id=tag))
        elif text:
            more.append(wire.TextStart(message_id=name, role="assistant", subagent_run_id=tag))
            more += [wire.TextContent(message_id=name, delta=d, subagent_run_id=tag) for d in wire.pieces(text)]
            more.append(wire.TextEnd(message_id=name, subagent_run_id=tag))
        if "toolCalls" in message:
            made["toolCalls"] = [_emptied(call) for call in message["toolCalls"]]
            for call in message["toolCalls"]:
                more += _arguments(call, name, tag)
        kept.append(made)
    return kept, more


def _emptied(call: dict[str, Json]) -> dict[str, Json]:
    return {**call, "function": {**call["function"], "arguments": ""}}


def _arguments(call: dict[str, Json], parent: str, tag: str | None) -> list[wire.Event]:
    name, given = call["id"], call["function"]["arguments"]
    if not given:
        return []
    start = wire.ToolStart(
        tool_call_id=name,
        tool_call_name=call["function"]["name"],
        parent_message_id=parent,
        metadata=call["metadata"],
        subagent_run_id=tag,
    )
    args = [wire.ToolArgs(tool_call_id=name, delta=d, subagent_run_id=tag) for d in wire.pieces(given)]
    return [start, *args, wire.ToolEnd(tool_call_id=name, subagent_run_id=tag)]
