"""What comes in: wishes of clients, facts of the agent, facts of the gateway. All frozen, none of them acts.

Every client input says ``by`` whom. Agent facts name a child session by the agent's own id for it in
``agent_session``; empty means the root session.
"""

from typing import Literal, TypeAlias

import msgspec

from gateway.core.content import Block, Content, Json
from gateway.core.ids import MessageId, OfferId, RequestId, SessionId, TurnId
from gateway.core.model import (
    Answered,
    By,
    Delivery,
    Error,
    OnAbort,
    Option,
    Outcome,
    Refs,
    RequestKind,
    Role,
    Source,
    Tokens,
    ToolStatus,
)

UNSET = msgspec.UNSET
UnsetType = msgspec.UnsetType


class Input(msgspec.Struct, frozen=True, kw_only=True):
    pass


# --- clients -------------------------------------------------------------------------------------------------------


class ClientInput(Input, frozen=True, kw_only=True):
    by: By = By()


class Create(ClientInput, frozen=True, kw_only=True):
    """The first input of a session. Its id is minted, unless the client brings one; the reply is its SessionInfo."""

    cwd: str
    session_id: SessionId | None = None
    agent: str = ""
    title: str = ""
    mode: str = ""
    model: str = ""
    mcp_servers: Json = None
    meta: Json = None
    fork_of: str = ""  # the agent's own id of the session that this one begins as a copy of
    history: tuple["AgentFact", ...] = ()  # what was said there


class Update(ClientInput, frozen=True, kw_only=True):
    """Change what a session is. ``agent`` binds it, once: another agent afterwards is a Conflict."""

    title: str | UnsetType = UNSET
    archived: int | None | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    mode: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    config: tuple[str, Json] | UnsetType = UNSET
    meta: Json | UnsetType = UNSET


class Delete(ClientInput, frozen=True, kw_only=True):
    pass


class Submit(ClientInput, frozen=True, kw_only=True):
    """Admit a message. The reply is an Admission.

    ``if_idle``: start a turn, refuse (NotRunning), or store it held. ``if_busy``: accept, or refuse (Busy).
    ``local_id``: the id is scoped to the session (AG-UI), not to the gateway.
    """

    content: Content
    delivery: Delivery = "queue"
    message_id: MessageId | None = None
    part_ids: tuple[str, ...] = ()
    if_idle: Literal["start", "refuse", "store"] = "start"
    if_busy: Literal["accept", "refuse"] = "accept"
    on_abort: OnAbort = "hold"
    local_id: bool = False


class RunCommand(ClientInput, frozen=True, kw_only=True):
    """Run a command line of a person where the session is, as a turn of its own. The reply is an Admission.

    Busy while anything runs or waits.
    """

    command: str
    message_id: MessageId | None = None


class Reconcile(ClientInput, frozen=True, kw_only=True):
    """A whole history: the user messages with unknown ids are admitted together, in order, as one group.

    The reply is a Reconciled with the admissions of the new ones; none is a conflict.
    """

    messages: tuple[tuple[MessageId, Content], ...]
    delivery: Delivery = "queue"
    if_busy: Literal["accept", "refuse"] = "accept"
    on_abort: OnAbort = "hold"


class Revoke(ClientInput, frozen=True, kw_only=True):
    message_id: MessageId


class Replace(ClientInput, frozen=True, kw_only=True):
    message_id: MessageId
    content: Content


class Promote(ClientInput, frozen=True, kw_only=True):
    message_id: MessageId


class Demote(ClientInput, frozen=True, kw_only=True):
    message_id: MessageId


class Abort(ClientInput, frozen=True, kw_only=True):
    pass


class Answer(ClientInput, frozen=True, kw_only=True):
    request_id: RequestId
    outcome: Answered


class CancelWork(ClientInput, frozen=True, kw_only=True):
    """Cancel one tool call or one terminal, by the agent's own name of it, where the agent offers that."""

    kind: Literal["tool_call", "terminal"]
    id: str


class Wake(ClientInput, frozen=True, kw_only=True):
    """Start the agent without a message: a client wants to know its modes and options, or whether it starts at all."""


# --- the agent -----------------------------------------------------------------------------------------------------


class AgentFact(Input, frozen=True, kw_only=True):
    agent_session: str = ""
    source: Source | None = None


class AgentReady(AgentFact, frozen=True, kw_only=True):
    """A session of the agent is open. ``own_id`` is the agent's id of it."""

    own_id: str = ""
    can_steer: bool = False
    can_withdraw: bool = False
    can_fork: bool = False
    hears: bool = False  # a person's word with an answer reaches the model by itself


class AgentGone(AgentFact, frozen=True, kw_only=True):
    """The agent is not there any more (or could not be started). Without an error: it was stopped while idle."""

    error: Error | None = None


class PromptWritten(AgentFact, frozen=True, kw_only=True):
    offer_id: OfferId


class PromptUnwritten(AgentFact, frozen=True, kw_only=True):
    offer_id: OfferId
    error: Error


class PromptEnded(AgentFact, frozen=True, kw_only=True):
    """The turn is over. ``offer_id`` names the prompt that began it, if the agent's answer belongs to one."""

    outcome: Outcome
    offer_id: OfferId | None = None
    error: Error | None = None
    tokens: Tokens | None = None


class TurnBegan(AgentFact, frozen=True, kw_only=True):
    pass


class SteerVerdict(AgentFact, frozen=True, kw_only=True):
    """accepted: the agent holds it; injected: the model has it; refused: not taken; lost: nobody knows."""

    offer_id: OfferId
    verdict: Literal["accepted", "injected", "refused", "lost"]
    message_id: MessageId | None = None  # one of the offer; None: all of it
    agent_id: str = ""  # the id the agent gave to our message, a private alias


