"""``terminal/*`` of ACP v1, served by the gateway: commands that it runs for an agent (``gateway/terminal.py``), inside
the workspace, until they are released or the agent's session ends. Source: ACP v1, terminals.
"""

import asyncio
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from adapters.acp import rpc
from adapters.acp.fs import refused
from adapters.acp.wire import Json
from gateway.paths import confine
from gateway.terminal import Terminal

MAX_TERMINALS = 32  # of one session, until they are released
OUTPUT = 1024 * 1024  # bytes that are kept where the agent names no limit
MAX_OUTPUT = 8 * 1024 * 1024


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
            terminal = Terminal(argv, cwd, env, limit, self._run_dir, f"terminal of {self._name}")
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
