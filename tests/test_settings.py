"""Settings: the layers, and that a wrong value names its place."""

import os
import re
import stat
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from gateway import remotes
from gateway.agents import AgentConfig
from gateway.config import SettingsError, load_settings
from gateway.known_agents import KNOWN, complete, expand_env, missing, parse_flag, unsafe
from gateway.settings import Settings


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder and no TRUNKLINE_* of the machine."""
    for name in [name for name in os.environ if name.upper().startswith("TRUNKLINE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str, name: str = "trunkline.toml") -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def problems(**arguments: object) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load_settings(**arguments)  # type: ignore[arg-type]
    return caught.value.problems


def test_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    settings = load_settings(environ={})
    assert (settings.host, settings.port) == ("127.0.0.1", 4096)
    assert settings.data == tmp_path / "xdg" / "trunkline"
    assert settings.workspace == [tmp_path]
    assert list(settings.agents) == ["demo"]
    assert settings.agents["demo"].command == [sys.executable, "-m", "adapters.acp.demo"]
    assert settings.first_agent() == "demo"
    assert settings.on_loopback() and not settings.named_tokens()


def test_layers_rise_from_file_to_environment_to_flags() -> None:
    write('port = 1\nhost = "127.0.0.1"\nlog_level = "error"\nmax_body = 2048')
    environ = {"TRUNKLINE_PORT": "2", "TRUNKLINE_LOG_LEVEL": "warning", "trunkline_max_pending": "7"}
    settings = load_settings(flags={"port": "3", "host": None}, environ=environ)
    assert (settings.port, settings.log_level, settings.max_body, settings.max_pending) == (3, "warning", 2048, 7)


def test_lists_in_the_environment(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    environ = {
        "TRUNKLINE_WORKSPACE": f"{tmp_path}{os.pathsep}b",
        "TRUNKLINE_ALLOW_HOSTS": "Box.example, other",
        "TRUNKLINE_ALLOW_ORIGINS": '["https://app.example"]',
    }
    settings = load_settings(environ=environ)
    assert settings.workspace == [tmp_path, tmp_path / "b"]
    assert settings.allow_hosts == ["box.example", "other"]
    assert settings.allow_origins == ["https://app.example"]


def test_paths_in_a_file_are_beside_it(tmp_path: Path) -> None:
    (tmp_path / "conf" / "work").mkdir(parents=True)
    write('data = "state"\nworkspace = "work"', "conf/t.toml")
    settings = load_settings(Path("conf/t.toml"), environ={})
    assert settings.data == tmp_path / "conf" / "state"
    assert settings.workspace == [tmp_path / "conf" / "work"]


def test_unknown_keys_are_named_with_a_guess() -> None:
    write('prot = 1\n[agents.claude]\nsteer_falback = "interrupt"')
    assert problems(environ={}) == [
        "trunkline.toml: agents.claude.steer_falback: unknown key (did you mean steer_fallback?)",
        "trunkline.toml: prot: unknown key (did you mean port?)",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("port = 99999", "trunkline.toml: port: 99999: should be less than or equal to 65535"),
        ('on_restart = "maybe"', "trunkline.toml: on_restart: 'maybe': should be 'run' or 'hold'"),
        ('workspace = ["gone"]', "trunkline.toml: workspace: {cwd}/gone is not a folder"),
        ("workspace = [3]", "trunkline.toml: workspace[0]: should be a path"),
        ("agents = 3", "trunkline.toml: agents: must be a table of agents, as [agents.claude]"),
        ("agents.x = 3", "trunkline.toml: agents.x: must be a table, as [agents.x]"),
        ("[agents.x]\nprotocol = 3", "trunkline.toml: agents.x.protocol: should be 1 or 2"),
        ('[agents.x]\ncommand = "a"\nurl = "ws://a"', "trunkline.toml: agents.x: has both a command and a url; "
         "give one"),
        ("[agents.x]", "trunkline.toml: agents.x: needs a command, a url or python (known without: {known})"),
        ('default_agent = "x"', "trunkline.toml: default_agent: 'x' is not among the agents (demo)"),
        ('allow_origins = ["*"]', "trunkline.toml: allow_origins: an origin is a scheme, a host and perhaps a port, as "
         "https://app.example:8443"),
        ('allow_hosts = ["http://a"]', "trunkline.toml: allow_hosts: 'http://a': a host is a bare name without "
         "scheme or port, as box.example"),
    ],
)  # fmt: skip
def test_bad_values_in_the_file(text: str, line: str, tmp_path: Path) -> None:
    write(text)
    assert problems(environ={})[0] == line.format(cwd=tmp_path, known=", ".join(KNOWN))


def test_true_is_no_number() -> None:
    write(
        "port = true\nidle_unload = false\nhost = true\n"
        "[agents.a]\ncommand = ['x']\ncancel_grace = true\nprotocol = true\n"
    )
    assert problems(environ={}) == [
        "trunkline.toml: host: should not be true",
        "trunkline.toml: port: should not be true",
        "trunkline.toml: idle_unload: should not be false",
        "trunkline.toml: agents.a.protocol: should not be true",
        "trunkline.toml: agents.a.cancel_grace: should not be true",
    ]


def test_an_agents_mark_is_no_setting() -> None:
    """A gateway that an agent starts has it in its environment (adapters/acp/reaper.py)."""
    assert load_settings(environ={"TRUNKLINE_AGENT_ID": "x"}).port == 4096


def test_bad_values_elsewhere() -> None:
    assert problems(environ={"TRUNKLINE_PORT": "x"}) == ["TRUNKLINE_PORT: 'x': should be a valid integer"]
    assert problems(flags={"port": "x"}, environ={}) == ["--port: 'x': should be a valid integer"]
    assert problems(flags={"log_level": "loud"}, environ={})[0].startswith("--log-level: 'loud': should be")
    environ = {"TRUNKLINE_AGENTS": '{"a": {"command": "x", "env": {"K": 3}}}'}
    assert problems(environ=environ) == ["TRUNKLINE_AGENTS: a.env.K: should be a valid string"]
    assert problems(environ={"TRUNKLINE_AGENTS": "{"})[0].startswith("TRUNKLINE_AGENTS: is not valid JSON")


def test_every_problem_gets_its_line() -> None:
    write('port = -1\nlog_level = "loud"')
    assert len(problems(flags={"host": ""}, environ={"TRUNKLINE_MAX_BODY": "x"})) == 4


def test_toml_syntax_names_line_and_column() -> None:
    write("port = 1\nhost = \n")
    assert problems(environ={}) == ["trunkline.toml: line 2, column 8: invalid value"]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert problems(config=Path("no.toml"), environ={}) == ["--config: no.toml: no such file"]
    (tmp_path / "folder").mkdir()
    assert problems(config=Path("folder"), environ={}) == ["folder: cannot be read: is a directory"]
    Path("bytes.toml").write_bytes(b"a = '\xff'")
    assert problems(config=Path("bytes.toml"), environ={}) == ["bytes.toml: is not UTF-8 text (byte 5)"]


def test_an_unknown_variable_is_named() -> None:
    assert problems(environ={"TRUNKLINE_TOKE": "s3cret"}) == [
        "TRUNKLINE_TOKE: unknown variable (did you mean TRUNKLINE_TOKEN?)"
    ]


def test_kubernetes_variables_of_a_service_are_not_ours() -> None:
    environ = {
        "TRUNKLINE_PORT": "tcp://10.0.0.1:4096",
        "TRUNKLINE_SERVICE_HOST": "10.0.0.1",
        "TRUNKLINE_PORT_4096_TCP_ADDR": "10.0.0.1",
    }
    assert load_settings(environ=environ).port == 4096


# Secrets.


@pytest.mark.parametrize(
    "text",
    [
        'token = "s3cret value"',
        'tokens = {a = "s3cret", b = "s3cret"}',
        'tokens = "s3cret"',
        'tokens = {"bad name s3" = "s3cret"}',
        "token = { s3cret = 1 }",
        '[agents.a]\ncommand = ["x"]\nenv = "s3cret"',
        '[agents.a]\nurl = "ws://user:s3cret@host"\nprotocol = 9',
        'host = "a/b"\ntoken = "s3cret"',
    ],
)
def test_no_secret_in_a_problem(text: str) -> None:
    write(text)
    lines = problems(environ={})
    assert lines and "s3cret" not in "\n".join(lines)


def test_no_secret_in_a_broken_environment() -> None:
    assert "s3cret" not in "\n".join(problems(environ={"TRUNKLINE_TOKENS": '{"a": "s3cret'}))
    assert problems(environ={"TRUNKLINE_TOKEN": ""}) == ["TRUNKLINE_TOKEN: is empty; leave it out or give a token"]


def test_tokens_have_names_and_are_not_shown() -> None:
    write('tokens = {ann = "one", bob = "two"}')
    settings = load_settings(environ={"TRUNKLINE_TOKEN": "three"})
    assert settings.named_tokens() == {"ann": "one", "bob": "two", "token": "three"}
    assert not {"one", "two", "three"} & set(repr(settings).replace("'", " ").split())


def test_settings_by_themselves_read_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUNKLINE_PORT", "9")
    assert Settings().port == 4096
    with pytest.raises(ValidationError):
        Settings(prot=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("localhost", True), ("::1", True), ("[::1]", True),
        ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("localhost.example", False), ("box", False),
    ],
)  # fmt: skip
def test_loopback(host: str, loopback: bool) -> None:
    assert Settings(host=host).on_loopback() is loopback


# Agents.


def test_a_known_agent_by_its_name_alone() -> None:
    environ = {"ANTHROPIC_API_KEY": "k", "CLAUDE_CODE_X": "1", "HOME": "/h", "TRUNKLINE_TOKEN": "s3cret"}
    settings = load_settings(flags={"agents": {"claude": {}}}, environ=environ)
    claude = settings.agents["claude"]
    assert claude.command == ["npx", "-y", "@agentclientprotocol/claude-agent-acp"]
    assert claude.pass_env == ["ANTHROPIC_API_KEY", "CLAUDE_CODE_X"]
    assert claude.name == "claude"


def test_the_gateways_own_variables_are_never_passed() -> None:
    names = ["TRUNKLINE_TOKEN", "OPENCODE_SERVER_PASSWORD", "A", "TRUNKLINE_DEMO_STATE"]
    assert expand_env(["*"], names) == ["A", "TRUNKLINE_DEMO_STATE"]
    write('[agents.a]\ncommand = "x"\npass_env = ["TRUNKLINE_TOKEN", "A"]')
    settings = load_settings(environ={"TRUNKLINE_TOKEN": "s3cret", "A": "1"})
    assert settings.agents["a"].pass_env == ["A"]


def test_a_flag_goes_over_the_files_command_and_keeps_the_rest() -> None:
    write('[agents.a]\ncommand = "one two"\nsteer_fallback = "interrupt"\n[agents.b]\ncommand = ["b"]')
    settings = load_settings(flags={"agents": dict([parse_flag("b=three 'four five'")])}, environ={})
    assert settings.agents["b"].command == ["three", "four five"]
    assert settings.agents["a"].command == ["one", "two"]
    assert settings.agents["a"].steer_fallback == "interrupt"
    assert settings.first_agent() == "b"  # what was asked for on the command line


def test_a_flag_with_a_name_alone_keeps_the_files_command() -> None:
    write('[agents.claude]\ncommand = "mine"')
    assert load_settings(flags={"agents": {"claude": {}}}, environ={}).agents["claude"].command == ["mine"]


def test_a_known_agent_with_a_command_of_ones_own_gets_its_environment() -> None:
    full = complete("claude", {"command": ["/opt/claude"]}, {})
    assert full["command"] == ["/opt/claude"] and "ANTHROPIC_*" in full["pass_env"]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("flag", "parsed"),
    [
        ("demo", ("demo", {})),
        ("a=b --c 'd e'", ("a", {"command": ["b", "--c", "d e"], "url": "", "python": ""})),
        ("a=b --x=1", ("a", {"command": ["b", "--x=1"], "url": "", "python": ""})),
        ("a=ws://h:1/p", ("a", {"url": "ws://h:1/p", "command": [], "python": ""})),
        ("a=https://h/acp", ("a", {"url": "https://h/acp", "command": [], "python": ""})),
        ("a=pkg.mod:agent", ("a", {"python": "pkg.mod:agent", "command": [], "url": ""})),
        ("a=mod:made.agent", ("a", {"python": "mod:made.agent", "command": [], "url": ""})),
        ("a=./pkg.mod:agent", ("a", {"command": ["./pkg.mod:agent"], "url": "", "python": ""})),
        ("a=mod:agent --x", ("a", {"command": ["mod:agent", "--x"], "url": "", "python": ""})),
        ("a=c:1", ("a", {"command": ["c:1"], "url": "", "python": ""})),
    ],
)
def test_agent_flags(flag: str, parsed: tuple[str, dict[str, object]]) -> None:
    assert parse_flag(flag) == parsed


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("other", "not a known agent"),
        ("=x", "NAME=COMMAND"),
        ("a=", "empty"),
        ("a=b 'c", "no closing quotation"),
        ("a=./pkg/mod.py:agent", "as Python imports it: a=pkg.mod:agent"),
    ],
)
def test_bad_agent_flags(flag: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_flag(flag)


def test_a_python_agent() -> None:
    write('[agents.bot]\npython = "json.tool:agent"\n[agents.lost]\npython = "nowhere.at_all:agent"')
    settings = load_settings(environ={})
    assert missing(settings.agents["bot"], {}) == ""
    assert missing(settings.agents["lost"], {}).startswith("no module named 'nowhere' in ")
    # a flag takes back what the file says
    again = load_settings(flags={"agents": dict([parse_flag("bot=some command")])}, environ={}).agents["bot"]
    assert (again.command, again.python) == (["some", "command"], "")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('python = "pkg/mod.py"', ".python: must be module:attribute, as my_agents.support:agent"),
        ('python = "a:b"\ncommand = "x"', ": has both a command and a python; give one"),
        ('python = "a:b"\nurl = "ws://h/"', ": has both a url and a python; give one"),
    ],
)
def test_bad_python_agents(text: str, line: str) -> None:
    write(f"[agents.bot]\n{text}")
    assert problems(environ={}) == [f"trunkline.toml: agents.bot{line}"]


def test_a_remote_agent_and_its_headers() -> None:
    headers = 'headers = { Authorization = "Bearer ${A_B}", X-Y = "$5 s3cret" }'
    write(f'[agents.far]\nurl = "ws://host/acp?key=s3cret"\n{headers}')
    far = load_settings(environ={}).agents["far"]
    assert missing(far, {}) == "the header Authorization needs the variable A_B, which is not set"
    assert missing(far, {"A_B": "s3cret"}) == ""
    sent = remotes.resolve(far.plain_headers(), {"A_B": "t0ken"})
    assert sent == {"Authorization": "Bearer t0ken", "X-Y": "$5 s3cret"}
    with pytest.raises(ValueError, match="the header Authorization would not be printable ASCII") as caught:
        remotes.resolve(far.plain_headers(), {"A_B": "s3cret\nX: y"})
    assert "s3cret" not in str(caught.value) + repr(far.headers)
    assert unsafe(far) == "Authorization is sent unencrypted to host; use wss://"


@pytest.mark.parametrize(
    ("url", "where", "loopback"),
    [
        ("ws://host:8080/acp", "host:8080", False), ("https://host/acp", "host", False),
        ("http://127.0.0.1:1/acp", "127.0.0.1:1", True), ("http://[::1]:5/", "[::1]:5", True),
        ("wss://localhost/", "localhost", True), ("ws://localhost.example/", "localhost.example", False),
    ],
)  # fmt: skip
def test_remote_urls(url: str, where: str, loopback: bool) -> None:
    found = remotes.RemoteUrl.parse(url)
    assert (found.where, found.loopback) == (where, loopback)
    assert remotes.unsafe(found, {"X": "y"}) == ""
    assert bool(remotes.unsafe(found, {"authorization": "y"})) is not (loopback or found.secure)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('url = "ftp://h"', "url: must be ws://, wss://, http:// or https:// with a host, as ws://host:port/acp"),
        ('url = "http:///acp"', "url: must be ws://, wss://, http:// or https:// with a host, as ws://host:port/acp"),
        ('url = "http://h:99999/"', "url: is no url: the form is ws://host:port/acp or https://host/acp"),
        ('url = "http://u:s3cret@h/"', "url: has a login in it; give headers instead, as "
         '{ Authorization = "Bearer ${NAME}" }'),
        ('url = "http://h/#s3cret"', "url: has a #fragment, which is never sent"),
        ('command = "x"\nheaders = { A = "b" }', "headers: are sent to a url, and there is none"),
        ('url = "ws://h"\nheaders = { "A b" = "s3cret" }', "headers: 'A b' is no name of a header"),
        ('url = "ws://h"\nheaders = { Host = "s3cret" }', "headers: Host is set by the gateway itself"),
        ('url = "ws://h"\nheaders = { acp-session-id = "x" }', "headers: acp-session-id is set by the gateway itself"),
        ('url = "ws://h"\nheaders = { A = "s3cret ${1}" }', "headers: A: a variable is named as ${NAME}"),
        ('url = "ws://h"\nheaders = { A = "s3\\ncret" }', "headers: A: the value must be printable ASCII on one line"),
        ('url = "ws://h"\nheaders = { A = "${TRUNKLINE_TOKEN}" }', "headers: A: TRUNKLINE_TOKEN is the gateway's own "
         "and is given to no agent"),
        ('url = "ws://h"\nheaders = { A = 3 }', "headers.A: should be a valid string"),
        ('url = "ws://h"\nheaders = "s3cret"', "headers: should be a valid dictionary"),
    ],
)  # fmt: skip
def test_bad_remote_agents(text: str, line: str) -> None:
    write(f"[agents.far]\n{text}")
    assert problems(environ={}) == [f"trunkline.toml: agents.far.{line}"]


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    claude = load_settings(flags={"agents": {"claude": {}}}, environ={}).agents["claude"]
    assert missing(claude, {"PATH": str(tmp_path)}) == "npx is not on PATH: install Node 22 or newer"
    program(tmp_path, "npx", "exit 0")
    program(tmp_path, "node", "echo v18.2.0")
    assert missing(claude, {"PATH": str(tmp_path)}) == "needs Node 22 or newer, and this is Node 18"
    program(tmp_path, "node", "echo v24.0.1")
    assert missing(claude, {"PATH": str(tmp_path)}) == ""


def test_an_installed_opencode_is_preferred(tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path)}
    assert complete("opencode", {}, environ)["command"] == ["npx", "-y", "opencode-ai", "acp"]
    program(tmp_path, "opencode", "exit 0")
    assert complete("opencode", {}, environ)["command"] == ["opencode", "acp"]


def test_every_setting_is_documented() -> None:
    """docs/settings.md has a row for each field, and no row for another."""
    text = (Path(__file__).resolve().parent.parent / "docs" / "settings.md").read_text()
    keys = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    rows = {name for key in keys for name in re.findall(r"`(\w+)`", key)}
    assert rows == set(Settings.model_fields) | set(AgentConfig.model_fields)
