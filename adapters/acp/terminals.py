"""``terminal/*`` of ACP v1, served by the gateway: commands that it runs for an agent, inside the workspace.

Each command leads a kernel session of its own and carries a mark of ``reaper``: whoever it started ends with it, at the
latest when the agent's session ends, also after a ``kill -9`` of the gateway (at its next start). Its number stays its
own until ``release``, since it is not reaped before. Source: ACP v1, terminals.
"""

import asyncio
import codecs
import os
import secrets
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from adapters.acp import reaper, rpc
from adapters.acp.fs import MAX_TEXT, json_size, refused
from adapters.acp.process import spawn
from adapters.acp.wire import Json
from gateway.paths import confine

MAX_TERMINALS = 32  # of one session, until they are released
OUTPUT = 1024 * 1024  # bytes that are kept where the agent names no limit
MAX_OUTPUT = 8 * 1024 * 1024
KILL_AFTER = 2.0  # seconds from SIGTERM to SIGKILL
READ = 64 * 1024
PAUSE = 0.005  # seconds after a full read: a command that floods must not take the loop
PIPE = 1024 * 1024  # more cannot be left in the pipe of a command that has ended
END = 5.0  # seconds that one waits for a killed command


class Variable(msgspec.Struct, frozen=True):
    name: str
    value: str


class Create(msgspec.Struct, frozen=True, rename="camel"):
    command: str
    args: list[str] | None = None
    env: list[Variable] | None = None
    cwd: str | None = None
    output_byte_limit: int | None = None


class Named(msgspec.Struct, frozen=True, rename="camel"):
    terminal_id: str


class Terminals:
    """Of one session. ``environment``: what a command sees; ``cwd``: where it runs if the agent names no folder."""

    def __init__(
        self, environment: Mapping[str, str], roots: Sequence[Path], cwd: str, run_dir: Path | None, name: str
    ) -> None:
        self._environment, self._roots, self._cwd = environment, roots, cwd
        self._run_dir, self._name = run_dir, name
        self._all: dict[str, Terminal] = {}
        self._closed = False

    def __repr__(self) -> str:
        return f"<Terminals {self._all}>"

    async def create(self, wish: Create) -> Json:
        """Raises CallFailed, Forbidden."""
        argv, cwd, env = await asyncio.to_thread(self._prepare, wish)
        if len(self._all) >= MAX_TERMINALS:
            message = f"{MAX_TERMINALS} terminals are open in this session already: release some"
            raise refused(rpc.INVALID_PARAMS, message, reason="limit_reached")
        if self._closed:
            raise refused(rpc.INTERNAL, "the session has ended")
        limit = OUTPUT if wish.output_byte_limit is None else min(wish.output_byte_limit, MAX_OUTPUT)
        try:
            terminal = Terminal(argv, cwd, env, limit, self._run_dir, self._name)
        except (OSError, ValueError) as error:
            raise refused(rpc.INVALID_PARAMS, f"{argv[0]} cannot be started: {error}", field="command") from None
        number = f"term_{secrets.token_hex(8)}"
        self._all[number] = terminal
        return {"terminalId": number}

    def _prepare(self, wish: Create) -> tuple[list[str], str, dict[str, str]]:
        """What to run, where, with which environment. A command without arguments that names no program is a line
        for the shell: that is how some agents write it.
        """
        if wish.output_byte_limit is not None and wish.output_byte_limit < 0:
            raise refused(rpc.INVALID_PARAMS, "Invalid params: outputByteLimit must be 0 or more")
        cwd = wish.cwd or self._cwd
        if wish.cwd:
            cwd = str(confine(wish.cwd, self._roots))
        if not os.path.isdir(cwd):
            raise refused(rpc.INVALID_PARAMS, f"Invalid params: cwd {cwd} is no folder", field="cwd")
        env = dict(self._environment)
        for each in wish.env or ():
            if not each.name or "=" in each.name or "\0" in each.name + each.value:
                raise refused(rpc.INVALID_PARAMS, "Invalid params: env has a name or value that cannot be", field="env")
            env[each.name] = each.value
        argv = [wish.command, *(wish.args or ())]
        if not wish.command or any("\0" in each for each in argv):
            raise refused(rpc.INVALID_PARAMS, "Invalid params: command is no command", field="command")
        named = os.path.join(cwd, wish.command) if "/" in wish.command else wish.command
        if shutil.which(named, path=env.get("PATH")) is None:
            if wish.args:
                raise refused(rpc.INVALID_PARAMS, f"{wish.command}: no such program", field="command")
            argv = ["/bin/sh", "-c", wish.command]
        return argv, cwd, env

    def get(self, number: str) -> "Terminal":
        found = self._all.get(number)
        if found is None:
            raise refused(rpc.NOT_FOUND, f"Resource not found: no terminal {number}", terminalId=number)
        return found

    async def release(self, number: str) -> None:
        terminal = self.get(number)
        del self._all[number]
        await terminal.end()

    async def close(self) -> None:
        """Free all of them; returns when none of their processes is left."""
        self._closed = True
        terminals, self._all = list(self._all.values()), {}
        await asyncio.gather(*(terminal.end() for terminal in terminals))


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
        self._record = reaper.record(run_dir, self.pid, f"terminal of {name}", mark) if run_dir else None
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
        self._text += self._decoder.decode(data, last).encode()
        if len(self._text) > 2 * self._limit + READ:  # not at each read: what stays has to be moved
            self._trim()

    def _trim(self) -> None:
        self._cut(len(self._text) - self._limit)

    def _too_much(self) -> int:
        """The bytes at the front that would make the answer too large, give or take a piece."""
        room, end = MAX_TEXT, len(self._text)
        if 6 * end <= room:  # an escape has six bytes
            return 0
        while end > 0:
            begin = max(end - READ, 0)
            room -= json_size(self._text[begin:end].decode("utf-8", "replace"))
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
