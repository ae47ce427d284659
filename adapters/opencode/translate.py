"""Events of the core → what OpenCode's streams say. Pure, and without memory: an event is all that an encoder has.

Clients of this API keep messages sorted by ``time.created`` and id, and stop for good at a ``message.removed`` of a
session of which they hold no message. So a message is moved by a burst: a guard (any ``message.updated`` of that
session), ``message.removed`` until no copy can be left, ``message.updated`` and all its parts.
"""

from typing import Any

import msgspec
from msgspec import UNSET

from adapters.opencode import translate_requests as requests
from adapters.opencode.translate_messages import Lookup, Messages
from adapters.opencode.wire import ErrorBody, Event, MessageTime, ModelRef, Todo, User
from gateway.core import events as ev
from gateway.core.model import Accepted, Error, Outcome, Pending, Request, RequestKind, SessionInfo, UserMessage

ABORTED = {"name": "MessageAbortedError", "data": {"message": "Aborted"}}


class Translator:
    """``default_agent``: what a session that is not bound yet is shown with. ``lookup``: for what events do not say; it
    must tell the same of an event whenever it is asked, or newer.
    """

    def __init__(self, default_agent: str, lookup: Lookup | None = None) -> None:
        self.messages = Messages(default_agent, lookup)

    def encode(self, record: ev.Record, info: SessionInfo, pending: Pending | None) -> list[Event]:
        """``info``: the session right after the event. ``pending``: the message that the event is about, if it waits
        (after the event), or waited until now.
        """
        sid, at, event = record.session_id, record.at, record.event
        match event:
            case ev.TextDelta():
                return [delta(sid, event)]
            case ev.SessionCreated():
                # the terminal client inserts sessions on session.updated only
                session = {"sessionID": sid, "info": self.messages.session(event.info)}
                return [Event("session.created", session), Event("session.updated", session)]
            case ev.SessionUpdated():
                return [Event("session.updated", {"sessionID": sid, "info": self.messages.session(event.info)})]
            case ev.SessionDeleted():
                return [Event("session.deleted", {"sessionID": sid, "info": self.messages.session(event.info)})]
            case ev.MessageAdmitted():
                return [*self._shown(info, event.message, at), waiting(sid, event.message)]
            case ev.PendingReplaced() if pending is not None:
                message = msgspec.structs.replace(
                    pending, content=event.content, part_ids=event.part_ids, created=event.created
                )
                parts_gone = [part_removed(sid, message.ascending_id, part_id) for part_id in event.dropped]
                return [*self._moved(info, message, at, guard=True), *parts_gone, waiting(sid, message)]
            case ev.MessagePlaced() if pending is not None:
                # StepStarted or MessageDelivered right before it is the guard
                return self._moved(info, msgspec.structs.replace(pending, created=event.created), at)
            case ev.MessageDelivered():
                if event.message.how in ("imported", "command"):  # never pending
                    return self._shown(info, event.message, at)
                return [*self._moved(info, event.message, at, guard=True), settled(sid, event.message, "delivered")]
            case ev.MessageRevoked():
                user = User(event.ascending_id, sid, MessageTime(at), self.messages.mode(info.mode), self._model(info))
                gone = {"sessionID": sid, "messageID": event.ascending_id}
                return [
                    Event("message.updated", {"sessionID": sid, "info": user}),
                    *[Event("message.removed", gone)] * 2,
                    Event("message.pending.updated", {**gone, "state": "revoked", "uncertain": event.uncertain}),
                ]
            case (
                ev.MessagePromoted()
                | ev.MessageDemoted()
                | ev.MessageHeld()
                | ev.MessageReleased()
                | ev.MessageReturned()
                | ev.QuestionRefused()
                | ev.QuestionAsked()
            ):
                return [waiting(sid, pending)] if pending is not None else []
            case ev.TurnStarted():
                return [status(sid, "busy")]
            case ev.TurnEnded():
                error = self._turn_error(info, event.outcome, event.error)
                failed = [Event("session.error", {"sessionID": sid, "error": error})] if error else []
                changes = self.messages.changes(sid, event.turn_id)
                diff = [Event("session.diff", {"sessionID": sid, "diff": changes})] if changes else []
                # Between two turns it is not idle: clients that wait for their own answer would leave.
                rest = [] if event.more else [status(sid, "idle"), Event("session.idle", {"sessionID": sid})]
                return [*failed, *diff, *rest]
            case ev.AgentStateChanged(state="starting"):
                return [status(sid, "busy")]  # a message waits for it
            case ev.AgentStateChanged(state="ready", idle=True):
                return [status(sid, "idle"), Event("session.idle", {"sessionID": sid})]
            case ev.AgentStateChanged(state="absent", before="starting"):
                error = self._turn_error(info, "error", event.error) if event.error else None
                failed = [Event("session.error", {"sessionID": sid, "error": error})] if error else []
                return [*failed, status(sid, "idle"), Event("session.idle", {"sessionID": sid})]
            case ev.StepStarted():
                return [
                    self._message(sid, self.messages.assistant(info, event.step)),
                    part_updated(sid, self.messages.step_start(sid, event.step), at),
                ]
            case ev.StepEnded():
                finish = self.messages.step_finish(sid, event.step)
                return [
                    *([part_updated(sid, finish, at)] if finish is not None else []),
                    self._message(sid, self.messages.assistant(info, event.step)),
                ]
            case ev.PartOpened():
                part = self.messages.text(
                    sid, event.part_id, event.message_id, event.step_id, event.role, "", event.created, None
                )
                return [part_updated(sid, part, at)]
            case ev.PartEnded():
                part = self.messages.text(
                    sid,
                    event.part_id,
                    event.message_id,
                    event.step_id,
                    event.role,
                    event.text,
                    event.created,
                    event.ended,
                )
                return [part_updated(sid, part, at)]
            case ev.BlockAdded():
                part = self.messages.block(
                    sid, event.part_id, event.message_id, event.step_id, event.role, event.created, event.block
                )
                return [part_updated(sid, part, at)]
            case ev.MessageReplaced():
                return self._replaced(sid, event, at)
            case ev.ToolUpdated():
                return [part_updated(sid, self.messages.tool(sid, event.call), at)]
            case ev.ChildUpdated():
                return [part_updated(sid, part, at) for part in self.messages.tasks(sid, event.child)]
            case ev.RequestOpened():
                return [self.asked(event.request, sid)]
            case ev.RequestSettled():
                return [] if event.rule else [answered(sid, event)]  # a rule's is told with the tool: no dialog
            case ev.AgentUpdated(kind="notice", raw=raw):
                told = notice(raw)
                error = ErrorBody("UnknownError", {"message": told}) if told else None
                return [Event("session.error", {"sessionID": sid, "error": error})] if error else []
            case ev.PlanUpdated():
                return [Event("todo.updated", {"sessionID": sid, "todos": todos(event.entries)})]
            case _:
                return []  # nothing that this API has a word for

    def asked(self, request: Request, session_id: str) -> Event:
        if request.kind == "permission":
            return Event("permission.asked", requests.permission(request, session_id))
        return Event("question.asked", requests.question(request, session_id))

    def shown(self, info: SessionInfo, message: UserMessage | Pending) -> list[Event]:
        """A user's message as it is shown the first time, or again."""
        return self._shown(info, message, message.created)

    # --- parts of the above --------------------------------------------------------------------------------------

    def _model(self, info: SessionInfo) -> ModelRef:
        return ModelRef(self.messages.provider(info.agent), self.messages.model(info.model))

    def _message(self, session_id: str, message: Any) -> Event:
        return Event("message.updated", {"sessionID": session_id, "info": message})

    def _shown(self, info: SessionInfo, message: UserMessage | Pending, at: int) -> list[Event]:
        user, parts = self.messages.user(info, message)
        return [self._message(info.id, user), *[part_updated(info.id, part, at) for part in parts]]

    def _moved(self, info: SessionInfo, message: UserMessage | Pending, at: int, guard: bool = False) -> list[Event]:
        """Shown anew in another place. The guard itself may be a second copy: two removals."""
        shown = self._shown(info, message, at)
        gone = Event("message.removed", {"sessionID": info.id, "messageID": message.ascending_id})
        return [*([shown[0], gone] if guard else []), gone, *shown]

    def _turn_error(self, info: SessionInfo, outcome: Outcome, error: Error | None) -> Any:
        return self.messages.error(info.agent, outcome, error)

    def _replaced(self, session_id: str, event: ev.MessageReplaced, at: int) -> list[Event]:
        kept = {part.part_id for part in event.parts}
        frames = []
        for part in event.parts:
            if part.block is None:
                wire = self.messages.text(
                    session_id,
                    part.part_id,
                    event.message_id,
                    part.step_id,
                    event.role,
                    part.text,
                    part.created,
                    part.created,
                )
            else:
                wire = self.messages.block(
                    session_id, part.part_id, event.message_id, part.step_id, event.role, part.created, part.block
                )
            frames.append(part_updated(session_id, wire, at))
        for part_id, step_id in zip(event.dropped, event.dropped_steps, strict=True):
            if part_id not in kept:
                frames.append(part_removed(session_id, step_id, part_id))
        return frames


