"""What a reader of a stream is shown who has missed something, or everything: the recent sessions as they stand.

Real clients of this API send no cursor and fetch nothing again after a lost connection: what they missed is said once
more, in the protocol's own events. A snapshot is planned in one step, so that it is of exactly one position of the
log; a plan refers to what was said and copies no text, its events are made when somebody reads them.

It is limited by its bytes: of what is complete, the parts of large messages and of older ones are left out (clients
get them by GET). What is running is there with the whole of its open text, in pieces.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, assert_never

import msgspec

from adapters.opencode.translate import Translator, delta, part_updated, status, todos, waiting
from adapters.opencode.wire import Event, Message, MessageTime, ModelRef, User
from gateway.core.events import TextDelta
from gateway.core.ids import SessionId
from gateway.core.model import TOOL_DONE, Pending, Request, SessionInfo
from gateway.core.transcript import Item, Part, StepItem, TextPart, ToolPart, UserItem
from gateway.views import SessionView

SESSIONS = 20  # of those without a turn, a pending message or a request
MESSAGES = 200  # in all
MUCH, LITTLE = 50, 10  # of one session: an active one or the newest two; another
BYTES = 8 << 20  # of the content of complete messages in all, about
MESSAGE_BYTES = 1 << 20  # of a complete message, about
PIECE = 64 << 10  # characters of an open text in one frame
EVENT_BYTES = 1000  # of an event beside its text, estimated


class Unit(NamedTuple):
    """A few events of a snapshot. ``make`` gives the same ones each time."""

    info: SessionInfo
    make: Callable[[], list[Event]]
    weight: int = EVENT_BYTES


class Kept(NamedTuple):
    """A message as it stands now, whatever becomes of it. Not ``whole``: its parts are left out."""

    item: Item | Pending
    whole: bool
    weight: int
    opened: Sequence[tuple[TextPart, int]] = ()  # parts that grow, and how long they are now: a text only grows


class Ration:
    """How many bytes of complete messages there is room for."""

    def __init__(self) -> None:
        self.left = BYTES

    def take(self, value: object) -> int | None:
        """Its weight, if there is room."""
        limit = min(self.left, MESSAGE_BYTES)
        size = weight(value, limit)
        if size > limit:
            return None
        self.left -= size
        return size


def weight(value: object, limit: int) -> int:
    """About how long a value is as JSON, counted until it is over ``limit``."""
    total, found = 0, [value]
    while found and total <= limit:
        one = found.pop()
        total += 8
        if isinstance(one, str | bytes):
            total += len(one)
        elif isinstance(one, Mapping | list | tuple):
            total += 4 * len(one)
            if total <= limit:
                found.extend(one)
                if isinstance(one, Mapping):
                    found.extend(one.values())
        elif isinstance(one, msgspec.Struct):
            found.extend(getattr(one, name) for name in one.__struct_fields__)
    return total


# --- plans ---------------------------------------------------------------------------------------------------------


def recent(
    translator: Translator, views: Sequence[SessionView], deleted: Sequence[tuple[SessionId, str, int]]
) -> list[Unit]:
    """For a reader who may hold old copies. ``deleted``: sessions that it may still show: id, directory, time."""
    units = [_deleted(translator, *one) for one in deleted]
    ration, left, idle = Ration(), MESSAGES, 0
    for number, view in enumerate(views):
        if not is_active(view):
            idle += 1
            if idle > SESSIONS:
                continue
        share = min(left, MUCH if number < 2 or is_active(view) else LITTLE)
        kept = newest(view, share, ration)
        left -= len(kept)
        units.append(Unit(view.info, partial(_head, translator, view.info, kept[:1], view.revoked())))
        for one in kept:
            units += _message(translator, view.info, one, again=True)
        units.append(_tail(translator, view))
    return units


def opening(translator: Translator, views: Sequence[SessionView]) -> list[Unit]:
    """For a new reader of ``/event``: what is going on just now, and nothing that is over.

    ``opencode run --attach`` prints every finished text that it is sent and leaves at ``idle``: nothing of an earlier
    turn, and no ``idle``.
    """
    units: list[Unit] = []
    ration = Ration()
    for view in views:
        if view.busy:
            units.append(Unit(view.info, partial(_one, status(view.info.id, "busy"))))
            for one in newest(view, MUCH, ration, of_turn=True):
                units += _message(translator, view.info, one, again=False)
        if view.requests:
            units.append(Unit(view.info, partial(_requests, translator, view.info, view.requests)))
    return units


def is_active(view: SessionView) -> bool:
    return view.busy or bool(view.pending) or bool(view.requests)


def items(view: SessionView) -> list[Item | Pending]:
    """All messages in their order; pending ones last."""
    return [*view.transcript.items, *view.pending]


def newest(view: SessionView, limit: int, ration: Ration, of_turn: bool = False) -> list[Kept]:
    """The newest messages in their order, oldest first; pending ones last. ``of_turn``: of the open turn only."""
    if limit <= 0:
        return []
    found: list[Item | Pending] = [*view.transcript.items[-limit:], *view.pending][-limit:]
    if of_turn:
        found = [item for item in view.transcript.items[-limit:] if _turn(item) == view.turn_id]
    return [_keep(item, ration) for item in reversed(found)][::-1]


def place(item: Item | Pending) -> tuple[int, str]:
    """What clients sort by: the time and the id."""
    match item:
        case StepItem():
            return item.step.created, item.step.id
        case UserItem():
            return item.message.created, item.message.ascending_id
        case Pending():
            return item.created, item.ascending_id
        case _:
            assert_never(item)


def plan(view: SessionView) -> object:
    """The plan that is shown as the todo list: the unnamed one, else the last named."""
    plans = view.transcript.plans
    return plans.get("") or next(reversed(plans.values()), [])


def _turn(item: Item) -> str:
    return item.step.turn_id if isinstance(item, StepItem) else item.message.turn_id


def _keep(item: Item | Pending, ration: Ration) -> Kept:
    if not isinstance(item, StepItem):
        content = (item.message if isinstance(item, UserItem) else item).content
        size = ration.take(content)
        return Kept(item, size is not None, size or 0)
    if item.step.completed is not None:
        size = ration.take([_body(part) for part in item.parts])
        parts = [] if size is None else [_still(part) for part in item.parts]
        return Kept(StepItem(item.step, parts), size is not None, size or 0)
    opened: list[tuple[TextPart, int]] = []
    kept: list[Part] = []
    total = 0
    for part in reversed(item.parts):
        if isinstance(part, TextPart) and part.ended is None:
            opened.append((part, sum(map(len, part.chunks))))
            continue
        size = ration.take(_body(part))
        if size is not None or (isinstance(part, ToolPart) and part.call.status not in TOOL_DONE):
            kept.append(_still(part))
            total += size or 0
    return Kept(StepItem(item.step, kept[::-1]), True, total, opened)


def _body(part: Part) -> object:
    match part:
        case TextPart():
            return part.chunks
        case ToolPart():
            return part.call
        case _:
            return part.block


def _still(part: Part) -> Part:
    """A tool call changes in its place; what else is complete does not."""
    return ToolPart(part.call) if isinstance(part, ToolPart) else part


# --- events --------------------------------------------------------------------------------------------------------


def _one(event: Event) -> list[Event]:
    return [event]


def _deleted(translator: Translator, session_id: SessionId, cwd: str, at: int) -> Unit:
    info = SessionInfo(session_id, session_id, cwd, at, at)
    gone = {"sessionID": session_id, "info": translator.messages.session(info)}
    return Unit(info, partial(_one, Event("session.deleted", gone)))


def _head(translator: Translator, info: SessionInfo, first: Sequence[Kept], revoked: Sequence[str]) -> list[Event]:
    sid = info.id
    events = [Event("session.updated", {"sessionID": sid, "info": translator.messages.session(info)})]
    # the guard: see translate.py
    if first:
        events.append(Event("message.updated", {"sessionID": sid, "info": _info(translator, info, first[0])}))
    elif revoked:
        model = ModelRef(translator.messages.provider(info.agent), translator.messages.model(info.model))
        guard = User(revoked[0], sid, MessageTime(info.created), translator.messages.mode(info.mode), model)
        events.append(Event("message.updated", {"sessionID": sid, "info": guard}))
        events.append(Event("message.removed", {"sessionID": sid, "messageID": revoked[0]}))
    return events + [Event("message.removed", {"sessionID": sid, "messageID": one}) for one in revoked]


def _message(translator: Translator, info: SessionInfo, kept: Kept, again: bool) -> list[Unit]:
    units = [Unit(info, partial(_shown, translator, info, kept, again), EVENT_BYTES + kept.weight)]
    for part, length in reversed(kept.opened):
        for start in range(0, max(length, 1), PIECE):
            make = partial(_piece, translator, info, part, start, min(start + PIECE, length))
            units.append(Unit(info, make, EVENT_BYTES + min(PIECE, length - start)))
    return units


def _shown(translator: Translator, info: SessionInfo, kept: Kept, again: bool) -> list[Event]:
    shown = _info(translator, info, kept)
    events = [Event("message.updated", {"sessionID": info.id, "info": shown})]
    if not kept.whole:
        return events  # and not moved: some clients drop the parts with the message
    if again and isinstance(shown, User):
        events = [Event("message.removed", {"sessionID": info.id, "messageID": shown.id})] * 3 + events
    parts = translator.messages.item(info, kept.item).parts
    return events + [part_updated(info.id, part, shown.time.created) for part in parts]


def _info(translator: Translator, info: SessionInfo, kept: Kept) -> Message:
    item = kept.item
    if isinstance(item, StepItem):
        return translator.messages.assistant(info, item.step)
    return translator.messages.user(info, item.message if isinstance(item, UserItem) else item)[0]


def _piece(translator: Translator, info: SessionInfo, part: TextPart, start: int, end: int) -> list[Event]:
    text = part.text[start:end]
    if start:
        more = TextDelta(part.part_id, part.message_id, part.step_id, part.role, text)
        return [delta(info.id, more)]
    first = translator.messages.text(
        info.id, part.part_id, part.message_id, part.step_id, part.role, text, part.created, None
    )
    return [part_updated(info.id, first, part.created)]


def _tail(translator: Translator, view: SessionView) -> Unit:
    planned = plan(view) if view.transcript.plans else None
    make = partial(_ending, translator, view.info, view.pending, planned, view.requests, view.busy)
    return Unit(view.info, make, EVENT_BYTES * (2 + len(view.pending) + len(view.requests)))


def _ending(
    translator: Translator,
    info: SessionInfo,
    pending: Sequence[Pending],
    planned: object,
    requests: Sequence[Request],
    busy: bool,
) -> list[Event]:
    events = [waiting(info.id, message) for message in pending]
    if planned is not None:
        events.append(Event("todo.updated", {"sessionID": info.id, "todos": todos(planned)}))
    events += _requests(translator, info, requests)
    return [*events, status(info.id, "busy" if busy else "idle")]


def _requests(translator: Translator, info: SessionInfo, requests: Sequence[Request]) -> list[Event]:
    return [translator.asked(request, info.id) for request in requests]
