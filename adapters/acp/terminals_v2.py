"""The terminals that an ACP v2 agent shows: their output as text in the tool calls that show them.

v2 clients get the agent's own updates; this is for every other wire, and for who comes later. Bounded: the last 64 KiB
of each terminal, 64 terminals a session. No I/O, no clock.
"""

import base64
import binascii
import re
from typing import Any, TypeAlias

from adapters.acp.translate_content import marked, present, rows, string, table
from adapters.acp.translate_v2_content import kept, text

Json: TypeAlias = Any

KEEP = 64 * 1024  # bytes of output
TERMINALS = 64
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")


class Terminal:
    def __init__(self) -> None:
        self.head: dict[str, Json] = {}  # command, cwd, exitStatus, size, as last told
        self.output = b""
        self.dropped = 0  # bytes of its beginning
        self.can_cancel = False
        self.shown = -1  # bytes that had come when a tool call last showed it
        self.came = 0

    def take(self, value: dict[str, Json]) -> None:
        """``terminal_update`` (fields are patched, null clears) or ``terminal_output_chunk``."""
        for key in ("command", "cwd", "exitStatus", "size"):
            if key in value:
                self.head[key] = value[key]
        if "capabilities" in value:
            self.can_cancel = marked(table(value["capabilities"]).get("cancel"))
        if "output" in value:
            self.output, self.dropped, self.came, self.shown = b"", 0, 0, -1
            self._add(table(value["output"]).get("data"))
        if value.get("sessionUpdate") == "terminal_output_chunk":
            self._add(value.get("data"))

    def _add(self, data: Json) -> None:
        try:
            new = base64.b64decode(data, validate=True) if isinstance(data, str) else b""
        except (binascii.Error, ValueError):
            return
        self.came += len(new)
        self.output += new
        over = len(self.output) - KEEP
        if over > 0:
            self.output, self.dropped = self.output[over:], self.dropped + over

    @property
    def ended(self) -> bool:
        return isinstance(self.head.get("exitStatus"), dict)

    def due(self) -> bool:
        """Whether a tool call should show it anew: seldom enough that a long output is not written over and over."""
        return self.ended or self.shown < 0 or self.came - self.shown >= max(1, self.came // 8)

    def words(self) -> str:
        """The output as people read it, with what is known of its end."""
        words = _ANSI.sub("", self.output.decode("utf-8", "replace"))
        if self.dropped:
            words = f"[{self.dropped} bytes before]\n{words}"
        status = table(self.head.get("exitStatus"))
        code, signal = status.get("exitCode"), status.get("signal")
        if isinstance(signal, str):
            words += f"\n[ended by signal {signal}]"
        elif isinstance(code, int) and code != 0:
            words += f"\n[exit code {code}]"
        return words

    def item(self, terminal_id: str, item: dict[str, Json]) -> dict[str, Json]:
        """As content of a tool call in the shape of v1. ``item``: what v2 said there."""
        told = {"terminalId": terminal_id, **present(self.head)}
        told["output"] = {"data": base64.b64encode(self.output).decode()}
        if self.can_cancel:
            told["capabilities"] = {"cancel": {}}
        out = kept(text(self.words()), item)
        out["_meta"]["trunkline"]["terminal"] = told
        return out


class Terminals:
    """Of one session of the agent (a child has its own)."""

    def __init__(self) -> None:
        self._all: dict[str, Terminal] = {}
        self._calls: dict[str, list[Json]] = {}  # call id → its content, of calls that show a terminal
        self._dirty: dict[str, None] = {}

    def take(self, value: dict[str, Json]) -> None:
        terminal_id = string(value.get("terminalId"))
        if terminal_id is None:
            return
        self._of(terminal_id).take(value)
        for call_id, content in self._calls.items():
            if terminal_id in _shown(content):
                self._dirty[call_id] = None

    def can_cancel(self, terminal_id: str) -> bool:
        found = self._all.get(terminal_id)
        return found is not None and found.can_cancel and not found.ended

    def shows(self, call_id: str) -> bool:
        """Whether this call's content has a terminal."""
        return call_id in self._calls

    def tool(self, call_id: str, content: Json, append: Json) -> tuple[Json, Json]:
        """The content and the appended content of a tool call's update, with terminals as text."""
        if isinstance(content, list):
            self._calls.pop(call_id, None)
        if isinstance(content, list) and _shown(content):
            self._calls[call_id] = content
        elif isinstance(append, list) and (call_id in self._calls or _shown(append)):
            self._calls[call_id] = [*self._calls.get(call_id, ()), *append]
        self._dirty.pop(call_id, None)
        for known in [call for call in self._calls if call != call_id][: max(0, len(self._calls) - TERMINALS)]:
            del self._calls[known]
        return self._items(content), self._items(append)

    def refresh(self, call_id: str = "", whole: bool = False) -> list[tuple[str, list[Json]]]:
        """Tool calls whose terminals have enough more to show (``whole``: anything), with their whole content.
        ``call_id``: only of this one, whatever it has.
        """
        out = []
        for each in list(self._dirty):
            content = self._calls.get(each, [])
            if call_id in ("", each) and (call_id or whole or any(self._of(t).due() for t in _shown(content))):
                del self._dirty[each]
                out.append((each, self._items(content)))
        return out

    def _items(self, content: Json) -> Json:
        if not isinstance(content, list):
            return content
        out = []
        for item in content:
            terminal_id = string(item.get("terminalId")) if table(item).get("type") == "terminal" else None
            if terminal_id is None:
                out.append(item)
                continue
            terminal = self._of(terminal_id)
            terminal.shown = terminal.came
            out.append(terminal.item(terminal_id, item))
        return out

    def _of(self, terminal_id: str) -> Terminal:
        found = self._all.get(terminal_id)
        if found is None:
            while len(self._all) >= TERMINALS:
                over = next((key for key, each in self._all.items() if each.ended), next(iter(self._all)))
                del self._all[over]
            found = self._all[terminal_id] = Terminal()
        return found


def _shown(content: Json) -> list[str]:
    """The terminals that a tool call's content shows."""
    return [
        item["terminalId"]
        for item in rows(content)
        if item.get("type") == "terminal" and isinstance(item.get("terminalId"), str)
    ]
