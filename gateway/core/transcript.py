"""The transcript: fold(events) → what a late joiner is shown. Turns, steps, parts, messages, tool calls, the plan.

Only ``apply`` changes it. It keeps what was said; what is admitted and not delivered is the inbox's (``inbox.py``).
"""

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from gateway.core import events as ev
from gateway.core.content import Block, Content, Json, Text
from gateway.core.ids import PartId, SessionId, StepId, TurnId
from gateway.core.model import (
    Cause,
    Child,
    Error,
    Outcome,
    Refs,
    Role,
    SessionInfo,
    Step,
    Tokens,
    ToolCall,
    UserMessage,
)


class TextPart(msgspec.Struct, tag="text", eq=False):
    """A stretch of text. ``ended`` is None while it may grow."""

    part_id: PartId
    message_id: str
    step_id: StepId
    turn_id: TurnId
    role: Role
    created: int
    chunks: list[str]
    ended: int | None = None
    first: bool = True
    agent_id: str = ""
    ordinal: int = 1

    @property
    def text(self) -> str:
        if len(self.chunks) > 1:  # joined once, not at every delta: appending must not copy the whole
            self.chunks = ["".join(self.chunks)]
        return self.chunks[0] if self.chunks else ""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TextPart):
            return NotImplemented
        return self._key() == other._key()

    def _key(self) -> tuple[object, ...]:
        return (self.part_id, self.message_id, self.step_id, self.role, self.created, self.text, self.ended, self.first)


class BlockPart(msgspec.Struct, tag="block"):
    part_id: PartId
    message_id: str
    step_id: StepId
    turn_id: TurnId
    role: Role
    created: int
    block: Block
    first: bool = True
    ordinal: int = 1


class ToolPart(msgspec.Struct, tag="tool"):
    call: ToolCall

    @property
    def part_id(self) -> PartId:
        return self.call.part_id


Part: TypeAlias = TextPart | BlockPart | ToolPart


class UserItem(msgspec.Struct, tag="user"):
    message: UserMessage


class StepItem(msgspec.Struct, tag="step"):
    step: Step
    parts: list[Part]


Item: TypeAlias = UserItem | StepItem


class Turn(msgspec.Struct):
    id: TurnId
    cause: Cause
    started: int
    ended: int | None = None
    outcome: Outcome | None = None
    error: Error | None = None
    tokens: Tokens | None = None


class Usage(msgspec.Struct, frozen=True):
    used: int
    size: int
    cost: float | None = None


