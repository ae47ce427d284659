"""Who belongs to an agent, and how nobody stays behind: sessions and marks in ``/proc``, records of running agents.

Each agent is the leader of a kernel session (setsid): its pid is the session's id, which the kernel gives to nobody
else while one member lives. Who left the session (Node's ``detached``, a daemon) still has the mark in the environment
that it inherited. A record in the run directory outlives a gateway that was killed with -9; ``reap`` at the next start
ends what it left.

The limits: a descendant that left the session and also cleared its environment, or whose environment we may not read
(another user's, one that is not dumpable), is not found. Where there is no ``/proc`` only the process group is known.
"""

import asyncio
import os
import re
import secrets
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog

PROC = Path("/proc")
MARK = "TRUNKLINE_AGENT_ID"
"""In the environment of an agent, and so of all its descendants: random, another one for each agent."""

ROUNDS = 50
_MARKED = re.compile(rb"(?:^|\0)" + MARK.encode() + rb"=([0-9a-f]{32})(?:\0|$)")
_log = structlog.get_logger("agent.reaper")


class Record(msgspec.Struct):
    """An agent process: ``start`` times are clock ticks since boot, from ``/proc/<pid>/stat``."""

    pid: int
    start: int
    boot: str
    owner: int  # the gateway
    owner_start: int
    name: str = ""
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Kin:
    """An agent and its descendants. ``start``: none of them is older. ``session``: 0 if it may be another's by now."""

    session: int
    mark: str = ""
    start: int = 0


def new_mark() -> str:
    return secrets.token_hex(16)


