"""Where an agent port tells its facts: a queue's door. It is never awaited, and says when it is full."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from gateway.core.inputs import AgentFact, AgentText, Input

if TYPE_CHECKING:
    from gateway.live import Live

FULL = 4096  # waiting facts at which an agent's output is read no further
HEAVY = 16 * 1024 * 1024  # and bytes of them: what came together in one read is one fact


def weight(item: Input) -> int:
    """About how many bytes an input holds."""
    if type(item) is AgentText:
        return len(item.text)
    source = getattr(item, "source", None)
    return len(source.raw) if source is not None else 0


def storable(fact: Input) -> Input:
    """Text goes out before it is stored: what could not be stored at its part's end is replaced at the door."""
    if type(fact) is AgentText and not fact.text.isascii():
        try:
            fact.text.encode()
        except UnicodeEncodeError:
            return msgspec.structs.replace(fact, text=fact.text.encode(errors="replace").decode())
    return fact


class Sink:
    """Where one agent port tells its facts. Closed, it is deaf: a port that was given up says nothing any more."""

    def __init__(self, live: "Live") -> None:
        self._live = live
        self.closed = False

    def __call__(self, facts: Sequence[AgentFact], /) -> None:
        if not self.closed:
            self._live.tell(facts, self)

    def full(self) -> bool:
        return not self.closed and (len(self._live.queue) >= FULL or self._live.weight >= HEAVY)

    async def drained(self) -> None:
        await self._live.drained()
