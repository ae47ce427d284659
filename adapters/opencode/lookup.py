"""What an event does not say by itself and OpenCode's clients are shown with it: read from the sessions in memory.

Encoders ask here; they keep nothing.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from adapters.opencode.translate_diff import FileDiff, diffs, of_items, shown
from gateway.controller import SessionController
from gateway.core.ids import SessionId, TurnId
from gateway.core.model import Child
from gateway.core.transcript import StepItem, TextPart, ToolPart, Transcript

DIFFED = 1_000_000  # characters of a session's changes that are compared at the end of a turn


class Lookup:
    def __init__(self, controller: SessionController) -> None:
        self._controller = controller

    def child_of(self, session_id: str, message_id: str) -> Child | None:
        """The child session that a message was sent to."""
        transcript = self._transcript(session_id)
        return None if transcript is None else _recipient(transcript, message_id)

    def texts_to(self, session_id: str, child: Child) -> list[TextPart]:
        """The messages that a session sent to its child."""
        transcript = self._transcript(session_id)
        if transcript is None:
            return []
        return [
            part
            for item in transcript.items
            if isinstance(item, StepItem)
            for part in item.parts
            if isinstance(part, TextPart) and part.role == "session"
            if (to := _recipient(transcript, part.message_id)) is not None and to.session_id == child.session_id
        ]

    def changes(self, session_id: str, turn_id: TurnId) -> list[FileDiff]:
        """What a session changed in files, all in all; nothing if the turn changed none, or if it is too much."""
        transcript = self._transcript(session_id)
        if transcript is None or transcript.info is None:
            return []
        steps = [item for item in transcript.items if isinstance(item, StepItem)]
        calls = [part.call for step in steps for part in step.parts if isinstance(part, ToolPart)]
        calls = [call for call in calls if call.status == "completed" and diffs(call.content)]
        if not any(call.turn_id == turn_id for call in calls):
            return []
        if sum(_size(item) for call in calls for item in diffs(call.content)) > DIFFED:
            return []
        found = of_items(transcript.items)
        return [msgspec.structs.replace(shown(one, transcript.info.cwd), before=UNSET, after=UNSET) for one in found]

    def _transcript(self, session_id: str) -> Transcript | None:
        views = self._controller.family(SessionId(session_id))
        return next((view.transcript for view in views if view.info.id == session_id), None)


def _recipient(transcript: Transcript, message_id: str) -> Child | None:
    refs = transcript.refs.get(message_id)
    if refs is None or not refs.recipient_session:
        return None
    return next((c for c in transcript.children.values() if c.agent_session == refs.recipient_session), None)


def _size(item: Mapping[str, Any]) -> int:
    return len(str(item.get("oldText") or "")) + len(str(item.get("newText") or ""))
