"""The command as people run it: real processes."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from adapters.acp.demo import FLAGS
from adapters.acp.demo_turns import COMMANDS
from gateway.agents import AgentConfig
from gateway.known_agents import KNOWN, missing

ROOT = Path(__file__).resolve().parent.parent
TRUNKLINE = [sys.executable, "-m", "gateway"]
PATIENCE = 30
"""Seconds until a process is given up: never waited for in full."""


def environment(folder: Path, **more: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.upper().startswith("TRUNKLINE_")}
    return {**clean, "PYTHONPATH": str(ROOT), "XDG_DATA_HOME": str(folder / "xdg"), **more}


def run(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TRUNKLINE, *arguments],
        cwd=folder,
        env=environment(folder, **more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def refused(done: subprocess.CompletedProcess[str], status: int = 2) -> list[str]:
    """The lines of a refusal: nothing but lines for people."""
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""
    return done.stderr.splitlines()


@contextmanager
def serving(folder: Path, *arguments: str, **more: str) -> Iterator[tuple[subprocess.Popen[str], str, list[str]]]:
    """A running gateway, its address, and what it said until it was ready."""
    process = subprocess.Popen(
        [*TRUNKLINE, "serve", "--port", "0", *arguments],
        cwd=folder,
        env=environment(folder, **more),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line.rstrip("\n"))
            if line.startswith("attach: "):
                break
        address = next((line.split(" ")[-1] for line in lines if line.startswith("listening on ")), "")
        assert address, lines
        yield process, address, lines
    finally:
        process.kill()
        process.communicate()


def get(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_help(tmp_path: Path) -> None:
    done = run(tmp_path, "--help")
    assert done.returncode == 0
    assert all(command in done.stdout for command in ("serve", "agents", "demo-agent", "version"))
    flags = run(tmp_path, "serve", "--help").stdout
    assert all(f"--{flag}" in flags for flag in ("config", "host", "port", "agent", "data", "workspace", "log-level"))


def test_version(tmp_path: Path) -> None:
    assert run(tmp_path, "version").stdout.startswith("trunkline 0.")


def test_help_and_the_demo_agent_load_nothing_of_the_gateway(tmp_path: Path) -> None:
    heavy = {"fastapi", "sqlalchemy", "uvicorn", "structlog"}
    for command, never in (("--help", heavy), ("demo-agent", {*heavy, "typer", "pydantic"})):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "gateway", command],
            cwd=tmp_path,
            env=environment(tmp_path),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
        assert "gateway" in loaded
        assert not never & {name.split(".")[0] for name in loaded}


def test_the_demo_agent_gets_its_flags(tmp_path: Path) -> None:
    done = run(tmp_path, "demo-agent", "--no-ids", "--bogus")
    assert done.returncode == 2 and "--bogus" in done.stderr


def test_the_demo_agents_help(tmp_path: Path) -> None:
    for arguments in (["demo-agent", "--help"], ["demo-agent", "--steer", "-h"]):
        done = run(tmp_path, *arguments)
        assert done.returncode == 0 and done.stderr == ""
        commands = re.findall(r"^  ([a-z]+) ", done.stdout, re.MULTILINE)
        assert commands == COMMANDS
        assert all(flag in done.stdout for flag in FLAGS)


def test_node_is_said_for_each_agent_alike(tmp_path: Path) -> None:
    """The error for a missing npx and the one for an old Node name the same versions, which are the README's."""
    (tmp_path / "bin").mkdir()
    node = tmp_path / "bin" / "node"
    names = [name for name, known in KNOWN.items() if known.node]
    for fake in (False, True):
        if fake:
            for program, text in ((node, "#!/bin/sh\necho v16.0.0\n"), (node.with_name("npx"), "#!/bin/sh\n")):
                program.write_text(text)
                program.chmod(0o755)
        for name in names:
            config = AgentConfig(name=name, command=list(KNOWN[name].command))
            wanted = 22 if name == "claude" else 20
            assert f"Node {wanted} or newer" in missing(config, {"PATH": str(tmp_path / "bin")})


