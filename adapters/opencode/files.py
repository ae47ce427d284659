"""Files of the workspace, for reading only: a folder, a file, all files under a folder, and a search in them.

Everything is confined by its real path, opened without following a last symlink, and looked at again once it is open:
what changes meanwhile is refused, not followed. Blocking work happens in threads or in a process that can be ended.
"""

import asyncio
import heapq
import json
import os
import re
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
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
    except OSError:  # a symlink on the way is none any more
        raise Forbidden(f"{cut(path)!r} was changed while it was resolved\n  at {where}") from None


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
        with _open_folder(path, cut(name)) as handle:
            with os.scandir(handle) as found:
                listed = sorted(found, key=lambda one: one.name)[:FILES]
            told = [one for one in (_entry(folder, path, each) for each in listed) if one is not None]
    except FileNotFoundError:
        raise NotFound(f"Folder not found: {cut(name)}") from None
    except NotADirectoryError:
        raise Invalid(f"{cut(name)} is a file, not a folder", "Query") from None
    except OSError as error:
        raise Forbidden(f"{cut(name)} cannot be read: {(error.strerror or 'error').lower()}") from None
    return sorted(told, key=lambda one: not one.is_folder)


@contextmanager
def _open_folder(path: Path, shown: str) -> Iterator[int]:
    """A handle of a folder whose real path is ``path``. Raises OSError, and Forbidden for one that was changed."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:
        if path.is_symlink():
            raise Forbidden(f"{shown} was changed while it was opened") from None
        raise
    try:
        _same(handle, path, shown)
        yield handle
    finally:
        os.close(handle)


def _entry(folder: str, path: Path, one: "os.DirEntry[str]") -> Entry | None:
    whole = os.path.join(path, one.name)
    try:
        one.name.encode()
        if one.is_symlink():
            confine(whole, [Path(folder)])
        is_folder = one.is_dir()
        if not is_folder and not one.is_file():
            return None
    except (OSError, Forbidden, UnicodeEncodeError):
        return None
    return Entry(one.name, os.path.relpath(whole, folder), is_folder)


async def tree(folder: str, roots: Sequence[Path]) -> list[str]:
    """All files under a folder, relative to it, in order; without the ignored ones where git can tell."""
    git = await Git.open(Path(folder), roots)
    if git is not None:
        try:
            return await asyncio.to_thread(_there, folder, await git.files())
        except GitError:
            pass
    return sorted(await asyncio.to_thread(lambda: list(_walk(folder))))


def _there(folder: str, listed: list[str]) -> list[str]:
    """git still lists what was deleted, and lists repositories in this one: they are folders."""
    found = []
    for path in listed[:FILES]:
        with suppress(OSError):
            mode = os.lstat(os.path.join(folder, path)).st_mode
            if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
                found.append(path)
    return found


def _walk(folder: str) -> Iterator[str]:
    until = time.monotonic() + SECONDS
    left = FILES
    todo = [folder]
    while todo and left > 0 and time.monotonic() < until:
        current = todo.pop()
        try:
            with _open_folder(Path(current), current) as handle, os.scandir(handle) as found:
                for one in found:
                    whole = os.path.join(current, one.name)
                    try:
                        one.name.encode()
                    except UnicodeEncodeError:
                        continue
                    if one.is_dir(follow_symlinks=False):
                        if one.name not in SKIPPED:
                            todo.append(whole)
                    elif one.is_file(follow_symlinks=False) and left > 0:
                        left -= 1
                        yield os.path.relpath(whole, folder)
        except (OSError, Forbidden):
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
            spread = _spread(wanted, lower)
            if spread is None:
                continue
            score = 4 + spread - len(wanted)
        scored.append((score, len(path), path))
    return [path for _, _, path in heapq.nsmallest(limit, scored)]


def _spread(letters: str, text: str) -> int | None:
    """How many characters the letters take in this order, each where it comes first; None if they do not."""
    begin = at = text.find(letters[0])
    for letter in letters:
        at = text.find(letter, at) + 1 if at >= 0 else 0
        if not at:
            return None
    return at - begin


async def named(folder: str, roots: Sequence[Path], word: str, kind: str | None, limit: int) -> list[str]:
    """Files and folders that fit a word, best first, or those of one ``kind``; a folder ends with a slash."""
    found = await tree(folder, roots)

    def best() -> list[str]:
        folders = [] if kind == "file" else folders_of(found)
        return rank(word, folders if kind == "directory" else [*folders, *found], limit)

    return await asyncio.to_thread(best)


# --- searching in files --------------------------------------------------------------------------------------------


async def search(folder: str, roots: Sequence[Path], pattern: str, limit: int) -> list[dict[str, Any]]:
    """Lines of text files that a regular expression matches, in a process of its own: an expression may be slow.

    Raises Invalid for a pattern that is none, or that takes too long or finds too much.
    """
    listed = await tree(folder, roots)
    job = {"folder": folder, "pattern": pattern, "limit": limit, "files": listed, "largest": LARGEST}
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
