"""Reads the layers of the settings, in rising order: ``trunkline.toml``, ``TRUNKLINE_*``, flags.

What is wrong is told one line a problem, each beginning with its place, and never with a secret in it.
"""

import difflib
import os
import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import EnvSettingsSource

from gateway.agents import AgentConfig
from gateway.known_agents import KNOWN, complete, expand_env
from gateway.settings import Settings

CONFIG_NAME = "trunkline.toml"
PREFIX = "TRUNKLINE_"

# Not settings: what Kubernetes sets for a Service named "trunkline", what is meant for the demo agent, and what the
# descendants of an agent have (adapters/acp/reaper.py), should one of them be a gateway.
FOREIGN_ENV = re.compile(r"TRUNKLINE_(SERVICE_(HOST|PORT.*)|PORT_\d+_.*|DEMO_.*|AGENT_ID)")
FOREIGN_PORT = re.compile(r"(tcp|udp|sctp)://")

# A wrong value of these is shown; any other may be, or hold, a secret.
SHOWN = {"host", "port", "on_restart", "default_agent", "log_level", "log_format", "idle_unload", "max_body"}
SHOWN |= {"max_sessions", "max_pending", "max_subscribers"}


class SettingsError(Exception):
    """``problems``: one line each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class _Layer:
    kind: str
    """``file``, ``env`` or ``flag``."""
    values: dict[str, Any]
    name: str = ""
    """The file's name as it was given."""

    def place(self, path: tuple[str | int, ...]) -> str:
        key = _dotted(path)
        if self.kind == "file":
            return f"{self.name}: {key}" if key else self.name
        if self.kind == "env":
            inside = _dotted(path[1:])
            return PREFIX + str(path[0]).upper() + (f": {inside}" if inside else "")
        if path[0] == "agents":
            return "--agent" + (f" {_dotted(path[1:])}" if path[1:] else "")
        return "--" + str(path[0]).replace("_", "-")


