"""git, asked and never told: subprocesses that only read, with a time limit, a size limit and no shell.

A repository's own configuration may name programs (hooks, a file system monitor, filters, a text converter): none of
them is run. Paths that come back are relative to the folder that was asked about, and never outside of it. A repository
of the workspace that has its history outside of the workspace is none.
"""

import asyncio
import os
import signal
import stat
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

SECONDS = 10.0
OUTPUT = 16 << 20  # bytes of one answer
INDEX = 256 << 20  # bytes of an index
FILTERS = 100  # of a repository's own configuration
ALTERNATES = 64 << 10  # bytes of the file that names other object stores
STORES = 20  # object stores of one repository

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

    def __init__(self, folder: Path, variables: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self._variables = dict(variables or {})

    @classmethod
    async def open(cls, folder: Path, roots: Sequence[Path]) -> "Git | None":
        """None where the folder is in no work tree, its repository leads out of ``roots``, or git is not installed or
        refuses it. ``folder`` and ``roots`` are real paths.
        """
        one = cls(folder)
        asked = ("--is-inside-work-tree", "--git-dir", "--git-common-dir")
        try:
            told = os.fsdecode(await one.run("rev-parse", "--path-format=absolute", *asked)).rstrip("\n").split("\n")
            if len(told) != 3 or told[0] != "true":
                return None
            out = await asyncio.to_thread(leads_out, folder, roots, Path(told[1]), Path(told[2]))
        except (GitError, OSError):
            return None
        return None if out else one

    @asynccontextmanager
    async def apart(self) -> AsyncIterator["Git"]:
        """The same for ``git diff``, with the repository's own filters off, and with an index of its own, a copy: it
        locks and writes the index, optional locks or not, and the agent's own git would fail meanwhile.
        """
        filters = await self._filters_off()
        path = Path(os.fsdecode(await self.run("rev-parse", "--git-path", "index")).strip("\n"))
        with tempfile.TemporaryDirectory(prefix="trunkline-") as folder:
            copy = os.path.join(folder, "index")
            with suppress(FileNotFoundError):  # nothing was added yet
                await asyncio.to_thread(_copy_index, self.folder / path, copy)
            yield Git(self.folder, {**filters, "GIT_INDEX_FILE": copy})

    async def run(
        self, *arguments: str, given: bytes | None = None, limit: int = OUTPUT, ok: Sequence[int] = (0,)
    ) -> bytes:
        """What git writes. Raises GitError for another exit code than ``ok``."""
        config = [word for pair in _SAFE for word in ("-c", pair)]
        command = ["git", "--no-optional-locks", "--no-pager", *config, *arguments]
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=self.folder,
                env=environment() | self._variables,
                stdin=asyncio.subprocess.DEVNULL if given is None else asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:  # the folder is gone, git is not there, a name is too long
            raise GitError(f"git cannot be run: {(error.strerror or 'error').lower()}") from None
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
        return await asyncio.to_thread(_fields, await self.run(*arguments, given=given, ok=ok))

    async def _filters_off(self) -> dict[str, str]:
        """Variables that switch off the filters of the repository's own configuration. A name is bytes, and may have
        "=" in it: ``-c`` would cut it there. Raises GitError for too many.
        """
        asked = ("--show-scope", "-z", "--name-only", "--get-regexp", r"^filter\.")
        told = (await self.run("config", *asked, ok=(0, 1))).split(b"\0")
        names = {n for scope, n in zip(told[::2], told[1::2], strict=False) if scope in (b"local", b"worktree")}
        drivers = sorted({os.fsdecode(name.rpartition(b".")[0]) for name in names})
        if len(drivers) > FILTERS:
            raise GitError(f"the repository's configuration has {len(drivers)} filters, more than {FILTERS}")
        off = {"clean": "", "smudge": "", "process": "", "required": "false"}
        pairs = [(f"{driver}.{key}", value) for driver in drivers for key, value in off.items()]
        variables = {"GIT_CONFIG_COUNT": str(len(pairs))}
        for number, (key, value) in enumerate(pairs):
            variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        return variables

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


def _fields(data: bytes) -> list[str]:
    found = []
    for field in data.split(b"\0"):
        with suppress(UnicodeDecodeError):
            found.append(field.decode())
    return found[:-1] if found and not found[-1] else found


# --- what a repository is made of ------------------------------------------------------------------------------------


def leads_out(folder: Path, roots: Sequence[Path], git_dir: Path, common: Path) -> bool:
    """Whether a repository of the workspace has its history outside of ``roots``: by a ``.git`` that leads there, or by
    other object stores. A repository that the whole workspace is in was not made by what is in the workspace.

    Raises OSError, GitError for what cannot be read.
    """

    def outside(path: str | Path) -> bool:
        real = Path(os.path.realpath(path))
        return not any(real.is_relative_to(root) for root in roots)

    home = next((one for one in (folder, *folder.parents) if os.path.lexists(one / ".git")), folder)
    if outside(git_dir) and not any(home.is_relative_to(root) for root in roots):
        return False
    if outside(git_dir) or outside(common):
        return True
    todo = [os.path.realpath(common / "objects")]
    seen: set[str] = set()
    while todo:
        store = todo.pop()
        if store in seen:
            continue
        seen.add(store)
        if outside(store) or len(seen) > STORES:
            return True
        for place in (store, os.path.join(store, "pack"), os.path.join(store, "info")):
            with suppress(FileNotFoundError), os.scandir(place) as found:
                if any(one.is_symlink() and outside(one.path) for one in found):
                    return True
        todo += [os.path.realpath(os.path.join(store, line)) for line in _alternates(store)]
    return False


def _alternates(store: str) -> list[str]:
    try:
        handle = open_regular(Path(store, "info", "alternates"), ALTERNATES)
    except FileNotFoundError:
        return []
    with os.fdopen(handle, "rb") as file:
        lines = os.fsdecode(file.read(ALTERNATES)).split("\n")
    if any(line.startswith('"') for line in lines):
        raise GitError("a quoted name of another object store is not read")
    return [line for line in lines if line and not line.startswith("#")]


def open_regular(path: Path, limit: int) -> int:
    """A handle of a regular file of at most ``limit`` bytes, no symlink. Raises OSError, GitError."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    about = os.fstat(handle)
    if stat.S_ISREG(about.st_mode) and about.st_size <= limit:
        return handle
    os.close(handle)
    if not stat.S_ISREG(about.st_mode):
        raise GitError(f"git's {path.name} is no regular file")
    raise GitError(f"git's {path.name} is larger than {limit >> 10} KiB")


def _copy_index(path: Path, copy: str) -> None:
    """With its time: by that git knows which files it has to look at again."""
    try:
        handle = open_regular(path, INDEX)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise GitError(f"git's {path.name} cannot be read: {(error.strerror or 'error').lower()}") from None
    with os.fdopen(handle, "rb") as file, open(copy, "xb") as into:
        left = INDEX
        while piece := file.read(min(left, 1 << 20)):
            into.write(piece)
            left -= len(piece)
        about = os.fstat(handle)
    os.utime(copy, ns=(about.st_atime_ns, about.st_mtime_ns))


# --- talking to it ---------------------------------------------------------------------------------------------------


class TooMuch(Exception):
    pass


async def talk(process: asyncio.subprocess.Process, given: bytes | None, limit: int) -> bytes:
    """Write ``given``, read all. Raises TooMuch."""

    async def write() -> None:
        assert process.stdin is not None
        with suppress(OSError, RuntimeError):  # it has ended: uvloop says that its handle is closed
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
