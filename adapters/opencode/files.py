"""Files of the workspace, for reading only: a folder, a file, all files under a folder, and a search in them.

Everything is confined by its real path, opened without following a last symlink, and looked at again once it is open:
what changes meanwhile is refused, not followed. Blocking work happens in threads or in a process that can be ended.
"""

import asyncio
import json
import os
import re
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from adapters.opencode.errors import Invalid, cut
from adapters.opencode.git import Git, GitError, TooMuch, end, environment, talk
from gateway.core.errors import Forbidden, NotFound, TooLarge
from gateway.paths import confine

LARGEST = 8 << 20  # bytes of a file that is told as content
FILES = 50_000  # of one folder, all in all
SECONDS = 5.0  # for walking a folder without git
SEARCH_SECONDS = 10.0
SEARCH_OUTPUT = 8 << 20  # bytes
SKIPPED = {".git", ".hg", ".svn", "node_modules", ".venv", "__pycache__"}  # where there is no git to ask

_SEARCH = Path(__file__).with_name("search_process.py")


def inside(folder: str, path: str, where: str) -> Path:
    """The real path of ``path``, relative to ``folder`` or absolute, which must be inside of ``folder``.

    Raises Forbidden, or Invalid for what is no path; ``where`` names the field.
    """
    if "\0" in path:
        raise Invalid(f"A path has no NUL in it\n  at {where}", "Query")
    try:
        return confine(os.path.join(folder, path) if path else folder, [Path(folder)])
    except Forbidden as error:
        raise Forbidden(f"{cut(path)!r} {_why(error.message)}\n  at {where}") from None


def _why(message: str) -> str:
    """What ``confine`` says, without the whole path in front."""
    found = re.search(r"(is|has|goes|cannot) .*", message.rpartition("' ")[2] or message, re.DOTALL)
    return found[0] if found else message


