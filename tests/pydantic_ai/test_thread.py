"""Native agents as the gateway runs them, in their own thread: what they do to it must not reach the gateway."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from adapters.pydantic_ai.agent import NativeAgents, factory, probe
from gateway.agents import AgentConfig
from gateway.controller import SessionController
from gateway.core.content import Text
from gateway.core.effects import OfferPrompt
from gateway.core.errors import GatewayError
from gateway.core.ids import MessageId, OfferId, SessionId, TurnId
from gateway.core.inputs import AgentFact, AgentReady, AgentText, PromptEnded
from gateway.core.model import Pending, SessionInfo
from gateway.core.replies import Settlement
from gateway.core.transcript import StepItem, TextPart
from gateway.log import SessionLog
from gateway.residents import Options
from gateway.store import Store
from tests.pydantic_ai import agents

HERE = "tests.pydantic_ai.agents"


@asynccontextmanager
async def gateway(path: Path, name: str = "agent", **config: Any) -> AsyncIterator[SessionController]:
    agents.release.clear()
    agents.entered.clear()
    store = Store.open(f"sqlite:///{path / 'test.db'}")
    ports: NativeAgents = factory(path)
    target = name if ":" in name else f"{HERE}:{name}"
    configs = {"bot": AgentConfig(name="bot", python=target, **config)}
    log = SessionLog(store.epoch)
    controller = SessionController(store, log, configs, ports, default_agent="bot", options=Options())
    await controller.start()
    try:
        yield controller
    finally:
        agents.release.set()
        await controller.close()
        await ports.close()
        await store.close()


async def said(c: SessionController, session_id: SessionId, text: str) -> Settlement:
    admission = await c.submit(session_id, (Text(text),))
    return await c.wait(session_id, admission.message_id, timeout=60)


async def answer(c: SessionController, session_id: SessionId) -> str:
    """The last text of the agent, or its error."""
    items = (await c.view(session_id)).transcript.items
    last = next(item for item in reversed(items) if isinstance(item, StepItem))
    if last.step.error is not None:
        return f"{last.step.error.code}: {last.step.error.message}"
    return "".join(part.text for part in last.parts if isinstance(part, TextPart))


async def entered() -> None:
    assert await asyncio.to_thread(agents.entered.wait, 60)


async def test_it_runs_in_its_own_thread_and_knows_its_session(tmp_path: Path) -> None:
    async with gateway(tmp_path) as c:
        info = await c.create(cwd=str(tmp_path))
        assert (await said(c, info.id, "hello")).outcome == "end_turn"
        assert await answer(c, info.id) == "said: hello"
        await said(c, info.id, "threads")
        assert await answer(c, info.id) == "result: native agents"
        await said(c, info.id, "where")
        assert await answer(c, info.id) == f"result: {tmp_path} {info.id} bot"


async def test_deps_by_for_session(tmp_path: Path) -> None:
    async with gateway(tmp_path, "with_deps") as c:
        info = await c.create(cwd=str(tmp_path))
        await said(c, info.id, "folder")
        assert await answer(c, info.id) == f"result: {tmp_path}"


@pytest.mark.parametrize("tool", ["sleeps", "blocks"])
async def test_a_tool_that_blocks_does_not_block_the_gateway(tmp_path: Path, tool: str) -> None:
    async with gateway(tmp_path) as c:
        info = await c.create(cwd="/w")
        waiting = asyncio.get_running_loop().create_task(said(c, info.id, tool))
        await entered()
        slowest = 0.0
        for _ in range(20):
            began = time.monotonic()
            await asyncio.sleep(0)
            slowest = max(slowest, time.monotonic() - began)
        assert slowest < 5
        agents.release.set()
        assert (await waiting).outcome == "end_turn"
        assert await answer(c, info.id) == ("result: slept" if tool == "sleeps" else "result: blocked")


async def test_two_sessions_work_at_once(tmp_path: Path) -> None:
    async with gateway(tmp_path) as c:
        one, two = await c.create(cwd="/w"), await c.create(cwd="/w")
        waiting = asyncio.get_running_loop().create_task(said(c, one.id, "sleeps"))
        await entered()
        assert (await said(c, two.id, "hello")).outcome == "end_turn"
        assert await answer(c, two.id) == "said: hello"
        agents.release.set()
        await waiting
        assert await answer(c, one.id) == "result: slept"


async def test_a_tool_in_a_thread_is_left_at_once_when_it_is_cancelled(tmp_path: Path) -> None:
    async with gateway(tmp_path) as c:
        info = await c.create(cwd="/w")
        waiting = asyncio.get_running_loop().create_task(said(c, info.id, "sleeps"))
        await entered()
        began = time.monotonic()
        await c.abort(info.id)
        assert (await waiting).outcome == "cancelled"
        assert time.monotonic() - began < 5  # the grace is ten
        assert (await said(c, info.id, "hello")).outcome == "end_turn"
        assert await answer(c, info.id) == "said: sleeps, hello"


async def test_a_blocked_loop_is_given_up_after_the_grace(tmp_path: Path) -> None:
    async with gateway(tmp_path, cancel_grace=0.2) as c:
        info = await c.create(cwd="/w")
        waiting = asyncio.get_running_loop().create_task(said(c, info.id, "blocks"))
        await entered()
        await c.abort(info.id)
        assert (await waiting).outcome == "cancelled"
        ports = c.factory
        assert isinstance(ports, NativeAgents)
        while len(ports._blocked) == 0:
            await asyncio.sleep(0.05)
        # another thread, the same conversation
        assert (await said(c, info.id, "hello")).outcome == "end_turn"
        assert await answer(c, info.id) == "said: blocks, hello"
        agents.release.set()
        assert (await said(c, info.id, "again")).outcome == "end_turn"
        assert await answer(c, info.id) == "said: blocks, hello, again"


@pytest.mark.parametrize(
    ("tool", "words"),
    [("leaves", "SystemExit"), ("leaves_thread", "SystemExit"), ("interrupts", "KeyboardInterrupt")],
)
async def test_a_tool_that_exits_ends_its_turn_and_nothing_else(tmp_path: Path, tool: str, words: str) -> None:
    async with gateway(tmp_path) as c:
        other = await c.create(cwd="/w")
        await said(c, other.id, "hello")
        info = await c.create(cwd="/w")
        assert (await said(c, info.id, tool)).outcome == "error"
        assert words in await answer(c, info.id)
        await said(c, other.id, "still there")
        assert await answer(c, other.id) == "said: hello, still there"
        await said(c, info.id, "me too")
        assert await answer(c, info.id) == f"said: {tool}, me too"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nowhere.at_all:agent", "no module named 'nowhere'"),
        (f"{HERE}:nothing", f"{HERE} has no 'nothing' (agents there: agent,"),
        (f"{HERE}:not_an_agent", "is a int, not a pydantic_ai Agent"),
        (f"{HERE}:needs_deps", "its deps_type Needy needs arguments: give it a classmethod for_session(session)"),
        (f"{HERE}:broken_deps", "RuntimeError: no database"),
        ("tests.pydantic_ai.bad_module:agent", "ZeroDivisionError"),
        ("tests.pydantic_ai.bad_exit:agent", "SystemExit"),
        ("tests.pydantic_ai.bad_import:agent", "No module named 'surely_not_installed'"),
    ],
)
async def test_what_cannot_be_loaded_is_said(tmp_path: Path, target: str, words: str) -> None:
    async with gateway(tmp_path, target) as c:
        info = await c.create(cwd="/w")
        with pytest.raises(GatewayError) as raised:
            await c.wake(info.id)
        assert words in raised.value.message
        assert raised.value.code == "agent_exit"
        if "deps" not in target:
            with pytest.raises(GatewayError) as raised:
                await probe(AgentConfig(name="bot", python=target))
            assert words in raised.value.message


async def test_a_provider_without_a_key_is_auth_required(tmp_path: Path) -> None:
    async with gateway(tmp_path, "tests.pydantic_ai.no_key:agent") as c:
        info = await c.create(cwd="/w")
        with pytest.raises(GatewayError) as raised:
            await c.wake(info.id)
        assert raised.value.code == "auth_required" and "OPENAI_API_KEY" in raised.value.message


async def test_an_import_that_never_ends_is_a_timeout(tmp_path: Path) -> None:
    async with gateway(tmp_path, "tests.pydantic_ai.slow_import:agent", start_timeout=0.3) as c:
        info = await c.create(cwd="/w")
        with pytest.raises(GatewayError) as raised:
            await c.wake(info.id)
        assert raised.value.code == "agent_timeout"


async def test_a_nested_attribute(tmp_path: Path) -> None:
    async with gateway(tmp_path, "nested.inside.agent") as c:
        info = await c.create(cwd="/w")
        assert (await said(c, info.id, "hi")).outcome == "end_turn"


async def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from adapters.pydantic_ai import agent as port

    monkeypatch.setattr(port, "find_spec", lambda name: None)
    async with gateway(tmp_path) as c:
        info = await c.create(cwd="/w")
        with pytest.raises(GatewayError) as raised:
            await c.wake(info.id)
        assert "pip install 'trunkline[pydantic-ai]'" in raised.value.message
        with pytest.raises(GatewayError) as raised:
            await probe(AgentConfig(name="bot", python=f"{HERE}:agent"))
        assert "trunkline[pydantic-ai]" in raised.value.message


async def test_probe(tmp_path: Path) -> None:
    found = await probe(AgentConfig(name="bot", python=f"{HERE}:agent"))
    assert str(found["protocol"]).startswith("Pydantic AI 2.") and "steer" in found["can"]  # type: ignore[operator]


class Slow:
    """A sink that is full after 100 facts, until the test says otherwise."""

    def __init__(self) -> None:
        self.facts: list[AgentFact] = []
        self.limit = 100
        self.ready, self.ended, self.free = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def __call__(self, facts: Sequence[AgentFact], /) -> None:
        self.facts.extend(facts)
        for fact in facts:
            if isinstance(fact, AgentReady):
                self.ready.set()
            elif isinstance(fact, PromptEnded):
                self.ended.set()

    def full(self) -> bool:
        return len(self.facts) >= self.limit

    async def drained(self) -> None:
        await self.free.wait()


async def test_a_stream_waits_for_a_slow_gateway(tmp_path: Path) -> None:
    """The run is paused while the session is behind, and goes on afterwards."""
    agents.release.clear()
    ports, sink = factory(tmp_path), Slow()
    config = AgentConfig(name="bot", python="tests.pydantic_ai.flood:agent")
    info = SessionInfo(SessionId("ses_1"), SessionId("ses_1"), "/w", 0, 0, agent="bot")
    port = ports(config, info, sink)
    port.start(info, False)
    await asyncio.wait_for(sink.ready.wait(), 60)
    message = Pending(MessageId("msg_1"), (Text("go"),), (), "msg_1", "queue", 1, 0, MessageId("msg_1"))
    port.perform(OfferPrompt(OfferId("off_1"), TurnId("trn_1"), (message,)))
    while not sink.full():
        await asyncio.sleep(0.01)
    told = 0
    while told != len(sink.facts):  # what was on its way comes; a run that does not wait ends here
        told = len(sink.facts)
        await asyncio.sleep(0.5)
    assert not sink.ended.is_set() and told < 5000
    sink.limit = 10**9
    sink.free.set()
    await asyncio.wait_for(sink.ended.wait(), 60)
    text = "".join(fact.text for fact in sink.facts if isinstance(fact, AgentText))
    assert text == "".join(f"{n} " for n in range(5000))
    await port.close()
    await ports.close()
