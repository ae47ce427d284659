"""One story, every wire: whatever is done from wherever, all clients show the same messages, ids, order and state.

On the demo agent (a process that speaks ACP) and on a native one (Pydantic AI, in this process).
``TRUNKLINE_WIRE_STORIES=n`` plays n on each; ``TRUNKLINE_WIRE_SEED=s`` begins at that seed. A failure prints its seed
and the smallest story that was found to fail.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from gateway.agents import AgentConfig
from gateway.app import STORE_NAME
from gateway.store import Store
from tests.wires.house import House, demo_agent, native_agent
from tests.wires.story import Player, Step, make, read_again, smaller

pytestmark = pytest.mark.usefixtures("npm_clients")
STORIES = int(os.environ.get("TRUNKLINE_WIRE_STORIES", "100"))
FIRST = int(os.environ.get("TRUNKLINE_WIRE_SEED", "1"))
HOUSES = 4  # gateways at once
A_HOUSE = 10  # stories that one of them plays; then it is restarted, and all are read again


class Stories:
    def __init__(self, folder: Path, template: Path, agent: Callable[[Path], AgentConfig]) -> None:
        self.folder = folder
        self.agent = agent
        self.template = template
        self.counts: Counter[str] = Counter()
        self.fault = ""
        self.seed = 0
        self._houses = count()

    def house(self) -> House:
        folder = self.folder / f"house{next(self._houses)}"
        return House(folder, {"agent": self.agent(folder)}, self.template)

    async def work(self, batches: "asyncio.Queue[range]") -> None:
        while not self.fault and not batches.empty():
            seeds, done = batches.get_nowait(), []  # before anything is waited for: others take too
            async with self.house() as house:
                for seed in seeds:
                    if self.fault:
                        return
                    player = Player(house)
                    try:
                        done.append(await player.play(make(seed)))
                    except Exception as fault:
                        self.fault, self.seed = f"{type(fault).__name__}: {fault}", seed
                        return
                    self.counts.update(player.counts)
                try:
                    await read_again(house, done)
                except Exception as fault:
                    self.fault, self.seed = f"one of {seeds}, read again: {type(fault).__name__}: {fault}", seeds[0]

    async def fails(self, steps: list[Step]) -> bool:
        async with self.house() as house:
            try:
                await read_again(house, [await Player(house).play(steps)])
            except Exception:
                return True
        return False


@pytest.mark.parametrize("agent", [demo_agent, native_agent])
async def test_one_story_on_every_wire(tmp_path: Path, agent: Callable[[Path], AgentConfig]) -> None:
    template = tmp_path / STORE_NAME
    await Store.open(f"sqlite:///{template}").close()
    stories = Stories(tmp_path, template, agent)
    batches: asyncio.Queue[range] = asyncio.Queue()
    for first in range(FIRST, FIRST + STORIES, A_HOUSE):
        batches.put_nowait(range(first, min(first + A_HOUSE, FIRST + STORIES)))
    await asyncio.gather(*(stories.work(batches) for _ in range(HOUSES)))
    if stories.fault:
        steps = await smaller(make(stories.seed), stories.fails)
        told = "\n".join(f"    {step!r}," for step in steps)
        pytest.fail(
            f"seed {stories.seed}: {stories.fault}\nthe smallest story that failed, {len(steps)} steps:\n{told}",
            pytrace=False,
        )
    if STORIES >= 50:  # fewer would show little
        rare = ("revoke", "replace", "steer", "queue", "answer", "abort", "die", "restart", "look", "pending seen")
        counts = {what: stories.counts[what] for what in rare}
        assert all(number >= STORIES // 10 for number in counts.values()), counts
