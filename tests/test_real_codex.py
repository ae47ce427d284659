"""npm ``@agentclientprotocol/codex-acp`` behind the gateway, on a scripted model, over both versions of ACP."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests import real_stories as stories
from tests.acp.clients.raw import RpcError, client
from tests.real_agents import PATIENCE, Seat, choose, codex, program, seat
from tests.scripted_responses import Responses
from tests.served import Served, serve

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def model() -> Iterator[Responses]:
    with Responses() as one:
        yield one


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[1, 2], ids=["v1", "v2"])
async def served(
    tmp_path_factory: pytest.TempPathFactory, model: Responses, request: pytest.FixtureRequest
) -> AsyncIterator[Served]:
    folder = tmp_path_factory.mktemp("codex")
    async with serve(folder, "--config", codex(folder, model, protocol=request.param)) as one:
        yield one


@pytest_asyncio.fixture(loop_scope="module")
async def at(served: Served, model: Responses, request: pytest.FixtureRequest) -> AsyncIterator[Seat]:
    """In the mode that asks: the agent's own first one has a model decide."""
    async with seat(served, model, request.node.name) as one:
        await one.choose("mode", "workspace-write")
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
    await at.choose("mode", "agent-full-access")  # elsewhere it wants a sandbox, which not every machine has
    await stories.free_tool(at)
    await at.over()
    await stories.options(at, mode="read-only", model="gpt-6-sol")


async def test_delivery(at: Seat) -> None:
    await stories.queue(at)
    await at.over()
    await stories.steer(at)
    await at.over()
    await stories.cancel(at)


async def test_a_key_in_the_environment_is_enough(tmp_path: Path) -> None:
    """Codex takes a key only if it is also told to log in with it: ``--agent codex`` does that."""
    agent = f"codex={program('codex-acp')}"
    async with serve(tmp_path, "--agent", agent, CODEX_API_KEY="none") as served, client(served.url) as one:
        one.patience = PATIENCE
        assert (await one.new(served.workspace))["modes"]
    async with serve(tmp_path / "keyless", "--agent", agent) as served, client(served.url) as one:
        one.patience = PATIENCE
        with pytest.raises(RpcError) as failed:
            await one.new(served.workspace)
        assert failed.value.code == -32000
