"""What differs in a work tree, file by file, from git's answers. Nothing is written."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from adapters.opencode import files
from adapters.opencode.errors import Invalid
from adapters.opencode.git import Git, GitError
from gateway.core.errors import GatewayError

CHANGES = 2000  # files
PATCH = 512 << 10  # bytes of one file's patch; a longer one is left out
PATCHES = 8 << 20  # bytes of all
Mode = Literal["git", "branch"]
Context = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_STATUS: dict[str, Literal["added", "deleted", "modified"]] = {"A": "added", "D": "deleted"}
_DIFF = ("--relative", "--no-ext-diff", "--no-textconv", "--no-renames", "--ignore-submodules=all", "--no-color")


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    file: str
    additions: int
    deletions: int
    status: Literal["added", "deleted", "modified"] | UnsetType = UNSET
    patch: str | UnsetType = UNSET


async def changes(
    folder: str, roots: Sequence[Path], mode: Mode, context: int | None, patches: bool = False
) -> list[Change]:
    """Of the work tree against HEAD (``git``) or against where its branch began (``branch``); new files that are not
    ignored are among them. Empty where there is no git, or nothing to compare with. Raises Invalid when git gives up.
    """
    git = await Git.open(Path(folder), roots)
    if git is None:
        return []
    try:
        base = await git.base(mode)
        if base is None:
            return []
        async with git.apart() as apart:
            counts = await apart.fields("diff", *_DIFF, "--numstat", "-z", base, "--", ".")
            states = await apart.fields("diff", *_DIFF, "--name-status", "-z", base, "--", ".")
            texts = await _patches(apart, base, context) if patches else {}
        fresh = await git.fields("ls-files", "-z", "--others", "--exclude-standard", "--", ".")
    except (GitError, OSError) as error:
        raise Invalid(f"What has changed cannot be told: {error}", "Query") from None
    status = dict(zip(states[1::2], states[::2], strict=False))
    found = []
    for line in counts[:CHANGES]:
        added, deleted, path = line.split("\t", 2)
        found.append(
            Change(
                path,
                _count(added),
                _count(deleted),
                _STATUS.get(status.get(path, ""), "modified"),
                texts.get(path, UNSET),
            )
        )
    known = {one.file for one in found}
    new = [path for path in fresh[: CHANGES - len(found)] if path not in known]
    found += await asyncio.to_thread(_fresh, folder, new, patches)
    return sorted(found, key=lambda one: one.file)


async def _patches(git: Git, base: str, context: int | None) -> dict[str, str]:
    """Patch by path. The order of git's patches is that of its names."""
    lines = () if context is None else (f"--unified={context}",)
    try:
        whole = await git.run("diff", *_DIFF, *lines, "--patch", base, "--", ".", limit=PATCHES)
        names = await git.fields("diff", *_DIFF, "--name-only", "-z", base, "--", ".")
    except GitError:
        return {}
    pieces = ("\n" + whole.decode(errors="replace")).split("\ndiff --git ")[1:]
    if len(pieces) != len(names):  # it changed between the two
        return {}
    told = {}
    for name, piece in zip(names, pieces, strict=True):
        if len(piece) <= PATCH:
            told[name] = f"diff --git {piece.rstrip()}\n"
    return told


def _fresh(folder: str, paths: list[str], patches: bool) -> list[Change]:
    found = []
    left = PATCHES
    for path in paths:
        try:
            real = files.inside(folder, path, path)
            if os.path.islink(os.path.join(folder, path)):
                continue
            data = files.read(real, PATCH, path)
        except GatewayError:  # too large, a pipe, gone by now
            found.append(Change(path, 0, 0, "added"))
            continue
        if b"\0" in data[:8192]:
            found.append(Change(path, 0, 0, "added"))
            continue
        lines = data.decode(errors="replace").split("\n")
        ended = lines[-1] == ""
        lines = lines[:-1] if ended else lines
        patch: str | UnsetType = UNSET
        if patches and len(data) <= left:
            left -= len(data)
            patch = _new_file(path, lines, ended)
        found.append(Change(path, len(lines), 0, "added", patch))
    return found


def _new_file(path: str, lines: list[str], ended: bool) -> str:
    head = f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n"
    if not lines:
        return head
    body = "".join(f"+{line}\n" for line in lines) + ("" if ended else "\\ No newline at end of file\n")
    count = "1" if len(lines) == 1 else f"1,{len(lines)}"
    return f"{head}@@ -0,0 +{count} @@\n{body}"


def _count(word: str) -> int:
    return int(word) if word.isdigit() else 0  # "-": a binary file