def load_settings(
    config: Path | None = None, flags: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """Settings from the file (``config``, else ``trunkline.toml`` in this folder if there is one), the environment
    and ``flags`` (field names to values; what is None was not given). Raises SettingsError.
    """
    environ = os.environ if environ is None else environ
    given = {key: value for key, value in (flags or {}).items() if value is not None}
    layers = [_Layer("flag", given), _read_env(environ)]
    file = _read_file(config)
    if file is not None:
        layers.append(file)
    problems = [*_unknown_env(environ), *_shape(layers)]
    if problems:
        raise SettingsError(problems)
    values = _merge(layers)
    values["agents"] = _agents(values.get("agents"), environ)
    try:
        settings = Settings(**values)
    except ValidationError as error:
        raise SettingsError([_line(detail, layers) for detail in error.errors(include_url=False)]) from None
    problems = [f"{_place(path, layers)}: {text}" for path, text in _together(settings)]
    if problems:
        raise SettingsError(problems)
    return settings


def _read_file(config: Path | None) -> _Layer | None:
    path = config if config is not None else Path(CONFIG_NAME)
    name = str(path)
    try:
        with path.open("rb") as file:
            values = tomllib.load(file)
    except FileNotFoundError:
        if config is None:
            return None
        raise SettingsError([f"--config: {name}: no such file"]) from None
    except OSError as error:
        raise SettingsError([f"{name}: cannot be read: {(error.strerror or 'error').lower()}"]) from None
    except UnicodeDecodeError as error:
        raise SettingsError([f"{name}: is not UTF-8 text (byte {error.start})"]) from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError([f"{name}: {_toml_error(str(error))}"]) from None
    # Paths in a file are relative to the file: it means the same from wherever it is used.
    base = path.parent
    if isinstance(values.get("data"), str):
        values["data"] = _beside(base, values["data"])
    if isinstance(values.get("workspace"), str):
        values["workspace"] = [values["workspace"]]
    if isinstance(values.get("workspace"), list):
        values["workspace"] = [_beside(base, item) if isinstance(item, str) else item for item in values["workspace"]]
    return _Layer("file", values, name)


def _beside(base: Path, text: str) -> str:
    return text if text.startswith("~") else str(base / text)


def _toml_error(text: str) -> str:
    match = re.fullmatch(r"(?P<what>.*) \(at line (?P<line>\d+), column (?P<column>\d+)\)", text, re.DOTALL)
    if match is None:
        return text[:1].lower() + text[1:]
    what = match["what"]
    return f"line {match['line']}, column {match['column']}: {what[:1].lower() + what[1:]}"


def _read_env(environ: Mapping[str, str]) -> _Layer:
    source = EnvSettingsSource(Settings)
    source.env_vars = {
        name.lower(): value
        for name, value in environ.items()
        if not (name == "TRUNKLINE_PORT" and FOREIGN_PORT.match(value))
    }
    return _Layer("env", dict(source()))


def _unknown_env(environ: Mapping[str, str]) -> list[str]:
    """A mistyped TRUNKLINE_TOKEN must not start a gateway without one."""
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    return [
        f"{name}: unknown variable{_hint(name, known)}"
        for name in environ
        if name.upper().startswith(PREFIX) and name.upper() not in known and not FOREIGN_ENV.fullmatch(name.upper())
    ]


def _shape(layers: list[_Layer]) -> list[str]:
    """The agents must be a table of tables before they can be merged. The environment's are still text."""
    problems = []
    for layer in layers:
        agents = layer.values.get("agents", {})
        if layer.kind == "env" and isinstance(agents, str):
            try:
                agents = layer.values["agents"] = Settings._decode(agents)
            except ValueError as error:
                problems.append(f"{layer.place(('agents',))}: {error}")
                continue
        if not isinstance(agents, dict):
            problems.append(f"{layer.place(('agents',))}: must be a table of agents, as [agents.claude]")
            continue
        for name, table in agents.items():
            if not isinstance(table, dict):
                problems.append(f"{layer.place(('agents', name))}: must be a table, as [agents.{name}]")
    return problems


def _merge(layers: list[_Layer]) -> dict[str, Any]:
    """``layers``: the highest first. Agents are merged a key at a time; anything else is replaced whole."""
    merged: dict[str, Any] = {}
    agents: dict[str, dict[str, Any]] = {}
    for layer in layers:
        for key, value in layer.values.items():
            if key != "agents":
                merged.setdefault(key, value)
                continue
            # The highest layer's agents come first: `--agent claude` makes claude the default agent.
            for name, table in value.items():
                agents[name] = {**table, **agents.get(name, {})}
    merged["agents"] = agents
    return merged


def _agents(agents: Any, environ: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The tables with known commands filled in, commands split and environment patterns expanded."""
    done: dict[str, dict[str, Any]] = {}
    for name, table in (agents or {"demo": {}}).items():
        full = complete(name, table, environ)
        command = full.get("command")
        if isinstance(command, str):
            try:
                full["command"] = shlex.split(command)
            except ValueError:
                pass  # pydantic then says that it is no list
        passed = full.get("pass_env")
        if isinstance(passed, list) and all(isinstance(item, str) for item in passed):
            full["pass_env"] = expand_env(passed, environ)
        done[name] = full
    return done


def _together(settings: Settings) -> list[tuple[tuple[str | int, ...], str]]:
    """What is right by itself and wrong together."""
    found: list[tuple[tuple[str | int, ...], str]] = []
    for name, agent in settings.agents.items():
        ways = [key for key in ("command", "url", "python") if getattr(agent, key)]
        if not ways:
            known = ", ".join(KNOWN)
            found.append((("agents", name), f"needs a command, a url or python (known without: {known})"))
        if len(ways) > 1:
            found.append((("agents", name), f"has both a {' and a '.join(ways)}; give one"))
        if agent.headers and not agent.url:
            found.append((("agents", name, "headers"), "are sent to a url, and there is none"))
    if settings.default_agent and settings.default_agent not in settings.agents:
        names = ", ".join(settings.agents)
        found.append((("default_agent",), f"{settings.default_agent!r} is not among the agents ({names})"))
    return found


def _line(detail: ErrorDetails, layers: list[_Layer]) -> str:
    path = tuple(part for part in detail["loc"] if part != "[key]")
    if not path:
        return f"token, tokens: {_sentence(detail)}"
    if detail["type"] == "extra_forbidden":
        fields = AgentConfig.model_fields if path[0] == "agents" else Settings.model_fields
        return f"{_place(path, layers)}: unknown key{_hint(str(path[-1]), fields)}"
    text = _sentence(detail)
    value = detail.get("input")
    if len(path) == 1 and path[0] in SHOWN and isinstance(value, (str, int, float)) and not isinstance(value, bool):
        text = f"{value!r}: {text}"
    return f"{_place(path, layers)}: {text}"


def _sentence(detail: ErrorDetails) -> str:
    if detail["type"] == "path_type":
        return "should be a path"
    text = detail["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return text.split(", unable to parse")[0]


def _place(path: tuple[str | int, ...], layers: list[_Layer]) -> str:
    """Where the value at ``path`` was set: the highest layer that has most of the path."""
    best: _Layer | None = None
    depth = 0
    for layer in layers:
        found = _depth(layer.values, path)
        if found > depth:
            best, depth = layer, found
    return best.place(path) if best is not None else _dotted(path)


def _depth(values: Any, path: tuple[str | int, ...]) -> int:
    depth = 0
    for part in path:
        if isinstance(values, dict) and part in values:
            values = values[part]
        elif isinstance(values, list) and isinstance(part, int) and part < len(values):
            values = values[part]
        else:
            break
        depth += 1
    return depth


def _dotted(path: tuple[str | int, ...]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else str(part))
    return text


def _hint(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.7)
    return f" (did you mean {close[0]}?)" if close else ""
