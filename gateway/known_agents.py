"""The agents that ``--agent NAME`` knows: how each is started, what it needs, and what to do if that is missing.

This file starts nothing (but ``node --version``) and must not know what the agents speak.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.machinery import PathFinder

from gateway import remotes
from gateway.agents import PYTHON_OBJECT, AgentConfig

# Every npm agent: without these npx finds no registry or no certificates where a proxy is between.
NPM_ENV = (
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "NPM_CONFIG_*", "npm_config_*"),
)


@dataclass(frozen=True, slots=True)
class KnownAgent:
    command: tuple[str, ...]
    pass_env: tuple[str, ...]
    node: int
    """The lowest major version of Node it runs on; 0 if it needs none."""
    credentials: str
    """What to set or do when it says that nobody is logged in."""
    keys: tuple[str, ...] = ()
    """Keys in the environment that it uses only if ``by_key`` is set too."""
    by_key: tuple[tuple[str, str], ...] = ()


KNOWN: Mapping[str, KnownAgent] = {
    "claude": KnownAgent(
        command=("npx", "-y", "@agentclientprotocol/claude-agent-acp"),
        pass_env=(
            *("ANTHROPIC_*", "CLAUDE_*", "AWS_*", "GOOGLE_APPLICATION_CREDENTIALS", "CLOUD_ML_REGION"),
            *("DISABLE_AUTOUPDATER", "DISABLE_ERROR_REPORTING", "DISABLE_TELEMETRY", *NPM_ENV),
        ),
        node=22,
        credentials="set ANTHROPIC_API_KEY, or log in once with: npx -y @anthropic-ai/claude-code",
    ),
    "codex": KnownAgent(
        command=("npx", "-y", "@agentclientprotocol/codex-acp"),
        pass_env=(
            *("OPENAI_*", "CODEX_*", "MODEL_PROVIDER", "INITIAL_AGENT_MODE", "DEFAULT_AUTH_REQUEST", "NO_BROWSER"),
            *NPM_ENV,
        ),
        node=20,
        credentials="set OPENAI_API_KEY or CODEX_API_KEY, or log in once with: npx -y @openai/codex login",
        keys=("OPENAI_API_KEY", "CODEX_API_KEY"),
        by_key=(("DEFAULT_AUTH_REQUEST", '{"methodId": "api-key"}'),),
    ),
    "gemini": KnownAgent(
        command=("npx", "-y", "@google/gemini-cli", "--acp"),
        pass_env=("GEMINI_*", "GOOGLE_*", "CLOUDSDK_*", *NPM_ENV),
        node=20,
        credentials="set GEMINI_API_KEY, or log in once with: npx -y @google/gemini-cli",
    ),
    "opencode": KnownAgent(
        command=("npx", "-y", "opencode-ai", "acp"),
        pass_env=(
            *("OPENCODE_*", "ANTHROPIC_*", "OPENAI_*", "GEMINI_*", "GOOGLE_*", "OPENROUTER_API_KEY", "GROQ_API_KEY"),
            *("MISTRAL_API_KEY", "XAI_API_KEY", "DEEPSEEK_API_KEY", "GITHUB_TOKEN", "AWS_*", "AZURE_*", *NPM_ENV),
        ),
        node=20,
        credentials="set your provider's key (as ANTHROPIC_API_KEY), or log in with: npx -y opencode-ai auth login",
    ),
    "demo": KnownAgent(
        command=(sys.executable, "-m", "adapters.acp.demo"),
        pass_env=("TRUNKLINE_DEMO_*",),
        node=0,
        credentials="needs none",
    ),
}

# OpenCode's own server password is a secret of the same kind as ours, and its presence changes nothing for `acp`.
NEVER_PASSED = ("TRUNKLINE_*", "OPENCODE_SERVER_*")


def complete(name: str, table: Mapping[str, object], environ: Mapping[str, str]) -> dict[str, object]:
    """An agent's table with what is known of this name, where the table does not say it: the environment it needs,
    also with a command of one's own (``claude=/opt/claude-acp``), and how it is started if there is no url either.
    """
    known = KNOWN.get(name)
    full = dict(table)
    if known is None or table.get("url") or table.get("python"):
        return full
    full.setdefault("pass_env", list(known.pass_env))
    own = table.get("env") or {}
    if isinstance(own, Mapping) and any(environ.get(key) or own.get(key) for key in known.keys):
        full["env"] = {**{key: value for key, value in known.by_key if key not in environ}, **own}
    if not table.get("command"):
        installed = name == "opencode" and shutil.which("opencode", path=environ.get("PATH"))
        full["command"] = ["opencode", "acp"] if installed else list(known.command)
    return full


def expand_env(patterns: Iterable[str], environ: Iterable[str]) -> list[str]:
    """The names in the environment that the patterns (``CLAUDE_*``) mean, never the gateway's own."""
    wanted = tuple(patterns)
    return sorted(
        name
        for name in environ
        if any(fnmatchcase(name, pattern) for pattern in wanted)
        and (name.startswith("TRUNKLINE_DEMO_") or not any(fnmatchcase(name, pattern) for pattern in NEVER_PASSED))
    )


