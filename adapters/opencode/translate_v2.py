"""Events of the core → what the streams of OpenCode's API version 2 say. Pure, and without memory.

An event of the core that is stored becomes none, one or several durable events here, and each of them needs a number
of its own, so that a client goes on right after any of them. The number is the ``seq`` of the core's event times
``STRIDE``, and the place in it: it rises, has gaps (as the real server's has), and says which event of the core it is.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from adapters.opencode import translate_requests as requests
from adapters.opencode import translate_v2_messages as shapes
from adapters.opencode.translate import notice, todos
from adapters.opencode.translate_messages import BROKEN, Messages
from adapters.opencode.translate_v2_messages import MessagesV2
from gateway.core import events as ev
from gateway.core.ids import BASE62, event_id
from gateway.core.model import TOOL_DONE, Accepted, Request, Role, Step, ToolCall

STRIDE = 1_000_000
_TIME = (1 << 48) - 1


class Told(NamedTuple):
    """One event. ``version`` 0: it is not durable."""

    type: str
    data: dict[str, Any]
    version: int = 0


Ascending = Callable[[str], str]
"""A user message's id → its id on this wire."""


class TranslatorV2:
    def __init__(self, names: Messages) -> None:
        self.messages = MessagesV2(names)
        self._names = names

    def encode(self, record: ev.Record, ascending: Ascending) -> list[Told]:
        """All that is said of an event, on ``/api/event``."""
        sid, event = record.session_id, record.event
        match event:
            case ev.TextDelta():
                kind, key = _text(event.role)
                data = {"assistantMessageID": event.step_id, key: event.part_id, "delta": event.text}
                return [Told(f"session.next.{kind}.delta", _data(record, data))]
            case ev.SessionCreated() | ev.SessionUpdated() | ev.SessionDeleted():
                kind = type(event).__name__.removeprefix("Session").lower()
                session = self._names.session(event.info)
                return [Told(f"session.{kind}", {"sessionID": sid, "info": session}, 1)]
            case ev.RequestOpened():
                return [asked(sid, event.request)]
            case ev.RequestSettled():
                return [] if event.rule else [answered(sid, event)]
            case ev.AgentUpdated(kind="notice", raw=raw):
                said = notice(raw)
                told = {"sessionID": sid, "error": {"name": "UnknownError", "data": {"message": said}}}
                return [Told("session.error", told)] if said else []
            case ev.PlanUpdated():
                return [Told("todo.updated", {"sessionID": sid, "todos": todos(event.entries)})]
            case ev.TurnStarted() | ev.AgentStateChanged(state="starting"):
                return [Told("session.status", {"sessionID": sid, "status": {"type": "busy"}})]
            case ev.TurnEnded(more=True):
                return []
            case ev.TurnEnded() | ev.AgentStateChanged(state="ready", idle=True):
                return self._idle(sid)
            case ev.AgentStateChanged(state="absent", before="starting"):
                error = self._names.error("", "error", event.error) if event.error else None
                failed = [Told("session.error", {"sessionID": sid, "error": error})] if error else []
                return [*failed, *self._idle(sid)]
        return self.durable(record, ascending)

    def _idle(self, sid: str) -> list[Told]:
        return [
            Told("session.status", {"sessionID": sid, "status": {"type": "idle"}}),
            Told("session.idle", {"sessionID": sid}),
        ]

    def durable(self, record: ev.Record, ascending: Ascending) -> list[Told]:
        """What is in the history. Nothing but the record (and ids) decides it: replayed is the same as live."""
        told = [
            Told(f"session.next.{kind}", _data(record, data), version)
            for kind, data, version in self._next(record.event, ascending)
        ]
        return told[:STRIDE]

    def _next(self, event: ev.Event, ascending: Ascending) -> list[tuple[str, dict[str, Any], int]]:
        match event:
            case ev.MessageAdmitted(message=message):
                told = {"messageID": message.ascending_id, "prompt": shapes.prompt(message.content)}
                return [("prompt.admitted", {**told, "delivery": message.lane}, 1)]
            case ev.MessageDelivered(message=user):
                told = {"messageID": user.ascending_id, "prompt": shapes.prompt(user.content), "delivery": user.lane}
                return [("prompted", told, 1)]
            case ev.StepStarted(step=step):
                names = {"agent": self._names.mode(step.mode), "model": self.messages.model(step.agent, step.model)}
                return [("step.started", {"assistantMessageID": step.id, **names}, 1)]
            case ev.StepEnded(step=step):
                return [_end(step)]
            case ev.PartOpened():
                kind, key = _text(event.role)
                return [(f"{kind}.started", {"assistantMessageID": event.step_id, key: event.part_id}, 1)]
            case ev.PartEnded():
                return [_said(event.role, event.step_id, event.part_id, event.text)]
            case ev.BlockAdded():
                return _whole(event.role, event.step_id, event.part_id, shapes.block_text(event.block))
            case ev.MessageReplaced():
                return _replaced(event)
            case ev.ToolUpdated():
                return _tool(event)
            case _:
                return _pending(event, ascending)


