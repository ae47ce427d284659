"""Cancel at each point, approvals, steers that wait, and what is remembered: after a restart, a kill, a lost file."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.tools import RunContext

from gateway.core.content import Text
from gateway.core.inputs import SteerVerdict
from gateway.core.model import Cancelled, Selected
from gateway.core.transcript import StepItem
from tests.pydantic_ai.machine import Machine
from tests.pydantic_ai.world import World, world


async def outcomes(w: World) -> list[Any]:
    items = (await w.c.view(w.id)).transcript.items
    return [item.step.outcome for item in items if isinstance(item, StepItem)]


async def aborted(w: World) -> None:
    await w.c.abort(w.id)
    await w.until(lambda: w.c.live[w.id].tree.root.state.turn_id is None)


# --- cancel ----------------------------------------------------------------------------------------------------------


async def test_cancel_before_the_model_says_anything(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.begin("one")
        await aborted(w)
        assert await outcomes(w) == ["cancelled"]
        await w.reconciled()
        assert await w.users() == ["one", "last"]


async def test_cancel_in_the_middle_of_a_text(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.begin("one")
        await w.machine.step("say half a")
        await w.machine.wait()
        await aborted(w)
        assert await w.lines() == ["user: one", "agent: half a"]
        await w.begin("two")
        [response] = [m for m in w.machine.requests[-1] if isinstance(m, ModelResponse)]
        assert response.text == "half a" and response.state == "interrupted"
        await w.finish()


async def test_cancel_in_a_tool(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.begin("one")
        await w.machine.step("say I work")
        await w.machine.step("call work")
        assert await w.machine.wait() == "tool"
        await aborted(w)
        assert await w.lines() == ["user: one", "agent: I work", "tool: work cancelled"]
        await w.begin("two")  # the history takes a new prompt
        returns = [p for m in w.machine.requests[-1] for p in m.parts if isinstance(p, ToolReturnPart)]
        assert [p.outcome for p in returns] == ["interrupted"]
        await w.finish()


async def test_cancel_before_the_run_begins(tmp_path: Path) -> None:
    """The abort comes while the prompt is being stored."""
    async with world(tmp_path) as w:
        await w.begin("zero")
        await w.finish()
        [port] = w.ports
        assert port.session is not None
        hold = asyncio.Event()
        save = port.session.save

        async def slow(messages: Any) -> None:
            await hold.wait()
            await save(messages)

        port.session.save = slow  # type: ignore[method-assign]
        await w.send("one")
        await w.c.abort(w.id)
        hold.set()
        await w.until(w.quiet)
        port.session.save = save  # type: ignore[method-assign]
        assert (await outcomes(w))[-1] == "cancelled"
        await w.reconciled()
        assert await w.users() == ["zero", "one", "last"]


async def test_cancel_while_the_end_is_stored_changes_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.begin("one")
        [port] = w.ports
        assert port.session is not None
        hold, reached = asyncio.Event(), asyncio.Event()
        save = port.session.save

        async def slow(messages: Any) -> None:
            if len(messages) > 1:
                reached.set()
                await hold.wait()
            await save(messages)

        port.session.save = slow  # type: ignore[method-assign]
        await w.machine.step("end")
        await asyncio.wait_for(reached.wait(), 60)
        await w.c.abort(w.id)
        hold.set()
        await w.until(w.quiet)
        assert await w.lines() == ["user: one", "agent: ."]


# --- approvals -------------------------------------------------------------------------------------------------------


async def asked(w: World) -> Any:
    await w.begin("one")
    await w.machine.step("call risky")
    root = w.c.live[w.id].tree.root
    await w.until(lambda: root.state.requests)
    [request] = root.state.requests.values()
    return request


async def test_allow(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        request = await asked(w)
        assert (request.title, request.call_id) == ("risky", "call1")
        assert [(o.id, o.kind) for o in request.options] == [
            ("allow", "allow_once"),
            ("allow_always", "allow_always"),
            ("deny", "reject_once"),
        ]
        assert (await w.c.answer(w.id, request.id, Selected("allow"))).first
        await w.machine.wait()
        await w.shows("tool: risky completed")
        await w.finish()


async def test_allow_always_is_not_asked_again(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        request = await asked(w)
        await w.c.answer(w.id, request.id, Selected("allow_always"))
        await w.machine.step("call risky")
        await w.machine.wait()
        await w.shows("tool: risky completed", "tool: risky completed")
        await w.finish()


async def test_deny_with_a_word(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        request = await asked(w)
        await w.c.answer(w.id, request.id, Selected("deny", "use the other one"))
        await w.machine.wait()
        await w.shows("tool: risky failed")
        [told] = [p for m in w.machine.requests[-1] for p in m.parts if isinstance(p, ToolReturnPart)]
        assert told.outcome == "denied" and "use the other one" in str(told.content)
        await w.finish()


async def test_a_client_cancels_the_request_alone(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        request = await asked(w)
        await w.c.answer(w.id, request.id, Cancelled())
        await w.machine.wait()
        await w.shows("tool: risky failed")
        await w.finish()


async def test_abort_while_it_asks(tmp_path: Path) -> None:
    """The answer `cancelled` and the cancel come together: the run never goes on in between."""
    async with world(tmp_path) as w:
        request = await asked(w)
        requests = len(w.machine.requests)
        await aborted(w)
        assert w.c.live[w.id].tree.root.state.settled[request.id] == Cancelled("abort")
        assert len(w.machine.requests) == requests
        await w.shows("tool: risky cancelled")
        await w.reconciled()


async def test_steers_wait_while_it_asks(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        request = await asked(w)
        own = await w.send("quick", "steer")
        assert await w.pending() == ["quick"]
        await w.c.answer(w.id, request.id, Selected("allow"))
        await w.machine.wait()
        await w.settled(own)
        await w.reconciled()
        assert await w.users() == ["one", "quick", "last"]


# --- steers ----------------------------------------------------------------------------------------------------------


async def test_a_steer_is_shown_as_delivered_when_the_run_took_it_and_not_before(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.begin()
        await w.machine.step("call work")
        assert await w.machine.wait() == "tool"
        await w.steer("quick")
        assert await w.users() == ["go"] and await w.pending() == ["quick"]
        await w.machine.step("done")
        await w.until(lambda: w.machine.at == "model")
        await w.until(lambda: not w.c.live[w.id].tree.root.state.inbox)
        assert w.machine.seen[-1] == ["go", "quick"] == await w.users()
        [said] = [f for f in w.ports[0].facts if isinstance(f, SteerVerdict) and f.verdict == "injected"]
        assert said.message_id is not None
        await w.machine.step("end")
        await w.finish()
        assert await w.lines() == ["user: go", "tool: work completed", "user: quick", "agent: ."]


async def test_replaced_keeps_its_place_among_four(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.begin()
        ids = [await w.steer(text) for text in "abcd"]
        verdict = await asyncio.wait_for(w.c.replace(w.id, ids[1], (Text("B"),)), 60)
        assert verdict.kind == "replaced" and verdict.message_id == ids[1]
        verdict = await asyncio.wait_for(w.c.revoke(w.id, ids[3]), 60)
        assert verdict.kind == "revoked"
        assert (await asyncio.wait_for(w.c.revoke(w.id, ids[3]), 60)).kind == "revoked"  # twice is a success
        await w.machine.step("end")
        assert await w.machine.wait() == "model"
        assert w.machine.seen[-1] == ["go", "a", "B", "c"]
        for own in ids[:3]:
            assert (await asyncio.wait_for(w.c.revoke(w.id, own), 60)).kind == "already_delivered"
        await w.reconciled()


async def test_the_agents_own_enqueued_message_is_not_ours(tmp_path: Path) -> None:
    machine = Machine()

    @machine.agent.tool
    async def remind(ctx: RunContext[Any]) -> str:
        ctx.enqueue("from the agent")
        return "ok"

    async with world(tmp_path, machine) as w:
        await w.begin()
        await w.steer("ours")
        await machine.step("call remind")
        await machine.wait()
        assert machine.seen[-1] == ["go", "ours", "from the agent"] or machine.seen[-1] == [
            "go",
            "from the agent",
            "ours",
        ]
        await w.until(lambda: not w.c.live[w.id].tree.root.state.inbox)
        assert await w.users() == ["go", "ours"]
        await w.finish()


# --- memory ----------------------------------------------------------------------------------------------------------


async def test_a_restart(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.begin("one")
        await w.finish()
        session, info = w.id, (await w.c.view(w.id)).info
        [port] = w.ports
        assert port.session is not None and info.agent_session == port.session.own_id
        assert (tmp_path / "pydantic_ai" / f"{info.agent_session}.json").stat().st_mode & 0o777 == 0o600
    async with world(tmp_path) as w:
        w.id = session
        await w.c.view(session)
        await w.begin("two")
        assert w.machine.seen == [["one", "two"]]
        await w.finish()
        assert await w.lines() == ["user: one", "agent: .", "user: two", "agent: ."]
        assert (await w.c.view(session)).info.agent_session == info.agent_session


async def test_a_restart_in_the_middle_of_a_tool(tmp_path: Path) -> None:
    """As after a kill -9: the file holds what was stored on the way."""
    async with world(tmp_path) as w:
        await w.begin("one")
        await w.machine.step("call work")
        assert await w.machine.wait() == "tool"
        session = w.id
        file = next((tmp_path / "pydantic_ai").glob("*.json"))
        cut = file.read_bytes()
        assert [m["kind"] for m in json.loads(cut)] == ["request", "response"]
    file.write_bytes(cut)
    async with world(tmp_path) as w:
        w.id = session
        await w.c.view(session)
        await w.begin("two")
        assert w.machine.seen == [["one", "two"]]
        await w.finish()


@pytest.mark.parametrize("fate", ["gone", "torn"])
async def test_a_lost_file_is_said_and_the_transcript_stays(tmp_path: Path, fate: str) -> None:
    async with world(tmp_path) as w:
        await w.begin("one")
        await w.finish()
        session = w.id
    file = next((tmp_path / "pydantic_ai").glob("*.json"))
    if fate == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:40])
    async with world(tmp_path) as w:
        w.id = session
        await w.c.view(session)
        await w.begin("two")
        assert w.machine.seen == [["two"]]
        await w.finish()
        lines = await w.lines()
        assert lines[:2] == ["user: one", "agent: ."] and lines[-2:] == ["user: two", "agent: ."]
        assert any("memory of this conversation is gone" in line for line in lines)
    assert (fate == "torn") == file.with_suffix(".json.bad").exists()


async def test_a_killed_run_is_forgotten_and_its_conversation_is_not(tmp_path: Path) -> None:
    """A model that does not end when it is cancelled."""
    machine = Machine()
    stubborn, let_go = asyncio.Event(), asyncio.Event()

    @machine.agent.tool_plain
    async def stuck() -> str:
        while not let_go.is_set():
            try:
                stubborn.set()
                await let_go.wait()
            except asyncio.CancelledError:
                pass
        return "late"

    async with world(tmp_path, machine, cancel_grace=0.2) as w:
        await w.begin("one")
        await machine.step("say working")
        await machine.step("call stuck")
        await asyncio.wait_for(stubborn.wait(), 60)
        await aborted(w)
        assert await w.lines() == ["user: one", "agent: working", "tool: stuck cancelled"]
        facts = len(w.ports[0].facts)
        let_go.set()
        await w.begin("two")
        assert machine.seen[-1] == ["one", "two"]
        calls = [p.tool_name for m in machine.requests[-1] for p in m.parts if isinstance(p, ToolCallPart)]
        assert calls == ["stuck"]
        await w.finish()
        assert len(w.ports[0].facts) == facts, "the killed run said something"


async def test_two_sessions_of_one_agent(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        first = await w.begin("one")
        assert first
        one = w.id
        await w.machine.step("end")
        await w.until(w.quiet)
        await w.open()
        await w.begin("other")
        assert w.machine.seen == [["one"], ["other"]]
        await w.finish()
        w.id = one
        await w.begin("two")
        assert w.machine.seen[-1] == ["one", "two"]
        await w.finish()


async def test_a_fork_knows_what_was_said_before_it(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await w.begin("one")
        await w.finish()
        first = w.id
        w.id = (await w.c.fork(first)).id
        await w.begin("two")
        assert w.machine.seen[-1] == ["one", "two"]
        await w.finish()
        w.id = first
        await w.begin("three")
        assert w.machine.seen[-1] == ["one", "three"]
        await w.finish()