def parse_flag(text: str) -> tuple[str, dict[str, object]]:
    """``NAME``, ``NAME=COMMAND …``, ``NAME=URL`` or ``NAME=module:attribute`` of ``--agent``.

    A value that reads as ``module:attribute`` is one: a program of such a name is given by its path. Raises ValueError
    with what is wrong.
    """
    name, equals, value = text.partition("=")
    name = name.strip()
    if not equals:
        if name not in KNOWN:
            raise ValueError(f"{name!r} is not a known agent ({', '.join(KNOWN)}); for another give {name}=COMMAND")
        return name, {}
    if not name:
        raise ValueError("the form is NAME=COMMAND")
    value = value.strip()
    if value.partition("://")[0] in ("ws", "wss", "http", "https"):
        # The other way to reach it is taken back, should a file have set it.
        return name, {"url": value, "command": [], "python": ""}
    if PYTHON_OBJECT.fullmatch(value):
        return name, {"python": value, "command": [], "url": ""}
    if re.fullmatch(r"[^\s:]+\.py:[\w.]+", value):
        file, _, attribute = value.partition(":")
        module = file.removesuffix(".py").removeprefix("./").replace("/", ".")
        raise ValueError(f"{name}: give the module as Python imports it: {name}={module}:{attribute}")
    try:
        command = shlex.split(value)
    except ValueError as error:
        raise ValueError(f"{name}: the command cannot be read as a shell would: {str(error).lower()}") from None
    if not command:
        raise ValueError(f"{name}: the command is empty")
    return name, {"command": command, "url": "", "python": ""}


def missing(config: AgentConfig, environ: Mapping[str, str]) -> str:
    """What keeps this agent from being started here, as a sentence for people; empty if nothing does."""
    if config.url:
        unset = remotes.unset(config.plain_headers(), environ)
        return "; ".join(remotes.needs(header, variable) for header, variable in unset)
    if config.python:
        return _missing_python(config.python)
    path = {**environ, **config.env}.get("PATH")
    program = config.command[0]
    if shutil.which(program, path=path) is None:
        if program in ("npx", "npm", "node"):
            known = KNOWN.get(config.name)
            return f"{program} is not on PATH: install Node {known.node if known and known.node else 20} or newer"
        return f"{program} is not on PATH, or cannot be executed"
    known = KNOWN.get(config.name)
    if known is None or not known.node or program != "npx":
        return ""
    version = _node_version(path)
    if 0 < version < known.node:
        return f"needs Node {known.node} or newer, and this is Node {version}"
    return ""


def _missing_python(name: str) -> str:
    """Looks only for the outermost package: nothing of the agent is imported here."""
    where = [os.getcwd(), *sys.path]
    if PathFinder.find_spec("pydantic_ai", where) is None:
        return "Pydantic AI is not installed: pip install 'trunkline[pydantic-ai]'"
    module = name.partition(":")[0].partition(".")[0]
    if module not in sys.builtin_module_names and PathFinder.find_spec(module, where) is None:
        return f"no module named {module!r} in {os.getcwd()} or on the Python path"
    return ""


def unsafe(config: AgentConfig) -> str:
    """A warning about how this agent is reached, or empty."""
    return remotes.unsafe(remotes.RemoteUrl.parse(config.url), config.plain_headers()) if config.url else ""


def credentials_hint(config: AgentConfig) -> str:
    """What to set or do if the agent says that nobody is logged in; empty for an agent we do not know."""
    known = KNOWN.get(config.name)
    return known.credentials if known and known.node else ""


def _node_version(path: str | None) -> int:
    """Node's major version; 0 if there is none or it cannot be read: starting the agent then says what is wrong."""
    node = shutil.which("node", path=path)
    if node is None:
        return 0
    try:
        done = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=10, check=False)
        return int(done.stdout.strip().lstrip("v").split(".")[0])
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return 0