# --- single frames ---------------------------------------------------------------------------------------------------


def delta(session_id: str, event: ev.TextDelta) -> Event:
    properties = {
        "sessionID": session_id,
        "messageID": event.step_id,
        "partID": event.part_id,
        "field": "text",
        "delta": event.text,
    }
    return Event("message.part.delta", properties)


def part_updated(session_id: str, part: Any, at: int) -> Event:
    return Event("message.part.updated", {"sessionID": session_id, "part": part, "time": at})


def part_removed(session_id: str, message_id: str, part_id: str) -> Event:
    return Event("message.part.removed", {"sessionID": session_id, "messageID": message_id, "partID": part_id})


def status(session_id: str, kind: str) -> Event:
    return Event("session.status", {"sessionID": session_id, "status": {"type": kind}})


def waiting(session_id: str, message: Pending) -> Event:
    """Ours: a message that is not delivered, and why. Clients ignore types that they do not know."""
    properties = {
        "sessionID": session_id,
        "messageID": message.ascending_id,
        "state": message.state,
        "delivery": message.lane,
        "held": message.held or UNSET,
        "uncertain": message.uncertain or UNSET,
    }
    return Event("message.pending.updated", {k: v for k, v in properties.items() if v is not UNSET})


def settled(session_id: str, message: UserMessage, state: str) -> Event:
    properties = {
        "sessionID": session_id,
        "messageID": message.ascending_id,
        "state": state,
        "delivery": message.lane,
        "how": message.how,
    }
    return Event("message.pending.updated", properties)


def answered(session_id: str, event: ev.RequestSettled) -> Event:
    kind: RequestKind | str = event.kind
    body: dict[str, Any] = {"sessionID": session_id, "requestID": event.request_id}
    if kind == "permission":
        return Event("permission.replied", {**body, "reply": requests.reply_of(event.outcome, event.option_kind)})
    if isinstance(event.outcome, Accepted):
        return Event("question.replied", {**body, "answers": requests.labels(event.outcome)})
    return Event("question.rejected", body)


def notice(raw: Any) -> str:
    """What a notice of the gateway's own (a message of the agent that was dropped) tells; else nothing."""
    meta = raw.get("_meta") if isinstance(raw, dict) else None
    ours = meta.get("trunkline") if isinstance(meta, dict) else None
    known = isinstance(ours, dict) and ours.get("code") == "message_too_large"
    return str(raw.get("title") or "") if known else ""


def todos(entries: Any) -> list[Todo]:
    """A plan's entries; what an entry lacks is filled with the plainest value."""
    found = []
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict):
            found.append(
                Todo(
                    str(entry.get("content") or ""),
                    str(entry.get("status") or "pending"),
                    str(entry.get("priority") or "medium"),
                )
            )
    return found