def test_bad_flags(tmp_path: Path) -> None:
    assert refused(run(tmp_path, "serve", "--port", "many")) == ["trunkline: --port: 'many': should be a valid integer"]
    assert "--prot" in "\n".join(refused(run(tmp_path, "serve", "--prot", "1")))
    assert refused(run(tmp_path, "serve", "--config", "no.toml")) == ["trunkline: --config: no.toml: no such file"]
    assert len(refused(run(tmp_path, "serve", "--agent", "nobody", "--agent", "x="))) == 2
    assert refused(run(tmp_path, "serve", "--workspace", "gone")) == [
        f"trunkline: --workspace: {tmp_path}/gone is not a folder"
    ]


def test_bad_files(tmp_path: Path) -> None:
    (tmp_path / "trunkline.toml").write_text('token = "s3cret"\nport = "x"\n[agents.a]\ncomand = "b"\n')
    assert refused(run(tmp_path, "serve")) == [
        "trunkline: trunkline.toml: port: 'x': should be a valid integer",
        "trunkline: trunkline.toml: agents.a.comand: unknown key (did you mean command?)",
    ]
    (tmp_path / "trunkline.toml").write_text("port = \n")
    assert refused(run(tmp_path, "serve")) == ["trunkline: trunkline.toml: line 1, column 8: invalid value"]


def test_bad_environment(tmp_path: Path) -> None:
    done = run(tmp_path, "serve", TRUNKLINE_PORT="x")
    assert refused(done) == ["trunkline: TRUNKLINE_PORT: 'x': should be a valid integer"]


def test_off_loopback_without_a_token(tmp_path: Path) -> None:
    lines = refused(run(tmp_path, "serve", "--host", "0.0.0.0", "--port", "0"))
    assert len(lines) == 1 and "no token is set" in lines[0] and "TRUNKLINE_TOKEN" in lines[0]
    assert not (tmp_path / "xdg").exists()


def test_agents_that_cannot_run(tmp_path: Path) -> None:
    lines = refused(run(tmp_path, "serve", "--agent", "a=/no/such", "--agent", "b=/no/such/too"))
    assert lines == [
        "trunkline: agent a: /no/such is not on PATH, or cannot be executed",
        "trunkline: agent b: /no/such/too is not on PATH, or cannot be executed",
    ]
    with serving(tmp_path, "--agent", "a=/no/such", "--agent", "demo") as (_, _, lines):
        assert lines[0].startswith("trunkline: warning: agent a: ")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_serve_and_stop(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path, "--data", "state") as (process, address, lines):
        assert address.startswith("http://127.0.0.1:")
        assert f"attach: npx -y opencode-ai attach {address}" in lines
        assert get(f"{address}/health") == 200
        assert get(f"{address}/no/such/thing") == 404
        process.send_signal(number)
        _, rest = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
        assert "Traceback" not in rest
    assert (tmp_path / "state").is_dir()


def test_an_open_stream_ends_with_the_gateway(tmp_path: Path) -> None:
    """It ends well (the whole last chunk), and does not use up the time that waiting requests get."""
    with serving(tmp_path) as (process, address, _):
        with urllib.request.urlopen(f"{address}/event", timeout=PATIENCE) as stream:
            assert b"server.connected" in stream.readline() + stream.readline()
            process.send_signal(signal.SIGTERM)
            stream.read()  # raises IncompleteRead if the connection broke
        assert process.wait(PATIENCE) == 0


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (line,) = refused(run(tmp_path, "serve", "--port", str(port)), status=1)
    assert f"http://127.0.0.1:{port}: address already in use" in line


def test_a_host_that_is_none(tmp_path: Path) -> None:
    (line,) = refused(run(tmp_path, "serve", "--host", "no.such.invalid", TRUNKLINE_TOKEN="t"), status=1)
    assert line == "trunkline: --host no.such.invalid: no such host"