def read(path: Path, limit: int = LARGEST, name: str = "") -> bytes:
    """A regular file's bytes. ``path`` is confined. Raises NotFound, Invalid, Forbidden, TooLarge, naming ``name``."""
    shown = cut(name or str(path))
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotFound(f"File not found: {shown}") from None
    except OSError as error:
        raise Forbidden(f"{shown} cannot be read: {(error.strerror or 'error').lower()}") from None
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            what = "a folder, not a file" if stat.S_ISDIR(about.st_mode) else "no regular file"
            raise Invalid(f"{shown} is {what}", "Query")
        _same(handle, path, shown)
    except BaseException:
        os.close(handle)
        raise
    with os.fdopen(handle, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise TooLarge(f"{shown} is larger than {limit >> 20} MiB" if limit >> 20 else f"{shown} is too large")
    return data


def _same(handle: int, path: Path, shown: str) -> None:
    """That a folder on the way was not made a symlink since ``path`` was resolved."""
    try:
        real = os.readlink(f"/proc/self/fd/{handle}")
    except OSError:  # no /proc: nothing to compare
        return
    if real != str(path):
        raise Forbidden(f"{shown} was changed while it was opened")


# --- folders -------------------------------------------------------------------------------------------------------


class Entry:
    """What stands in a folder. ``path`` is relative to the folder that was asked about."""

    def __init__(self, name: str, path: str, is_folder: bool) -> None:
        self.name = name
        self.path = path
        self.is_folder = is_folder


def entries(folder: str, path: Path, name: str) -> list[Entry]:
    """Folders first, then files, by name. Symlinks are what they lead to, if that is inside; else left out."""
    try:
        with os.scandir(path) as found:
            listed = sorted(found, key=lambda one: one.name)[:FILES]
    except FileNotFoundError:
        raise NotFound(f"Folder not found: {cut(name)}") from None
    except NotADirectoryError:
        raise Invalid(f"{cut(name)} is a file, not a folder", "Query") from None
    except OSError as error:
        raise Forbidden(f"{cut(name)} cannot be read: {(error.strerror or 'error').lower()}") from None
    told = [one for one in (_entry(folder, each) for each in listed) if one is not None]
    return sorted(told, key=lambda one: not one.is_folder)


def _entry(folder: str, one: "os.DirEntry[str]") -> Entry | None:
    try:
        one.name.encode()
        if one.is_symlink():
            confine(one.path, [Path(folder)])
        is_folder = one.is_dir()
        if not is_folder and not one.is_file():
            return None
    except (OSError, Forbidden, UnicodeEncodeError):
        return None
    return Entry(one.name, os.path.relpath(one.path, folder), is_folder)


async def tree(folder: str) -> list[str]:
    """All files under a folder, relative to it, in order; without the ignored ones where git can tell."""
    git = await Git.open(Path(folder))
    if git is not None:
        try:
            return await asyncio.to_thread(_there, folder, await git.files())
        except GitError:
            pass
    return sorted(await asyncio.to_thread(lambda: list(_walk(folder))))


def _there(folder: str, listed: list[str]) -> list[str]:
    """git still lists what was deleted."""
    return [path for path in listed[:FILES] if os.path.lexists(os.path.join(folder, path))]


def _walk(folder: str) -> Iterator[str]:
    until = time.monotonic() + SECONDS
    left = FILES
    todo = [folder]
    while todo and left > 0 and time.monotonic() < until:
        current = todo.pop()
        try:
            with os.scandir(current) as found:
                for one in found:
                    try:
                        one.name.encode()
                    except UnicodeEncodeError:
                        continue
                    if one.is_dir(follow_symlinks=False):
                        if one.name not in SKIPPED:
                            todo.append(one.path)
                    elif one.is_file(follow_symlinks=False) and left > 0:
                        left -= 1
                        yield os.path.relpath(one.path, folder)
        except OSError:
            continue


def folders_of(files: Sequence[str]) -> list[str]:
    """All folders that these files are in, each with a slash at its end."""
    found: set[str] = set()
    for path in files:
        parent = path.rpartition("/")[0]
        while parent and parent + "/" not in found:
            found.add(parent + "/")
            parent = parent.rpartition("/")[0]
    return sorted(found)


def rank(word: str, paths: Sequence[str], limit: int) -> list[str]:
    """The paths that fit a word best: in the name, in the path, or with its letters in this order."""
    wanted = word.strip().lower()
    if not wanted:
        return list(paths[:limit])
    letters = re.compile(".*?".join(re.escape(char) for char in wanted), re.DOTALL)
    scored: list[tuple[int, int, str]] = []
    for path in paths:
        lower = path.lower()
        name = lower.rstrip("/").rpartition("/")[2]
        if name == wanted or lower == wanted:
            score = 0
        elif name.startswith(wanted):
            score = 1
        elif wanted in name:
            score = 2
        elif wanted in lower:
            score = 3
        else:
            found = letters.search(lower)
            if found is None:
                continue
            score = 4 + found.end() - found.start() - len(wanted)
        scored.append((score, len(path), path))
    return [path for _, _, path in sorted(scored)[:limit]]


# --- searching in files --------------------------------------------------------------------------------------------


async def search(folder: str, pattern: str, limit: int) -> list[dict[str, Any]]:
    """Lines of text files that a regular expression matches, in a process of its own: an expression may be slow.

    Raises Invalid for a pattern that is none, or that takes too long or finds too much.
    """
    job = {"folder": folder, "pattern": pattern, "limit": limit, "files": await tree(folder), "largest": LARGEST}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-IS",
        str(_SEARCH),
        env=environment(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(SEARCH_SECONDS):
            data = await talk(process, json.dumps(job).encode(), SEARCH_OUTPUT)
            await process.wait()
    except TimeoutError:
        raise _hard(f"The search took longer than {SEARCH_SECONDS:g} s: make the pattern simpler") from None
    except TooMuch:
        raise _hard("The search found too much: make the pattern narrower") from None
    finally:
        await end(process)
    try:
        told = json.loads(data)
    except ValueError:
        raise _hard("The search ended without an answer: make the pattern simpler") from None
    if "error" in told:
        raise _hard(f"Not a regular expression: {told['error']}")
    found: list[dict[str, Any]] = told["found"]
    return found


def _hard(why: str) -> Invalid:
    return Invalid(f'{why}\n  at ["pattern"]', "Query")
