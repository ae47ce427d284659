"""Commands that people run in a session's folder, where the setting ``shell`` allows it."""

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from gateway.core.effects import StartCommand
from gateway.core.inputs import CommandEnded, CommandSaid, Input
from gateway.terminal import Terminal

OUTPUT = 64 * 1024  # bytes of the output that are kept: the last ones
PACE = 0.1  # seconds between two words on the output, at least; large ones are told less often
PER_SECOND = 64 * 1024  # bytes of the history that a command's output may take, about


class Command:
    """One command line, from its start. ``tell`` gets CommandSaid, and CommandEnded once."""

    def __init__(self, effect: StartCommand, terminal: Terminal, tell: Callable[[Input], None]) -> None:
        self.turn_id = effect.turn_id
        self._terminal, self._tell = terminal, tell

    def __repr__(self) -> str:
        return f"<Command {self._terminal}>"

    async def run(self) -> None:
        """Until it has ended, and all that it started with it."""
        terminal, told = self._terminal, 0
        while not terminal.exited.is_set():
            pause = max(PACE, len(self._output()) / PER_SECOND)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await terminal.exited.wait()
            if not terminal.exited.is_set() and terminal.written != told:
                told = terminal.written
                self._tell(CommandSaid(turn_id=self.turn_id, output=self._output()))
        end = await terminal.wait()
        output = self._output()
        await terminal.end()
        ended = CommandEnded(turn_id=self.turn_id, output=output, exit_code=end["exitCode"], signal=end["signal"])
        self._tell(ended)

    def stop(self) -> None:
        """Ask it to end, then make it."""
        self._terminal.kill()

    async def close(self) -> None:
        await self._terminal.end()

    def _output(self) -> str:
        said = self._terminal.output()
        text: str = said["output"].encode("utf-8", "replace").decode()
        return f"[the beginning is left out]\n{text}" if said["truncated"] else text


class Commands:
    """Starts them: with the shell of whoever runs the gateway, and with no secrets of its environment."""

    def __init__(self, environment: Mapping[str, str], run_dir: Path | None) -> None:
        self._environment, self._run_dir = environment, run_dir

    def start(self, effect: StartCommand, tell: Callable[[Input], None]) -> Command | None:
        """The command; None if it cannot be started, which is told."""
        shell = self._environment.get("SHELL") or "/bin/sh"
        if not os.access(shell, os.X_OK):
            shell = "/bin/sh"
        argv = [shell, "-c", effect.command]
        try:
            terminal = Terminal(argv, effect.cwd, self._environment, OUTPUT, self._run_dir, "command of a person")
        except (OSError, ValueError) as error:
            tell(CommandEnded(turn_id=effect.turn_id, error=f"The command cannot be started: {error}"))
            return None
        return Command(effect, terminal, tell)
