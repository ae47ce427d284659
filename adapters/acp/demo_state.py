"""What the demo agent keeps: message ids in OpenCode's layout, and a history file a session.

Standard library and msgspec only (see ``demo``). A history file is JSON lines: ``{"meta": {...}}`` (the last one
counts) and updates to tell again; long generated texts are kept as their recipe (``flood``, ``big``).
"""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

Json = dict[str, Any]
FLOOD_TEXT = " the quick brown fox jumps over it. "  # with its eight digits: 44 characters a chunk
BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Ids:
    """Fresh ids, ascending inside this process."""

    def __init__(self) -> None:
        self.clock = 0
        self.lock = threading.Lock()

    def message(self) -> str:
        """``msg_`` + 12 hex digits of milliseconds * 4096 + counter + 14 base62 digits."""
        with self.lock:
            self.clock = max(self.clock + 1, time.time_ns() // 1_000_000 * 4096 + 1)
            clock = self.clock
        tail = "".join([BASE62[b % 62] for b in os.urandom(14)])
        return f"msg_{clock & 0xFFFFFFFFFFFF:012x}{tail}"


def expand(update: Json) -> Iterator[Json]:
    """The updates that a stored one stands for."""
    head = {k: v for k, v in update.items() if k not in ("flood", "big")}
    if "flood" in update:
        for i in range(update["flood"]):
            yield {**head, "content": {"type": "text", "text": f"{i:08d}{FLOOD_TEXT}"}}
    elif "big" in update:
        yield {**head, "content": {"type": "text", "text": "x" * update["big"]}}
    else:
        yield update


class History:
    """One session's file. Adjacent chunks of one message are stored as one, when the message ends."""

    def __init__(self, path: Path | None, meta: Json) -> None:
        self.path = path
        self.meta = meta
        self.updates: list[Json] = []
        self.saved = 0

    @classmethod
    def read(cls, path: Path) -> "History | None":
        """The history in ``path``, or None if there is none. A torn last line is left out."""
        try:
            lines = path.read_bytes().split(b"\n")
        except OSError:
            return None
        history = cls(path, {})
        for line in lines:
            try:
                entry = msgspec.json.decode(line)
            except msgspec.DecodeError:
                continue
            if "meta" in entry:
                history.meta = entry["meta"]
            else:
                history.updates.append(entry)
        history.saved = len(history.updates)
        return history if history.meta else None

    def set(self, **fields: Any) -> None:
        self.meta = {**self.meta, **fields}
        self._write([{"meta": self.meta}])

    def add(self, update: Json) -> None:
        """Keep an update; text that continues the last one joins it."""
        last = self.updates[-1] if len(self.updates) > self.saved else None
        text = (update.get("content") or {}).get("text") if isinstance(update.get("content"), dict) else None
        if last is not None and text is not None and update["sessionUpdate"] != "user_message_chunk":
            known = last.get("content")
            if (
                isinstance(known, dict)
                and "text" in known
                and last["sessionUpdate"] == update["sessionUpdate"]
                and last.get("messageId") == update.get("messageId")
            ):
                known["text"] += text
                return
        self.flush()
        self.updates.append({**update, "content": dict(update["content"])} if text is not None else update)

    def flush(self) -> None:
        """Write what is not in the file yet."""
        self._write(self.updates[self.saved :])
        self.saved = len(self.updates)

    def _write(self, entries: list[Json]) -> None:
        if self.path is None or not entries:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries))
        except OSError:
            self.path = None  # no place to keep it: the session lives on, it cannot be loaded later
