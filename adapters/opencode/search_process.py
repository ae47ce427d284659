"""Searches files for a regular expression: a program of its own, so that whoever wants to can end it.

It reads one JSON object from stdin (``folder``, ``files`` relative to it, ``pattern``, ``limit`` of lines, ``largest``
file in bytes) and writes one: ``{"found": […]}`` in ripgrep's shape, or ``{"error": …}``. Standard library only.
"""

import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from typing import Any

LINE = 2000  # characters of a line that are told
PER_LINE = 100  # matches of one line


def is_inside(handle: int, root: str) -> bool:
    """Whether what was opened is under ``root``: a folder on the way may have become a symlink meanwhile."""
    try:
        return os.readlink(f"/proc/self/fd/{handle}").startswith(root.rstrip("/") + "/")
    except OSError:  # no /proc: nothing to compare
        return True


def matches(root: str, name: str, pattern: "re.Pattern[str]", largest: int) -> Iterator[dict[str, Any]]:
    """Matches in one file: none in what is no regular file, no text, or too large."""
    path = os.path.join(root, name)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return
    about = os.fstat(handle)
    if not stat.S_ISREG(about.st_mode) or about.st_size > largest or not is_inside(handle, root):
        os.close(handle)
        return
    with os.fdopen(handle, "rb") as file:
        data = file.read(largest)
    if b"\0" in data[:8192]:
        return  # no text
    offset = 0
    for number, raw in enumerate(data.splitlines(keepends=True), start=1):
        line = raw.decode(errors="replace")
        found = []
        for match in pattern.finditer(line.rstrip("\r\n")):
            if match.end() > match.start():
                start, stop = (len(line[:at].encode()) for at in match.span())
                found.append({"match": {"text": match[0][:LINE]}, "start": start, "end": stop})
            if len(found) == PER_LINE:
                break
        if found:
            yield {
                "path": {"text": name},
                "lines": {"text": line[:LINE]},
                "line_number": number,
                "absolute_offset": offset,
                "submatches": found,
            }
        offset += len(raw)


def search(job: dict[str, Any]) -> dict[str, Any]:
    try:
        pattern = re.compile(job["pattern"])
    except (re.error, OverflowError, RecursionError) as error:
        return {"error": str(error)}
    found: list[dict[str, Any]] = []
    root = job["folder"]  # a real path
    for name in job["files"]:
        try:
            folder = os.path.realpath(os.path.dirname(os.path.join(root, name)))
        except OSError:  # a symlink on the way is none any more
            continue
        if folder != root and not folder.startswith(root.rstrip("/") + "/"):
            continue  # a folder on the way is a symlink that leads out
        for one in matches(root, name, pattern, job["largest"]):
            found.append(one)
            if len(found) >= job["limit"]:
                return {"found": found}
    return {"found": found}


if __name__ == "__main__":
    json.dump(search(json.load(sys.stdin)), sys.stdout)
