"""``trunkline agents``: starts each agent once and says in lines for people what it is, or what failed."""

import asyncio
import json
import os
from typing import TextIO

from gateway.agents import AgentConfig, Probe
from gateway.core.errors import AuthRequired, GatewayError
from gateway.known_agents import credentials_hint, missing
from gateway.settings import Settings

WIDTH = 12


def report(settings: Settings, probe: Probe, out: TextIO) -> bool:
    """Write the report; whether every agent could be started."""
    return asyncio.run(_report(settings, probe, out))


async def _report(settings: Settings, probe: Probe, out: TextIO) -> bool:
    configs = list(settings.agents.values())
    results = await asyncio.gather(*(_try(config, probe) for config in configs))
    for config, (lines, _) in zip(configs, results, strict=True):
        default = " (default)" if config.name == settings.first_agent() else ""
        out.write(f"{config.name}{default}\n")
        told = [("command", " ".join(config.command)), ("url", _place(config)), ("python", config.python), *lines]
        for key, value in told:
            if value:
                out.write(f"  {key:<{WIDTH}} {value}\n")
    return all(ok for _, ok in results)


async def _try(config: AgentConfig, probe: Probe) -> tuple[list[tuple[str, str]], bool]:
    """The lines about one agent, and whether it runs."""
    why = missing(config, os.environ)
    if why:
        return [("failed", why)], False
    try:
        found = await probe(config)
    except GatewayError as error:
        lines = [("failed", error.message)]
        if isinstance(error, AuthRequired):
            lines.append(("to do", credentials_hint(config)))
        return lines, False
    return [(key, _text(value)) for key, value in found.items()], True


def _place(config: AgentConfig) -> str:
    """The url without its query, which may be a secret."""
    return config.url.partition("?")[0]


def _text(value: object) -> str:
    """One line for a person: a list's items, a table's keys with what is not just "yes"."""
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(item) for item in value)
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
