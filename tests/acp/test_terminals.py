"""Terminals that the gateway serves: ``adapters/acp/terminals`` by itself, and as an agent asks for them."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from adapters.acp import terminals
from adapters.acp.fs import json_size
from adapters.acp.owner import CallFailed
from adapters.acp.terminals import Create, Terminals, Variable
from gateway import reaper, terminal
from gateway.core.errors import Forbidden
from tests.acp.test_fs import ask, asker, told

Json = dict[str, Any]
PATH = {"PATH": os.environ["PATH"]}


@asynccontextmanager
async def of(root: Path, run_dir: Path | None = None, **environment: str) -> AsyncIterator[Terminals]:
    held = Terminals({**PATH, **environment}, [root], str(root), run_dir, "tests")
    try:
        yield held
    finally:
        await held.close()


async def start(held: Terminals, command: str, *args: str, **more: Any) -> str:
    return str((await held.create(Create(command, list(args) or None, **more)))["terminalId"])


async def python(held: Terminals, script: str, **more: Any) -> str:
    return await start(held, sys.executable, "-c", script, **more)


async def ended(held: Terminals, number: str) -> Json:
    async with asyncio.timeout(30):
        return await held.get(number).wait()


async def output(held: Terminals, number: str, wanted: str) -> str:
    """Wait until the output has this."""
    async with asyncio.timeout(30):
        while wanted not in (said := held.get(number).output()["output"]):
            await asyncio.sleep(0.01)
    return str(said)


async def refused(code: int, call: Any) -> CallFailed:
    with pytest.raises(CallFailed) as caught:
        await call
    assert caught.value.error.code == code
    return caught.value


async def dead(*pids: int) -> None:
    async with asyncio.timeout(20):
        while any(Path(f"/proc/{pid}").exists() and _state(pid) not in "ZX" for pid in pids):
            await asyncio.sleep(0.01)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


# --- one command -----------------------------------------------------------------------------------------------------


async def test_a_command(tmp_path: Path) -> None:
    async with of(tmp_path) as held:
        number = await python(held, "import sys; print('out'); sys.stdout.flush(); print('err', file=sys.stderr)")
        assert await ended(held, number) == {"exitCode": 0, "signal": None}
        assert held.get(number).output() == {
            "output": "out\nerr\n",
            "truncated": False,
            "exitStatus": {"exitCode": 0, "signal": None},
        }
        assert await ended(held, await python(held, "raise SystemExit(7)")) == {"exitCode": 7, "signal": None}
        killed = await python(held, "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
        assert await ended(held, killed) == {"exitCode": None, "signal": "SIGSEGV"}


async def test_while_it_runs(tmp_path: Path) -> None:
    async with of(tmp_path) as held:
        number = await python(held, "import time; print('on', flush=True); time.sleep(60)")
        await output(held, number, "on\n")
        assert "exitStatus" not in held.get(number).output()


async def test_nothing_to_read_and_nothing_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stdin is empty; the environment is what was given, the wish's own on top."""
    monkeypatch.setenv("TRUNKLINE_TOKEN", "secret")
    async with of(tmp_path, MINE="agent", BOTH="agent") as held:
        script = "import os, sys; print(repr(sys.stdin.read())); print(sorted(os.environ.items()))"
        wish = [Variable("BOTH", "wish"), Variable(reaper.MARK, "forged")]
        number = await python(held, script, env=wish)
        await ended(held, number)
        said = held.get(number).output()["output"]
        assert said.startswith("''\n") and "secret" not in said and "forged" not in said
        assert "('MINE', 'agent')" in said and "('BOTH', 'wish')" in said and reaper.MARK in said


async def test_where_it_runs(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "tool").write_text("#!/bin/sh\npwd\n")
    (tmp_path / "sub" / "tool").chmod(0o755)
    async with of(tmp_path) as held:
        first, second = await start(held, "pwd"), await start(held, "./tool", cwd=str(tmp_path / "sub"))
        await ended(held, first)
        await ended(held, second)
        assert held.get(first).output()["output"] == f"{tmp_path}\n"
        assert held.get(second).output()["output"] == f"{tmp_path / 'sub'}\n"
        with pytest.raises(Forbidden):
            await start(held, "pwd", cwd="/")
        (tmp_path / "out").symlink_to("/")
        with pytest.raises(Forbidden):
            await start(held, "pwd", cwd=str(tmp_path / "out"))
        assert "no folder" in str(await refused(-32602, start(held, "pwd", cwd=str(tmp_path / "none"))))


