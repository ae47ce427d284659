"""A session as it stands, for those who show it."""

from dataclasses import dataclass, field
from itertools import islice

from gateway.core.content import Json
from gateway.core.errors import AgentError, AgentUnavailable, of_agent
from gateway.core.ids import TurnId
from gateway.core.inbox import in_order
from gateway.core.model import Error, Pending, Request, SessionInfo
from gateway.core.session import Session
from gateway.core.state import Known
from gateway.core.transcript import Transcript
from gateway.core.turn import TurnState


@dataclass(frozen=True)
class SessionView:
    """A session as it stands now. The transcript is the live object: read it before the next await."""

    info: SessionInfo
    transcript: Transcript
    pending: list[Pending]
    requests: list[Request]
    turn_state: TurnState
    turn_id: TurnId | None
    last_turn_id: TurnId | None = None
    agent_state: str = "absent"
    commands: Json = field(default=None)
    known: dict[str, Known] = field(default_factory=dict)
    can_fork: bool = False
    background: tuple[Json, ...] = ()  # tool calls and terminals that work on beside the turn, as ACP v2 says it

    def revoked(self, limit: int = 200) -> list[str]:
        """The messages that were admitted last and taken back, by their ascending ids, the oldest first."""
        newest = islice(reversed(self.known.values()), 64 * limit)
        found = dict.fromkeys(known.ascending_id for known in newest if known.state == "revoked")
        return list(islice(found, limit))[::-1]

    @property
    def busy(self) -> bool:
        """In a turn, or the agent is being started for one."""
        return self.turn_state is not TurnState.IDLE or self.agent_state == "starting"


def view_of(session: Session) -> SessionView:
    s = session.state
    return SessionView(
        session.info,
        session.transcript,
        in_order(s),
        list(s.requests.values()),
        s.turn,
        s.turn_id,
        s.last_turn_id,
        s.agent,
        session.transcript.commands,
        session.known,
        s.can_fork,
        s.background,
    )


def agent_failure(error: Error | None) -> AgentError:
    """Why an agent is not there, as something to raise."""
    if error is None:
        return AgentUnavailable("the agent is not running")
    data = error.data if isinstance(error.data, dict) else {}
    return of_agent(error.code, error.message, reason=error.code, agent=data)
