"""What was said in a session, as lines that every wire can be brought to: what must be equal on all of them.

``user ID TEXT``, ``agent ID TEXT``, ``thought ID TEXT``, ``tool ID STATE TITLE``. A message with a tool call in its
middle is two lines of one id. What each wire may show differently is written out in docs/message-ids.md.
"""

from typing import Any

from gateway.core.content import text_of
from gateway.core.model import Pending
from gateway.core.transcript import TextPart, ToolPart, Transcript, UserItem

Json = dict[str, Any]
OK, BAD, OPEN = "ok", "bad", "open"
STATES = {"completed": OK, "failed": BAD, "cancelled": BAD, "error": BAD, "in_progress": OPEN, "pending": OPEN}
STATES |= {"running": OPEN}


class Lines:
    """Lines in the making: text of the message that is at the end is appended to it."""

    def __init__(self) -> None:
        self.rows: list[list[str]] = []  # kind, id, rest

    def say(self, kind: str, name: str, text: str) -> None:
        if self.rows and self.rows[-1][:2] == [kind, name]:
            self.rows[-1][2] += text
        else:
            self.rows.append([kind, name, text])

    def tool(self, name: str, state: str | None, title: str | None) -> None:
        for row in self.rows:
            if row[:2] == ["tool", name]:
                before, _, words = row[2].partition(" ")
                row[2] = f"{before if state is None else STATES[state]} {words if title is None else title}"
                return
        self.rows.append(["tool", name, f"{STATES[state or 'pending']} {title or ''}"])

    def set(self, kind: str, name: str, text: str) -> None:
        """The whole text of a message, wherever it is."""
        for row in self.rows:
            if row[:2] == [kind, name]:
                row[2] = text
                return
        self.rows.append([kind, name, text])

    def told(self) -> list[str]:
        return [" ".join(row) for row in self.rows if row[0] == "tool" or row[2]]


def of_transcript(transcript: Transcript, ascending: bool) -> list[str]:
    """The truth. ``ascending``: user messages by the ids that OpenCode has for them."""
    lines = Lines()
    for item in transcript.items:
        if isinstance(item, UserItem):
            message = item.message
            lines.say("user", message.ascending_id if ascending else message.id, text_of(message.content))
            continue
        for part in item.parts:
            if isinstance(part, TextPart):
                lines.say(part.role, part.message_id, part.text)
            elif isinstance(part, ToolPart):
                lines.tool(part.call.call_id, part.call.status, part.call.title)
    return lines.told()


def of_steps(transcript: Transcript) -> list[str]:
    """As above, for a wire that knows an agent's messages by their steps, and tools without a title."""
    lines = Lines()
    for item in transcript.items:
        if isinstance(item, UserItem):
            lines.say("user", item.message.ascending_id, text_of(item.message.content))
            continue
        for part in item.parts:
            if isinstance(part, TextPart):
                lines.say(part.role, item.step.id, part.text)
            elif isinstance(part, ToolPart):
                lines.tool(part.call.call_id, part.call.status, None)
    return lines.told()


def of_pending(pending: list[Pending], ascending: bool) -> list[str]:
    """What waits, in its order: ``ID LANE STATE HELD TEXT``."""
    return [
        f"{m.ascending_id if ascending else m.id} {m.lane} {m.state} {m.held} {text_of(m.content)}" for m in pending
    ]


def apart(lines: list[str]) -> tuple[list[str], list[str]]:
    """Messages and tool calls: a wire that hangs the calls on their step's message orders each by itself."""
    return [x for x in lines if not x.startswith("tool ")], [x for x in lines if x.startswith("tool ")]
