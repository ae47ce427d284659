"""A transcript as the updates that tell it again, in its order: what load and resume replay, what a gap is closed with.

Pure. ``Mark`` is how far a reader has got, so that what it missed can be told and nothing twice.
"""

from collections.abc import Iterator
from types import ModuleType
from typing import Any, TypeAlias

import msgspec

from adapters.acp import translate_server_v1 as v1
from adapters.acp import translate_server_v2 as v2
from adapters.acp.translate_content import encode_block
from adapters.acp.translate_server import WHOLE, Names, child, chunk, refs, session_info, usage
from adapters.acp.wire_server import Update
from gateway.core import events as ev
from gateway.core.content import Text
from gateway.core.model import Role
from gateway.core.transcript import BlockPart, Part, StepItem, TextPart, ToolPart, Transcript, UserItem

Json: TypeAlias = Any


class Mark(msgspec.Struct):
    """The newest user message or part that was told, and how much text of it. Empty: nothing."""

    id: str = ""
    chars: int = 0

    def see(self, event: ev.Event) -> None:
        """Go past an event that was told."""
        match event:
            case ev.TextDelta():
                if self.id != event.part_id:
                    self.id, self.chars = event.part_id, 0
                self.chars += len(event.text)
            case ev.PartOpened() | ev.BlockAdded():
                self.id, self.chars = event.part_id, 0
            case ev.ToolUpdated() if event.first:
                self.id, self.chars = event.call.part_id, 0
            case ev.MessageDelivered():
                self.id, self.chars = event.message.id, 0


def translator(wire: str) -> ModuleType:
    return v1 if wire == v1.WIRE else v2


def history(transcript: Transcript, wire: str, names: Names) -> list[Update]:
    """All that was said."""
    return list(_told(transcript, wire, names, Mark(), whole=True))


def missed(transcript: Transcript, wire: str, names: Names, mark: Mark) -> list[Update]:
    """What was said after ``mark``; tool calls before it, which may have changed, are told again."""
    return list(_told(transcript, wire, names, mark, whole=not _has(transcript, mark.id)))


def standing(transcript: Transcript, wire: str) -> list[Update]:
    """What stands beside the messages: plans, commands, modes, options, usage, title."""
    out: list[Update] = translator(wire).standing(transcript)
    if transcript.usage is not None:
        out.append(usage(transcript.usage.used, transcript.usage.size, transcript.usage.cost))
    if transcript.info is not None:
        out.append(session_info(transcript.info))
    return out


def children(transcript: Transcript) -> list[Update]:
    """Announcements: they come before anything that names a child."""
    return [child(each) for each in transcript.children.values()]


def end(transcript: Transcript) -> Mark:
    """The mark of who has been told everything."""
    for item in reversed(transcript.items):
        if isinstance(item, UserItem):
            return Mark(item.message.id)
        if item.parts:
            last = item.parts[-1]
            return Mark(last.part_id, len(last.text) if isinstance(last, TextPart) else 0)
    return Mark()


def _has(transcript: Transcript, mark: str) -> bool:
    return bool(mark) and (transcript.user(mark) is not None or transcript.part(mark) is not None)


def _told(transcript: Transcript, wire: str, names: Names, mark: Mark, whole: bool) -> Iterator[Update]:
    after = whole
    for item in transcript.items:
        if isinstance(item, UserItem):
            if after:
                yield from v1.user(item.message) if wire == v1.WIRE else [v2.user(item.message)]
            after = after or item.message.id == mark.id
            continue
        for part in item.parts:
            if after:
                yield from _part(transcript, item, part, wire, names)
            elif isinstance(part, ToolPart):
                yield from _shown(part, wire)
                yield _tool(part, wire, first=False)
            elif part.part_id == mark.id and isinstance(part, TextPart) and part.text[mark.chars :]:
                yield from chunk(part.role, part.message_id, Text(part.text[mark.chars :]))
            after = after or part.part_id == mark.id


def _tool(part: ToolPart, wire: str, first: bool) -> Update:
    return v1.tool(part.call, first) if wire == v1.WIRE else v2.tool(part.call)


def _shown(part: ToolPart, wire: str) -> list[Update]:
    """The terminals that a call shows come before it."""
    return v2.terminals(part.call) if wire == v2.WIRE else []


def _part(transcript: Transcript, item: StepItem, part: Part, wire: str, names: Names) -> Iterator[Update]:
    if isinstance(part, ToolPart):
        yield from _shown(part, wire)
        yield _tool(part, wire, first=True)
        return
    known = transcript.refs.get(part.message_id) if part.role == "session" else None
    if known is not None:
        if part.ordinal == 1:
            said = [encode_block(each) for each in transcript.content_of("session", part.message_id)]
            yield refs(part.message_id, known, None, names, said)
        return
    if part.ordinal == 1 and wire == v2.WIRE:
        yield _opened(part.role, part.message_id)
    if isinstance(part, BlockPart):
        yield from chunk(part.role, part.message_id, part.block)
    elif part.text:
        yield from chunk(part.role, part.message_id, Text(part.text))


def _opened(role: Role, message_id: str) -> Update:
    """A message begins again: whatever a client has of it is replaced by the chunks that follow."""
    kind = WHOLE[role]
    return Update(kind, {"sessionUpdate": kind, "messageId": message_id, "content": []})
