"""git, asked and never told: subprocesses that only read, with a time limit, a size limit and no shell.

A repository's own configuration may name programs (hooks, a file system monitor, filters, a text converter): none of
them is run. Paths that come back are relative to the folder that was asked about, and never outside of it.
"""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

SECONDS = 10.0
OUTPUT = 16 << 20  # bytes of one answer

_SAFE = (
    "core.fsmonitor=",
    "core.hooksPath=/dev/null",
    "core.quotePath=false",
    "core.pager=cat",
    "color.ui=false",
    "protocol.allow=never",
    "submodule.recurse=false",
)
_PASSED = ("PATH", "HOME", "XDG_CONFIG_HOME", "LANG", "LC_ALL", "TMPDIR")


class GitError(Exception):
    """What git said, or that it took too long or said too much."""


def environment() -> dict[str, str]:
    """Nothing of the gateway's, and no GIT_* that would lead elsewhere."""
    kept = {name: os.environ[name] for name in _PASSED if name in os.environ}
    fixed = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_PAGER": "cat"}
    return {"PATH": os.defpath, **kept, **fixed}


class Git:
    """git in one folder. Make it with ``open``."""

    def __init__(self, folder: Path, filters: tuple[str, ...] = (), index: str = "") -> None:
        self.folder = folder
        self._filters = filters
        self._index = index

    @classmethod
    async def open(cls, folder: Path) -> "Git | None":
        """None where the folder is in no work tree, or git is not installed or refuses it."""
        one = cls(folder)
        try:
            if (await one.words("rev-parse", "--is-inside-work-tree")) != ["true"]:
                return None
            return cls(folder, await one._own_filters())
        except (GitError, OSError):
            return None

    @asynccontextmanager
    async def apart(self) -> AsyncIterator["Git"]:
        """The same with an index of its own, a copy: ``git diff`` locks and writes the index, optional locks or not,
        and the agent's own git would fail meanwhile.
        """
        path = Path((await self.run("rev-parse", "--git-path", "index")).decode(errors="surrogateescape").strip("\n"))
        with tempfile.TemporaryDirectory(prefix="trunkline-") as folder:
            copy = os.path.join(folder, "index")
            with suppress(FileNotFoundError):  # nothing was added yet
                # with its time: by that git knows which files it has to look at again
                await asyncio.to_thread(shutil.copy2, self.folder / path, copy)
            yield Git(self.folder, self._filters, copy)

    async def run(
        self, *arguments: str, given: bytes | None = None, limit: int = OUTPUT, ok: Sequence[int] = (0,)
    ) -> bytes:
        """What git writes. Raises GitError for another exit code than ``ok``."""
        config = [word for pair in (*_SAFE, *self._filters) for word in ("-c", pair)]
        command = ["git", "--no-optional-locks", "--no-pager", *config, *arguments]
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=self.folder,
            env=environment() | ({"GIT_INDEX_FILE": self._index} if self._index else {}),
            stdin=asyncio.subprocess.DEVNULL if given is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(SECONDS):
                data = await talk(process, given, limit)
                code = await process.wait()
        except TimeoutError:
            raise GitError(f"git {arguments[0]} took longer than {SECONDS:g} s") from None
        except TooMuch:
            raise GitError(f"git {arguments[0]} said more than {limit >> 20} MiB") from None
        finally:
            await end(process)
        if code not in ok:
            raise GitError(f"git {arguments[0]} ended with {code}")
        return data

    async def words(self, *arguments: str) -> list[str]:
        return (await self.run(*arguments)).decode(errors="replace").split()

    async def fields(self, *arguments: str, given: bytes | None = None, ok: Sequence[int] = (0,)) -> list[str]:
        """NUL-separated answers. What is not UTF-8 is left out: no client could ask for it."""
        found = []
        for field in (await self.run(*arguments, given=given, ok=ok)).split(b"\0"):
            with suppress(UnicodeDecodeError):
                found.append(field.decode())
        return found[:-1] if found and not found[-1] else found

    async def _own_filters(self) -> tuple[str, ...]:
        told = await self.fields("config", "--show-scope", "-z", "--name-only", "--get-regexp", r"^filter\.", ok=(0, 1))
        names = {n for scope, n in zip(told[::2], told[1::2], strict=False) if scope in ("local", "worktree")}
        drivers = {name.rpartition(".")[0] for name in names}
        off = ("clean=", "smudge=", "process=", "required=false")
        return tuple(f"{driver}.{setting}" for driver in sorted(drivers) for setting in off)

    # --- questions -------------------------------------------------------------------------------------------------

    async def files(self) -> list[str]:
        """Files that are tracked, or new and not ignored."""
        return sorted(set(await self.fields("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", ".")))

    async def ignored(self, paths: Sequence[str]) -> set[str]:
        """Those of ``paths`` that are ignored."""
        if not paths:
            return set()
        given = b"".join(f"./{path}\0".encode() for path in paths)  # a name that begins with ":" is a name
        told = await self.fields("check-ignore", "-z", "--stdin", given=given, ok=(0, 1))
        return {path.removeprefix("./") for path in told}

    async def branch(self) -> str:
        """The branch that is checked out; empty for none."""
        with suppress(GitError):
            return (await self.run("symbolic-ref", "--quiet", "--short", "HEAD")).decode(errors="replace").strip()
        return ""

    async def default_branch(self) -> str:
        """The remote's, else ``main`` or ``master`` where there is one; else empty."""
        with suppress(GitError):
            told = (await self.run("symbolic-ref", "--quiet", "refs/remotes/origin/HEAD")).decode(errors="replace")
            return told.strip().removeprefix("refs/remotes/origin/")
        for name in ("main", "master"):
            with suppress(GitError):
                await self.run("show-ref", "--verify", "--quiet", f"refs/heads/{name}")
                return name
        return await self.branch()

    async def base(self, mode: str) -> str | None:
        """What the work tree is compared with: HEAD (an empty tree before the first commit), or, for ``branch``, where
        this branch left the default one. None where there is no such place.
        """
        if mode == "git":
            try:
                return (await self.words("rev-parse", "--verify", "--quiet", "HEAD"))[0]
            except (GitError, IndexError):
                return (await self.run("hash-object", "-t", "tree", "--stdin", given=b"")).decode().strip()
        default = await self.default_branch()
        if not default or default == await self.branch():
            return None
        for name in (f"refs/remotes/origin/{default}", f"refs/heads/{default}"):
            with suppress(GitError, IndexError):
                return (await self.words("merge-base", "HEAD", name))[0]
        return None


class TooMuch(Exception):
    pass


async def talk(process: asyncio.subprocess.Process, given: bytes | None, limit: int) -> bytes:
    """Write ``given``, read all. Raises TooMuch."""

    async def write() -> None:
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.write(given or b"")
            await process.stdin.drain()
        process.stdin.close()

    async def read() -> bytes:
        assert process.stdout is not None
        found = bytearray()
        while piece := await process.stdout.read(1 << 16):
            found += piece
            if len(found) > limit:
                raise TooMuch
        return bytes(found)

    if given is None:
        return await read()
    return (await asyncio.gather(read(), write()))[0]


async def end(process: asyncio.subprocess.Process) -> None:
    """Nothing of it is left: it has a group of its own."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.shield(process.wait())
