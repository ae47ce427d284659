"""Events of the core → events of AG-UI. Pure. One encoder a stream: it remembers what is open on its wire, no more.

Everything that it opens it closes (``close``), since a run must not end while something is open, and no id is opened
twice but to go on with what a snapshot has shown (``reopen``).
"""

from collections.abc import Iterable
from typing import assert_never

import msgspec

from adapters.agui import translate_state as state
from adapters.agui import translate_tools as tools
from adapters.agui import wire
from adapters.agui.translate_content import plain, words
from adapters.agui.translate_messages import BLOCK, PLAN
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
from adapters.agui.wire import Json
from gateway.core import events as ev
from gateway.core.content import Text
from gateway.core.ids import SessionId
from gateway.core.model import TOOL_DONE, Pending, Role, SessionInfo, ToolCall, UserMessage
from gateway.core.transcript import TextPart


class OpenText(msgspec.Struct, frozen=True):
    part_id: str
    name: str
    role: Role


class Encoder:
    """``modern``: the client speaks 1.0, so it knows subagents. ``root_id``: any other session is a subagent's."""

    def __init__(self, root_id: SessionId, modern: bool) -> None:
        self.root_id = root_id
        self.modern = modern
        self.texts: dict[SessionId, OpenText] = {}  # open on the wire: at most one a session
        self.args: dict[str, tuple[ToolCall, SessionId | None]] = {}  # calls whose arguments are still open
        self.shown: dict[str, dict[str, Json]] = {}  # activities of calls that are not done, as the client has them
        self.subagents: dict[SessionId, bool] = {}  # started in this run; True while open
        self.names: dict[str, str] = {}  # ids of parts that were opened before this stream began

    # --- one event ---------------------------------------------------------------------------------------------------

    def encode(self, record: ev.Record, info: SessionInfo, pending: Pending | None) -> list[wire.Event]:
        event = record.event
        child = record.session_id if record.session_id != self.root_id else None
        out: list[wire.Event] = []
        match event:
            case ev.TextDelta():
                text = self._continued(out, event, record.session_id, info)
                self._say(out, text, event.text, self._tag(child))
            case ev.PartOpened():
                self._begin(out, child, info)
                name = part_name(event.role, event.message_id, event.ordinal, child)
                self._open(out, record.session_id, OpenText(event.part_id, name, event.role))
            case ev.PartEnded():
                mine = self.texts.get(record.session_id)
                if mine is not None and mine.part_id == event.part_id:
                    self._end(out, record.session_id)
            case ev.BlockAdded():
                self._begin(out, child, info)
                self._block(out, event, record.session_id, child)
            case ev.ToolUpdated():
                self._begin(out, child, info)
                self._tool(out, event, record.session_id, child)
            case ev.MessageDelivered():
                out += self.user(event.message, record.session_id)
                out += self._state(event, info, pending, child)
            case ev.PlanUpdated():
                self._begin(out, child, info)
                name = plan_name(event.plan_id, child)
                content = {"entries": event.entries or []}
                out.append(
                    wire.ActivitySnapshot(
                        message_id=name, activity_type=PLAN, content=content, subagent_run_id=self._tag(child)
                    )
                )
            case ev.RequestOpened():
                for name, (call, _) in list(self.args.items()):
                    if call.call_id == event.request.call_id:
                        self._complete(out, name)
            case ev.RequestSettled():
                value = {"id": event.request_id, "kind": event.kind, "outcome": msgspec.to_builtins(event.outcome)}
                if event.rule:
                    value["rule"] = event.rule
                out.append(self._custom("request_settled", value, child))
            case ev.ChildUpdated():
                if event.first and self.modern and event.child.session_id not in self.subagents:
                    nested = record.session_id if child is not None else None
                    self.start_subagent(out, event.child.session_id, event.child.title, event.child.description, nested)
            case ev.TurnEnded() if child is not None:
                self._end(out, child)
                self._finish_subagent(out, child, event)
            case ev.MessageRefs():
                refs = {
                    "senderSessionId": event.refs.sender_session,
                    "recipientSessionId": event.refs.recipient_session,
                    "senderMessageId": event.refs.sender_message,
                    "recipientMessageId": event.refs.recipient_message,
                }
                value = {"messageId": event.message_id} | {key: each for key, each in refs.items() if each}
                out.append(self._custom("message_refs", value, child))
            case ev.AgentUpdated():
                out.append(self._custom(event.kind, event.raw, child))
            case ev.AgentStateChanged():
                value = {"state": event.state}
                if event.error is not None:
                    value |= {"code": event.error.code, "message": event.error.message}
                out.append(self._custom("agent_state", value, child))
            case (
                ev.SessionUpdated()
                | ev.ModesUpdated()
                | ev.ConfigUpdated()
                | ev.CommandsUpdated()
                | ev.UsageUpdated()
                | ev.MessageAdmitted()
                | ev.MessageRevoked()
                | ev.PendingReplaced()
                | ev.MessagePromoted()
                | ev.MessageDemoted()
                | ev.MessageHeld()
                | ev.MessageReleased()
                | ev.MessageReturned()
                | ev.MessagesOffered()
            ):
                out += self._state(event, info, pending, child)
            case (
                ev.SessionCreated()
                | ev.SessionDeleted()
                | ev.MessagePlaced()
                | ev.MessageAliased()
                | ev.QuestionAsked()
                | ev.QuestionRefused()
                | ev.AbortAsked()
                | ev.TurnStarted()
                | ev.TurnCancelling()
                | ev.TurnEnded()
                | ev.StepStarted()
                | ev.StepEnded()
                | ev.BackgroundUpdated()
                | ev.MessageReplaced()  # a snapshot says it: ``translate_run``
                | ev.OfferAccepted()
                | ev.AgentWorking()
            ):
                pass
            case _:
                assert_never(event)
        return out

    def state(self, record: ev.Record, info: SessionInfo, pending: Pending | None) -> list[wire.Event]:
        """Only what the event changes in the state: for a stream whose turn has not come yet."""
        return self._state(
            record.event, info, pending, None if record.session_id == self.root_id else record.session_id
        )

    def _state(
        self, event: ev.Event, info: SessionInfo, pending: Pending | None, child: SessionId | None
    ) -> list[wire.Event]:
        ops = [] if child is not None else state.delta(event, info, pending)
        return [wire.StateDelta(delta=ops)] if ops else []

    def _custom(self, name: str, value: Json, child: SessionId | None) -> wire.Custom:
        return wire.Custom(name=f"acp.{name}", value=value, subagent_run_id=self._tag(child))

    def _tag(self, child: SessionId | None) -> str | None:
        return child if self.modern else None

    # --- text --------------------------------------------------------------------------------------------------------

    def _continued(
        self, out: list[wire.Event], event: ev.TextDelta, session_id: SessionId, info: SessionInfo
    ) -> OpenText:
        """The open text that a delta goes on with; opened once more if it was begun before this stream."""
        mine = self.texts.get(session_id)
        if mine is not None and mine.part_id == event.part_id:
            return mine
        child = session_id if session_id != self.root_id else None
        self._begin(out, child, info)
        name = self.names.get(event.part_id) or part_name(event.role, event.message_id, 1, child)
        return self._open(out, session_id, OpenText(event.part_id, name, event.role))

    def _open(self, out: list[wire.Event], session_id: SessionId, text: OpenText) -> OpenText:
        self._end(out, session_id)
        self.texts[session_id] = text
        tag = self._tag(session_id if session_id != self.root_id else None)
        if text.role == "thought":
            out.append(wire.ReasoningStart(message_id=text.name, subagent_run_id=tag))
            out.append(wire.ReasoningMessageStart(message_id=text.name, role="reasoning", subagent_run_id=tag))
        else:
            out.append(wire.TextStart(message_id=text.name, role="assistant", subagent_run_id=tag))
        return text

    def _say(self, out: list[wire.Event], text: OpenText, words: str, tag: str | None) -> None:
        kind = wire.ReasoningContent if text.role == "thought" else wire.TextContent
        out += [kind(message_id=text.name, delta=piece, subagent_run_id=tag) for piece in wire.pieces(words)]

    def _end(self, out: list[wire.Event], session_id: SessionId) -> None:
        text = self.texts.pop(session_id, None)
        if text is None:
            return
        tag = self._tag(session_id if session_id != self.root_id else None)
        if text.role == "thought":
            out.append(wire.ReasoningMessageEnd(message_id=text.name, subagent_run_id=tag))
            out.append(wire.ReasoningEnd(message_id=text.name, subagent_run_id=tag))
        else:
            out.append(wire.TextEnd(message_id=text.name, subagent_run_id=tag))

    def _block(
        self, out: list[wire.Event], event: ev.BlockAdded, session_id: SessionId, child: SessionId | None
    ) -> None:
        if isinstance(event.block, Text):
            text = OpenText(event.part_id, part_name(event.role, event.message_id, event.ordinal, child), event.role)
            self._open(out, session_id, text)
            self._say(out, text, event.block.text, self._tag(child))
            self._end(out, session_id)
            return
        out.append(
            wire.ActivitySnapshot(
                message_id=block_name(event.part_id, child),
                activity_type=BLOCK,
                content=plain(event.block),
                subagent_run_id=self._tag(child),
            )
        )

    def user(self, message: UserMessage, session_id: SessionId) -> list[wire.Event]:
        """A message of somebody else that the agent got: in the place where it got it."""
        child = session_id if session_id != self.root_id else None
        out: list[wire.Event] = []
        self._end(out, session_id)
        name, tag = user_name(message, child), self._tag(child)
        metadata: dict[str, Json] | None = {"delivery": "steered"} if message.how == "injected" else None
        out.append(wire.TextStart(message_id=name, role="user", metadata=metadata, subagent_run_id=tag))
        self._say(out, OpenText("", name, "agent"), words(message.content), tag)
        out.append(wire.TextEnd(message_id=name, subagent_run_id=tag))
        return out

    # --- tools -------------------------------------------------------------------------------------------------------

    def _tool(
        self, out: list[wire.Event], event: ev.ToolUpdated, session_id: SessionId, child: SessionId | None
    ) -> None:
        call = event.call
        name, tag = tool_id(call, child), self._tag(child)
        if event.first:
            self._end(out, session_id)
            self._start(out, call, child)
        elif name in self.args:
            self.args[name] = (call, child)
        if name in self.args and tools.settled(call):
            self._complete(out, name)
        content = tools.activity(call, child)
        before = self.shown.pop(name, None)
        if before is None:
            out.append(
                wire.ActivitySnapshot(
                    message_id=activity_name(name), activity_type=tools.ACTIVITY, content=content, subagent_run_id=tag
                )
            )
        elif patch := tools.patch(before, content):
            out.append(
                wire.ActivityDelta(
                    message_id=activity_name(name), activity_type=tools.ACTIVITY, patch=patch, subagent_run_id=tag
                )
            )
        if call.status not in TOOL_DONE:
            self.shown[name] = content
        if event.result:
            self._complete(out, name)
            out.append(
                wire.ToolResult(
                    message_id=result_name(name),
                    tool_call_id=name,
                    content=tools.result_of(call),
                    metadata={"acp": {"status": call.status}},
                    subagent_run_id=tag,
                )
            )

    def _start(self, out: list[wire.Event], call: ToolCall, child: SessionId | None) -> None:
        name = tool_id(call, child)
        out.append(
            wire.ToolStart(
                tool_call_id=name,
                tool_call_name=tools.name_of(call),
                parent_message_id=scoped(call.step_id, child),
                metadata=tools.metadata_of(call),
                subagent_run_id=self._tag(child),
            )
        )
        self.args[name] = (call, child)

    def _complete(self, out: list[wire.Event], name: str) -> None:
        """The arguments of a call are whole: what was told of them when it began to work, or was asked for."""
        found = self.args.pop(name, None)
        if found is None:
            return
        call, child = found
        tag = self._tag(child)
        for piece in wire.pieces(tools.arguments(call)):
            out.append(wire.ToolArgs(tool_call_id=name, delta=piece, subagent_run_id=tag))
        out.append(wire.ToolEnd(tool_call_id=name, subagent_run_id=tag))

    # --- subagents ---------------------------------------------------------------------------------------------------

    def _begin(self, out: list[wire.Event], child: SessionId | None, info: SessionInfo) -> None:
        """What a subagent does comes after its start."""
        if child is not None and self.modern and child not in self.subagents:
            parent = info.parent_id if info.parent_id != self.root_id else None
            self.start_subagent(out, child, info.title, info.description, parent)

    def start_subagent(
        self, out: list[wire.Event], child: SessionId, title: str, description: str, parent: SessionId | None
    ) -> None:
        self.subagents[child] = True
        out.append(
            wire.SubagentStarted(
                subagent_run_id=child,
                name=title or "subagent",
                description=description or None,
                parent_subagent_run_id=parent,
            )
        )

    def _finish_subagent(self, out: list[wire.Event], child: SessionId, event: ev.TurnEnded) -> None:
        if not self.subagents.get(child):
            return
        self.subagents[child] = False
        if event.error is not None:
            out.append(wire.SubagentError(subagent_run_id=child, message=event.error.message))
        else:
            out.append(wire.SubagentFinished(subagent_run_id=child))

    # --- what is open ------------------------------------------------------------------------------------------------

    def pause(self) -> list[wire.Event]:
        """Close texts and arguments: a snapshot comes next, and says how they stand."""
        out: list[wire.Event] = []
        for session_id in list(self.texts):
            self._end(out, session_id)
        for name in list(self.args):
            self._complete(out, name)
        self.shown.clear()
        return out

    def close(self, suspended: bool = False) -> list[wire.Event]:
        """Close everything: the run ends."""
        out = self.pause()
        for child in reversed([child for child, is_open in self.subagents.items() if is_open]):
            outcome = {"type": "suspended"} if suspended else None
            out.append(wire.SubagentFinished(subagent_run_id=child, outcome=outcome))
        self.subagents.clear()  # another run may name them again
        return out

    def reopen(
        self, session_id: SessionId, info: SessionInfo, texts: Iterable[TextPart], calls: Iterable[ToolCall]
    ) -> list[wire.Event]:
        """After a snapshot: begin what it shows unfinished once more, so that what comes is appended to it."""
        child = session_id if session_id != self.root_id else None
        out: list[wire.Event] = []
        for part in texts:
            self._begin(out, child, info)
            name = part_name(part.role, part.message_id, part.ordinal, child)
            self._open(out, session_id, OpenText(part.part_id, name, part.role))
        for call in calls:
            self._begin(out, child, info)
            if not tools.settled(call):
                self._start(out, call, child)
            self.shown[tool_id(call, child)] = tools.activity(call, child)
        return out
