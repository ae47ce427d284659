"""What tool calls changed in files → OpenCode's diffs, a file each. Pure.

An agent tells its changes as ``diff`` items of tool calls, each with the whole file or a piece of it, before and
after. They are added up; what an agent changes without telling (in a shell) is not known here.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from gateway.core.model import ToolCall
from gateway.core.transcript import Item, StepItem, ToolPart

LIMIT = 200_000  # characters of both sides; a diff of more costs too long
PATCHES = 1_000_000  # characters of all patches that are told at once
LINES = 20_000  # of both sides together


class FileDiff(msgspec.Struct, frozen=True, omit_defaults=True):
    """``before`` and ``after`` only where all changes are of one known text."""

    file: str
    additions: int
    deletions: int
    status: Literal["added", "deleted", "modified"] | UnsetType = UNSET
    patch: str | UnsetType = UNSET
    before: str | UnsetType = UNSET
    after: str | UnsetType = UNSET


class Change(NamedTuple):
    old: str | None
    new: str


def of_items(items: Iterable[Item], message_id: str = "") -> list[FileDiff]:
    """Of the completed calls in a transcript, or of the answers to one message (or of one step)."""
    calls = [
        part.call
        for item in items
        if isinstance(item, StepItem) and (not message_id or message_id in (item.step.id, item.step.parent_id))
        for part in item.parts
        if isinstance(part, ToolPart) and part.call.status == "completed"
    ]
    return of_calls(calls)


def diffs(content: Any) -> list[Mapping[str, Any]]:
    """ACP's diff items of a tool call: ``path``, ``oldText``, ``newText``."""
    if not isinstance(content, list):
        return []
    return [i for i in content if isinstance(i, dict) and i.get("type") == "diff" and isinstance(i.get("path"), str)]


def of_calls(calls: Iterable[ToolCall]) -> list[FileDiff]:
    return _of([call.content for call in calls], PATCHES)


def of_content(content: Any, limit: int) -> list[FileDiff]:
    """The files of one call."""
    return _of([content], limit)


def _of(contents: Iterable[Any], limit: int) -> list[FileDiff]:
    files: dict[str, list[Change]] = {}
    for content in contents:
        for item in diffs(content):
            old = item.get("oldText")
            change = Change(old if isinstance(old, str) else None, str(item.get("newText") or ""))
            told = files.setdefault(item["path"], [])
            if told and change.old is not None and told[-1].new == change.old:
                told[-1] = Change(told[-1].old, change.new)  # goes on from there: one change
            elif not told or told[-1] != change:
                told.append(change)
    left = limit
    found = []
    for path, changes in files.items():
        one = file_diff(path, changes, left)
        if isinstance(one.patch, str):
            left -= len(one.patch)
        if one.additions or one.deletions or one.status == "added":
            found.append(one)
    return found


def file_diff(path: str, changes: list[Change], left: int = PATCHES) -> FileDiff:
    additions = deletions = 0
    pieces: list[str] = []
    for change in changes:
        added, removed, text = compare(path, change.old, change.new)
        additions, deletions = additions + added, deletions + removed
        pieces.append(text)
    patch = "".join([pieces[0], *(_hunks(piece) for piece in pieces[1:])]) if all(pieces) else ""
    status: Literal["added", "modified"] = "added" if changes[0].old is None else "modified"
    whole = len(changes) == 1 and len(changes[0].new) + len(changes[0].old or "") <= min(left, LIMIT)
    return FileDiff(
        path,
        additions,
        deletions,
        status,
        patch if patch and len(patch) <= left else UNSET,
        (changes[0].old or "") if whole else UNSET,
        changes[0].new if whole else UNSET,
    )


def compare(path: str, old: str | None, new: str) -> tuple[int, int, str]:
    """Lines added, lines removed, and the unified diff (empty where it would be too long)."""
    before, after = (old or "").splitlines(keepends=True), new.splitlines(keepends=True)
    if len(before) + len(after) > LINES or len(old or "") + len(new) > LIMIT:
        return len(after), len(before), ""
    told = list(difflib.unified_diff(before, after, path, path))
    lines = [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in told]
    added = sum(line.startswith("+") for line in lines[2:])
    removed = sum(line.startswith("-") for line in lines[2:])
    return added, removed, "".join(lines)


def _hunks(patch: str) -> str:
    """Without the two lines that name the file."""
    return "".join(patch.splitlines(keepends=True)[2:])


def shown(diff: FileDiff, folder: str) -> FileDiff:
    """With its path relative to the session's folder, where it is in it."""
    return msgspec.structs.replace(diff, file=diff.file.removeprefix(folder.rstrip("/") + "/"))