async def test_a_line_for_the_shell(tmp_path: Path) -> None:
    """Some agents write the whole line as the command; with arguments it must be a program."""
    async with of(tmp_path) as held:
        number = await start(held, "echo one && echo two")
        await ended(held, number)
        assert held.get(number).output()["output"] == "one\ntwo\n"
        number = await start(held, "echo", "one && echo two")
        await ended(held, number)
        assert held.get(number).output()["output"] == "one && echo two\n"
        assert "no such program" in str(await refused(-32602, start(held, "no such thing", "x")))
        number = await start(held, "no-such-thing")
        assert (await ended(held, number))["exitCode"] == 127


@pytest.mark.parametrize(
    "wish",
    [Create(""), Create("a\0b"), Create("pwd", ["\0"]), Create("pwd", env=[Variable("A=B", "")])]
    + [Create("pwd", env=[Variable("", "")]), Create("pwd", env=[Variable("A", "\0")])]
    + [Create("pwd", output_byte_limit=-1)],
)
async def test_what_cannot_be_run(tmp_path: Path, wish: Create) -> None:
    async with of(tmp_path) as held:
        await refused(-32602, held.create(wish))


# --- output ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20])
async def test_cut_at_the_front_between_characters(tmp_path: Path, limit: int) -> None:
    text = "a€😀bü"  # 1 + 3 + 4 + 1 + 2 bytes
    async with of(tmp_path) as held:
        number = await python(held, f"import os; os.write(1, {text.encode()!r})", output_byte_limit=limit)
        await ended(held, number)
        said = held.get(number).output()
    assert text.endswith(said["output"]) and len(said["output"].encode()) <= limit
    assert said["truncated"] is (limit < 11)
    longest = next(text[i:] for i in range(len(text) + 1) if len(text[i:].encode()) <= limit)
    assert said["output"] == longest


async def test_cut_to_what_fits_an_answer(tmp_path: Path) -> None:
    """Eight MiB of NULs are 48 MiB of JSON."""
    async with of(tmp_path) as held:
        script = "import os; left = 8 << 20\nwhile left: left -= os.write(1, b'\\0' * min(left, 65536))\nprint('end')"
        number = await python(held, script, output_byte_limit=8 << 20)
        await ended(held, number)
        said = await output(held, number, "end\n")
        assert held.get(number).output()["truncated"]
        assert 15 << 20 < json_size(said) <= 16 << 20 and said.endswith("\0end\n")


async def test_a_character_that_comes_in_two_pieces_and_bytes_that_are_none(tmp_path: Path) -> None:
    script = (
        "import os, time, sys\n"
        "os.write(1, b'x\\xe2\\x82')\n"
        "sys.stdin.read()\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
        "os.write(1, b'\\xac\\xff\\xe2')"
    )
    async with of(tmp_path) as held:
        number = await python(held, script)
        assert await output(held, number, "x") == "x"
        (tmp_path / "go").touch()
        await ended(held, number)
        assert held.get(number).output()["output"] == "x€\ufffd\ufffd"


async def test_a_flood_is_bounded_and_leaves_the_loop_free(tmp_path: Path) -> None:
    async with of(tmp_path) as held:
        number = await start(held, "yes", output_byte_limit=100_000)
        await output(held, number, "y\n" * 1000)
        longest = 0.0
        for _ in range(100):
            began = time.monotonic()
            await asyncio.sleep(0.005)
            longest = max(longest, time.monotonic() - began)
            assert len(held.get(number)._text) <= 2 * 100_000 + 2 * terminal.READ
        said = held.get(number).output()
        assert said["truncated"] and 99_990 <= len(said["output"]) <= 100_000
        assert longest < 0.5


async def test_the_last_words_of_a_flood_are_there(tmp_path: Path) -> None:
    async with of(tmp_path) as held:
        number = await python(held, "print('x' * 3_000_000); print('the end')", output_byte_limit=1000)
        await ended(held, number)
        assert held.get(number).output()["output"].endswith("x\nthe end\n")


