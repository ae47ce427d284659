"""What the demo agent's threads pass around: sessions, turns, and the errors that unwind them. See ``demo``.

Standard library and msgspec only.
"""

import threading
from collections import deque
from typing import Any

from adapters.acp.demo_state import History

Json = dict[str, Any]
MODES = [
    {"id": "code", "name": "Code", "description": "Runs tools at once"},
    {"id": "ask", "name": "Ask", "description": "Asks before every tool"},
]
MODELS = [{"value": "quick", "name": "Demo Quick"}, {"value": "careful", "name": "Demo Careful"}]


class Cancelled(Exception):
    """The turn was cancelled: unwinds the command that runs."""


class Fault(Exception):
    """A JSON-RPC error answer."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error: Json = {"code": code, "message": message}
        if data is not None:
            self.error["data"] = data


class Turn:
    def __init__(self, request: Any, prompt: list[Json], detached: bool = False) -> None:
        self.request = request
        self.prompt = prompt
        self.detached = detached  # started by a steer: nobody gets its result
        self.own = False  # begun by the agent: it has no message of a person
        self.user_id = ""  # of the message that begins it, where that is known before
        self.failure = ""  # why it ends as an error
        self.cancelled = False
        self.steers: deque[tuple[Any, list[Json]]] = deque()  # and how each is answered
        self.late: list[str] = []
        self.stop = "end_turn"
        self.role = ""  # of the message that is open
        self.message_id = ""
        self.words = 0


class Session:
    def __init__(self, session_id: str, history: History) -> None:
        self.id = session_id
        self.history = history
        self.turns: deque[Turn] = deque()
        self.running: Turn | None = None
        self.worker: threading.Thread | None = None
        self.allowed: set[str] = set()
        self.calls = 0
        self.used = 0

    def state(self) -> Json:
        """What session/new, load and resume answer beside the id."""
        meta = self.history.meta
        return {
            "modes": {"currentModeId": meta["mode"], "availableModes": MODES},
            "configOptions": self.options(),
        }

    def options(self) -> list[Json]:
        return [
            {
                "id": "model",
                "name": "Model",
                "category": "model",
                "type": "select",
                "currentValue": self.history.meta["model"],
                "options": MODELS,
            }
        ]
