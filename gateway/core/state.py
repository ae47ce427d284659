"""The small state of one session: what decisions look at. Only ``apply`` changes it, by events.

A decision works on a ``fork``; the transcript, which grows, is not part of it. ``known`` and ``used`` grow with the
number of messages: a fork reads them through a ChainMap instead of copying.
"""

from collections.abc import MutableMapping
from typing import Literal, TypeAlias

import msgspec

from gateway.core import events as ev
from gateway.core.content import Content, Json
from gateway.core.ids import MessageId, OfferId, PartId, RequestId, StepId, TurnId
from gateway.core.model import (
    TOOL_DONE,
    Answered,
    Cause,
    Error,
    How,
    Pending,
    Request,
    Role,
    SessionInfo,
    Step,
    ToolCall,
)
from gateway.core.turn import TurnEvent, TurnState, step

KEEP_SETTLED = 256  # answered requests that a late second answer is still told about
KEEP_UNHEARD = 16  # commands of a person that the next prompt tells the agent of


class Known(msgspec.Struct, frozen=True):
    """A user message that was admitted once, whatever became of it. The seqs are of the events that said so."""

    id: MessageId
    ascending_id: str
    digest: str
    state: Literal["inbox", "delivered", "revoked"] = "inbox"
    uncertain: bool = False
    turn_id: TurnId | None = None
    admitted_seq: int = 0
    admitted_at: int = 0
    delivered_seq: int = 0
    replaced: tuple[int, ...] = ()  # the questions by which it was replaced, for those who wait on them


class Offer(msgspec.Struct, frozen=True):
    """Messages that the agent was told about, undecided. ``accepted``: the agent answered that it holds them."""

    id: OfferId
    how: How
    turn_id: TurnId
    message_ids: tuple[MessageId, ...]
    accepted: bool = False


class OpenPart(msgspec.Struct, frozen=True):
    part_id: PartId
    message_id: str
    step_id: StepId
    turn_id: TurnId
    role: Role
    agent_id: str
    created: int


class Speaking(msgspec.Struct, frozen=True):
    """The message that the open step's newest part is of: more without an id is more of it."""

    role: Role
    message_id: str
    agent_id: str
    ordinal: int = 1  # of the newest part


class Recent(msgspec.Struct, frozen=True):
    """An agent message of this turn or the one before: more may come under its id."""

    message_id: str
    turn_no: int
    parts: tuple[tuple[PartId, StepId, int], ...] = ()
    count: int = 0  # of the parts that it ever had: an ordinal is not used again


KnownMap: TypeAlias = MutableMapping[str, Known]
UsedMap: TypeAlias = MutableMapping[str, bool]


