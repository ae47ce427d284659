"""npm ``@agentclientprotocol/claude-agent-acp`` behind the gateway, on a scripted model, over both versions of ACP."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests import real_stories as stories
from tests.real_agents import Seat, choose, claude, seat
from tests.scripted_anthropic import Anthropic
from tests.served import Served, serve

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def model() -> Iterator[Anthropic]:
    with Anthropic() as one:
        yield one


@pytest.fixture(scope="module", params=[1, 2], ids=["v1", "v2"])
def protocol(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory, model: Anthropic, protocol: int) -> AsyncIterator[Served]:
    folder = tmp_path_factory.mktemp("claude")
    async with serve(folder, "--config", claude(folder, model, protocol=protocol)) as one:
        yield one


@pytest_asyncio.fixture(loop_scope="module")
async def at(served: Served, model: Anthropic, request: pytest.FixtureRequest) -> AsyncIterator[Seat]:
    """In the mode that asks: the agent's own first one has a model decide."""
    async with seat(served, model, request.node.name) as one:
        await one.choose("mode", "default")
        yield one


async def test_endings(at: Seat) -> None:
    at.two.answer = choose("allow_once")
    await stories.restarted(at)
    await at.over()
    await stories.killed(at)


async def test_turns(at: Seat, protocol: int) -> None:
    await stories.text(at)
    await at.over()
    await stories.free_tool(at)
    await at.over()
    await stories.permissions(at)
    await at.over()
    await stories.options(at, mode="plan", model="sonnet")


async def test_delivery(at: Seat, protocol: int) -> None:
    await stories.queue(at)
    await at.over()
    await (stories.steer(at) if protocol == 1 else stories.steer_next(at))
    await at.over()
    await stories.cancel(at)


async def test_subagent(at: Seat) -> None:
    await stories.subagent(at)
