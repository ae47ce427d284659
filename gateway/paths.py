"""Keeps paths that clients and agents name inside the workspace roots."""

import os
from collections.abc import Sequence
from pathlib import Path

from gateway.core.errors import Forbidden


def confine(path: str, roots: Sequence[Path]) -> Path:
    """The real path of ``path``, which must be inside one of ``roots`` (a root may itself be a symlink).

    A file that does not exist yet is allowed in a folder that does. Raises Forbidden for a relative path, ``..``, a
    symlink that leads out, a symlink that leads nowhere (what is later made there is not ours to say), another root.
    The answer holds for this moment: open it with O_NOFOLLOW where somebody else may change the folder.
    """
    allowed = ", ".join(str(root) for root in roots) or "none"

    def refuse(why: str) -> Forbidden:
        return Forbidden(f"{path!r} {why}; allowed are: {allowed}", path=path, roots=[str(root) for root in roots])

    if not path or "\0" in path:
        raise refuse("is not a path")
    if not os.path.isabs(path):
        raise refuse("is not an absolute path")
    if ".." in Path(path).parts:
        raise refuse('has ".." in it')
    try:
        real = Path(os.path.realpath(path, strict=True))
    except FileNotFoundError:
        missing = _of_missing(path)
        if missing is None:
            raise refuse("goes through a symlink that leads nowhere") from None
        real = missing
    except OSError as error:
        raise refuse(f"cannot be resolved ({(error.strerror or 'error').lower()})") from None
    for root in roots:
        if real.is_relative_to(os.path.realpath(root)):
            return real
    raise refuse("is outside of the workspace")


def _of_missing(path: str) -> Path | None:
    """The real path of what does not exist: its nearest existing folder resolved, the rest as named. None if a part
    of it is a dangling symlink.
    """
    rest: list[str] = []
    current = path.rstrip("/")
    while True:
        if os.path.islink(current) and not os.path.exists(current):
            return None
        if os.path.exists(current):
            return Path(os.path.realpath(current), *reversed(rest))
        current, name = os.path.split(current)
        rest.append(name)
