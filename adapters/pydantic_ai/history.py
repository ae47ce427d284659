"""A session's message history on disk: one file a session, replaced whole and atomically."""

import json
import os
import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from adapters.pydantic_ai import wire

NAME = re.compile(r"[0-9a-f]{32}")


class History:
    """The file of one session. ``own_id``: 32 hex digits. May be used from several threads."""

    def __init__(self, folder: Path, own_id: str) -> None:
        self.path = folder / f"{own_id}.json"
        self._lock = threading.Lock()
        self._given = self._written = 0

    def load(self) -> list[wire.ModelMessage] | None:
        """What was said, ready for a new prompt; None if there is no file, or none that can be read.

        An unreadable file is kept beside, as ``….json.bad``.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return mended(wire.ModelMessagesTypeAdapter.validate_json(data))
        except ValueError:
            os.replace(self.path, self.path.with_suffix(".json.bad"))
            return None

    def ticket(self) -> int:
        """Taken when a state is to be saved: an older state never replaces a newer one."""
        self._given += 1
        return self._given

    def save(self, messages: Sequence[wire.ModelMessage], ticket: int) -> None:
        """Raises OSError; then the file is what it was."""
        try:
            data = wire.ModelMessagesTypeAdapter.dump_json(list(messages))
        except ValueError:  # half of a surrogate pair, from a model or a file's name: it becomes "?"
            plain = wire.ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
            data = json.dumps(plain, ensure_ascii=False).encode("utf-8", "replace")
        temporary = self.path.with_suffix(".json.new")
        with self._lock:
            if ticket < self._written:
                return
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
            self._written = ticket


def mended(messages: list[wire.ModelMessage]) -> list[wire.ModelMessage]:
    """A history that takes a new prompt: tool calls whose results a crash or a kill lost are marked as interrupted."""
    if messages and isinstance(last := messages[-1], wire.ModelResponse) and last.tool_calls:
        return [*messages[:-1], replace(last, state="interrupted")]
    return messages


def is_own_id(value: str) -> bool:
    """Whether this can be one of our ids: it becomes the name of a file."""
    return NAME.fullmatch(value) is not None
