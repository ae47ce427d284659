"""``adapters/acp/process`` and ``reaper``: nobody stays behind, and death is told at once."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adapters.acp import process
from adapters.acp.process import Process
from gateway import reaper
from gateway.spawn import environment
from tests.acp.support import ROOT


class Child:
    """A process and what it told."""

    def __init__(self, *argv: str, cwd: str = "/", run_dir: Path | None = None) -> None:
        self.data = bytearray()
        self.ends: list[str] = []
        self.ended_at = 0.0
        self.changed = asyncio.Event()
        self.process = Process(argv, cwd, {"PATH": os.environ["PATH"]}, self.on_data, self.on_exit, run_dir, "test")

    def on_data(self, data: bytes) -> None:
        self.data += data
        self.changed.set()

    def on_exit(self, how: str) -> None:
        self.ends.append(how)
        self.ended_at = time.monotonic()
        self.changed.set()

    async def until(self, found: Callable[[], Any]) -> None:
        async with asyncio.timeout(10):
            while not found():
                self.changed.clear()
                await self.changed.wait()

    async def end(self) -> str:
        await self.until(lambda: self.ends)
        async with asyncio.timeout(10):
            await self.process.exited.wait()
        (how,) = self.ends
        return how


@asynccontextmanager
async def child(*argv: str, **options: Any) -> AsyncIterator[Child]:
    c = Child(*argv, **options)
    try:
        yield c
    finally:
        c.process.kill("the test is over")
        await c.process.exited.wait()


def python(code: str) -> tuple[str, ...]:
    return sys.executable, "-c", code


async def nobody(session: int) -> None:
    async with asyncio.timeout(10):
        while reaper.members(session):
            await asyncio.sleep(0.005)


async def test_talk() -> None:
    async with child("cat") as c:
        assert c.process.write(b"hello\n")
        await c.until(lambda: c.data == b"hello\n")
        await c.process.stop()
        assert c.ends == ["exited with status 0 (was stopped)"]
        assert not c.process.write(b"x")


async def test_the_last_words_come_before_the_end() -> None:
    async with child("sh", "-c", "echo out; echo why >&2; exit 3") as c:
        assert await c.end() == "exited with status 3"
        assert c.data == b"out\n" and c.process.last_stderr() == "why"


async def test_death_is_told_at_once() -> None:
    # Its child keeps stdout open: there is no EOF, the pidfd tells.
    async with child("sh", "-c", "sleep 1000 & echo up; wait") as c:
        await c.until(lambda: c.data)
        began = time.monotonic()
        os.kill(c.process.pid, signal.SIGKILL)
        assert await c.end() == "was ended by signal 9"
        assert c.ended_at - began < 0.05
        await nobody(c.process.pid)


async def test_end_of_output_is_the_end() -> None:
    async with child(*python("import os, time; os.close(1); time.sleep(1000)")) as c:
        assert await c.end() == "closed its output"


async def test_large_writes_are_not_awaited() -> None:
    async with child("cat") as c:
        data = b"x" * (8 * 1024 * 1024)
        began = time.monotonic()
        assert c.process.write(data) and c.process.write(b"end")
        assert time.monotonic() - began < 0.5
        await c.until(lambda: len(c.data) == len(data) + 3)
        assert c.data == data + b"end"


async def test_an_agent_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MAX_UNWRITTEN", 1024 * 1024)
    async with child("sleep", "1000") as c:
        assert c.process.write(b"x" * 1024 * 1024)
        assert not c.process.write(b"x" * 1024 * 1024)
        assert await c.end() == "was ended by signal 9 (does not read its input)"


async def test_room_for_large_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each that waited looks again; a child that is gone holds nobody."""
    monkeypatch.setattr(process, "ROOM", 1024 * 1024)
    large = b"x" * 2 * 1024 * 1024
    most = 0

    async def answer(c: Child) -> None:
        nonlocal most
        await c.process.room()
        c.process.write(large)
        most = max(most, len(c.process._unwritten))

    async with child(*python("import sys; sys.stdin.read(1); print('begun', flush=True); sys.stdin.read()")) as c:
        await asyncio.gather(*(answer(c) for _ in range(20)))
        assert 1024 * 1024 < most <= 3 * 1024 * 1024
    async with child("sleep", "1000") as c:
        c.process.write(large)
        waiting = asyncio.get_running_loop().create_task(c.process.room())
        await asyncio.sleep(0)
        assert not waiting.done()
        c.process.kill("the end")
        async with asyncio.timeout(10):
            await waiting


async def test_pause_and_resume() -> None:
    async with child(*python("import os\nwhile True: os.write(1, b'x' * 65536)")) as c:
        await c.until(lambda: c.data)
        c.process.pause()
        held = len(c.data)
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert len(c.data) == held
        c.process.resume()
        await c.until(lambda: len(c.data) > held + 2 * 1024 * 1024)


async def test_stderr_is_drained_and_bounded() -> None:
    async with child(*python("import sys\nfor i in range(100000): print('line', i, file=sys.stderr)")) as c:
        assert await c.end() == "exited with status 0"
        assert c.process.last_stderr(2) == "line 99998\nline 99999"
        assert len(c.process._stderr) == process.STDERR_RING


STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(1000)"
)


async def test_the_ladder() -> None:
    async with child(*python(STUBBORN)) as c:
        await c.until(lambda: c.data)
        await c.process.stop(eof_wait=0.05, term_wait=0.05)
        assert c.ends == ["was ended by signal 9 (was stopped)"]
        assert not reaper.members(c.process.pid)


async def test_term_is_enough_for_most() -> None:
    async with child("sleep", "1000") as c:
        await c.process.stop(eof_wait=0.05)
        assert c.ends == ["was ended by signal 15 (was stopped)"]


@pytest.mark.parametrize(
    "script",
    [
        "sleep 1000 & sleep 1001 & echo up; wait",
        "(sleep 1000 & sleep 1001 &) ; echo up; exit 0",
        "set -m; sleep 1000 & set +m; echo up; exec cat",  # its own process group, the same session
        "trap '' TERM HUP; sleep 1000 & echo up; exec cat",
    ],
)
async def test_no_descendant_is_left(script: str) -> None:
    async with child("bash", "-c", script) as c:
        await c.until(lambda: c.data)
        await c.process.stop(eof_wait=0.5)
        assert not reaper.members(c.process.pid)


async def dead(pid: int) -> None:
    async with asyncio.timeout(10):
        while reaper.alive(pid, reaper.start_time(pid)):
            await asyncio.sleep(0.005)


# Node's spawn(detached: true), and a daemon: sessions of their own, the second with another parent.
DETACHED = "{ setsid sleep 1000 & (setsid sleep 1001 & echo $!); echo $!; }"


async def detached(c: Child) -> list[int]:
    """The two, when they have left."""
    await c.until(lambda: c.data.count(b"\n") == 2)
    left = [int(line) for line in c.data.split()]
    async with asyncio.timeout(10):
        while any(os.getsid(pid) == c.process.pid for pid in left):
            await asyncio.sleep(0.005)
    return left


@pytest.mark.parametrize("end", ["stop", "kill", "crash", "exit"])
async def test_who_left_the_session_is_ended_too(end: str, tmp_path: Path) -> None:
    rest = "exit 0" if end == "exit" else "exec cat"
    async with child("bash", "-c", f"{DETACHED}; read; {rest}", run_dir=tmp_path) as c:
        left = await detached(c)
        c.process.write(b"\n")
        if end == "stop":
            await c.process.stop()
            assert not any(reaper.alive(pid, reaper.start_time(pid)) for pid in left)
        elif end == "kill":
            c.process.kill("enough")
        elif end == "crash":
            os.kill(c.process.pid, signal.SIGKILL)
        await c.end()
        assert not list(tmp_path.iterdir())
        for pid in left:
            await dead(pid)


async def test_the_end_is_told_before_others_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = threading.Event()
    find = reaper._find

    def slow(kin: Any) -> Any:
        looked.wait(10)
        return find(kin)

    monkeypatch.setattr(reaper, "_find", slow)
    async with child("bash", "-c", DETACHED + "; exec cat") as a, child("cat") as b:
        left = await detached(a)
        for c in (a, b):
            os.kill(c.process.pid, signal.SIGKILL)
        for c in (a, b):
            await c.until(lambda c=c: c.ends)
            assert not c.process.exited.is_set()
        looked.set()
        for pid in left:
            await dead(pid)


async def test_one_look_for_all_who_end_together(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    find = reaper._find
    together = threading.Event()

    def counted(kin: Any) -> Any:
        looks.append(len(kin))
        together.wait(10)
        return find(kin)

    monkeypatch.setattr(reaper, "_find", counted)
    async with child("cat") as a, child("cat") as b, child("cat") as c:
        for each in (a, b, c):
            os.kill(each.process.pid, signal.SIGKILL)
        for each in (a, b, c):
            await each.until(lambda each=each: each.ends)
        together.set()
        for each in (a, b, c):
            await each.end()
        assert len(looks) <= 2 and sum(looks) == 3, looks


async def test_last_words_have_an_end() -> None:
    """A descendant that has the agent's output and writes without end keeps nobody from being told."""
    flood = "import os; os.setsid()\nwhile True: os.write(1, b'x' * 65536)"
    script = f'{sys.executable} -c "{flood}" & exec sleep 1000'
    async with child("bash", "-c", script) as c:
        await c.until(lambda: len(c.data) > 4 * 1024 * 1024)
        os.kill(c.process.pid, signal.SIGKILL)
        assert await c.end() == "was ended by signal 9"


async def test_it_cannot_be_started() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for argv, cwd in ((["/no/such"], "/"), (["cat"], "/no/such/folder")):
        with pytest.raises(FileNotFoundError, match="/no/such"):
            Process(argv, cwd, {}, lambda _: None, lambda _: None)
    assert len(os.listdir("/proc/self/fd")) == before


async def test_no_descriptor_is_left() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        async with child("cat") as c:
            await c.process.stop()
    assert len(os.listdir("/proc/self/fd")) == before


def test_environment() -> None:
    outer = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "XDG_CACHE_HOME": "/c",
        "npm_config_registry": "r",
        "npm_config__authToken": "secret",
        "NPM_TOKEN": "secret",
        "NODE_AUTH_TOKEN": "secret",
        "TRUNKLINE_TOKEN": "secret",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "WANTED": "w",
        "SET": "outer",
    }
    assert environment(outer, ["WANTED", "ABSENT"], {"SET": "inner"}) == {
        "PATH": "/bin",
        "LC_ALL": "C",
        "XDG_CACHE_HOME": "/c",
        "npm_config_registry": "r",
        "WANTED": "w",
        "SET": "inner",
    }


