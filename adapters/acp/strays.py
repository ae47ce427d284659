"""Messages for session ids that nobody has announced yet: kept for a while, within bounds. No I/O, no clock."""

from typing import Any

SESSIONS, MESSAGES, SECONDS = 64, 256, 30.0


class Strays:
    """At most 256 messages for each of 64 ids, for 30 seconds from an id's first."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[float, list[Any]]] = {}

    def add(self, session_id: str, message: Any, now: float) -> list[str]:
        """Keep ``message``. Returns the ids of which something is dropped, each told once."""
        dropped = [key for key, (since, _) in self._kept.items() if now - since > SECONDS]
        for key in dropped:
            del self._kept[key]
        if session_id not in self._kept and len(self._kept) >= SESSIONS:
            return [*dropped, session_id]
        _, messages = self._kept.setdefault(session_id, (now, []))
        if len(messages) < MESSAGES:
            messages.append(message)
        elif len(messages) == MESSAGES:
            messages.append(None)
            dropped.append(session_id)
        return dropped

    def take(self, session_id: str) -> list[Any]:
        """What was kept for this id, in order; it is forgotten here."""
        _, messages = self._kept.pop(session_id, (0.0, []))
        return messages[:MESSAGES]

    def clear(self) -> None:
        self._kept.clear()
