"""Files for agents: ``adapters/acp/fs`` by itself, and as an agent asks for them (``off``, ``gateway``)."""

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from adapters.acp import fs, process
from adapters.acp.agent import AcpAgents
from adapters.acp.owner import CallFailed
from gateway.agents import AgentConfig
from gateway.core.errors import Forbidden
from tests.acp.support import Driver

ASKER = [sys.executable, str(Path(__file__).parent / "clients" / "asker.py")]
Json = dict[str, Any]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def read(path: object, root: Path, **more: int) -> str:
    return fs.read(fs.Read(str(path), **more), [root])


def write(path: object, text: str, root: Path) -> None:
    fs.write(fs.Write(str(path), text), [root])


def refused(code: int, call: Any, *args: Any, **more: Any) -> CallFailed:
    with pytest.raises(CallFailed) as caught:
        call(*args, **more)
    assert caught.value.error.code == code, caught.value.error
    return caught.value


# --- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "limit", "told"),
    [
        (None, None, "one\ntwo\nthree"),
        (1, None, "one\ntwo\nthree"),
        (2, None, "two\nthree"),
        (3, 5, "three"),
        (4, None, ""),
        (99, 1, ""),
        (None, 2, "one\ntwo\n"),
        (2, 1, "two\n"),
        (2, 0, ""),
    ],
)
def test_lines(root: Path, line: int | None, limit: int | None, told: str) -> None:
    (root / "a").write_text("one\ntwo\nthree")
    found = fs.read(fs.Read(str(root / "a"), line, limit), [root])
    assert found == told


def test_line_ends_and_marks_stay(root: Path) -> None:
    text = "\ufeffa\r\nb\rc\u2028d\n"
    (root / "a").write_bytes(text.encode())
    assert read(root / "a", root) == text
    assert read(root / "a", root, line=2) == "b\rc\u2028d\n"


@pytest.mark.parametrize("more", [{"line": 0}, {"line": -1}, {"limit": -1}])
def test_numbers_that_make_no_sense(root: Path, more: dict[str, int]) -> None:
    (root / "a").write_text("x")
    assert next(iter(more)) in str(refused(-32602, read, root / "a", root, **more))


def test_no_text(root: Path) -> None:
    (root / "a").write_bytes(b"ok \xff")
    failed = refused(-32602, read, root / "a", root)
    assert "not UTF-8 text (byte 3" in failed.error.message and failed.error.data["reason"] == "not_text"


def test_no_file(root: Path) -> None:
    assert str(root / "a") in refused(-32002, read, root / "a", root).error.message
    (root / "folder").mkdir()
    assert "is a folder" in refused(-32602, read, root / "folder", root).error.message
    assert "is a folder" in refused(-32602, read, root, root).error.message
    refused(-32002, read, root / "nowhere" / "a", root)
    (root / "a").write_text("x")
    with pytest.raises(Forbidden, match="not a directory"):
        read(root / "a" / "b", root)


def test_what_never_ends(root: Path) -> None:
    """A pipe that nobody writes to must not hold a thread for ever."""
    os.mkfifo(root / "pipe")
    done: list[CallFailed] = []
    thread = threading.Thread(target=lambda: done.append(refused(-32602, read, root / "pipe", root)), daemon=True)
    thread.start()
    thread.join(10)
    assert done and "no regular file" in done[0].error.message


def test_too_large(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fs, "MAX_TEXT", 1 << 20)
    monkeypatch.setattr(fs, "MAX_FILE", 4 << 20)
    (root / "a").write_bytes(b"x" * 1023 + b"\n" + b"y\n" * (1 << 20))
    failed = refused(-32602, read, root / "a", root)
    assert "1 MiB" in failed.error.message and "line and limit" in failed.error.message
    assert read(root / "a", root, line=2, limit=2) == "y\ny\n"
    (root / "b").write_bytes(b"\n" * ((4 << 20) + 1))
    assert "4 MiB" in refused(-32602, read, root / "b", root, line=1, limit=1).error.message