class State(msgspec.Struct):
    """See the module. Times in milliseconds; ``place`` counts admissions and moves; ``turn_no`` counts turns."""

    info: SessionInfo | None = None
    seq: int = 0
    clock: int = 0
    last_created: int = 0
    agent: Literal["absent", "starting", "ready"] = "absent"
    agent_error: Error | None = None  # why it is absent
    can_steer: bool = False
    can_withdraw: bool = False
    can_fork: bool = False
    hears: bool = False
    agent_works: bool = False  # in a turn that it began by itself beside a person's command
    turn: TurnState = TurnState.IDLE
    turn_id: TurnId | None = None  # of the open turn
    last_turn_id: TurnId | None = None
    turn_no: int = 0
    cause: Cause | None = None
    prompt_offer: OfferId | None = None  # the prompt that began the open turn
    abort_asked: bool = False
    place: int = 0
    question: int = 0
    inbox: dict[MessageId, Pending] = {}
    offers: dict[OfferId, Offer] = {}
    requests: dict[RequestId, Request] = {}
    settled: dict[RequestId, Answered] = {}
    settled_kinds: dict[RequestId, str] = {}  # of the selected options
    step: Step | None = None
    last_part: str = ""
    after_tool: bool = False
    part: OpenPart | None = None
    speaking: Speaking | None = None
    last_user: str | None = None
    answered: bool = True  # a step began after the newest user message of the turn
    unnamed: tuple[MessageId, ...] = ()  # our messages of the turn that the agent has not called by an id of its own
    recent: dict[str, Recent] = {}
    tools: dict[str, ToolCall] = {}
    background: tuple[Json, ...] = ()  # tool calls and terminals that work on beside the turn
    command: str = ""  # the tool call of the command that a person runs in the open turn
    unheard: tuple[str, ...] = ()  # tool calls of commands that the agent has not been told of
    context: Content = ()  # what the agent was told with the open turn's prompt, beside its messages
    deleted: bool = False

    def fork(self) -> "State":
        copy = msgspec.structs.replace(self)
        copy.inbox = self.inbox.copy()
        copy.offers = self.offers.copy()
        copy.requests = self.requests.copy()
        copy.settled = self.settled.copy()
        copy.settled_kinds = self.settled_kinds.copy()
        copy.recent = self.recent.copy()
        copy.tools = self.tools.copy()
        return copy

    def durable(self) -> "State":
        """What is left of it after a restart: ephemeral facts forgotten."""
        copy = self.fork()
        copy.agent_error = None
        copy.agent, copy.can_steer, copy.can_withdraw, copy.can_fork = "absent", False, False, False
        copy.hears = copy.agent_works = False
        copy.offers = {k: msgspec.structs.replace(o, accepted=False) for k, o in self.offers.items()}
        copy.inbox = {k: msgspec.structs.replace(m, questions=()) for k, m in self.inbox.items()}
        return copy


def message_key(role: Role, agent_id: str) -> str:
    """The scope of an agent's message id: its role and the id (ACP v2 has an id space a type)."""
    return f"{role} {agent_id}"