# --- parts of the above ----------------------------------------------------------------------------------------------

_Next = tuple[str, dict[str, Any], int]


def _data(record: ev.Record, data: dict[str, Any]) -> dict[str, Any]:
    return {"timestamp": record.at, "sessionID": record.session_id, **data}


def _text(role: Role) -> tuple[str, str]:
    return ("reasoning", "reasoningID") if role == "thought" else ("text", "textID")


def _said(role: Role, step_id: str, part_id: str, said: str) -> _Next:
    kind, key = _text(role)
    return (f"{kind}.ended", {"assistantMessageID": step_id, key: part_id, "text": said}, 1)


def _whole(role: Role, step_id: str, part_id: str, said: str) -> list[_Next]:
    kind, key = _text(role)
    started = (f"{kind}.started", {"assistantMessageID": step_id, key: part_id}, 1)
    return [started, _said(role, step_id, part_id, said)]


def _replaced(event: ev.MessageReplaced) -> list[_Next]:
    """A part that is gone has an empty text: this wire has no word for its removal."""
    told: list[_Next] = []
    for part in event.parts:
        said = part.text if part.block is None else shapes.block_text(part.block)
        if part.part_id in event.dropped:
            told.append(_said(event.role, part.step_id, part.part_id, said))
        else:
            told += _whole(event.role, part.step_id, part.part_id, said)
    kept = {part.part_id for part in event.parts}
    gone = [pair for pair in zip(event.dropped, event.dropped_steps, strict=True) if pair[0] not in kept]
    return told + [_said(event.role, step_id, part_id, "") for part_id, step_id in gone]


def _end(step: Step) -> _Next:
    which = {"assistantMessageID": step.id}
    if step.outcome in BROKEN:
        return ("step.failed", {**which, "error": shapes.failure(step.outcome, step.error)}, 2)
    return ("step.ended", {**which, **shapes.ended(step)}, 2)


def _tool(event: ev.ToolUpdated) -> list[_Next]:
    call = event.call
    name, given = shapes.named(call)
    which = {"assistantMessageID": call.step_id, "callID": call.call_id}
    provider = {"executed": False}
    told: list[_Next] = []
    if event.first:
        told.append(("tool.input.started", {**which, "name": name}, 1))
    if event.called or _again(call):
        told.append(("tool.input.ended", {**which, "text": msgspec.json.encode(given).decode()}, 1))
        told.append(("tool.called", {**which, "tool": name, "input": given, "provider": provider}, 1))
    if call.status == "completed":
        told.append(("tool.success", {**which, **shapes.result(call), "provider": provider}, 1))
    elif call.status in TOOL_DONE:
        told.append(("tool.failed", {**which, "error": shapes.tool_error(call), "provider": provider}, 1))
    elif call.called and not (event.called and not shapes.result(call)["content"]):
        told.append(("tool.progress", {**which, **shapes.result(call)}, 1))
    return told


