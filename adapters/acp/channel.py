"""How bytes go to and from an agent, whatever carries them: what ``connection.Connection`` uses of it.

Lines of JSON-RPC, ended by a newline each, both ways. ``process.Process`` is one on pipes, ``remote_ws`` and
``remote_http`` are those to agents elsewhere.
"""

from typing import Protocol


class Ended(Protocol):
    """Told once, at the end: a sentence that goes on after the agent's name, and the error's code."""

    def __call__(self, how: str, code: str = "agent_exit", /) -> None: ...


class Channel(Protocol):
    @property
    def pid(self) -> int:
        """The process's number; for an agent elsewhere one by chance. No two channels of an agent have the same."""
        ...

    @property
    def alive(self) -> bool: ...

    def write(self, data: bytes, /) -> bool:
        """One line, now or when the other side reads. False if it is gone. Never blocks."""
        ...

    async def room(self) -> None:
        """Wait while much is unwritten: a large answer has to. Returns also when the other side is gone."""
        ...

    def pause(self) -> None:
        """Read no more: the agent has to wait."""
        ...

    def resume(self) -> None: ...

    def last_stderr(self) -> str:
        """What the agent last said beside the protocol; empty for one elsewhere."""
        ...

    def kill(self, why: str) -> None:
        """End it at once. The sentence about the end has ``why``."""
        ...

    async def stop(self) -> None:
        """End it politely; returns when nothing of it is left here."""
        ...
