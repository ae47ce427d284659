"""Content of ACP v2's tool calls in the shape of v1, which is what the core and every other wire show. Pure.

A git patch becomes one diff a hunk, a terminal its output as text. What v2 said is kept beside the first item that it
became (``_meta.trunkline.acp2``; null on those that follow), so that a v2 client gets it back unchanged.
"""

import re
from typing import Any, TypeAlias

from adapters.acp.translate_content import rows, string, table

Json: TypeAlias = Any

LONG = 1_000_000  # characters of a patch that is still read; a longer one is shown as text
_HUNK = re.compile(r"^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


def kept(item: dict[str, Json], of: Json) -> dict[str, Json]:
    """``item`` with what it was on v2 beside it."""
    meta = table(item.get("_meta"))
    return {**item, "_meta": {**meta, "trunkline": {**table(meta.get("trunkline")), "acp2": of}}}


def text(value: str) -> dict[str, Json]:
    return {"type": "content", "content": {"type": "text", "text": value}}


def content(value: Json) -> list[Json]:
    """A tool call's content in the shape of v1; terminals stay as they are (``terminals_v2`` shows them)."""
    out: list[Json] = []
    for item in rows(value):
        if item.get("type") == "diff" and "changes" in item:
            out += diff(item)
        else:
            out.append(item)
    return out


def diff(item: dict[str, Json]) -> list[dict[str, Json]]:
    """A diff of v2 as diffs of v1, one a hunk: old and new text of just these lines, as agents write them on v1.

    A whole file that was added or deleted is one hunk, so its text is complete. Without a readable patch it is a text.
    """
    patch = table(item.get("patch"))
    body = string(patch.get("text"))
    found: list[dict[str, Json]] = []
    if body is not None and patch.get("format") == "git_patch" and len(body) <= LONG:
        paths = [path for change in rows(item.get("changes")) if (path := _path(change))]
        found = _hunks(body, paths)
    if not found:
        words = [f"{change.get('operation')} {_path(change)}" for change in rows(item.get("changes"))]
        found = [text(body if body else "\n".join(words))]
    return [kept(found[0], item), *(kept(each, None) for each in found[1:])]


def _path(change: dict[str, Json]) -> str:
    return string(change.get("path")) or string(change.get("newPath")) or string(change.get("oldPath")) or ""


def _hunks(patch: str, paths: list[str]) -> list[dict[str, Json]]:
    """The hunks of a git patch. The paths are those of the changes, in order: in a patch they are relative."""
    hunks: list[_Hunk] = []
    file, path, added, headed = -1, "", False, False
    hunk: _Hunk | None = None
    for line in patch.splitlines(keepends=True):
        if hunk is not None and (hunk.open or line.startswith("\\")):
            hunk.take(line)
        elif line.startswith("diff --git ") or (line.startswith("--- ") and not headed):
            headed = line.startswith("diff --git ")
            file, hunk = file + 1, None
            path = paths[file] if file < len(paths) else ""
            added = line.startswith("--- /dev/null")
        elif line.startswith("--- "):
            headed, added = False, line.startswith("--- /dev/null")
        elif line.startswith("+++ "):
            path = path or line[4:].strip().removeprefix("b/")
        elif path and (found := _HUNK.match(line)):
            hunk = _Hunk(path, added, int(found[1] or 1), int(found[2] or 1))
            hunks.append(hunk)
    return [
        {
            "type": "diff",
            "path": each.path,
            "oldText": None if each.added else "".join(each.old),
            "newText": "".join(each.new),
        }
        for each in hunks
    ]


class _Hunk:
    """One hunk while it is read: so many lines of the old and of the new text are left."""

    def __init__(self, path: str, added: bool, old: int, new: int) -> None:
        self.path, self.added = path, added
        self.old: list[str] = []
        self.new: list[str] = []
        self._left = [old, new]
        self._last: tuple[list[str], ...] = ()

    @property
    def open(self) -> bool:
        return self._left[0] > 0 or self._left[1] > 0

    def take(self, line: str) -> None:
        if line.startswith("\\"):  # the line before has no newline at its end
            for side in self._last:
                side[-1] = side[-1].removesuffix("\n")
            return
        kind, rest = line[:1], line[1:]
        self._last = {"-": (self.old,), "+": (self.new,)}.get(kind, (self.old, self.new))
        for side in self._last:
            side.append(rest if kind in "-+ " else line)
            self._left[0 if side is self.old else 1] -= 1
