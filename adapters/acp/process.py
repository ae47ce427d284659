"""One agent process: spawned in its own session, read, written, and ended with all its descendants.

Raw non-blocking descriptors on the event loop: reads of 256 KiB, writes that nobody awaits, stderr drained into a
ring. The end of the process is told once, from its pidfd or from EOF on stdout, whichever comes first. It knows
nothing of JSON. See ``reaper`` for what is left behind when the gateway itself is killed.
"""

import asyncio
import fcntl
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import structlog

from gateway import reaper
from gateway.spawn import spawn

READ = 256 * 1024
PIPE = 1024 * 1024
MAX_UNWRITTEN = 64 * 1024 * 1024
ROOM = 16 * 1024 * 1024  # unwritten bytes over which large answers wait; with the largest one it is not too much
STDERR_RING = 64 * 1024
EXIT_WAIT = 0.02  # seconds from EOF on stdout to the exit status, which makes a better message

_log = structlog.get_logger("agent.process")


class Process:
    """A running child. ``on_data`` gets stdout as it comes; ``on_exit`` a sentence about the end, once.

    The constructor spawns and raises OSError if that fails. It must run in the event loop's thread, which must be one
    that lives as long as the gateway: Linux ties the parent-death signal to the thread that forked.
    """

    def __init__(
        self,
        argv: Sequence[str],
        cwd: str,
        env: Mapping[str, str],
        on_data: Callable[[bytes], None],
        on_exit: Callable[[str], None],
        run_dir: Path | None = None,
        name: str = "",
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_data, self._on_exit = on_data, on_exit
        self._stderr = bytearray()
        self._unwritten = bytearray()
        self._room = asyncio.Event()
        self._room.set()
        self._paused = self._told = self._ended = False
        self._victims: list[tuple[int, int]] = []  # who was killed after the leader's end
        self._reading = self._writing = False
        self._cause = ""
        self.exited = asyncio.Event()  # the leader is reaped, its descendants are killed
        mark = reaper.new_mark()
        child_in, self._stdin = os.pipe()
        self._stdout, child_out = os.pipe()
        self._errors, child_err = os.pipe()
        try:
            self._child = spawn(argv, cwd, {**env, reaper.MARK: mark}, child_in, child_out, child_err)
        except BaseException:
            for fd in (self._stdin, self._stdout, self._errors):
                os.close(fd)
            raise
        finally:
            for fd in (child_in, child_out, child_err):
                os.close(fd)
        self.pid = self._child.pid
        self._kin = reaper.Kin(self.pid, mark, reaper.start_time(self.pid))
        self._record = reaper.record(run_dir, self.pid, name, mark) if run_dir else None
        with suppress(OSError):
            fcntl.fcntl(self._stdout, fcntl.F_SETPIPE_SZ, PIPE)  # fewer, larger reads under load
        for fd in (self._stdin, self._stdout, self._errors):
            os.set_blocking(fd, False)
        self._loop.add_reader(self._errors, self._read_errors)
        self.resume()
        reaper.Watch(self.pid, self._leader_ended)

    def __repr__(self) -> str:
        state = "dead" if self._told else "paused" if self._paused else "running"
        return f"<Process {self.pid} {state}>"

    @property
    def alive(self) -> bool:
        return not self._told

    # --- output of the child ---------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Read no more of stdout: the pipe fills, the agent waits."""
        self._paused = True
        if self._reading:
            self._loop.remove_reader(self._stdout)
            self._reading = False

    def resume(self) -> None:
        self._paused = False
        if not self._reading and self._stdout >= 0:
            self._loop.add_reader(self._stdout, self._read)
            self._reading = True

    def _read(self) -> None:
        try:
            data = os.read(self._stdout, READ)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if data:
            if not self._told:
                self._on_data(data)
            return
        self._close_stdout()
        # EOF mostly comes a moment before the exit status.
        self._loop.call_later(EXIT_WAIT, self._tell, "closed its output")

    def _read_errors(self) -> None:
        try:
            data = os.read(self._errors, READ)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._close_errors()
            return
        self._stderr += data
        del self._stderr[:-STDERR_RING]

    def last_stderr(self, lines: int = 5, limit: int = 2000) -> str:
        """The last lines of stderr, at most ``limit`` characters."""
        text = self._stderr.decode("utf-8", "replace").strip()
        return "\n".join(text.splitlines()[-lines:])[-limit:]

    # --- input of the child ----------------------------------------------------------------------------------------

    def write(self, data: bytes) -> bool:
        """Write, now or when the child reads. False if it is gone (or has stopped reading for too long)."""
        if self._told or self._stdin < 0:
            return False
        if not self._unwritten:
            try:
                written = os.write(self._stdin, data)
            except (BlockingIOError, InterruptedError):
                written = 0
            except OSError:
                return False  # EPIPE: the exit is told by who reads
            if written == len(data):
                return True
            data = data[written:]
        self._unwritten += data
        if len(self._unwritten) > MAX_UNWRITTEN:
            self.kill("does not read its input")
            return False
        if len(self._unwritten) > ROOM:
            self._room.clear()
        if not self._writing:
            self._loop.add_writer(self._stdin, self._write_more)
            self._writing = True
        return True

    async def room(self) -> None:
        while not self._room.is_set():  # also after it was woken: another one may have been faster
            await self._room.wait()

    def _write_more(self) -> None:
        try:
            written = os.write(self._stdin, memoryview(self._unwritten)[:READ])
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._unwritten.clear()
            written = 0
        del self._unwritten[:written]
        if len(self._unwritten) <= ROOM:
            self._room.set()
        if not self._unwritten:
            self._loop.remove_writer(self._stdin)
            self._writing = False

    # --- the end ---------------------------------------------------------------------------------------------------

    def kill(self, why: str) -> None:
        """SIGKILL the group at once, and with it the leader: all else follows. ``on_exit`` says ``why``."""
        self._cause = self._cause or why
        if not self._ended:
            reaper.kill_group(self.pid)

    async def stop(self, eof_wait: float = 5.0, term_wait: float = 2.0) -> None:
        """Close stdin, wait; SIGTERM to all who belong to it, wait; SIGKILL. Returns when nobody is left."""
        self._cause = self._cause or "was stopped"
        self.resume()  # an agent that waits for us to read cannot end
        self._close_stdin()
        for wait, sig in ((eof_wait, signal.SIGTERM), (term_wait, signal.SIGKILL)):
            try:
                async with asyncio.timeout(wait):
                    await self.exited.wait()
                break
            except TimeoutError:
                if self._ended:  # and its descendants are being looked for
                    break
                _log.warning("agent did not end", pid=self.pid, signal=sig.name)
                if sig is signal.SIGKILL:
                    reaper.kill_group(self.pid)  # the leader's end brings that of all others
                else:
                    reaper.sweeper.kill(self._kin, sig, lambda _: None)
        await self.exited.wait()
        await reaper.gone(self._victims)

    def _leader_ended(self) -> None:
        """Its end is told first; who else belongs to it is looked for after that, elsewhere."""
        if self._ended:
            return
        self._ended = True
        reaper.kill_group(self.pid)
        self._drain()
        ended = _how_it_ended(self.pid)
        self._tell(f"{ended} ({self._cause})" if self._cause else ended)
        self._close_stdin()
        self._close_stdout()
        self._close_errors()
        # While the leader is a zombie its number cannot be another's: its session is killed first, then it is reaped.
        reaper.sweeper.kill(self._kin, signal.SIGKILL, self._swept)

    def _swept(self, victims: list[tuple[int, int]]) -> None:
        """In the sweeper's thread."""
        with suppress(RuntimeError):  # the loop is closed: nobody is interested
            self._loop.call_soon_threadsafe(self._reap, victims)

    def _reap(self, victims: list[tuple[int, int]]) -> None:
        self._victims = victims
        self._child.wait()
        if self._record:
            self._record.unlink(missing_ok=True)
        self.exited.set()

    def _drain(self) -> None:
        """What the child said before it died is told before its death; what it said to stderr explains it."""
        left = PIPE  # more it cannot have said; a descendant may still be writing, without end
        while self._stdout >= 0 and not self._told and left > 0:
            try:
                data = os.read(self._stdout, READ)
            except OSError:
                break
            if not data:
                break
            left -= len(data)
            self._on_data(data)
        with suppress(OSError):
            if self._errors >= 0:
                self._stderr += os.read(self._errors, READ)
        del self._stderr[:-STDERR_RING]

    def _tell(self, how: str) -> None:
        if self._told:
            return
        self._told = True
        self._room.set()
        self._on_exit(how)
        if not self._ended:
            # It lives, but without its stdout it is no agent any more: the usual ladder has nothing to wait for.
            self._close_stdin()
            reaper.kill_group(self.pid)

    def _close_stdin(self) -> None:
        if self._stdin >= 0:
            if self._writing:
                self._loop.remove_writer(self._stdin)
                self._writing = False
            os.close(self._stdin)
            self._stdin = -1

    def _close_stdout(self) -> None:
        if self._stdout >= 0:
            if self._reading:
                self._loop.remove_reader(self._stdout)
                self._reading = False
            os.close(self._stdout)
            self._stdout = -1

    def _close_errors(self) -> None:
        if self._errors >= 0:
            self._loop.remove_reader(self._errors)
            os.close(self._errors)
            self._errors = -1


def _how_it_ended(pid: int) -> str:
    """The exit status of a zombie, which stays one."""
    try:
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except ChildProcessError:
        found = None  # somebody else reaped it
    if found is None:
        return "ended"
    if found.si_code == os.CLD_EXITED:
        return f"exited with status {found.si_status}"
    return f"was ended by signal {found.si_status}"
