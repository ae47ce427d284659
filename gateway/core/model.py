"""The nouns that inputs, events and views share: frozen values, no behaviour beyond small derivations.

Times are milliseconds since the epoch. ``Json`` fields hold decoded JSON that the core does not look into.
"""

from typing import Literal, TypeAlias

import msgspec

from gateway.core.content import Content, Json
from gateway.core.ids import MessageId, OfferId, PartId, RequestId, SessionId, StepId, TurnId

Delivery: TypeAlias = Literal["steer", "queue"]
OnAbort: TypeAlias = Literal["hold", "revoke", "keep"]
Role: TypeAlias = Literal["agent", "thought", "session"]
How: TypeAlias = Literal["prompt", "injected", "imported", "command"]
Cause: TypeAlias = Literal["prompt", "agent", "replay", "command"]
Outcome: TypeAlias = Literal[
    "end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled", "error", "interrupted", "unwritten"
]
ToolStatus: TypeAlias = Literal["pending", "in_progress", "completed", "failed", "cancelled"]
RequestKind: TypeAlias = Literal["permission", "elicitation"]
Rule: TypeAlias = Literal["allow", "ask", "deny"]

TOOL_DONE = ("completed", "failed", "cancelled")


class By(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whom an event is owed to: the token's name, the protocol, and the connection that asked."""

    name: str = ""
    protocol: str = ""
    connection: str = ""


class Source(msgspec.Struct, frozen=True):
    """An update as it came: ``wire`` is ``acp1`` or ``acp2``; ``raw`` the JSON of its ``update`` object."""

    wire: str
    raw: msgspec.Raw


class Error(msgspec.Struct, frozen=True, omit_defaults=True):
    """A failure as people see it; ``code`` is a stable word (``agent_exit``, ``auth_required``, ``agent_error`` …)."""

    code: str
    message: str
    data: Json = None


class Tokens(msgspec.Struct, frozen=True, omit_defaults=True):
    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total: int = 0
    cost: float = 0.0  # US dollars


class SessionInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a session is, apart from what was said in it."""

    id: SessionId
    root_id: SessionId
    cwd: str
    created: int
    updated: int
    title: str = ""
    named: bool = False  # a person gave the title: the agent's titles do not replace it
    agent: str = ""  # the name in the settings; empty until bound
    agent_session: str = ""  # the agent's own id
    fork_of: str = ""  # the agent's own id of the session that this one was forked from
    parent_id: SessionId | None = None
    mode: str = ""
    model: str = ""
    asked_mode: str = ""  # what a person chose; the agent is told whenever it starts
    asked_model: str = ""
    archived: int | None = None
    description: str = ""
    tokens: Tokens = Tokens()  # all turns together
    mcp_servers: Json = None  # secrets: never logged
    meta: Json = None  # what a client wants kept with the session


class Pending(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message that is admitted and not delivered: an entry of the inbox."""

    id: MessageId
    content: Content
    part_ids: tuple[PartId, ...]  # one a block
    ascending_id: str  # equal to ``id`` when that has the ascending layout, else minted for wires that need it
    lane: Delivery
    place: int  # order inside the lane
    created: int  # provisional until delivered
    group: MessageId  # messages of one group go as one prompt
    on_abort: OnAbort = "hold"
    by: By = By()
    state: Literal["pending", "offered"] = "pending"
    held: str = ""  # why it is held: abort, stored, agent_exit, agent_error, unwritten, lost, restart; empty: not held
    uncertain: bool = False  # it may have reached the agent
    offer_id: OfferId | None = None
    refused_in: TurnId | None = None
    returning: Literal["", "hold", "revoke"] = ""  # what happens to an offered one if it comes back
    returning_why: str = ""  # and why
    sent: Content = ()  # what an uncertain one was when it was sent: it may be another now
    sent_parts: tuple[PartId, ...] = ()
    questions: tuple["Question", ...] = ()  # asked of the agent about an offered one, first is outstanding


class Question(msgspec.Struct, frozen=True, omit_defaults=True):
    """A wish about an offered message that the agent has to answer: revoke, or replace by ``content``."""

    number: int
    kind: Literal["revoke", "replace"]
    content: Content = ()
    part_ids: tuple[PartId, ...] = ()
    refused: bool = False  # the agent could not; it is done by the gateway if the message comes back


class UserMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A delivered message of a person."""

    id: MessageId
    content: Content
    part_ids: tuple[PartId, ...]
    ascending_id: str
    created: int
    turn_id: TurnId
    how: How = "prompt"
    lane: Delivery = "queue"
    by: By = By()


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One answer of the agent between two break points: what OpenCode calls an assistant message."""

    id: StepId
    turn_id: TurnId
    created: int
    start_part: PartId
    parent_id: str | None = None  # ``ascending_id`` of the newest message delivered before it
    agent: str = ""
    mode: str = ""
    model: str = ""
    completed: int | None = None
    end_part: PartId | None = None
    outcome: Outcome | Literal["continued"] | None = None
    error: Error | None = None
    tokens: Tokens = Tokens()


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool call as it stands. ``content`` and ``locations`` have the shapes of ACP v1."""

    call_id: str
    part_id: PartId
    step_id: StepId
    turn_id: TurnId
    created: int
    status: ToolStatus = "pending"
    title: str = ""
    kind: str = "other"
    name: str = ""
    input: Json = None
    output: Json = None
    content: Json = None
    locations: Json = None
    started: int | None = None
    ended: int | None = None
    meta: Json = None
    can_cancel: bool = False  # the agent offers to cancel just this
    again: bool = False  # the agent has called another one of the session by this id before
    told: bool = False  # it has ended once: wires that tell a result only once have told it
    called: bool = False  # it ran, or a person was asked about it
    rule: Literal["", "allow", "deny"] = ""  # the setting that answered when the agent asked for permission
    by_person: bool = False  # a command that a person ran, not the agent


class Option(msgspec.Struct, frozen=True, omit_defaults=True):
    """A choice of a permission request; ``kind`` is allow_once, allow_always, reject_once, reject_always or foreign."""

    id: str
    name: str
    kind: str


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something the agent asks of a person. ``agent_ref`` is the agent port's own name for it."""

    id: RequestId
    kind: RequestKind
    title: str
    created: int
    agent_ref: str
    turn_id: TurnId | None = None
    call_id: str = ""
    step_id: StepId | None = None
    options: tuple[Option, ...] = ()
    description: str = ""
    schema: Json = None  # elicitation: the form's JSON schema
    url: str = ""  # elicitation by URL
    raw: Json = None


class Selected(msgspec.Struct, frozen=True, tag="selected"):
    option_id: str
    message: str = ""  # a word of the person with it


class Accepted(msgspec.Struct, frozen=True, tag="accepted"):
    """An elicitation that was filled in."""

    content: Json = None


class Declined(msgspec.Struct, frozen=True, tag="declined"):
    message: str = ""


class Cancelled(msgspec.Struct, frozen=True, tag="cancelled"):
    why: str = ""


Answered: TypeAlias = Selected | Accepted | Declined | Cancelled


class Child(msgspec.Struct, frozen=True, omit_defaults=True):
    """A child session as its parent sees it. ``state`` is running, idle, requires_action or unknown."""

    session_id: SessionId
    agent_session: str
    title: str = ""
    description: str = ""
    state: str = ""
    can_cancel: bool = False
    cwd: str = ""
    error: Error | None = None
    raw: Json = None


class Refs(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who a message between sessions is from and to, by the agent's own session ids; late ones come later."""

    sender_session: str = ""
    recipient_session: str = ""
    sender_message: str = ""
    recipient_message: str = ""