# --- the reaper ----------------------------------------------------------------------------------------------------


async def test_a_record_lives_as_long_as_the_process(tmp_path: Path) -> None:
    async with child("cat", run_dir=tmp_path) as c:
        (path,) = tmp_path.iterdir()
        entry = msgspec.json.decode(path.read_bytes(), type=reaper.Record)
        assert (entry.pid, entry.owner, entry.name) == (c.process.pid, os.getpid(), "test")
        assert entry.start == reaper.start_time(c.process.pid) > 0
        assert reaper.reap(tmp_path) == 0 and c.process.alive and path.exists()  # its gateway lives: it is let be
        await c.process.stop()
        assert not list(tmp_path.iterdir())


GATEWAY = """
import asyncio, sys
from pathlib import Path
from adapters.acp.process import Process
async def main():
    p = Process(["bash", "-c", sys.argv[2]], "/", {"PATH": "/usr/bin:/bin"}, lambda d: print(p.pid, flush=True),
                lambda how: None, Path(sys.argv[1]))
    await asyncio.sleep(1000)
asyncio.run(main())
"""


def killed_gateway(run_dir: Path, script: str) -> int:
    """Start a gateway with one agent, kill it with -9; the agent's number."""
    argv = [sys.executable, "-c", GATEWAY, str(run_dir), script]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE) as gateway:
        assert gateway.stdout
        pid = int(gateway.stdout.readline())
        gateway.kill()
    return pid


async def test_what_a_killed_gateway_left_is_reaped(tmp_path: Path) -> None:
    # The parent-death signal ends the leader; who ignores the end of stdin stays, in its session.
    pid = killed_gateway(tmp_path, "sleep 1000 & set -m; sleep 1001 & echo up; cat > /dev/null; wait")
    assert len(reaper.members(pid)) >= 2
    assert reaper.reap(tmp_path) >= 2
    await nobody(pid)
    assert not list(tmp_path.iterdir())
    assert reaper.reap(tmp_path) == 0


async def test_the_leader_dies_with_its_gateway(tmp_path: Path) -> None:
    pid = killed_gateway(tmp_path, "echo up; exec sleep 1000")
    await nobody(pid)
    assert reaper.reap(tmp_path) == 0 and not list(tmp_path.iterdir())


async def test_who_left_the_session_of_a_killed_gateways_agent_is_reaped(tmp_path: Path) -> None:
    """Also when the leader is gone and its number is another's."""
    killed_gateway(tmp_path, f"{DETACHED} > {tmp_path}/pids; echo up; exec sleep 1000")
    left = [int(line) for line in (tmp_path / "pids").read_text().split()]
    (path,) = tmp_path.glob("agent-*.json")
    entry = msgspec.json.decode(path.read_bytes(), type=reaper.Record)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(entry, pid=os.getpid())))
    assert reaper.reap(tmp_path) == 2
    for pid in left:
        await dead(pid)


async def test_a_gateway_that_an_agent_started_does_not_kill_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with child("bash", "-c", DETACHED + "; exec cat", run_dir=tmp_path) as c:
        left = await detached(c)
        (path,) = tmp_path.glob("agent-*.json")
        entry = msgspec.json.decode(path.read_bytes(), type=reaper.Record)
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: left[0])
            found = reaper.members(entry.pid, entry.mark)
        assert c.process.pid in found and left[1] in found and left[0] not in found


async def test_another_process_with_the_same_number_is_left_alone(tmp_path: Path) -> None:
    async with child("cat", run_dir=tmp_path) as c:
        (path,) = tmp_path.iterdir()
        entry = msgspec.json.decode(path.read_bytes(), type=reaper.Record)
        entry.owner_start += 1  # the gateway that wrote it is gone
        entry.mark = reaper.new_mark()
        for change in ({"start": entry.start - 1}, {"boot": "before"}):
            path.write_bytes(msgspec.json.encode(msgspec.structs.replace(entry, **change)))
            assert reaper.reap(tmp_path) == 0 and not path.exists()
        assert reaper.members(c.process.pid) == [c.process.pid]


def test_rubbish_in_the_run_directory(tmp_path: Path) -> None:
    (tmp_path / "agent-1.json").write_bytes(b"{not json")
    (tmp_path / "other").write_bytes(b"")
    assert reaper.reap(tmp_path) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
    assert reaper.reap(tmp_path / "missing") == 0
