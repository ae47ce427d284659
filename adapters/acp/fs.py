"""``fs/read_text_file`` and ``fs/write_text_file`` of ACP v1, served by the gateway inside the workspace.

The real path decides what is inside. Each folder on the way is opened without following symlinks, so that nobody moves
the target between the look and the deed. Everything here blocks: call it in a thread. Source: ACP v1, file system.
"""

import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from adapters.acp import rpc
from adapters.acp.owner import CallFailed
from gateway.paths import confine

MAX_FILE = 64 * 1024 * 1024  # bytes of a file that is read, also of one of which only some lines are wanted
MAX_TEXT = 16 * 1024 * 1024  # bytes of the text in one answer, as JSON, whose escapes make up to six of one

_CHUNK = 64 * 1024
_FOLDER = os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_IN_PIECES = ": read it in pieces, by line and limit"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Read(msgspec.Struct, frozen=True):
    """Params. ``line`` counts from 1; ``limit``: lines."""

    path: str
    line: int | None = None
    limit: int | None = None


class Write(msgspec.Struct, frozen=True):
    path: str
    content: str


def refused(code: int, message: str, **data: object) -> CallFailed:
    return CallFailed(rpc.RpcError(code, message, data or None))


def read(wish: Read, roots: Sequence[Path]) -> str:
    """A file's text, or some lines of it with their line ends. Raises CallFailed, Forbidden."""
    for name, value, least in (("line", wish.line, 1), ("limit", wish.limit, 0)):
        if value is not None and value < least:
            raise refused(rpc.INVALID_PARAMS, f"Invalid params: {name} must be {least} or more", field=name)
    with _folder(wish.path, roots, make=False) as (folder, name):
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        with os.fdopen(fd, "rb") as file:
            _regular(os.fstat(fd), wish.path)
            data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise _too_large(wish.path, MAX_FILE, "")
    if wish.line is not None or wish.limit is not None:
        data = _lines(data, (wish.line or 1) - 1, wish.limit)
    if len(data) > MAX_TEXT:
        raise _too_large(wish.path, MAX_TEXT, _IN_PIECES)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        message = f"{wish.path} is not UTF-8 text (byte {error.start} of what was asked for)"
        raise refused(rpc.INVALID_PARAMS, message, path=wish.path, reason="not_text") from None
    if json_size(text) > MAX_TEXT:
        raise _too_large(wish.path, MAX_TEXT, f" as JSON{_IN_PIECES}")
    return text


def json_size(text: str) -> int:
    """Bytes of the JSON string."""
    return len(msgspec.json.encode(text))


def _lines(data: bytes, skip: int, limit: int | None) -> bytes:
    start = _after(data, 0, skip)
    return data[start:] if limit is None else data[start : _after(data, start, limit)]


def _after(data: bytes, at: int, lines: int) -> int:
    """Where the line begins that is so many after the one at ``at``; the end if there are fewer."""
    while lines and at < len(data):
        # Counting is much faster than finding each; the last chunk is gone through line by line.
        count = data.count(b"\n", at, at + _CHUNK)
        if count < lines:
            lines -= count
            at += _CHUNK
            continue
        for _ in range(lines):
            at = data.find(b"\n", at) + 1
        return at
    return min(at, len(data))


def write(wish: Write, roots: Sequence[Path]) -> None:
    """Make or replace a file, whole or not at all, with the folders that it needs. Raises CallFailed, Forbidden."""
    with _folder(wish.path, roots, make=True) as (folder, name):
        mode = None
        with suppress(FileNotFoundError):
            before = os.stat(name, dir_fd=folder, follow_symlinks=False)
            _regular(before, wish.path)
            mode = stat.S_IMODE(before.st_mode)
        draft = f".{secrets.token_hex(8)}.tmp"
        fd = os.open(draft, _NEW, 0o666, dir_fd=folder)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(wish.content.encode("utf-8", "replace"))  # half a surrogate pair is no text
                if mode is not None:
                    os.fchmod(fd, mode)
            os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(draft, dir_fd=folder)
            raise


@contextmanager
def _folder(path: str, roots: Sequence[Path], make: bool) -> Iterator[tuple[int, str]]:
    """The open folder that a path is in, and its name there. What the system refuses is said as CallFailed."""
    real = confine(path, roots)
    root = next(each for each in map(os.path.realpath, roots) if real.is_relative_to(each))
    parts = real.relative_to(root).parts
    fd = -1
    try:
        if not parts:
            raise IsADirectoryError
        fd = os.open(root, _FOLDER)
        for part in parts[:-1]:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=fd)
            inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd, parts[-1]
    except FileNotFoundError:
        raise refused(rpc.NOT_FOUND, f"Resource not found: {path}", path=path) from None
    except IsADirectoryError:
        raise refused(rpc.INVALID_PARAMS, f"{path} is a folder", path=path) from None
    except OSError as error:
        why = (error.strerror or "error").lower()
        raise refused(rpc.INTERNAL, f"{path}: {why}", path=path) from None
    finally:
        if fd >= 0:
            os.close(fd)


def _regular(found: os.stat_result, path: str) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError
    if not stat.S_ISREG(found.st_mode):
        raise refused(rpc.INVALID_PARAMS, f"{path} is no regular file", path=path)


def _too_large(path: str, limit: int, hint: str) -> CallFailed:
    message = f"{path} is longer than {limit >> 20} MiB{hint}"
    return refused(rpc.INVALID_PARAMS, message, path=path, reason="too_large", limit=limit)
