"""What happened, in the past tense. Frozen, self-contained: an encoder needs nothing but the event and the session's
info beside it (``Record`` and the log's ``Entry``).

Durable events have a ``seq`` in their session (1, 2, 3 … without holes) and are stored before anyone sees them.
Ephemeral ones (``EPHEMERAL``) are not stored; a restart forgets what only they said.
"""

from typing import Literal, TypeAlias

import msgspec

from gateway.core.content import Block, Content, Json
from gateway.core.ids import MessageId, OfferId, PartId, RequestId, SessionId, StepId, TurnId
from gateway.core.model import (
    Answered,
    By,
    Cause,
    Child,
    Error,
    How,
    Outcome,
    Pending,
    Question,
    Refs,
    Request,
    Role,
    SessionInfo,
    Source,
    Step,
    Tokens,
    ToolCall,
    UserMessage,
)


class Base(msgspec.Struct, frozen=True, omit_defaults=True):
    pass


# --- the session ---------------------------------------------------------------------------------------------------


class SessionCreated(Base, frozen=True, tag="session.created"):
    info: SessionInfo


class SessionUpdated(Base, frozen=True, tag="session.updated"):
    """The whole info after a change of title, archive, agent, mode, model, aliases or totals."""

    info: SessionInfo
    source: Source | None = None  # where an agent's own words changed it


class SessionDeleted(Base, frozen=True, tag="session.deleted"):
    info: SessionInfo


# --- the inbox -----------------------------------------------------------------------------------------------------


class MessageAdmitted(Base, frozen=True, tag="message.admitted"):
    message: Pending
    digest: str  # of the content and delivery that were asked for
    local_id: bool = False


class PendingReplaced(Base, frozen=True, tag="message.replaced_pending"):
    message_id: MessageId
    content: Content
    part_ids: tuple[PartId, ...]
    created: int
    question: int = 0  # the question that this answers
    dropped: tuple[PartId, ...] = ()  # parts that it has no more


class MessagePlaced(Base, frozen=True, tag="message.placed"):
    """A pending message moved to the provisional end of the list. The message is beside it in the log's entry."""

    message_id: MessageId
    created: int


class MessagePromoted(Base, frozen=True, tag="message.promoted"):
    message_id: MessageId
    place: int


class MessageDemoted(Base, frozen=True, tag="message.demoted"):
    message_id: MessageId
    place: int


class MessageHeld(Base, frozen=True, tag="message.held"):
    message_id: MessageId
    why: str


class MessageReleased(Base, frozen=True, tag="message.released"):
    message_id: MessageId


class MessageRevoked(Base, frozen=True, tag="message.revoked"):
    message_id: MessageId
    ascending_id: str
    uncertain: bool = False


class MessagesOffered(Base, frozen=True, tag="message.offered"):
    offer_id: OfferId
    message_ids: tuple[MessageId, ...]
    how: How
    turn_id: TurnId
    context: Content = ()  # what else the agent was told, before them


class MessageReturned(Base, frozen=True, tag="message.returned"):
    """An offer came to nothing: the message is pending again, in its place."""

    message_id: MessageId
    why: Literal["refused", "unwritten", "lost"]
    turn_id: TurnId
    held: str = ""
    uncertain: bool = False


class MessageDelivered(Base, frozen=True, tag="message.delivered"):
    """The agent has it. From here on ``message.created`` never changes."""

    message: UserMessage
    offer_id: OfferId | None = None
    digest: str = ""  # of what was asked for, where it was never pending: a person's command


class MessageAliased(Base, frozen=True, tag="message.aliased"):
    """The agent's own id of a user message: private, never shown."""

    message_id: MessageId
    agent_id: str


class QuestionAsked(Base, frozen=True, tag="message.question"):
    """Ephemeral. A revoke or replace of an offered message waits for the agent."""

    message_id: MessageId
    question: Question


class QuestionRefused(Base, frozen=True, tag="message.question_refused"):
    """Ephemeral. The agent could not do it; the message's own fate answers those who wait."""

    message_id: MessageId
    number: int


class AbortAsked(Base, frozen=True, tag="turn.abort_asked"):
    """Somebody aborted. ``returning``: offered messages that are held or revoked if they come back."""

    turn_id: TurnId | None
    returning: tuple[MessageId, ...] = ()


# --- the turn ------------------------------------------------------------------------------------------------------


class TurnStarted(Base, frozen=True, tag="turn.started"):
    turn_id: TurnId
    cause: Cause


class TurnCancelling(Base, frozen=True, tag="turn.cancelling"):
    turn_id: TurnId
    why: Literal["abort", "interrupt"]


class TurnEnded(Base, frozen=True, tag="turn.ended"):
    """``more``: a message waits that goes by itself, so the session does not rest: the next turn begins."""

    turn_id: TurnId
    outcome: Outcome
    error: Error | None = None
    tokens: Tokens | None = None
    more: bool = False


class StepStarted(Base, frozen=True, tag="step.started"):
    step: Step


class StepEnded(Base, frozen=True, tag="step.ended"):
    """The step, whole, with its end. ``outcome`` is ``continued`` where another step of the turn may follow."""

    step: Step


class PartOpened(Base, frozen=True, tag="part.opened"):
    """A stretch of text begins. ``first``: it is its message's first part."""

    part_id: PartId
    message_id: str
    step_id: StepId
    turn_id: TurnId
    role: Role
    created: int
    first: bool = True
    agent_id: str = ""
    ordinal: int = 1  # of the part in its message


class TextDelta(Base, frozen=True, tag="part.delta"):
    """Ephemeral. More text of an open part."""

    part_id: PartId
    message_id: str
    step_id: StepId
    role: Role
    text: str
    source: Source | None = None  # only where it was more than plain text and an id


