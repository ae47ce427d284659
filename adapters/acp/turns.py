"""How a prompt begins and ends at an agent, and what is made of what it says meanwhile: the part that needs memory.

``Turns`` is one session's, of either version of ACP. v1 answers a prompt at the end of its turn; ``turns_v2`` has the
other. No I/O, no clock.
"""

from typing import Any, Protocol, TypeAlias

import msgspec
import structlog

from adapters.acp import rpc, wire
from adapters.acp import translate_v1 as v1
from adapters.acp import translate_v1_calls as calls
from adapters.acp.terminals_v1 import MetaTerminals
from gateway.core.ids import OfferId
from gateway.core.inputs import AgentFact, AgentTool, PromptEnded
from gateway.core.model import Error, Outcome, Tokens

Json: TypeAlias = Any
_log = structlog.get_logger("agent")


class Turns(Protocol):
    can: calls.Abilities | None

    def written(self, offer_id: OfferId) -> None:
        """A prompt was written."""

    def answered(self, offer_id: OfferId, result: msgspec.Raw | None, error: rpc.RpcError | None) -> list[AgentFact]:
        """Its answer, in its place among the updates."""
        ...

    def take(self, fact: AgentFact) -> list[AgentFact]:
        """What the agent said, as the core is told it."""
        ...

    def replayed(self, fact: AgentFact) -> list[AgentFact]:
        """The same while it tells an old session."""
        ...

    def ready(self) -> list[AgentFact]:
        """The session is open: what goes on there."""
        ...

    def flush(self) -> list[AgentFact]:
        """All of one read was taken."""
        ...

    def can_cancel(self, session: str, kind: str, name: str) -> bool:
        """Whether the agent offers to cancel this; tool calls are the core's matter."""
        ...


class TurnsV1:
    def __init__(self, agent: str) -> None:
        self._agent = agent
        self.can: calls.Abilities | None = None
        self._terminals = MetaTerminals()

    def written(self, offer_id: OfferId) -> None:
        pass

    def answered(self, offer_id: OfferId, result: msgspec.Raw | None, error: rpc.RpcError | None) -> list[AgentFact]:
        if error is not None and error.code != rpc.CANCELLED:
            return [PromptEnded(outcome="error", offer_id=offer_id, error=agent_error(error, self.can))]
        value = wire.as_object(result)
        outcome = outcome_of("cancelled" if error else value.get("stopReason"), self._agent)
        return [PromptEnded(outcome=outcome, offer_id=offer_id, tokens=calls.tokens(value))]

    def take(self, fact: AgentFact) -> list[AgentFact]:
        return [self._terminals.take(fact) if isinstance(fact, AgentTool) else fact]

    def replayed(self, fact: AgentFact) -> list[AgentFact]:
        return self.take(fact)

    def ready(self) -> list[AgentFact]:
        return []

    def flush(self) -> list[AgentFact]:
        return []

    def can_cancel(self, session: str, kind: str, name: str) -> bool:
        return False


def outcome_of(reason: Json, agent: str) -> Outcome:
    """The outcome of a stop reason; an unknown one is an ordinary end, and logged."""
    outcome, known = v1.outcome(reason)
    if not known:
        _log.warning("unknown stop reason", agent=agent, reason=reason)
    return outcome


def ended(
    told: dict[str, Json], agent: str, can: calls.Abilities | None
) -> tuple[Outcome, Error | None, Tokens | None]:
    """What an idle state of v2 says of the turn before it. No stop reason is an ordinary end."""
    tokens = calls.tokens(told)
    reason, failure = told.get("stopReason"), told.get("error")
    if reason == "error" or isinstance(failure, dict):
        body = failure if isinstance(failure, dict) else {}
        return "error", agent_error(rpc.error_of(body), can), tokens
    return (outcome_of(reason, agent) if reason is not None else "end_turn"), None, tokens


def agent_error(error: rpc.RpcError, can: calls.Abilities | None) -> Error:
    """An error answer, with the agent's own words. A missing login with the methods that the agent offers."""
    if error.code == rpc.AUTH_REQUIRED:
        methods = can.raw.get("authMethods") if can is not None else None
        return Error("auth_required", error.message, {"code": error.code, "authMethods": methods or []})
    data = {"code": error.code, **({"data": error.data} if error.data is not None else {})}
    return Error("agent_error", error.message, data)
