"""Who belongs to an agent, and how nobody stays behind: sessions in ``/proc``, records of running agents.

Each agent is the leader of a kernel session (setsid): its pid is the session's id, which the kernel gives to nobody
else while one member lives. A record in the run directory outlives a gateway that was killed with -9; ``reap`` at the
next start ends what it left. Where there is no ``/proc`` only the process group is known.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog

PROC = Path("/proc")
_log = structlog.get_logger("agent.reaper")


class Record(msgspec.Struct):
    """An agent process: ``start`` times are clock ticks since boot, from ``/proc/<pid>/stat``."""

    pid: int
    start: int
    boot: str
    owner: int  # the gateway
    owner_start: int
    name: str = ""


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


def members(session: int) -> list[int]:
    """The living processes of a kernel session, zombies not counted."""
    try:
        pids = [int(name) for name in os.listdir(PROC) if name.isdigit()]
    except OSError:
        return []
    return [pid for pid in pids if (stat := _stat(pid)) and stat[1] == session and stat[0] not in "ZX"]


def kill_session(leader: int, sig: signal.Signals = signal.SIGKILL) -> int:
    """Signal the process group of ``leader`` and every other member of its session. Returns how many were signalled.

    Call it only while ``leader`` is not reaped, or when a record proves that the session is still the same.
    """
    seen: set[int] = set()
    while found := set(members(leader)) - seen:
        # A shell with job control gives its jobs their own groups; and one may fork while we look.
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, sig)
        seen |= found
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, sig)  # where there is no /proc
    return len(seen)


def _boot() -> str:
    """Where process numbers have their meaning: this boot of the kernel, and this container."""
    try:
        return f"{(PROC / 'sys/kernel/random/boot_id').read_text().strip()}/{os.readlink(PROC / 'self/ns/pid')}"
    except OSError:
        return ""


def record(run_dir: Path, pid: int, name: str) -> Path | None:
    """Write down that ``pid`` runs for this gateway. The file is to be removed when it has ended."""
    entry = Record(pid, start_time(pid), _boot(), os.getpid(), start_time(os.getpid()), name)
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
    killed = 0
    for path in sorted(run_dir.glob("agent-*.json")):
        try:
            entry = msgspec.json.decode(path.read_bytes(), type=Record)
        except (OSError, msgspec.DecodeError):
            path.unlink(missing_ok=True)
            continue
        if entry.boot == _boot() and entry.owner_start and start_time(entry.owner) == entry.owner_start:
            continue
        if entry.boot == _boot() and _still(entry):
            count = kill_session(entry.pid)
            killed += count
            _log.warning("killed an agent left by a gateway before", agent=entry.name, pid=entry.pid, processes=count)
        path.unlink(missing_ok=True)
    return killed


def _still(entry: Record) -> bool:
    """Whether the session of the record lives: its leader, unchanged, or any member without a leader."""
    stat = _stat(entry.pid)
    if stat is not None and stat[2] != entry.start:
        return False  # the number is another's now, so nobody of the old session can be left
    return any(start_time(pid) >= entry.start for pid in members(entry.pid))