def apply(state: State, known: KnownMap, used: UsedMap, record: ev.Record) -> None:
    """Change by one event. The one place where state changes, for a draft and for the session alike."""
    event = record.event
    if type(event) is ev.TextDelta:
        return  # the hot path: more text decides nothing
    if record.seq:
        state.seq = record.seq
    state.clock = max(state.clock, record.clock)  # also of an ephemeral event: it may show ids
    match event:
        case ev.SessionCreated() | ev.SessionUpdated() | ev.SessionDeleted():
            state.info = event.info
            state.deleted = isinstance(event, ev.SessionDeleted)
        case ev.MessageAdmitted():
            m = event.message
            state.inbox[m.id] = m
            state.place = max(state.place, m.place)
            state.last_created = max(state.last_created, m.created)
            fact = Known(m.id, m.ascending_id, event.digest, admitted_seq=record.seq, admitted_at=record.at)
            known[m.id] = known[m.ascending_id] = fact
            used[m.id] = used[m.ascending_id] = True
        case ev.PendingReplaced():
            m = state.inbox[event.message_id]
            questions = tuple(q for q in m.questions if q.number != event.question)
            _entry(state, m, content=event.content, part_ids=event.part_ids, questions=questions)
            if event.question:
                _known(known, m, replaced=(*known[m.id].replaced, event.question))
        case ev.MessagePlaced():
            _entry(state, state.inbox[event.message_id], created=event.created)
            state.last_created = max(state.last_created, event.created)
        case ev.MessagePromoted():
            _entry(state, state.inbox[event.message_id], lane="steer", place=event.place)
            state.place = max(state.place, event.place)
        case ev.MessageDemoted():
            _entry(state, state.inbox[event.message_id], lane="queue", place=event.place)
            state.place = max(state.place, event.place)
        case ev.MessageHeld():
            _entry(state, state.inbox[event.message_id], held=event.why)
        case ev.MessageReleased():
            _entry(state, state.inbox[event.message_id], held="", returning="", returning_why="")
        case ev.MessageRevoked():
            m = state.inbox.pop(event.message_id)
            _undecided(state, m)
            _known(known, m, state="revoked", uncertain=event.uncertain)
        case ev.MessagesOffered():
            state.offers[event.offer_id] = ev_offer = Offer(event.offer_id, event.how, event.turn_id, event.message_ids)
            for message_id in event.message_ids:
                _entry(state, state.inbox[message_id], state="offered", offer_id=event.offer_id, held="")
            if ev_offer.how == "prompt":
                state.prompt_offer, state.context = event.offer_id, event.context
        case ev.MessageReturned():
            m = state.inbox[event.message_id]
            _undecided(state, m)
            _entry(
                state,
                m,
                state="pending",
                held=event.held,
                uncertain=m.uncertain or event.uncertain,
                refused_in=event.turn_id if event.why == "refused" else m.refused_in,
                offer_id=m.offer_id if event.uncertain else None,
                sent=m.content if event.uncertain else (),
                sent_parts=m.part_ids if event.uncertain else (),
                returning="",
                returning_why="",
            )
        case ev.MessageDelivered():
            _delivered(state, known, used, event, record.seq)
        case ev.MessageAliased():
            used["user " + event.agent_id] = True
            state.unnamed = tuple(m for m in state.unnamed if m != event.message_id)
        case ev.QuestionAsked():
            m = state.inbox[event.message_id]
            _entry(state, m, questions=(*m.questions, event.question))
            state.question = max(state.question, event.question.number)
        case ev.QuestionRefused():
            m = state.inbox[event.message_id]
            _entry(
                state,
                m,
                questions=tuple(
                    msgspec.structs.replace(q, refused=True) if q.number == event.number else q for q in m.questions
                ),
            )
        case ev.AbortAsked():
            for message_id in event.returning:
                m = state.inbox[message_id]
                wish: Literal["hold", "revoke"] = "revoke" if m.on_abort == "revoke" else "hold"
                _entry(state, m, returning=wish, returning_why="abort")
            state.abort_asked = event.turn_id is not None
        case ev.TurnStarted():
            first = TurnEvent.OFFER if event.cause == "prompt" else TurnEvent.AGENT_TURN
            state.turn = step(state.turn, first)
            state.turn_id = state.last_turn_id = event.turn_id
            state.turn_no += 1
            state.cause = event.cause
            state.abort_asked = False
            state.answered = True  # nothing of this turn waits for a word yet
            state.unnamed, state.context = (), ()
            state.agent_works = False
            state.recent = {k: r for k, r in state.recent.items() if r.turn_no >= state.turn_no - 1}
            state.tools = {k: t for k, t in state.tools.items() if t.status not in TOOL_DONE}
        case ev.TurnCancelling():
            state.turn = step(state.turn, TurnEvent.CANCEL)
        case ev.TurnEnded():
            offered = state.turn in (TurnState.PROMPTING, TurnState.STILLBORN)
            state.turn = step(state.turn, TurnEvent.UNWRITTEN if offered else TurnEvent.ENDED)
            state.turn_id = state.prompt_offer = state.cause = None
            state.command = ""
            state.abort_asked = False
            if event.outcome == "error":  # what is pending is held (by events); what is offered, if it comes back
                why = event.error.code if event.error is not None else "agent_error"
                for m in list(state.inbox.values()):
                    if m.state == "offered" and not m.returning:
                        _entry(state, m, returning="hold", returning_why=why)
        case ev.StepStarted():
            state.step = event.step
            state.last_part = event.step.start_part
            state.last_created = max(state.last_created, event.step.created)
            state.answered, state.after_tool = True, False
            used[event.step.id] = True
        case ev.StepEnded():
            state.step, state.last_part, state.after_tool, state.speaking = None, "", False, None
        case ev.PartOpened():
            state.part = OpenPart(
                event.part_id,
                event.message_id,
                event.step_id,
                event.turn_id,
                event.role,
                event.agent_id,
                event.created,
            )
            _part(state, used, event)
        case ev.PartEnded():
            state.part = None
        case ev.BlockAdded():
            _part(state, used, event)
        case ev.MessageReplaced():
            for key, recent in state.recent.items():
                if recent.message_id == event.message_id and key.startswith(event.role + " "):
                    parts = tuple((p.part_id, p.step_id, p.created) for p in event.parts)
                    count = max(recent.count, len(parts))
                    state.recent[key] = Recent(recent.message_id, state.turn_no, parts, count)
            for part in event.parts:
                if state.step is not None and part.step_id == state.step.id:
                    state.last_part = max(state.last_part, part.part_id)
        case ev.ToolUpdated():
            state.tools[event.call.call_id] = event.call
            if event.first:
                used["tool " + event.call.call_id] = True
                state.last_part = event.call.part_id
                state.after_tool, state.speaking = True, None
            if event.call.by_person:
                state.command = event.call.call_id
                if event.result:
                    state.unheard = (*state.unheard, event.call.call_id)[-KEEP_UNHEARD:]
        case ev.BackgroundUpdated():
            state.background = event.items
        case ev.RequestOpened():
            state.requests[event.request.id] = event.request
        case ev.RequestSettled():
            state.requests.pop(event.request_id, None)
            state.settled[event.request_id] = event.outcome
            if event.option_kind:
                state.settled_kinds[event.request_id] = event.option_kind
            while len(state.settled) > KEEP_SETTLED:
                oldest = next(iter(state.settled))
                del state.settled[oldest]
                state.settled_kinds.pop(oldest, None)
        case ev.AgentStateChanged():
            state.agent, state.agent_error = event.state, event.error
            state.can_steer, state.can_withdraw = event.can_steer, event.can_withdraw
            state.can_fork, state.hears = event.can_fork, event.hears
            state.agent_works = False
        case ev.AgentWorking():
            state.agent_works = event.working
        case ev.OfferAccepted():
            offer = state.offers[event.offer_id]
            state.offers[event.offer_id] = msgspec.structs.replace(offer, accepted=True)
        case _:
            pass  # said, not decided upon: the transcript's


