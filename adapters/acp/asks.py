"""What one session of an agent asks of people, and has not been answered: each is answered once."""

from typing import TYPE_CHECKING

from adapters.acp import rpc, wire
from adapters.acp import translate_v1_calls as calls
from gateway.core.inputs import AgentAsk, AgentAskWithdrawn, AgentFact, AgentUnknown
from gateway.core.model import Answered

if TYPE_CHECKING:
    from adapters.acp.connection import Connection


class Asks:
    def __init__(self) -> None:
        self._open: dict[str, tuple[rpc.Request, str]] = {}
        self._count = 0

    def __repr__(self) -> str:
        return str(list(self._open))

    def take(self, connection: "Connection", request: rpc.Request, session: str) -> AgentAsk | None:
        """A permission or an elicitation; None: it is neither. ``session``: a child's id, or empty."""
        self._count += 1
        # Unlike any ref of a process before: a late answer to that one must not answer this.
        ref = f"{connection.process.pid if connection.process else 0}.{self._count}"
        if request.method == "session/request_permission":
            fact = connection.dialect.permission(request.params, ref, session)
        elif request.method == "elicitation/create":
            fact = calls.elicitation(request.params, ref, session)
        else:
            return None
        self._open[ref] = (request, fact.kind)
        return fact

    def answer(self, connection: "Connection | None", ref: str, outcome: Answered) -> None:
        found = self._open.pop(ref, None)
        if found and connection:
            connection.answer(found[0].id, calls.encode_answer(found[1], outcome))

    def withdrawn(self, connection: "Connection", request: rpc.Id) -> list[AgentFact]:
        """The agent does not want an answer any more."""
        found = [ref for ref, (asked, _) in self._open.items() if rpc.id_key(asked.id) == request]
        for ref in found:
            connection.refuse(self._open.pop(ref)[0].id, rpc.CANCELLED, "Request cancelled")
        return [AgentAskWithdrawn(agent_ref=ref) for ref in found]

    def completed(self, connection: "Connection", elicitation: str) -> list[AgentFact]:
        """A page did what it was for: who was asked to open it need not answer; who opened it may be told."""
        told: list[AgentFact] = [AgentUnknown(kind="elicitation/complete", raw={"elicitationId": elicitation})]
        for ref, (asked, kind) in list(self._open.items()):
            if kind == "elicitation" and wire.as_object(asked.params).get("elicitationId") == elicitation:
                connection.answer(self._open.pop(ref)[0].id, {"action": "accept"})
                told = [AgentAskWithdrawn(agent_ref=ref)]
        return told

    def clear(self) -> None:
        self._open.clear()
