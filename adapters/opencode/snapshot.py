"""What a reader of a stream is shown who has missed something, or everything: the recent sessions as they stand.

Real clients of this API send no cursor and fetch nothing again after a lost connection: what they missed is said once
more, in the protocol's own events. Built from views in one step, so that it is of exactly one position of the log.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias, assert_never

from adapters.opencode.translate import Translator, part_updated, status, todos, waiting
from adapters.opencode.wire import Event, User, WithParts
from gateway.controller import SessionView
from gateway.core.events import MessageRevoked
from gateway.core.model import Pending, SessionInfo
from gateway.core.transcript import Item, StepItem, UserItem
from gateway.log import SessionLog

SESSIONS = 20  # of those without a turn, a pending message or a request
MESSAGES = 200  # in all
MUCH, LITTLE = 50, 10  # of one session: an active one or the newest two; another
LOOK_BACK = 4096  # entries of the log that are searched for revoked messages

Shown: TypeAlias = tuple[SessionInfo, Event]
Revoked: TypeAlias = Mapping[str, Sequence[str]]


def recent(translator: Translator, views: Sequence[SessionView], revoked: Revoked) -> list[Shown]:
    """For a reader who may hold old copies. ``revoked``: ids that must not be shown any more, by session."""
    out: list[Shown] = []
    left, idle = MESSAGES, 0
    for number, view in enumerate(views):
        if not is_active(view):
            idle += 1
            if idle > SESSIONS:
                continue
        share = min(left, MUCH if number < 2 or is_active(view) else LITTLE)
        listed = listing(translator, view, share)
        left -= len(listed)
        out += [(view.info, event) for event in _again(translator, view, listed, revoked.get(view.info.id, ()))]
    return out


def opening(translator: Translator, views: Sequence[SessionView]) -> list[Shown]:
    """For a new reader of ``/event``: what is going on just now, and nothing that is over.

    ``opencode run --attach`` prints every finished text that it is sent and leaves at ``idle``: nothing of an earlier
    turn, and no ``idle``.
    """
    out: list[Shown] = []
    for view in views:
        sid = view.info.id
        events = []
        if view.busy:
            events.append(status(sid, "busy"))
            for one in listing(translator, view, MUCH, of_turn=True):
                events += _message(one)
        events += _requests(translator, view)
        out += [(view.info, event) for event in events]
    return out


def is_active(view: SessionView) -> bool:
    return view.busy or bool(view.pending) or bool(view.requests)


def listing(
    translator: Translator, view: SessionView, limit: int | None = None, of_turn: bool = False
) -> list[WithParts]:
    """The newest messages in their order, oldest first; pending ones last. ``of_turn``: of the open turn only."""
    found = items(view)
    if of_turn:
        found = [item for item in found if not isinstance(item, Pending) and _turn(item) == view.turn_id]
    if limit is not None:
        found = found[max(0, len(found) - limit) :]
    return [translator.messages.item(view.info, item) for item in found]


def items(view: SessionView) -> list[Item | Pending]:
    """All messages in their order; pending ones last."""
    return [*view.transcript.items, *view.pending]


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


def _turn(item: Item) -> str:
    return item.step.turn_id if isinstance(item, StepItem) else item.message.turn_id


def revoked_lately(log: SessionLog) -> dict[str, list[str]]:
    """Messages that somebody may still show: revoked in what the log still has of its newest entries."""
    found: dict[str, list[str]] = {}
    reader = log.subscribe(after=max(0, log.position - LOOK_BACK))
    try:
        batch = reader.poll(LOOK_BACK)
    finally:
        reader.close()
    for entry in batch.entries if batch is not None else ():
        event = entry.record.event
        if isinstance(event, MessageRevoked):
            found.setdefault(entry.record.session_id, []).append(event.ascending_id)
    return found


def _again(
    translator: Translator, view: SessionView, listed: Sequence[WithParts], revoked: Sequence[str]
) -> list[Event]:
    sid = view.info.id
    events = [Event("session.updated", {"sessionID": sid, "info": translator.messages.session(view.info)})]
    if listed:
        # the guard: see translate.py
        events.append(Event("message.updated", {"sessionID": sid, "info": listed[0].info}))
        for message_id in revoked:
            events.append(Event("message.removed", {"sessionID": sid, "messageID": message_id}))
    for one in listed:
        if isinstance(one.info, User):
            events += [Event("message.removed", {"sessionID": sid, "messageID": one.info.id})] * 3
        events += _message(one)
    events += [waiting(sid, message) for message in view.pending]
    if view.transcript.plans:
        events.append(Event("todo.updated", {"sessionID": sid, "todos": todos(plan(view))}))
    events += _requests(translator, view)
    events.append(status(sid, "busy" if view.busy else "idle"))
    return events


def _message(one: WithParts) -> list[Event]:
    sid = one.info.sessionID
    shown = Event("message.updated", {"sessionID": sid, "info": one.info})
    return [shown, *(part_updated(sid, part, one.info.time.created) for part in one.parts)]


def _requests(translator: Translator, view: SessionView) -> list[Event]:
    return [translator.asked(request, view.info.id) for request in view.requests]


def plan(view: SessionView) -> object:
    """The plan that is shown as the todo list: the unnamed one, else the last named."""
    plans = view.transcript.plans
    return plans.get("") or next(reversed(plans.values()), [])