def _entry(state: State, message: Pending, /, **changes: object) -> None:
    state.inbox[message.id] = msgspec.structs.replace(message, **changes)


def _known(known: KnownMap, message: Pending, /, **changes: object) -> None:
    fact = msgspec.structs.replace(known[message.id], **changes)
    known[message.id] = known[message.ascending_id] = fact


def _undecided(state: State, message: Pending) -> None:
    """Take a message out of its offer; an offer without messages is over."""
    offer = state.offers.get(message.offer_id) if message.offer_id else None
    if offer is None:
        return
    left = tuple(m for m in offer.message_ids if m != message.id)
    if left:
        state.offers[offer.id] = msgspec.structs.replace(offer, message_ids=left)
    else:
        del state.offers[offer.id]


def _delivered(state: State, known: KnownMap, used: UsedMap, event: ev.MessageDelivered, seq: int) -> None:
    message = event.message
    m = state.inbox.pop(message.id, None)
    if m is not None:
        _undecided(state, m)
        _known(known, m, state="delivered", uncertain=False, turn_id=message.turn_id, delivered_seq=seq)
        if message.how == "prompt" and state.turn in (TurnState.PROMPTING, TurnState.STILLBORN):
            state.turn = step(state.turn, TurnEvent.WRITTEN)
            if state.context:
                state.unheard = ()
        state.unnamed = (*state.unnamed, m.id)
    else:  # told by the agent, or a command: never in our inbox
        fact = Known(
            message.id, message.ascending_id, event.digest, "delivered", turn_id=message.turn_id, delivered_seq=seq
        )
        known[message.id] = known[message.ascending_id] = fact
        used[message.id] = used[message.ascending_id] = True
    state.last_created = max(state.last_created, message.created)
    state.last_user = message.ascending_id
    state.answered = False


def _part(state: State, used: UsedMap, event: ev.PartOpened | ev.BlockAdded) -> None:
    state.last_part = event.part_id
    state.after_tool = False
    state.speaking = Speaking(event.role, event.message_id, event.agent_id, event.ordinal)
    used[event.message_id] = True
    used[message_key(event.role, event.message_id)] = True
    if event.agent_id:
        key = message_key(event.role, event.agent_id)
        used[key] = True
        before = state.recent.get(key)
        parts = before.parts if before is not None and before.message_id == event.message_id else ()
        parts = (*parts, (event.part_id, event.step_id, event.created))
        state.recent[key] = Recent(event.message_id, state.turn_no, parts, event.ordinal)
