"""What those who wait are answered, read from a session as it stands. Pure: the shell asks again after every change."""

from gateway.core.errors import NotFound
from gateway.core.ids import MessageId
from gateway.core.inbox import at_rest
from gateway.core.replies import Settlement, Verdict, Wait
from gateway.core.session import Session


def settlement(session: Session, message_id: MessageId) -> Settlement | None:
    """What became of a message; None while that is open. NotFound for a message that was never admitted."""
    if session.state.deleted:
        raise NotFound(f"Session not found: {session.id}", session_id=session.id)
    known = session.known.get(message_id)
    if known is None:
        raise NotFound(f"Message not found: {message_id}", message_id=message_id)
    if known.state == "revoked":
        return Settlement("revoked", known.id, uncertain=known.uncertain)
    if known.state == "inbox":
        entry = session.state.inbox[known.id]
        if entry.held and entry.state == "pending":
            error = session.state.agent_error if session.state.agent == "absent" else None
            return Settlement("held", known.id, error=error, why=entry.held, uncertain=entry.uncertain)
        return None
    turn = session.transcript.turns.get(known.turn_id) if known.turn_id else None
    if turn is None:
        return Settlement("ended", known.id)
    if turn.ended is None:
        return None
    return Settlement("ended", known.id, turn.id, turn.outcome, turn.error)


def verdict(session: Session, wait: Wait) -> Verdict | None:
    """What became of a wish about an offered message; None while the agent has not answered."""
    known = session.known.get(wait.message_id)
    if known is None:
        return Verdict("unknown", wait.message_id)
    if known.state == "revoked":
        return Verdict("revoked", known.id, known.uncertain)
    if known.state == "delivered":  # of a wish and a delivery that came in one, the wish may have been first
        return Verdict("replaced" if wait.question in known.replaced else "already_delivered", known.id)
    entry = session.state.inbox[known.id]
    if any(question.number == wait.question for question in entry.questions):
        return None
    return Verdict("replaced", known.id, entry.uncertain)


def idle(session: Session) -> bool:
    """No turn runs, and nothing will begin one by itself."""
    return at_rest(session.state)