def _again(call: ToolCall) -> bool:
    """It works again, after it had ended."""
    return call.told and call.status not in TOOL_DONE


def _pending(event: ev.Event, ascending: Ascending) -> list[_Next]:
    """Ours: what becomes of a message that is not delivered. Each event says what it changes."""
    told: list[tuple[str, dict[str, Any]]] = []
    match event:
        case ev.PendingReplaced():
            told = [(event.message_id, {"change": "replaced", "prompt": shapes.prompt(event.content)})]
        case ev.MessagePromoted():
            told = [(event.message_id, {"change": "promoted", "delivery": "steer"})]
        case ev.MessageDemoted():
            told = [(event.message_id, {"change": "demoted", "delivery": "queue"})]
        case ev.MessageHeld():
            told = [(event.message_id, {"change": "held", "held": event.why})]
        case ev.MessageReleased():
            told = [(event.message_id, {"change": "released"})]
        case ev.MessagesOffered():
            told = [(message_id, {"change": "offered", "how": event.how}) for message_id in event.message_ids]
        case ev.MessageReturned():
            told = [(event.message_id, {"change": "returned", "why": event.why})]
            told[0][1].update({k: v for k, v in (("held", event.held), ("uncertain", event.uncertain)) if v})
        case ev.MessageRevoked():
            told = [(event.ascending_id, {"change": "revoked", "uncertain": event.uncertain})]
    return [("pending.updated", {"messageID": ascending(message_id), **data}, 1) for message_id, data in told]


# --- requests --------------------------------------------------------------------------------------------------------


def permission(session_id: str, request: Request) -> dict[str, Any]:
    old = requests.permission(request, session_id)
    found: dict[str, Any] = {
        "id": old.id,
        "sessionID": session_id,
        "action": old.permission,
        "resources": old.patterns,
        "metadata": old.metadata,
    }
    if old.always:
        found["save"] = old.always
    if not isinstance(old.tool, msgspec.UnsetType):
        found["source"] = {"type": "tool", "messageID": old.tool.messageID, "callID": old.tool.callID}
    return found


def question(session_id: str, request: Request) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(requests.question(request, session_id))
    return found


def asked(session_id: str, request: Request) -> Told:
    if request.kind == "permission":
        return Told("permission.v2.asked", permission(session_id, request))
    return Told("question.v2.asked", question(session_id, request))


def answered(session_id: str, event: ev.RequestSettled) -> Told:
    which = {"sessionID": session_id, "requestID": event.request_id}
    if event.kind == "permission":
        return Told("permission.v2.replied", {**which, "reply": requests.reply_of(event.outcome, event.option_kind)})
    if isinstance(event.outcome, Accepted):
        return Told("question.v2.replied", {**which, "answers": requests.labels(event.outcome)})
    return Told("question.v2.rejected", which)


# --- envelopes -------------------------------------------------------------------------------------------------------


def envelope(record: ev.Record, told: Told, index: int, position: int, directory: str = "") -> dict[str, Any]:
    """``index``: of the event in what the record became; ``position``: of the log, for what is not durable;
    ``directory``: named on ``/api/event``, and not in the history.
    """
    found: dict[str, Any] = {"type": told.type}
    if told.version:
        seq = record.seq * STRIDE + index
        found = {"id": durable_id(record, seq, index), **found}
        found["durable"] = {"aggregateID": record.session_id, "seq": seq, "version": told.version}
    else:
        found = {"id": event_id(record.at, position, index), **found}
    if directory:
        found["location"] = {"directory": directory}
    found["data"] = told.data
    return found


def durable_id(record: ev.Record, seq: int, index: int) -> str:
    """The same wherever and whenever the event is shown."""
    digest = blake2b(seq.to_bytes(12, "big"), key=record.session_id.encode()[:64], digest_size=11).digest()
    number, tail = int.from_bytes(digest, "big"), []
    for _ in range(14):
        number, digit = divmod(number, 62)
        tail.append(BASE62[digit])
    return f"evt_{(record.at * 4096 + min(index, 4095)) & _TIME:012x}{''.join(tail)}"