def test_a_folder_in_use_by_another(tmp_path: Path) -> None:
    with serving(tmp_path, "--data", "state"):
        (line,) = refused(run(tmp_path, "serve", "--port", "0", "--data", "state"), status=1)
    assert "in use by another gateway" in line


def test_a_token_is_needed_and_not_shown(tmp_path: Path) -> None:
    with serving(tmp_path, "--log-level", "debug", TRUNKLINE_TOKEN="s3cret") as (process, address, lines):
        assert get(f"{address}/metrics") == 401
        request = urllib.request.Request(f"{address}/metrics", headers={"Authorization": "Bearer s3cret"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            assert b"trunkline_sessions_loaded" in answer.read()
        process.terminate()
        _, rest = process.communicate(timeout=PATIENCE)
        assert "s3cret" not in "\n".join(lines) + rest


def test_agents(tmp_path: Path) -> None:
    done = run(tmp_path, "agents", "--agent", "demo", "--agent", "bad=/no/such")
    assert done.returncode == 1, done.stderr
    good, _, bad = done.stdout.partition("bad\n")
    assert good.startswith("demo (default)\n") and "protocol" in good
    assert "not on PATH" in bad


def test_agents_elsewhere(tmp_path: Path) -> None:
    """They are asked as the others are; what is missing or unsafe is said without a secret."""
    (tmp_path / "near").mkdir()
    (tmp_path / "near" / "trunkline.toml").write_text(
        '[agents.unset]\nurl = "ws://h/acp"\nheaders = { Authorization = "s3cret ${FAR_TOKEN}" }\n'
        '[agents.open]\nurl = "http://127.0.0.1:9/acp?key=s3cret"\nstart_timeout = 3\n'
    )
    with serving(tmp_path, "--agent", "demo") as (_, address, _lines):
        socket, http = address.replace("http", "ws") + "/acp", address + "/acp/demo"
        done = run(tmp_path / "near", "agents", "--agent", f"a={socket}", "--agent", f"b={http}")
    assert done.returncode == 1 and done.stderr == ""
    a, _, rest = done.stdout.partition("\nb\n")
    b, _, rest = rest.partition("\nunset\n")
    unset, _, bad = rest.partition("\nopen\n")
    for url, text in ((socket, a), (http, b)):
        assert f"url          {url}" in text and "ACP v1" in text and "load" in text
    assert "the header Authorization needs the variable FAR_TOKEN, which is not set" in unset
    assert "open at 127.0.0.1:9: cannot be reached: connection refused" in bad
    assert "s3cret" not in done.stdout


def test_serve_warns_of_credentials_in_the_open(tmp_path: Path) -> None:
    (tmp_path / "trunkline.toml").write_text(
        '[agents.far]\nurl = "ws://host.example/acp"\nheaders = { Authorization = "s3cret" }\n'
    )
    with serving(tmp_path) as (_, _, lines):
        warning = "agent far: Authorization is sent unencrypted to host.example; use wss://"
        assert f"trunkline: warning: {warning}" in lines and "s3cret" not in "\n".join(lines)


def test_agents_prints_its_report_and_nothing_else(tmp_path: Path) -> None:
    agent = f"noisy=sh -c 'echo hello; exec {sys.executable} -m adapters.acp.demo'"
    (tmp_path / "trunkline.toml").write_text(f'[agents.noisy]\nenv = {{ PYTHONPATH = "{ROOT}" }}\n')
    done = run(tmp_path, "agents", "--agent", agent)
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.startswith("noisy (default)\n") and "no message" not in done.stdout
    done = run(tmp_path, "agents", "--agent", agent, TRUNKLINE_LOG_LEVEL="warning")
    assert done.stdout.startswith("noisy (default)\n") and "no message" in done.stderr


def test_a_data_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (line,) = refused(run(tmp_path, "serve", "--port", "0", "--data", "file"), status=1)
    assert line.startswith(f"trunkline: cannot open {tmp_path}/file/")