class PartEnded(Base, frozen=True, tag="part.ended"):
    """The whole text of a part, final."""

    part_id: PartId
    message_id: str
    step_id: StepId
    role: Role
    text: str
    created: int
    ended: int


class BlockAdded(Base, frozen=True, tag="part.block"):
    """A part that is one block, not text."""

    part_id: PartId
    message_id: str
    step_id: StepId
    turn_id: TurnId
    role: Role
    created: int
    block: Block
    first: bool = True
    agent_id: str = ""
    source: Source | None = None
    ordinal: int = 1  # of the part in its message


class MessageReplaced(Base, frozen=True, tag="message.replaced"):
    """An agent message's content is another now: its parts ``dropped`` are gone, ``parts`` stand in their place."""

    message_id: str
    role: Role
    dropped: tuple[PartId, ...]
    parts: tuple["ReplacedPart", ...]
    source: Source | None = None
    dropped_steps: tuple[StepId, ...] = ()  # where each of the dropped parts was


class ReplacedPart(msgspec.Struct, frozen=True, omit_defaults=True):
    part_id: PartId
    step_id: StepId
    created: int
    text: str = ""
    block: Block | None = None


class ToolUpdated(Base, frozen=True, tag="tool.updated"):
    """The tool call as it stands. ``first``: it was not there before. ``result``: its end, for the first time.
    ``called``: it runs with an input that was not told before.
    """

    call: ToolCall
    first: bool = False
    source: Source | None = None
    result: bool = False
    called: bool = False


class MessageRefs(Base, frozen=True, tag="message.refs"):
    """A message between sessions: who wrote to whom, as last told (role ``session``)."""

    message_id: str
    refs: Refs
    source: Source | None = None


# --- requests ------------------------------------------------------------------------------------------------------


class RequestOpened(Base, frozen=True, tag="request.opened"):
    request: Request


class RequestSettled(Base, frozen=True, tag="request.settled"):
    request_id: RequestId
    outcome: Answered
    kind: str = "permission"
    option_kind: str = ""  # of a selected option
    turn_id: TurnId | None = None
    rule: Literal["", "allow", "deny"] = ""  # a setting answered: nobody was asked, and nothing was opened
    call_id: str = ""  # with a rule


# --- what the agent says of itself ---------------------------------------------------------------------------------


class PlanUpdated(Base, frozen=True, tag="plan.updated"):
    entries: Json
    plan_id: str = ""
    source: Source | None = None


class UsageUpdated(Base, frozen=True, tag="usage.updated"):
    used: int
    size: int
    cost: float | None = None
    source: Source | None = None


class ModesUpdated(Base, frozen=True, tag="modes.updated"):
    mode: str
    modes: Json = None
    source: Source | None = None


class ConfigUpdated(Base, frozen=True, tag="config.updated"):
    options: Json
    source: Source | None = None


class CommandsUpdated(Base, frozen=True, tag="commands.updated"):
    commands: Json
    source: Source | None = None


class ChildUpdated(Base, frozen=True, tag="child.updated"):
    child: Child
    first: bool = False
    source: Source | None = None


class BackgroundUpdated(Base, frozen=True, tag="background.updated"):
    """Tool calls and terminals that work on whatever the turn does, whole, in the shape of ACP v2."""

    items: tuple[Json, ...]


class AgentUpdated(Base, frozen=True, tag="agent.updated"):
    """An update of an unknown kind, kept."""

    kind: str
    raw: Json
    source: Source | None = None


class AgentStateChanged(Base, frozen=True, tag="agent.state"):
    """Ephemeral."""

    state: Literal["absent", "starting", "ready"]
    can_steer: bool = False
    can_withdraw: bool = False
    can_fork: bool = False
    hears: bool = False
    error: Error | None = None
    before: Literal["", "absent", "starting", "ready"] = ""  # what it was: a failed start is not a death
    idle: bool = False  # ready, and nothing begins: what it was started for was held or revoked meanwhile


class OfferAccepted(Base, frozen=True, tag="offer.accepted"):
    """Ephemeral. The agent holds the messages; it has not said that it used them."""

    offer_id: OfferId


class AgentWorking(Base, frozen=True, tag="agent.working"):
    """Ephemeral. The agent began a turn by itself while a person's command runs (or ended it): it is the next turn."""

    working: bool


EPHEMERAL = (TextDelta, AgentStateChanged, AgentWorking, OfferAccepted, QuestionAsked, QuestionRefused)

Event: TypeAlias = (
    SessionCreated
    | SessionUpdated
    | SessionDeleted
    | MessageAdmitted
    | PendingReplaced
    | MessagePlaced
    | MessagePromoted
    | MessageDemoted
    | MessageHeld
    | MessageReleased
    | MessageRevoked
    | MessagesOffered
    | MessageReturned
    | MessageDelivered
    | MessageAliased
    | QuestionAsked
    | QuestionRefused
    | AbortAsked
    | TurnStarted
    | TurnCancelling
    | TurnEnded
    | StepStarted
    | StepEnded
    | PartOpened
    | TextDelta
    | PartEnded
    | BlockAdded
    | MessageReplaced
    | ToolUpdated
    | MessageRefs
    | RequestOpened
    | RequestSettled
    | PlanUpdated
    | UsageUpdated
    | ModesUpdated
    | ConfigUpdated
    | CommandsUpdated
    | ChildUpdated
    | BackgroundUpdated
    | AgentUpdated
    | AgentStateChanged
    | AgentWorking
    | OfferAccepted
)


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event with its place: ``seq`` 0 for an ephemeral one, ``at`` in milliseconds, the id clock after it."""

    session_id: SessionId
    seq: int
    at: int
    clock: int
    event: Event
    by: By | None = None
