"""What an input is answered with. Typed results are public: every protocol maps them, none invents its own."""

from typing import Literal, TypeAlias

import msgspec

from gateway.core.ids import MessageId, RequestId, TurnId
from gateway.core.model import Answered, Error, Outcome, SessionInfo


class Admission(msgspec.Struct, frozen=True):
    """``state`` is where the message is now; ``duplicate``: it was admitted before, nothing new happens."""

    message_id: MessageId
    ascending_id: str
    state: Literal["pending", "offered", "held", "delivered", "revoked"]
    duplicate: bool = False
    uncertain: bool = False


class Reconciled(msgspec.Struct, frozen=True):
    """``new``: the admissions of the messages that were unknown. ``edited``: known messages of ours were missing."""

    new: tuple[Admission, ...]
    edited: bool


class Verdict(msgspec.Struct, frozen=True):
    """The fate of a revoke, replace, promote or demote."""

    kind: Literal["revoked", "replaced", "promoted", "demoted", "already_delivered", "unknown"]
    message_id: MessageId
    uncertain: bool = False


class Wait(msgspec.Struct, frozen=True):
    """The agent was asked about an offered message; ``gateway.core.waits.verdict`` tells when it answered."""

    message_id: MessageId
    question: int


class Settled(msgspec.Struct, frozen=True):
    """A request's outcome. ``first``: this answer decided it; else somebody was faster and ``outcome`` is theirs."""

    request_id: RequestId
    outcome: Answered
    first: bool
    option_kind: str = ""  # of a selected option


class Settlement(msgspec.Struct, frozen=True):
    """What became of a message that somebody waits for.

    ended: its turn is over (``outcome``, ``error``); held: it will not run by itself (``why``); revoked.
    """

    kind: Literal["ended", "held", "revoked"]
    message_id: MessageId
    turn_id: TurnId | None = None
    outcome: Outcome | None = None
    error: Error | None = None
    why: str = ""
    uncertain: bool = False


Reply: TypeAlias = Admission | Reconciled | Verdict | Wait | Settled | SessionInfo | None
