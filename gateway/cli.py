"""The ``trunkline`` command's flags and commands. Imports are inside the commands, so that help is quick.

A command that has no application around it imports the adapter it needs by itself.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gateway.agents import AgentConfig
    from gateway.controller import SessionController
    from gateway.settings import Settings

cli = typer.Typer(
    name="trunkline",
    help="One live agent session, many clients: coding agents behind the OpenCode, ACP and AG-UI protocols.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # they show local variables, and so secrets
    rich_markup_mode=None,
)

# Flags are text here: the settings check them, so that a wrong value reads the same wherever it was set.
Config = Annotated[Path | None, typer.Option("--config", metavar="F", help="Instead of ./trunkline.toml.")]
Agent = Annotated[
    list[str] | None,
    typer.Option(
        "--agent",
        metavar="NAME[=COMMAND]",
        help="claude, codex, gemini, opencode, demo, or another by its command. Repeatable; the first is the default.",
    ),
]
Data = Annotated[str | None, typer.Option("--data", metavar="DIR", help="Store [~/.local/share/trunkline].")]
Workspace = Annotated[
    list[str] | None,
    typer.Option("--workspace", metavar="DIR", help="Sessions stay inside. May be repeated [this folder]."),
]
LogLevel = Annotated[str | None, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")]


@cli.command()
def serve(
    config: Config = None,
    host: Annotated[str | None, typer.Option("--host", metavar="HOST", help="[127.0.0.1]")] = None,
    port: Annotated[str | None, typer.Option("--port", metavar="PORT", help="0 picks a free one [4096].")] = None,
    agent: Agent = None,
    data: Data = None,
    workspace: Workspace = None,
    log_level: LogLevel = None,
) -> None:
    """Run the gateway until Ctrl-C.

    Settings come from trunkline.toml, TRUNKLINE_* variables and these flags, in rising order.
    """
    flags = {"host": host, "port": port, "data": data, "workspace": workspace, "log_level": log_level}
    settings = _settings(config, agent, flags)
    _check_agents(settings)

    from gateway.core.errors import GatewayError
    from gateway.logging import configure
    from gateway.security import check_bind

    refused = check_bind(settings)
    if refused:
        _fail([refused])
    configure(settings.log_level, settings.log_format, settings.named_tokens().values())

    from gateway.server import CannotListen, run

    try:
        run(settings)
    except (CannotListen, GatewayError) as error:
        _fail([str(error)], status=1)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@cli.command()
def acp(
    config: Config = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME[=COMMAND]", help="The agent [the gateway's default].")
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help="The gateway [the running one, else one in here].")
    ] = None,
    data: Data = None,
    workspace: Workspace = None,
    log_level: LogLevel = None,
) -> None:
    """Be an ACP agent on stdio, for editors: attached to a running gateway, or a gateway of its own."""
    name, _, command = (agent or "").partition("=")
    flags = {"data": data, "workspace": workspace, "log_level": log_level or "warning"}
    settings = _settings(config, None, flags)
    if agent and (command or (not url and name not in settings.agents)):
        settings = _settings(config, [agent], flags)

    from contextlib import asynccontextmanager

    from adapters.acp import stdio
    from gateway.app import create_app
    from gateway.core.errors import GatewayError
    from gateway.logging import configure

    configure(settings.log_level, settings.log_format, settings.named_tokens().values())

    @asynccontextmanager
    async def in_process() -> "AsyncIterator[SessionController]":
        _check_agents(settings)
        app = create_app(settings)
        async with app.router.lifespan_context(app):
            yield app.state.controller

    token = settings.token.get_secret_value() if settings.token else ""
    options = stdio.Options(settings, name.strip(), url or "", token, look=not command and settings.port != 0)
    try:
        status = stdio.run(options, in_process)
    except (stdio.CannotAttach, GatewayError) as error:
        _fail([str(error)], status=1)
    except KeyboardInterrupt:
        status = 130
    raise typer.Exit(status)


@cli.command()
def agents(config: Config = None, agent: Agent = None) -> None:
    """Start each configured agent once; say what it is, or what failed."""
    settings = _settings(config, agent, {})

    from adapters.acp.agent import probe as probe_process
    from adapters.pydantic_ai.agent import probe as probe_native
    from gateway.agent_report import report
    from gateway.logging import configure

    # The report says what matters of an agent; warnings above it only for who asks for them.
    level = settings.log_level if "log_level" in settings.model_fields_set else "error"
    configure(level, settings.log_format, settings.named_tokens().values())

    async def probe(config: "AgentConfig") -> dict[str, object]:
        return await (probe_native if config.python else probe_process)(config)

    if not report(settings, probe, sys.stdout):
        raise typer.Exit(1)


@cli.command(
    "demo-agent",
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def demo_agent(context: typer.Context) -> None:
    """The scripted agent on stdio (ACP), for trying and for tests."""
    # Here for the help text and for a demo-agent after other flags; gateway/__main__.py takes the short way.
    from adapters.acp.demo import main as demo

    raise typer.Exit(demo(list(context.args)))


@cli.command()
def version() -> None:
    """The version of this package."""
    from importlib.metadata import version as installed

    typer.echo(f"trunkline {installed('trunkline')}")


def _settings(config: Path | None, agents: list[str] | None, flags: dict[str, Any]) -> "Settings":
    from gateway.config import SettingsError, load_settings
    from gateway.known_agents import parse_flag

    named: dict[str, dict[str, object]] = {}
    problems = []
    for text in agents or []:
        try:
            name, table = parse_flag(text)
        except ValueError as error:
            problems.append(f"--agent: {error}")
            continue
        named[name] = table
    if problems:
        _fail(problems)
    given = {key: value for key, value in flags.items() if value is not None and value != []}
    if named:
        given["agents"] = named
    try:
        return load_settings(config, given)
    except SettingsError as error:
        _fail(error.problems)


def _check_agents(settings: "Settings") -> None:
    """An agent that cannot start here is a warning while another can; none that can is an error."""
    import os

    from gateway.known_agents import missing, unsafe

    problems = {name: missing(agent, os.environ) for name, agent in settings.agents.items()}
    lines = [f"agent {name}: {why}" for name, why in problems.items() if why]
    if len(lines) == len(problems):
        _fail(lines)
    lines += [f"agent {name}: {why}" for name, agent in settings.agents.items() if (why := unsafe(agent))]
    for line in lines:
        typer.echo(f"trunkline: warning: {line}", err=True)


def _fail(problems: list[str], status: int = 2) -> NoReturn:
    for line in problems:
        typer.echo(f"trunkline: {line}", err=True)
    raise typer.Exit(status)