def test_lines_of_any_length(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever piece of the file a line begins and ends in."""
    monkeypatch.setattr(fs, "_CHUNK", 4)
    for text in ("\n\n\n\n\n\n\n\n\n\n", "a\nbcdefgh\n\n\nijk\nlmnop", "abc\ndef\nghi\n"):
        (root / "a").write_text(text)
        lines = text.splitlines(keepends=True)
        for line in range(1, len(lines) + 3):
            for limit in range(len(lines) + 3):
                assert read(root / "a", root, line=line, limit=limit) == "".join(lines[line - 1 :][:limit])


def test_a_line_far_down(root: Path) -> None:
    (root / "a").write_bytes(b"\n" * (63 << 20))
    began = time.thread_time()
    assert read(root / "a", root, line=(63 << 20) - 1, limit=5) == "\n\n"
    assert read(root / "a", root, line=70_000_000, limit=1) == ""
    assert time.thread_time() - began < 4


def test_escapes_count(root: Path) -> None:
    """Three MiB of NULs are 18 MiB of JSON."""
    (root / "a").write_bytes(b"\0" * (3 << 20) + b"\nend")
    failed = refused(-32602, read, root / "a", root)
    assert "16 MiB as JSON" in failed.error.message and "line and limit" in failed.error.message
    assert failed.error.data["reason"] == "too_large"
    assert read(root / "a", root, line=2) == "end"


# --- writing ---------------------------------------------------------------------------------------------------------


def test_a_new_file_and_its_folders(root: Path) -> None:
    write(root / "a" / "b" / "c.txt", "ho\r\nü", root)
    assert (root / "a" / "b" / "c.txt").read_bytes() == "ho\r\nü".encode()
    assert [p.name for p in (root / "a" / "b").iterdir()] == ["c.txt"]


def test_replacing_keeps_the_mode(root: Path) -> None:
    (root / "run.sh").write_text("old")
    (root / "run.sh").chmod(0o750)
    write(root / "run.sh", "new", root)
    assert (root / "run.sh").read_text() == "new" and (root / "run.sh").stat().st_mode & 0o7777 == 0o750


def test_whole_or_not_at_all(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "a").write_text("old")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    failed = refused(-32603, write, root / "a", "new", root)
    assert "no space left" in failed.error.message
    assert [p.name for p in root.iterdir()] == ["a"] and (root / "a").read_text() == "old"


def test_no_place_for_a_file(root: Path) -> None:
    (root / "folder").mkdir()
    assert "is a folder" in refused(-32602, write, root / "folder", "x", root).error.message
    (root / "a").write_text("x")
    with pytest.raises(Forbidden, match="not a directory"):
        write(root / "a" / "b", "x", root)
    os.mkfifo(root / "pipe")
    assert "no regular file" in refused(-32602, write, root / "pipe", "x", root).error.message


# --- what is outside -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["plain", "dots", "relative", "link", "folder link", "dangling", "nul", "empty"])
def test_outside(root: Path, tmp_path: Path, way: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (root / "link").symlink_to(outside / "secret")
    (root / "dir").symlink_to(outside)
    (root / "dangling").symlink_to(outside / "new")
    path = {
        "plain": str(outside / "secret"),
        "dots": f"{root}/../outside/secret",
        "relative": "a.txt",
        "link": str(root / "link"),
        "folder link": str(root / "dir" / "secret"),
        "dangling": str(root / "dangling"),
        "nul": f"{root}/a\0b",
        "empty": "",
    }[way]
    with pytest.raises(Forbidden):
        read(path, root)
    with pytest.raises(Forbidden):
        write(path, "mine", root)
    assert (outside / "secret").read_text() == "secret" and not (outside / "new").exists()


def test_a_link_inside_is_followed_to_its_target(root: Path) -> None:
    (root / "real").write_text("old")
    (root / "link").symlink_to(root / "real")
    assert read(root / "link", root) == "old"
    write(root / "link", "new", root)
    assert (root / "link").is_symlink() and (root / "real").read_text() == "new"


@pytest.mark.parametrize("what", ["the file", "a folder"])
def test_a_link_that_is_put_there_after_the_look(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_text("secret")
    (root / "dir").mkdir()
    looked = root / "dir" / "a"
    monkeypatch.setattr(fs, "confine", lambda path, roots: looked)
    if what == "the file":
        looked.symlink_to(outside / "a")
    else:
        (root / "dir").rmdir()
        (root / "dir").symlink_to(outside)
    refused(-32603, read, looked, root)
    refused(-32603 if what == "a folder" else -32602, write, looked, "mine", root)
    assert (outside / "a").read_text() == "secret"


# --- as an agent asks for them ---------------------------------------------------------------------------------------


@asynccontextmanager
async def asker(cwd: Path, *flags: str, roots: tuple[Path, ...] = (), **fields: Any) -> AsyncIterator[Driver]:
    driver = Driver(AgentConfig(name="asker", command=[*ASKER, *flags], **fields), cwd, AcpAgents(roots=roots))
    try:
        await driver.start()
        yield driver
    finally:
        await driver.port.close()
        await driver.pool.close()


async def told(driver: Driver, *steps: Json) -> list[Any]:
    """What the agent said of the answers it got."""
    after = len(driver.sink.facts)
    end = await driver.turn(json.dumps(steps))
    assert end.outcome == "end_turn", end
    return [json.loads(line) for line in driver.sink.text(after=after).splitlines()]


def ask(method: str, **params: Any) -> Json:
    return {"ask": method, "params": params}


@pytest.mark.parametrize(
    ("files", "terminal", "offered"),
    [("off", "off", False), ("gateway", "off", True), ("client", "off", True), ("off", "gateway", False)],
)
async def test_what_is_offered_at_initialize(root: Path, files: str, terminal: str, offered: bool) -> None:
    async with asker(root, fs=files, terminal=terminal) as d:
        [hello] = await told(d, {"hello": 1})
        can = hello["clientCapabilities"]
        assert can["fs"] == {"readTextFile": offered, "writeTextFile": offered}
        assert can["terminal"] is (terminal != "off")


async def test_off(root: Path) -> None:
    (root / "a").write_text("x")
    async with asker(root) as d:
        answers = await told(
            d,
            ask("fs/read_text_file", path=str(root / "a")),
            ask("fs/write_text_file", path=str(root / "b"), content="x"),
        )
    assert [a["code"] for a in answers] == [-32601, -32601] and not (root / "b").exists()


async def test_gateway(root: Path, tmp_path: Path) -> None:
    async with asker(root, fs="gateway", roots=(root, tmp_path / "other")) as d:
        path = str(root / "new" / "a.txt")
        answers = await told(
            d,
            ask("fs/write_text_file", path=path, content="one\ntwo\n"),
            ask("fs/read_text_file", path=path),
            ask("fs/read_text_file", path=path, line=2, limit=1, _meta={"x": 1}),
            ask("fs/read_text_file", path=path, line=None, limit=None),
            ask("fs/read_text_file", path="/etc/passwd"),
            ask("fs/read_text_file", path=str(root / "missing")),
            ask("fs/read_text_file", path=7),
            ask("fs/read_text_file"),
            ask("fs/write_text_file", path=path),
            ask("fs/read_text_file", path=path, sessionId="somebody else"),
            ask("fs/rename", path=path),
        )
    assert answers[:4] == [{}, {"content": "one\ntwo\n"}, {"content": "two\n"}, {"content": "one\ntwo\n"}]
    outside, missing, number, none, empty, stranger, unknown = answers[4:]
    assert outside["code"] == -32602 and "outside of the workspace" in outside["message"]
    assert outside["data"] == {"reason": "forbidden"}
    assert (missing["code"], stranger["code"], unknown["code"]) == (-32002, -32002, -32601)
    assert [(e["code"], "path" in e["message"]) for e in (number, none)] == [(-32602, True)] * 2
    assert empty["code"] == -32602 and "content" in empty["message"]


async def test_the_roots_are_those_of_the_sessions_folder(tmp_path: Path) -> None:
    """A second workspace is not this session's; what is beside its folder in the same workspace is."""
    one, two = tmp_path / "one", tmp_path / "two"
    (one / "sub").mkdir(parents=True)
    two.mkdir()
    (one / "a").write_text("beside")
    (two / "a").write_text("another")
    async with asker(one / "sub", fs="gateway", roots=(one, two)) as d:
        mine, other = await told(
            d, ask("fs/read_text_file", path=str(one / "a")), ask("fs/read_text_file", path=str(two / "a"))
        )
    assert mine == {"content": "beside"} and other["code"] == -32602


async def test_files_are_written_in_the_order_of_the_requests(root: Path) -> None:
    """Also where the agent does not wait for the answers."""
    path = str(root / "a")
    steps: list[Json] = []
    for i in range(30):
        steps.append({"start": f"w{i}", "ask": "fs/write_text_file", "params": {"path": path, "content": str(i)}})
    steps += [{"answer": f"w{i}"} for i in range(30)]
    async with asker(root, fs="gateway") as d:
        assert await told(d, *steps) == [{}] * 30
    assert (root / "a").read_text() == "29"


async def test_answers_wait_for_an_agent_that_is_slow_to_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks for eight files at once: together they are more than what may be unwritten."""
    monkeypatch.setattr(process, "MAX_UNWRITTEN", 1 << 20)
    monkeypatch.setattr(process, "ROOM", 1 << 18)
    (root / "a").write_bytes(b"x" * 300_000)
    steps: list[Json] = [{"start": str(i), **ask("fs/read_text_file", path=str(root / "a"))} for i in range(8)]
    steps += [{"answer": str(i)} for i in range(8)]
    once, reads = fs.read, 0
    async with asker(root, fs="gateway") as d:

        def read(*args: Any) -> str:
            nonlocal reads
            reads += 1
            if reads == 1:
                while len(d.port._duties._running) < 8:
                    time.sleep(0.01)
                os.kill(d.pid, signal.SIGSTOP)
            return once(*args)

        monkeypatch.setattr(fs, "read", read)
        turn = asyncio.get_running_loop().create_task(told(d, *steps))
        connection = d.port._connection
        assert connection and isinstance(connection.process, process.Process)
        async with asyncio.timeout(20):
            while reads < 3:  # the third one is held
                assert connection.process.alive
                await asyncio.sleep(0.01)
        assert not connection.process._room.is_set()
        monkeypatch.setattr(fs, "read", once)
        os.kill(d.pid, signal.SIGCONT)
        assert await turn == [{"content": "x" * 300_000}] * 8


async def test_version_2_has_no_files(root: Path) -> None:
    """The settings say nothing there: the methods do not exist."""
    from adapters.acp.duties import methods

    config = AgentConfig(command=["x"], protocol=2, fs="gateway", terminal="client")
    assert methods(config) == ()
