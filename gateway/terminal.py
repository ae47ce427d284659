"""A command that the gateway runs: for an agent, or for a person.

It leads a kernel session of its own and carries a mark of ``reaper``: whoever it started ends with it, also after a
``kill -9`` of the gateway (at its next start). Its number stays its own until ``end``, since it is not reaped before.
"""

import asyncio
import codecs
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from gateway import reaper
from gateway.spawn import spawn

Json: TypeAlias = Any

MAX_JSON = 16 * 1024 * 1024  # bytes of the output in one answer, as JSON, whose escapes make up to six of one
KILL_AFTER = 2.0  # seconds from SIGTERM to SIGKILL
READ = 64 * 1024
PAUSE = 0.005  # seconds after a full read: a command that floods must not take the loop
PIPE = 1024 * 1024  # more cannot be left in the pipe of a command that has ended
END = 5.0  # seconds that one waits for a killed command


class Terminal:
    """One command. The constructor starts it and raises OSError; it must run in the loop's thread (see ``Process``)."""

    def __init__(
        self, argv: Sequence[str], cwd: str, env: Mapping[str, str], limit: int, run_dir: Path | None, name: str
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit = limit
        self._text = bytearray()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._truncated = False
        self.written = 0  # bytes, also of what is dropped
        self._timers: list[asyncio.TimerHandle] = []
        self._pause: asyncio.TimerHandle | None = None
        self.exited = asyncio.Event()
        self._status: Json = {}
        mark = reaper.new_mark()
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._out, child_out = os.pipe()
        try:
            self._child = spawn(argv, cwd, {**env, reaper.MARK: mark}, nothing, child_out, child_out)
        except BaseException:
            os.close(self._out)
            raise
        finally:
            os.close(nothing)
            os.close(child_out)
        self.pid = self._child.pid
        self._kin = reaper.Kin(self.pid, mark, reaper.start_time(self.pid))
        self._record = reaper.record(run_dir, self.pid, name, mark) if run_dir else None
        os.set_blocking(self._out, False)
        self._listen()
        reaper.Watch(self.pid, self._ended)

    def __repr__(self) -> str:
        return f"<Terminal {self.pid} {self._status or 'running'}>"

    # --- what it says ------------------------------------------------------------------------------------------------

    def output(self) -> Json:
        """The last of what it wrote, whole characters, at most as many bytes as were asked for and fit an answer."""
        self._trim()
        self._cut(self._too_much())
        said: Json = {"output": self._text.decode(), "truncated": self._truncated}
        if self.exited.is_set():
            said["exitStatus"] = self._status
        return said

    async def wait(self) -> Json:
        await self.exited.wait()
        return self._status

    def _listen(self) -> None:
        self._pause = None
        if self._out >= 0:
            self._loop.add_reader(self._out, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._out, READ)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._take(b"", last=True)
            self._close_out()
            return
        self._take(data)
        if len(data) == READ:
            self._loop.remove_reader(self._out)
            self._pause = self._loop.call_later(PAUSE, self._listen)

    def _take(self, data: bytes, last: bool = False) -> None:
        self.written += len(data)
        self._text += self._decoder.decode(data, last).encode()
        if len(self._text) > 2 * self._limit + READ:  # not at each read: what stays has to be moved
            self._trim()

    def _trim(self) -> None:
        self._cut(len(self._text) - self._limit)

    def _too_much(self) -> int:
        """The bytes at the front that would make the answer too large, give or take a piece."""
        room, end = MAX_JSON, len(self._text)
        if 6 * end <= room:  # an escape has six bytes
            return 0
        while end > 0:
            begin = max(end - READ, 0)
            room -= len(msgspec.json.encode(self._text[begin:end].decode("utf-8", "replace")))
            if room < 0:
                return end
            end = begin
        return 0

    def _cut(self, extra: int) -> None:
        """Drop so many bytes at the front, and what they leave of a character."""
        if extra > 0:
            while extra < len(self._text) and self._text[extra] & 0xC0 == 0x80:
                extra += 1
            del self._text[:extra]
            self._truncated = True

    def _close_out(self) -> None:
        if self._out >= 0:
            if self._pause is not None:
                self._pause.cancel()
            self._loop.remove_reader(self._out)
            os.close(self._out)
            self._out = -1

    # --- its end -----------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """SIGTERM to all who belong to it, SIGKILL to who is left. What it said and how it ended can still be read."""
        self._signal(signal.SIGTERM)
        self._timers.append(self._loop.call_later(KILL_AFTER, self._signal, signal.SIGKILL))

    def _signal(self, sig: signal.Signals) -> None:
        reaper.kill_group(self.pid, sig)
        reaper.sweeper.kill(self._kin, sig, lambda _: None)

    async def end(self) -> None:
        """Kill it and all that it started, and forget it."""
        for timer in self._timers:
            timer.cancel()
        reaper.kill_group(self.pid)
        swept: asyncio.Future[list[tuple[int, int]]] = self._loop.create_future()

        def told(victims: list[tuple[int, int]]) -> None:
            if not swept.done():
                swept.set_result(victims)

        def done(victims: list[tuple[int, int]]) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody is interested
                self._loop.call_soon_threadsafe(told, victims)

        reaper.sweeper.kill(self._kin, signal.SIGKILL, done)
        victims = await swept
        await reaper.gone(victims)
        with suppress(TimeoutError):  # one that the kernel does not let go is left to it
            async with asyncio.timeout(END):
                await self.exited.wait()
        self._close_out()
        self._child.poll()
        if self._record is not None:
            self._record.unlink(missing_ok=True)

    def _ended(self) -> None:
        """The command has ended; whoever it started may go on."""
        left = PIPE  # what it said before its end is read before its end is told
        while self._out >= 0 and left > 0:
            try:
                data = os.read(self._out, READ)
            except OSError:
                break
            if not data:
                self._take(b"", last=True)
                self._close_out()
                break
            left -= len(data)
            self._take(data)
        self._status = _status(self.pid)
        self.exited.set()


def _status(pid: int) -> Json:
    """How a zombie ended, which stays one."""
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    if found is None:
        return {"exitCode": None, "signal": None}
    if found.si_code == os.CLD_EXITED:
        return {"exitCode": found.si_status, "signal": None}
    try:
        name = signal.Signals(found.si_status).name
    except ValueError:  # a real-time signal has no name of its own
        name = f"SIG{found.si_status}"
    return {"exitCode": None, "signal": name}