async def test_no_wish_is_larger_than_the_largest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminals, "MAX_OUTPUT", 50)
    async with of(tmp_path) as held:
        number = await python(held, "print('x' * 1000)", output_byte_limit=1 << 40)
        await ended(held, number)
        assert len(held.get(number).output()["output"]) == 50


# --- the end ---------------------------------------------------------------------------------------------------------


async def test_kill_keeps_and_release_frees(tmp_path: Path) -> None:
    async with of(tmp_path) as held:
        number = await python(held, "import time; print('on', flush=True); time.sleep(60)")
        await output(held, number, "on")
        waiting = asyncio.get_running_loop().create_task(ended(held, number))
        await asyncio.sleep(0)
        held.get(number).kill()
        assert await waiting == {"exitCode": None, "signal": "SIGTERM"}
        assert held.get(number).output()["output"] == "on\n"
        held.get(number).kill()  # again, for nothing
        await held.release(number)
        with pytest.raises(CallFailed) as caught:
            held.get(number)
        assert caught.value.error.code == -32002
        await refused(-32002, held.release(number))


async def test_one_that_ignores_sigterm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "KILL_AFTER", 0.2)
    async with of(tmp_path) as held:
        script = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True)"
        number = await python(held, script + "; time.sleep(60)")
        await output(held, number, "on")
        held.get(number).kill()
        assert await ended(held, number) == {"exitCode": None, "signal": "SIGKILL"}


GRANDCHILD = (
    "import subprocess, sys\n"
    "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session={detached},"
    " stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
    "print(p.pid, flush=True)\n"
)


@pytest.mark.parametrize("detached", [False, True])
async def test_whoever_it_started_ends_with_its_release(tmp_path: Path, detached: bool) -> None:
    """Not with its own end: a server in the background is meant to go on."""
    async with of(tmp_path) as held:
        number = await python(held, GRANDCHILD.format(detached=detached))
        await ended(held, number)
        pid = int(held.get(number).output()["output"])
        assert _state(pid) in "SR"
        await held.release(number)
        await dead(pid)


async def test_closing_frees_all(tmp_path: Path) -> None:
    async with of(tmp_path, tmp_path / "run") as held:
        numbers = [await python(held, GRANDCHILD.format(detached=True) + "p.wait()") for _ in range(3)]
        pids = [held.get(n).pid for n in numbers]
        pids += [int(await output(held, n, "\n")) for n in numbers]
        assert len(list((tmp_path / "run").glob("agent-*.json"))) == 3
        await held.close()
        assert [p for p in pids if _state(p) not in "ZX"] == []
        assert not list((tmp_path / "run").iterdir())
        assert "has ended" in str(await refused(-32603, start(held, "pwd")))