class WithdrawVerdict(AgentFact, frozen=True, kw_only=True):
    offer_id: OfferId
    message_id: MessageId
    question: int
    done: bool


class AgentText(AgentFact, frozen=True, kw_only=True):
    role: Role
    text: str
    agent_id: str = ""


class AgentBlock(AgentFact, frozen=True, kw_only=True):
    """A block of a message that is not plain text."""

    role: Role
    block: Block
    agent_id: str = ""


class AgentMessage(AgentFact, frozen=True, kw_only=True):
    """A message's whole content, replacing what it had (ACP v2)."""

    role: Role
    agent_id: str
    content: Content


class AgentUser(AgentFact, frozen=True, kw_only=True):
    """A user's message as the agent tells it: in a replay, or an echo of ours (``offer_id``: of this prompt)."""

    content: Content
    agent_id: str = ""
    offer_id: OfferId | None = None


class AgentTool(AgentFact, frozen=True, kw_only=True):
    """Create or update a tool call; unset fields keep their value."""

    call_id: str
    new: bool = False  # the agent announces it (ACP v1 ``tool_call``)
    status: ToolStatus | UnsetType = UNSET
    title: str | UnsetType = UNSET
    kind: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    input: Json | UnsetType = UNSET
    output: Json | UnsetType = UNSET
    content: Json | UnsetType = UNSET
    append: Json | UnsetType = UNSET  # more content, after what it has
    locations: Json | UnsetType = UNSET
    meta: Json | UnsetType = UNSET
    meta_patch: Json | UnsetType = UNSET  # key by key; null removes (ACP v2)
    can_cancel: bool | UnsetType = UNSET


class AgentAsk(AgentFact, frozen=True, kw_only=True):
    """The agent asks a person. ``agent_ref`` comes back in AnswerAgent."""

    agent_ref: str
    kind: RequestKind = "permission"
    title: str = ""
    description: str = ""
    tool: AgentTool | None = None  # what the request says of its tool call
    options: tuple[Option, ...] = ()
    schema: Json = None
    url: str = ""
    raw: Json = None


class AgentAskWithdrawn(AgentFact, frozen=True, kw_only=True):
    agent_ref: str


class AgentPlan(AgentFact, frozen=True, kw_only=True):
    """``entries``: objects with content, priority, status. None removes the plan."""

    entries: Json
    plan_id: str = ""


class AgentUsage(AgentFact, frozen=True, kw_only=True):
    """The context window: tokens used, its size; cost so far in US dollars."""

    used: int = 0
    size: int = 0
    cost: float | None = None


class AgentMode(AgentFact, frozen=True, kw_only=True):
    mode: str
    modes: Json | UnsetType = UNSET  # objects with id, name, description


class AgentConfig(AgentFact, frozen=True, kw_only=True):
    """The agent's options, whole, in the shape of ACP; ``model`` and ``mode`` as the adapter read them from it."""

    options: Json
    model: str | UnsetType = UNSET
    mode: str | UnsetType = UNSET


class AgentCommands(AgentFact, frozen=True, kw_only=True):
    commands: Json


class AgentBackground(AgentFact, frozen=True, kw_only=True):
    """What works on whatever the turn does, whole, in the shape of ACP v2; subagents are not in it."""

    items: tuple[Json, ...]


class AgentTitle(AgentFact, frozen=True, kw_only=True):
    title: str


class AgentChild(AgentFact, frozen=True, kw_only=True):
    """A child session, announced or changed; unset fields keep their value. ``agent_session`` is its parent."""

    child: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    state: str | UnsetType = UNSET
    outcome: Outcome | UnsetType = UNSET
    error: Error | None | UnsetType = UNSET
    can_cancel: bool | UnsetType = UNSET
    cwd: str | UnsetType = UNSET
    raw: Json | UnsetType = UNSET


class AgentRefs(AgentFact, frozen=True, kw_only=True):
    """A message between sessions: who, and optionally its whole content."""

    agent_id: str
    refs: Refs
    content: Content | UnsetType = UNSET


class AgentUnknown(AgentFact, frozen=True, kw_only=True):
    """An update of a kind that this version does not know."""

    kind: str
    raw: Json


class Replayed(AgentFact, frozen=True, kw_only=True):
    """What the agent told between a load and its answer, in order."""

    facts: tuple[AgentFact, ...]


# --- the gateway ---------------------------------------------------------------------------------------------------


class GraceOver(Input, frozen=True, kw_only=True):
    """The time that an agent has to end a cancelled turn is over."""

    turn_id: TurnId


class OfferExpired(Input, frozen=True, kw_only=True):
    offer_id: OfferId


class CommandSaid(Input, frozen=True, kw_only=True):
    """What a person's command wrote so far, whole."""

    turn_id: TurnId
    output: str


class CommandEnded(Input, frozen=True, kw_only=True):
    """``exit_code`` is None for one that a signal ended; ``error``: it could not be started."""

    turn_id: TurnId
    output: str = ""
    exit_code: int | None = None
    signal: str | None = None
    error: str = ""


class Quiet(Input, frozen=True, kw_only=True):
    """Nothing came for a while: what is open outside a turn ends."""


class Recover(Input, frozen=True, kw_only=True):
    """The first input after a restart: ``checkpoints`` is the text so far of open parts."""

    checkpoints: dict[str, str]
    on_restart: Literal["run", "hold"] = "run"


ClientWish: TypeAlias = (
    Create
    | Update
    | Delete
    | Submit
    | RunCommand
    | Reconcile
    | Revoke
    | Replace
    | Promote
    | Demote
    | Abort
    | Answer
    | CancelWork
    | Wake
)
GatewayFact: TypeAlias = GraceOver | OfferExpired | CommandSaid | CommandEnded | Quiet | Recover
