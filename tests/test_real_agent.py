"""npm ``opencode-ai``'s ``opencode acp`` behind the gateway, on a scripted model: an agent that cannot be steered and
merges what is sent while it works, so that every rule of delivery is the gateway's.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests import real_stories as stories
from tests.real_agents import Seat, choose, opencode, seat
from tests.scripted_model import Model
from tests.served import Served, serve

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with Model() as one:
        yield one


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory, model: Model) -> AsyncIterator[Served]:
    folder = tmp_path_factory.mktemp("opencode")
    async with serve(folder, "--config", opencode(folder, model)) as one:
        yield one


@pytest_asyncio.fixture(loop_scope="module")
async def at(served: Served, model: Model, request: pytest.FixtureRequest) -> AsyncIterator[Seat]:
    async with seat(served, model, request.node.name) as one:
        yield one


async def test_endings(at: Seat) -> None:
    at.two.answer = choose("allow_once")
    await stories.restarted(at)
    await at.over()
    await stories.killed(at)


async def test_turns(at: Seat) -> None:
    await stories.text(at)
    await at.over()
    await stories.permissions(at)
    await at.over()
    await stories.options(at, mode="plan", model="scripted/other")


async def test_delivery(at: Seat) -> None:
    await stories.queue(at)
    await at.over()
    await stories.steer_next(at)
    await at.over()
    await stories.cancel(at)


async def test_steered_by_interrupting(tmp_path: Path) -> None:
    with Model() as model:
        config = opencode(tmp_path, model, steer_fallback="interrupt")
        async with serve(tmp_path, "--config", config) as served, seat(served, model, "here") as at:
            await stories.steer_interrupt(at)