async def test_what_a_killed_gateway_left_is_reaped(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    script = f"""
import asyncio, os
from pathlib import Path
from adapters.acp.terminals import Create, Terminals
async def main():
    held = Terminals(dict(os.environ), [Path({str(tmp_path)!r})], {str(tmp_path)!r}, Path({str(run_dir)!r}), "t")
    number = (await held.create(Create({sys.executable!r}, ["-c", {GRANDCHILD.format(detached=True) + "p.wait()"!r}])))
    terminal = held.get(number["terminalId"])
    while not terminal.output()["output"]:
        await asyncio.sleep(0.01)
    print(terminal.pid, terminal.output()["output"], flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    root = Path(__file__).resolve().parents[2]
    gateway = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(root)}
    )
    assert gateway.stdout is not None
    async with asyncio.timeout(30):
        leader, detached = map(int, (await gateway.stdout.readline()).split())
    gateway.send_signal(signal.SIGKILL)
    await gateway.wait()
    await dead(leader)  # with the thread that started it
    assert _state(detached) in "SR"
    assert reaper.reap(run_dir) == 1
    await dead(detached)


async def test_how_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminals, "MAX_TERMINALS", 2)
    async with of(tmp_path) as held:
        first = await start(held, "pwd")
        await start(held, "pwd")
        failed = await refused(-32602, start(held, "pwd"))
        assert "release some" in failed.error.message and failed.error.data["reason"] == "limit_reached"
        await ended(held, first)  # an end alone frees nothing
        await refused(-32602, start(held, "pwd"))
        await held.release(first)
        await start(held, "pwd")


async def test_no_descriptor_is_left(tmp_path: Path) -> None:
    async with of(tmp_path) as held:
        await held.release(await start(held, "pwd"))
        before = os.listdir("/proc/self/fd")
        for _ in range(5):
            number = await start(held, "pwd")
            await ended(held, number)
            await held.release(number)
            with pytest.raises(CallFailed):
                await start(held, "no such program", "x")
        await held.release(await python(held, "import time; time.sleep(60)"))
        assert len(os.listdir("/proc/self/fd")) == len(before)


# --- as an agent asks for them ---------------------------------------------------------------------------------------


async def test_all_five(tmp_path: Path) -> None:
    number = {"terminalId": "$"}
    async with asker(tmp_path, terminal="gateway") as d:
        script = "import time; print('on', flush=True); time.sleep(60)"
        answers = await told(
            d,
            ask("terminal/create", command=sys.executable, args=["-c", "print('hi')"], env=[], cwd=None),
            ask("terminal/wait_for_exit", **number),
            ask("terminal/output", **number),
            ask("terminal/release", **number),
            ask("terminal/output", **number),
            ask("terminal/create", command=sys.executable, args=["-c", script], outputByteLimit=10),
            ask("terminal/kill", **number),
            ask("terminal/wait_for_exit", **number),
            ask("terminal/release", **number),
            ask("terminal/create", command=["no", "string"]),
            ask("terminal/create", command="pwd", cwd="/"),
            ask("terminal/output"),
            ask("terminal/resize", **number),
        )
        made, waited, said, released, gone = answers[:5]
        assert made["terminalId"].startswith("term_") and waited == {"exitCode": 0, "signal": None}
        assert said == {"output": "hi\n", "truncated": False, "exitStatus": {"exitCode": 0, "signal": None}}
        assert released == {} and gone["code"] == -32002
        assert answers[6] == {} and answers[7] == {"exitCode": None, "signal": "SIGTERM"} and answers[8] == {}
        assert [a["code"] for a in answers[9:]] == [-32602, -32602, -32602, -32601]
        assert "command" in answers[9]["message"] and "terminalId" in answers[11]["message"]


async def test_off(tmp_path: Path) -> None:
    async with asker(tmp_path, fs="gateway") as d:
        [answer] = await told(d, ask("terminal/create", command="pwd"))
    assert answer["code"] == -32601


async def test_the_agents_own_environment_without_the_gateways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUNKLINE_TOKEN", "secret")
    monkeypatch.setenv("SOME_KEY", "passed")
    async with asker(tmp_path, terminal="gateway", pass_env=["SOME_KEY"], env={"OWN": "set"}) as d:
        _, _, said = await told(
            d,
            ask("terminal/create", command="env"),
            ask("terminal/wait_for_exit", terminalId="$"),
            ask("terminal/output", terminalId="$"),
        )
    assert "secret" not in said["output"]
    assert "SOME_KEY=passed" in said["output"] and "OWN=set" in said["output"]


async def test_an_agent_that_waits_may_give_up(tmp_path: Path) -> None:
    async with asker(tmp_path, terminal="gateway") as d:
        made, cancelled, said = await told(
            d,
            ask("terminal/create", command="sleep 60"),
            {"start": "w", "ask": "terminal/wait_for_exit", "params": {"terminalId": "$"}},
            {"cancel": "w"},
            {"answer": "w"},
            ask("terminal/output", terminalId="$"),
        )
    assert cancelled["code"] == -32800 and "exitStatus" not in said and made


@pytest.mark.parametrize("end", ["the session", "the agent"])
async def test_the_end_frees_all(tmp_path: Path, end: str) -> None:
    async with asker(tmp_path, terminal="gateway") as d:
        await told(
            d,
            ask("terminal/create", command=sys.executable, args=["-c", GRANDCHILD.format(detached=True) + "p.wait()"]),
            ask("terminal/create", command="sleep 600"),
        )
        held = d.port._duties._terminals
        assert held is not None
        one, two = held._all
        pids = [held.get(one).pid, held.get(two).pid, int(await output(held, one, "\n"))]
        if end == "the agent":
            os.kill(d.pid, signal.SIGKILL)
        await d.port.close()
        assert [pid for pid in pids if _state(pid) not in "ZX"] == []
