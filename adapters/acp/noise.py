"""Says that an agent writes what is no message: one line for a burst, with its count, and seldom if it goes on."""

import asyncio

import structlog

FIRST, LONGEST = 1.0, 300.0  # seconds from the first line of a burst to the log; four times as long after each
_log = structlog.get_logger("agent")


class NoiseReport:
    def __init__(self, agent: str, loop: asyncio.AbstractEventLoop) -> None:
        self._agent, self._loop = agent, loop
        self._seen = self._told = 0
        self._wait = FIRST
        self._timer: asyncio.TimerHandle | None = None

    def seen(self, total: int) -> None:
        """So many lines until now."""
        self._seen = total
        if total > self._told and self._timer is None:
            self._timer = self._loop.call_later(self._wait, self.tell)

    def tell(self) -> None:
        """Now, if there is anything to tell: the agent has ended, or the burst."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        new, self._told = self._seen - self._told, self._seen
        if new:
            self._wait = min(self._wait * 4, LONGEST)
            _log.warning("agent wrote what is no message", agent=self._agent, lines=new, so_far=self._seen)