def _stat(pid: int) -> tuple[str, int, int] | None:
    """State, session id and start time of a process; None if there is none."""
    try:
        # The name in parentheses may hold anything: fields are counted from the last ``)``.
        fields = (PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        return fields[0].decode(), int(fields[3]), int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


def start_time(pid: int) -> int:
    """Clock ticks since boot at which ``pid`` began; 0 if it is not there."""
    stat = _stat(pid)
    return stat[2] if stat else 0


def alive(pid: int, start: int) -> bool:
    """Whether that very process lives; a zombie does not."""
    stat = _stat(pid)
    return stat is not None and stat[2] == start and stat[0] not in "ZX"


def members(session: int, mark: str = "") -> list[int]:
    """The living processes of a kernel session, and those with the mark; zombies not counted."""
    return [pid for pid, _ in _find([Kin(session, mark)])]


def _find(kin: Sequence[Kin]) -> dict[tuple[int, int], Kin]:
    """One look at all processes: number and start time of each that belongs to somebody of ``kin``."""
    sessions = {each.session: each for each in kin if each.session}
    marks = {each.mark.encode(): each for each in kin if each.mark}
    oldest = min((each.start for each in kin if each.mark), default=0)
    found: dict[tuple[int, int], Kin] = {}
    try:
        pids = [int(name) for name in os.listdir(PROC) if name.isdigit()]
    except OSError:
        return found
    for pid in pids:
        stat = _stat(pid)
        if stat is None or stat[0] in "ZX" or pid == os.getpid():
            continue
        owner = sessions.get(stat[1])
        if owner is None and marks and stat[2] >= oldest:
            owner = marks.get(_mark_of(pid))
        if owner is not None:
            found[pid, stat[2]] = owner
    return found


def _mark_of(pid: int) -> bytes:
    try:
        marked = _MARKED.search((PROC / str(pid) / "environ").read_bytes())
    except OSError:
        return b""
    return marked[1] if marked else b""


def kill_group(leader: int, sig: signal.Signals = signal.SIGKILL) -> None:
    """Signal the process group of ``leader``, which must not be reaped yet: one system call, and no look around."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, sig)


def kill(kin: Sequence[Kin], sig: signal.Signals = signal.SIGKILL) -> dict[tuple[int, int], Kin]:
    """Signal all who belong to ``kin`` until a look finds nobody new. Returns who was signalled, as ``_find`` does.

    A session may only be named while its leader is not reaped, or when a record proves that it is still the same.
    """
    seen: dict[tuple[int, int], Kin] = {}
    if not PROC.is_dir():
        for each in kin:
            if each.session:
                kill_group(each.session, sig)
    for _ in range(ROUNDS):
        # A shell with job control gives its jobs their own groups; and one may fork while we look.
        new = {key: owner for key, owner in _find(kin).items() if key not in seen}
        if not new:
            break
        for pid, _start in new:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, sig)
        seen |= new
    return seen


Done = Callable[[list[tuple[int, int]]], None]


class Sweeper:
    """``kill`` in a thread, in order. A look at all processes takes milliseconds: one is enough for all that wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[tuple[Kin, signal.Signals, Done]] = []
        self._busy = False

    def kill(self, kin: Kin, sig: signal.Signals, done: Done) -> None:
        """``done`` is called in the thread, with the numbers and start times of who was signalled."""
        with self._lock:
            self._waiting.append((kin, sig, done))
            if self._busy:
                return
            self._busy = True
        threading.Thread(target=self._work, name="sweeper", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                batch, self._waiting = self._waiting, []
                if not batch:
                    self._busy = False
                    return
            for sig in (signal.SIGTERM, signal.SIGKILL):
                jobs = [(kin, done) for kin, asked, done in batch if asked is sig]
                try:
                    killed = kill([kin for kin, _ in jobs], sig) if jobs else {}
                except Exception:  # whoever waits must not wait for ever
                    _log.exception("cannot look for descendants of agents")
                    killed = {}
                for kin, done in jobs:
                    done([key for key, owner in killed.items() if owner is kin])


sweeper = Sweeper()


def _boot() -> str:
    """Where process numbers have their meaning: this boot of the kernel, and this container."""
    try:
        return f"{(PROC / 'sys/kernel/random/boot_id').read_text().strip()}/{os.readlink(PROC / 'self/ns/pid')}"
    except OSError:
        return ""


class Watch:
    """Calls ``ended`` in the event loop when the process ``pid`` exits; it stays a zombie until somebody reaps it."""

    def __init__(self, pid: int, ended: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._pid, self._ended = pid, ended
        try:
            self._fd = os.pidfd_open(pid)
        except (AttributeError, OSError):
            self._fd = -1
            threading.Thread(target=self._wait, daemon=True).start()
        else:
            self._loop.add_reader(self._fd, self._exited)

    def _wait(self) -> None:
        with suppress(OSError):
            os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)
        with suppress(RuntimeError):  # the loop is closed: nobody is interested
            self._loop.call_soon_threadsafe(self._ended)

    def _exited(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._ended()


async def gone(victims: Sequence[tuple[int, int]]) -> None:
    """Wait, a second at most, until the killed are gone: the kernel takes them apart after the signal."""
    for _ in range(100):
        if not any(alive(*victim) for victim in victims):
            return
        await asyncio.sleep(0.01)


def record(run_dir: Path, pid: int, name: str, mark: str = "") -> Path | None:
    """Write down that ``pid`` runs for this gateway. The file is to be removed when it has ended."""
    entry = Record(pid, start_time(pid), _boot(), os.getpid(), start_time(os.getpid()), name, mark)
    path, draft = run_dir / f"agent-{pid}.json", run_dir / f".agent-{pid}"
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(msgspec.json.encode(entry))
        draft.replace(path)
    except OSError as error:
        _log.warning("cannot record the agent: it is left behind if the gateway is killed", error=str(error))
        return None
    return path


def reap(run_dir: Path) -> int:
    """End the agents of gateways that are gone. Returns the number of processes killed.

    Agents of a gateway that still runs (another one, on the same directory) are left alone.
    """
    left: dict[Kin, Record] = {}
    for path in sorted(run_dir.glob("agent-*.json")):
        try:
            entry = msgspec.json.decode(path.read_bytes(), type=Record)
        except (OSError, msgspec.DecodeError):
            path.unlink(missing_ok=True)
            continue
        if entry.boot == _boot() and entry.owner_start and start_time(entry.owner) == entry.owner_start:
            continue
        if entry.boot == _boot():
            left[Kin(entry.pid if _still(entry) else 0, entry.mark, entry.start)] = entry
        path.unlink(missing_ok=True)
    killed = list(kill(list(left)).values()) if left else []
    for kin in dict.fromkeys(killed):
        entry, count = left[kin], killed.count(kin)
        _log.warning("killed an agent left by a gateway before", agent=entry.name, pid=entry.pid, processes=count)
    return len(killed)


def _still(entry: Record) -> bool:
    """Whether the number of the record's session is still its own: its leader is unchanged, or gone and it has members
    that are not older.
    """
    stat = _stat(entry.pid)
    if stat is not None and stat[2] != entry.start:
        return False  # the number is another's now, so nobody of the old session can be left
    return any(start_time(pid) >= entry.start for pid in members(entry.pid))