class Transcript(msgspec.Struct):
    """``items`` in order: delivered user messages and steps with their parts. The rest is the newest of its kind."""

    info: SessionInfo | None = None
    items: list[Item] = []
    turns: dict[TurnId, Turn] = {}
    plans: dict[str, Json] = {}
    usage: Usage | None = None
    mode: str = ""
    modes: Json = None
    config: Json = None
    commands: Json = None
    children: dict[SessionId, Child] = {}
    refs: dict[str, Refs] = {}
    aliases: dict[str, str] = {}  # the agent's id of a user message → ours
    deleted: bool = False

    # --- reading -----------------------------------------------------------------------------------------------

    def step(self, step_id: str) -> StepItem | None:
        """The step with this id. Newest first: that is where the questions are about."""
        for item in reversed(self.items):
            if isinstance(item, StepItem) and item.step.id == step_id:
                return item
        return None

    def user(self, message_id: str) -> UserMessage | None:
        for item in reversed(self.items):
            if isinstance(item, UserItem) and message_id in (item.message.id, item.message.ascending_id):
                return item.message
        return None

    def users(self) -> Iterator[UserMessage]:
        return (item.message for item in self.items if isinstance(item, UserItem))

    def part(self, part_id: str) -> Part | None:
        for item in reversed(self.items):
            if isinstance(item, StepItem):
                for part in reversed(item.parts):
                    if part.part_id == part_id:
                        return part
        return None

    def tool(self, call_id: str) -> ToolCall | None:
        """The newest tool call that the agent calls by this name."""
        for item in reversed(self.items):
            if isinstance(item, StepItem):
                for part in reversed(item.parts):
                    if isinstance(part, ToolPart) and part.call.call_id == call_id:
                        return part.call
        return None

    def parts_of(self, role: Role, message_id: str) -> list[TextPart | BlockPart]:
        """The parts of an agent message, in order."""
        return [
            part
            for item in self.items
            if isinstance(item, StepItem)
            for part in item.parts
            if not isinstance(part, ToolPart) and part.role == role and part.message_id == message_id
        ]

    def content_of(self, role: Role, message_id: str) -> Content:
        parts = self.parts_of(role, message_id)
        return tuple(Text(part.text) if isinstance(part, TextPart) else part.block for part in parts)

    # --- changing ----------------------------------------------------------------------------------------------

    def apply(self, record: ev.Record) -> None:
        """Change by one event of this session, in order."""
        event = record.event
        match event:
            case ev.TextDelta():
                part = self.part(event.part_id)
                if isinstance(part, TextPart):
                    part.chunks.append(event.text)
            case ev.SessionCreated() | ev.SessionUpdated():
                self.info = event.info
            case ev.SessionDeleted():
                self.deleted = True
            case ev.MessageDelivered():
                self.items.append(UserItem(event.message))
            case ev.MessageAliased():
                self.aliases[event.agent_id] = event.message_id
            case ev.TurnStarted():
                self.turns[event.turn_id] = Turn(event.turn_id, event.cause, record.at)
            case ev.TurnEnded():
                turn = self.turns.get(event.turn_id)
                if turn is not None:
                    turn.ended, turn.outcome, turn.error = record.at, event.outcome, event.error
                    turn.tokens = event.tokens
            case ev.StepStarted():
                self.items.append(StepItem(event.step, []))
            case ev.StepEnded():
                step = self.step(event.step.id)
                if step is not None:
                    step.step = event.step
            case ev.PartOpened():
                self._add(
                    event.step_id,
                    TextPart(
                        event.part_id,
                        event.message_id,
                        event.step_id,
                        event.turn_id,
                        event.role,
                        event.created,
                        [],
                        first=event.first,
                        agent_id=event.agent_id,
                        ordinal=event.ordinal,
                    ),
                )
            case ev.PartEnded():
                part = self.part(event.part_id)
                if isinstance(part, TextPart):
                    part.chunks, part.ended = [event.text], event.ended
            case ev.BlockAdded():
                self._add(
                    event.step_id,
                    BlockPart(
                        event.part_id,
                        event.message_id,
                        event.step_id,
                        event.turn_id,
                        event.role,
                        event.created,
                        event.block,
                        event.first,
                        event.ordinal,
                    ),
                )
            case ev.MessageReplaced():
                self._replace(event)
            case ev.ToolUpdated():
                part = None if event.first else self.part(event.call.part_id)
                if isinstance(part, ToolPart):
                    part.call = event.call
                else:
                    self._add(event.call.step_id, ToolPart(event.call))
            case ev.MessageRefs():
                self.refs[event.message_id] = event.refs
            case ev.PlanUpdated():
                if event.entries is None:
                    self.plans.pop(event.plan_id, None)
                else:
                    self.plans[event.plan_id] = event.entries
            case ev.UsageUpdated():
                self.usage = Usage(event.used, event.size, event.cost)
            case ev.ModesUpdated():
                self.mode = event.mode
                if event.modes is not None:
                    self.modes = event.modes
            case ev.ConfigUpdated():
                self.config = event.options
            case ev.CommandsUpdated():
                self.commands = event.commands
            case ev.ChildUpdated():
                self.children[event.child.session_id] = event.child
            case _:
                pass  # the inbox's, the turn's or the requests' (state.py); nothing that was said

    def _add(self, step_id: StepId, part: Part) -> None:
        item = self.step(step_id)
        if item is not None:
            item.parts.append(part)

    def _replace(self, event: ev.MessageReplaced) -> None:
        dropped = set(event.dropped)
        for item in self.items:
            if isinstance(item, StepItem):
                fresh: list[Part] = []
                for part in item.parts:
                    if part.part_id not in dropped:
                        fresh.append(part)
                item.parts = fresh
        for index, new in enumerate(event.parts):
            item_ = self.step(new.step_id)
            if item_ is None:
                continue
            part_: Part
            if new.block is None:
                part_ = TextPart(
                    new.part_id,
                    event.message_id,
                    new.step_id,
                    item_.step.turn_id,
                    event.role,
                    new.created,
                    [new.text],
                    ended=new.created,
                    first=index == 0,
                    ordinal=index + 1,
                )
            else:
                part_ = BlockPart(
                    new.part_id,
                    event.message_id,
                    new.step_id,
                    item_.step.turn_id,
                    event.role,
                    new.created,
                    new.block,
                    first=index == 0,
                    ordinal=index + 1,
                )
            at = next((i for i, p in enumerate(item_.parts) if p.part_id > new.part_id), len(item_.parts))
            item_.parts.insert(at, part_)


def link(mine: Refs | None, theirs: Refs | None, my_id: str, their_id: str, outgoing: bool) -> bool:
    """Whether two views of one message between sessions belong together (never by equal ids).

    ``mine`` is the view at hand, ``outgoing`` whether it is the sender's. One reference is enough; when both are
    there they must name each other, and a conflict unlinks. Source: ACP, subagents RFD, message references.
    """
    if mine is None or theirs is None:
        return False
    forward = mine.recipient_message if outgoing else mine.sender_message
    backward = theirs.sender_message if outgoing else theirs.recipient_message
    if forward and backward:
        return forward == their_id and backward == my_id
    return (bool(forward) and forward == their_id) or (bool(backward) and backward == my_id)
