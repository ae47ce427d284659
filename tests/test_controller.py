"""The controller with a real store and a port that the test scripts: the order of things, failures, restarts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.agents import AgentConfig
from gateway.controller import SessionController
from gateway.core import effects as fx
from gateway.core import events as ev
from gateway.core.content import Text
from gateway.core.errors import AgentError, Conflict, GatewayError, NotFound, StoreError
from gateway.core.ids import MessageId, SessionId
from gateway.core.inputs import (
    AgentAsk,
    AgentFact,
    AgentGone,
    AgentReady,
    AgentText,
    AgentTitle,
    PromptEnded,
    SteerVerdict,
)
from gateway.core.model import Error, Option, Selected
from gateway.core.transcript import StepItem, TextPart, UserItem
from gateway.core.turn import TurnState
from gateway.log import Entry, SessionLog
from gateway.residents import Options
from gateway.store import Store
from tests.fake_port import Farm


def words(text: str) -> tuple[Text, ...]:
    return (Text(text),)


@asynccontextmanager
async def gateway(
    path: Path, farm: Farm, options: Options = Options(), **config: Any
) -> AsyncIterator[SessionController]:
    store = Store.open(f"sqlite:///{path / 'test.db'}")
    agents = {"fake": AgentConfig(name="fake", **config), "other": AgentConfig(name="other")}
    controller = SessionController(store, SessionLog(store.epoch), agents, farm, default_agent="fake", options=options)
    await controller.start()
    try:
        yield controller
    finally:
        await controller.close()
        await store.close()


async def told(controller: SessionController, session_id: SessionId) -> list[str]:
    """The transcript as lines: `user: …`, `agent: …`."""
    lines = []
    for item in (await controller.view(session_id)).transcript.items:
        if isinstance(item, UserItem):
            lines.append("user: " + getattr(item.message.content[0], "text", ""))
        elif isinstance(item, StepItem):
            lines += [f"{p.role}: {p.text}" for p in item.parts if isinstance(p, TextPart)]
    return lines


async def until(controller: SessionController, session_id: SessionId, kind: type[ev.Event], after: int = 0) -> Entry:
    """The first event of a kind after a position."""
    subscription = controller.subscribe({session_id}, after=after)
    try:
        while True:
            for entry in (await asyncio.wait_for(subscription.read(), 5)).entries:
                if isinstance(entry.record.event, kind):
                    return entry
    finally:
        subscription.close()


async def test_a_prompt_is_answered(tmp_path: Path) -> None:
    farm = Farm()
    async with gateway(tmp_path, farm) as c:
        info = await c.create(cwd="/w")
        admission = await c.submit(info.id, words("hello"))
        settled = await c.wait(info.id, admission.message_id, timeout=5)
        assert (settled.kind, settled.outcome) == ("ended", "end_turn")
        assert await told(c, info.id) == ["user: hello", "agent: echo: hello"]
        view = await c.view(info.id)
        assert view.info.agent == "fake" and view.info.agent_session == "agent-1" and view.info.title == "hello"
        assert c.busy() == {}


async def test_what_is_published_is_what_is_stored(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as c:
        subscription = c.subscribe()
        info = await c.create(cwd="/w")
        for n in range(5):
            admission = await c.submit(info.id, words(f"m{n}"))
            await c.wait(info.id, admission.message_id, timeout=5)
        entries: list[Entry] = []
        while len(entries) == 0 or entries[-1].pos < c.log.position:
            entries += (await subscription.read()).entries
        seen = [e.record for e in entries if e.record.seq]
        assert seen == await c.store.history(info.id, 0, 10_000)
        assert [r.seq for r in seen] == list(range(1, len(seen) + 1))


async def test_queue_runs_one_a_turn_in_order(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as c:
        info = await c.create(cwd="/w")
        ids = [(await c.submit(info.id, words(f"m{n}"))).message_id for n in range(3)]
        for n in range(3):
            prompt = farm.port.last(fx.OfferPrompt)
            assert isinstance(prompt, fx.OfferPrompt) and len(farm.prompts) == n + 1
            farm.port.tell(PromptEnded(offer_id=prompt.offer_id, outcome="end_turn"))
            await c.wait(info.id, ids[n], timeout=5)
            if n < 2:
                await c.live[info.id].until(lambda n=n: len(farm.prompts) == n + 2 or None)
        assert farm.prompts == [["m0"], ["m1"], ["m2"]]


async def test_same_id_at_once_is_one_turn_and_another_body_a_conflict(tmp_path: Path) -> None:
    farm = Farm()
    async with gateway(tmp_path, farm) as c:
        info, other = await c.create(cwd="/w"), await c.create(cwd="/w")
        mine = MessageId("msg_000000000001aaaaaaaaaaaaaa")
        answers = await asyncio.gather(*(c.submit(info.id, words("x"), message_id=mine) for _ in range(3)))
        assert [a.message_id for a in answers] == [mine] * 3
        assert sorted(a.duplicate for a in answers) == [False, True, True]
        await c.wait(info.id, mine, timeout=5)
        assert farm.prompts == [["x"]]
        with pytest.raises(Conflict):
            await c.submit(info.id, words("y"), message_id=mine)
        before = await told(c, info.id)
        with pytest.raises(Conflict):
            await c.submit(other.id, words("x"), message_id=mine)
        assert await told(c, info.id) == before and await told(c, other.id) == []


async def test_a_failed_commit_changes_nothing_and_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    farm = Farm()
    async with gateway(tmp_path, farm) as c:
        info = await c.create(cwd="/w")
        position = c.log.position
        real = c.store.commit

        def full(commit: Any) -> asyncio.Future[None]:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            future.set_exception(StoreError("the disk is full"))
            return future

        monkeypatch.setattr(c.store, "commit", full)
        with pytest.raises(StoreError, match="disk is full"):
            await c.submit(info.id, words("lost?"))
        assert c.log.position == position and farm.prompts == []
        monkeypatch.setattr(c.store, "commit", real)
        admission = await c.submit(info.id, words("again"))
        await c.wait(info.id, admission.message_id, timeout=5)
        assert await told(c, info.id) == ["user: again", "agent: echo: again"]


async def test_a_fact_is_decided_again_until_it_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as c:
        info = await c.create(cwd="/w")
        admission = await c.submit(info.id, words("go"))
        await until(c, info.id, ev.MessageDelivered)
        prompt = farm.port.last(fx.OfferPrompt)
        assert isinstance(prompt, fx.OfferPrompt)
        real, failures = c.store.commit, [0]

        def flaky(commit: Any) -> asyncio.Future[None]:
            failures[0] += 1
            if failures[0] > 2:
                return real(commit)
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            future.set_exception(StoreError("the disk is full"))
            return future

        monkeypatch.setattr(c.store, "commit", flaky)
        farm.port.tell(
            AgentText(role="agent", text="all "),
            AgentText(role="agent", text="here"),
            PromptEnded(offer_id=prompt.offer_id, outcome="end_turn"),
        )
        settled = await c.wait(info.id, admission.message_id, timeout=10)
        assert settled.outcome == "end_turn" and failures[0] == 3
        assert await told(c, info.id) == ["user: go", "agent: all here"]


async def test_death_in_a_turn_holds_the_queue_and_the_next_submit_starts_anew(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as c:
        info = await c.create(cwd="/w")
        first = await c.submit(info.id, words("one"))
        await until(c, info.id, ev.MessageDelivered)
        second = await c.submit(info.id, words("two"))
        dead = farm.port
        dead.tell(AgentGone(error=Error("agent_exit", "killed")))
        settled = await c.wait(info.id, first.message_id, timeout=5)
        assert settled.outcome == "error" and settled.error is not None and settled.error.code == "agent_exit"
        held = await c.wait(info.id, second.message_id, timeout=5)
        assert (held.kind, held.why) == ("held", "agent_exit")
        farm.auto_answer = True
        third = await c.submit(info.id, words("three"))
        await c.wait(info.id, third.message_id, timeout=5)
        await c.wait(info.id, second.message_id, timeout=5)
        await c.wait(info.id, timeout=5)
        assert farm.prompts == [["one"], ["three"], ["two"]]
        assert dead.closed and len(farm.ports) == 2


async def test_a_restart_keeps_everything_and_runs_nothing_twice(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as c:
        info = await c.create(cwd="/w")
        ids = [(await c.submit(info.id, words(f"m{n}"))).message_id for n in range(3)]
        await until(c, info.id, ev.MessageDelivered)
        farm.port.tell(AgentText(role="agent", text="so far"))
        await until(c, info.id, ev.TextDelta)
        await c.store.checkpoint([])  # the writer is done with what came before
    again = Farm()
    async with gateway(tmp_path, again) as c:
        for message_id in ids:
            await c.wait(info.id, message_id, timeout=5)
        await c.wait(info.id, timeout=5)
        assert farm.prompts == [["m0"]] and again.prompts == [["m1"], ["m2"]]
        assert again.ports[0].has_history
        view = await c.view(info.id)
        assert [t.outcome for t in view.transcript.turns.values()] == ["interrupted", "end_turn", "end_turn"]
        users = [u.id for u in view.transcript.users()]
        assert users == ids


async def test_on_restart_hold(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as c:
        info = await c.create(cwd="/w")
        await c.submit(info.id, words("a"))
        await until(c, info.id, ev.MessageDelivered)
        waiting = await c.submit(info.id, words("b"))
    async with gateway(tmp_path, Farm(), Options(on_restart="hold")) as c:
        held = await c.wait(info.id, waiting.message_id, timeout=5)
        assert (held.kind, held.why) == ("held", "restart")


async def test_steer_is_injected_or_waits(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False, can_steer=True)
    async with gateway(tmp_path, farm) as c:
        info = await c.create(cwd="/w")
        await c.submit(info.id, words("go"))
        await until(c, info.id, ev.MessageDelivered)
        steer = await c.submit(info.id, words("left!"), delivery="steer")
        assert steer.state == "offered"
        offer = farm.port.last(fx.OfferSteer)
        assert isinstance(offer, fx.OfferSteer)
        revoking = asyncio.gather(c.revoke(info.id, steer.message_id))
        await until(c, info.id, ev.QuestionAsked)
        farm.port.tell(SteerVerdict(offer_id=offer.offer_id, verdict="injected"))
        assert [v.kind for v in await revoking] == ["already_delivered"]
        assert await told(c, info.id) == ["user: go", "user: left!"]


async def test_requests_first_answer_wins(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as c:
        info = await c.create(cwd="/w")
        await c.submit(info.id, words("go"))
        await until(c, info.id, ev.MessageDelivered)
        farm.port.tell(AgentAsk(agent_ref="7", title="rm", options=(Option("y", "Yes", "allow_once"),)))
        await until(c, info.id, ev.RequestOpened)
        [(session_id, request)] = c.requests()
        assert session_id == info.id and await c.find_request(request.id) == (info.id, request)
        answers = await asyncio.gather(*(c.answer(info.id, request.id, Selected("y")) for _ in range(2)))
        assert [a.first for a in answers] == [True, False]
        told_agent = [e for e in farm.port.effects if isinstance(e, fx.AnswerAgent)]
        assert [(e.agent_ref, e.outcome) for e in told_agent] == [("7", Selected("y"))]
        with pytest.raises(NotFound):
            await c.answer(info.id, request.id.replace("per", "pex"), Selected("y"))  # type: ignore[arg-type]


async def test_an_agent_that_ignores_cancel_is_killed(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm, cancel_grace=0.05) as c:
        info = await c.create(cwd="/w")
        admission = await c.submit(info.id, words("hang"))
        await until(c, info.id, ev.MessageDelivered)
        await c.abort(info.id)
        assert isinstance(farm.port.last(fx.CancelTurn), fx.CancelTurn)
        while not any(isinstance(e, fx.KillAgent) for e in farm.port.effects):
            await asyncio.sleep(0.001)
        farm.port.tell(AgentGone(error=Error("agent_exit", "killed")))
        settled = await c.wait(info.id, admission.message_id, timeout=5)
        assert settled.outcome == "cancelled"


async def test_unload_and_load_are_invisible(tmp_path: Path) -> None:
    farm = Farm()
    async with gateway(tmp_path, farm) as c:
        info = await c.create(cwd="/w")
        first = await c.submit(info.id, words("one"))
        await c.wait(info.id, first.message_id, timeout=5)
        before = (await c.view(info.id)).transcript
        assert await c.unload(info.id) and info.id not in c.live
        assert farm.ports[0].closed
        assert (await c.view(info.id)).transcript == before
        again = await c.submit(info.id, words("one"), message_id=first.message_id)
        assert again.duplicate and again.state == "delivered"
        second = await c.submit(info.id, words("two"))
        await c.wait(info.id, second.message_id, timeout=5)
        assert farm.prompts == [["one"], ["two"]] and farm.ports[1].has_history
        await c.unload(info.id)
        history = await c.store.history(info.id, 0, 1000)
        assert [r.seq for r in history] == list(range(1, len(history) + 1))


async def test_a_session_in_a_turn_is_not_unloaded(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as c:
        info = await c.create(cwd="/w")
        await c.submit(info.id, words("go"))
        await until(c, info.id, ev.MessageDelivered)
        assert not await c.unload(info.id)


async def test_delete_ends_the_agent_and_the_waiters(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as c:
        info = await c.create(cwd="/w")
        admission = await c.submit(info.id, words("go"))
        await until(c, info.id, ev.MessageDelivered)
        waiting = asyncio.gather(c.wait(info.id, admission.message_id, timeout=5), return_exceptions=True)
        await asyncio.sleep(0)
        await c.delete(info.id)
        [error] = await waiting
        assert isinstance(error, GatewayError)
        assert farm.port.closed
        with pytest.raises(NotFound):
            await c.view(info.id)


async def test_an_agent_binds_once(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as c:
        info = await c.create(cwd="/w")
        assert (await c.update(info.id, agent="other")).agent == "other"
        with pytest.raises(Conflict, match="bound to the agent 'other'"):
            await c.update(info.id, agent="fake")
        with pytest.raises(NotFound, match="no agent 'nobody'"):
            await c.update(info.id, agent="nobody")


async def test_an_agent_that_does_not_start_is_an_error_and_holds(tmp_path: Path) -> None:
    farm = Farm(auto_ready=False)
    async with gateway(tmp_path, farm) as c:
        info = await c.create(cwd="/w")
        admission = await c.submit(info.id, words("go"))
        farm.port.tell(AgentGone(error=Error("agent_timeout", "initialize was not answered in 1 s")))
        held = await c.wait(info.id, admission.message_id, timeout=5)
        assert (held.kind, held.why) == ("held", "agent_exit")
        assert held.error is not None and held.error.code == "agent_timeout"
        assert c.busy() == {}


async def test_late_text_closes_by_itself(tmp_path: Path) -> None:
    farm = Farm()
    async with gateway(tmp_path, farm) as c:
        info = await c.create(cwd="/w")
        admission = await c.submit(info.id, words("go"))
        await c.wait(info.id, admission.message_id, timeout=5)
        position = c.log.position
        farm.port.tell(AgentText(role="agent", text="by the way"))
        await until(c, info.id, ev.StepEnded, after=position)
        view = await c.view(info.id)
        assert view.turn_state is TurnState.IDLE
        item = view.transcript.items[-1]
        assert isinstance(item, StepItem) and item.step.completed is not None
        assert await told(c, info.id) == ["user: go", "agent: echo: go", "agent: by the way"]


def test_errors_have_a_side() -> None:
    assert issubclass(Conflict, GatewayError) and not issubclass(Conflict, AgentError)


async def test_a_load_goes_on_when_the_first_who_asked_leaves(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as c:
        info = await c.create(cwd="/w")
        assert await c.unload(info.id)
        async with asyncio.TaskGroup() as group:
            first, second = group.create_task(c.view(info.id)), group.create_task(c.view(info.id))
            await asyncio.sleep(0)
            first.cancel()
        assert first.cancelled() and second.result().info.id == info.id
        with pytest.raises(NotFound):
            await c.view(SessionId("ses_nobody"))


async def test_whoever_waits_is_answered_at_a_shutdown(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as c:
        info = await c.create(cwd="/w")
        admission = await c.submit(info.id, words("go"))
        waiting = asyncio.gather(c.wait(info.id, admission.message_id, timeout=5), return_exceptions=True)
        await until(c, info.id, ev.MessageDelivered)
        c.end_waits()
        [error] = await waiting
        assert isinstance(error, StoreError) and "stored" in error.message


async def test_ensure_is_one_session_for_all_who_ask_at_once(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as c:
        found = await asyncio.gather(*(c.ensure("thread", "t-1", cwd="/w") for _ in range(5)))
        assert len(set(found)) == 1 and len(await c.sessions()) == 1


class Odd(AgentFact, frozen=True, kw_only=True):
    """A fact that no handler knows: a fault of ours."""


async def test_a_faulty_input_costs_the_others_nothing(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as c:
        info = await c.create(cwd="/w")
        first = await c.submit(info.id, words("go"))
        await until(c, info.id, ev.MessageDelivered)
        prompt = farm.port.last(fx.OfferPrompt)
        assert isinstance(prompt, fx.OfferPrompt)
        waiting = asyncio.gather(c.submit(info.id, words("next")), return_exceptions=True)
        await asyncio.sleep(0)  # its commit is on the way: what follows is one batch
        farm.port.tell(
            AgentText(role="agent", text="before ", agent_id="msg_1"),
            Odd(),
            AgentText(role="agent", text="lone \ud800", agent_id="msg_2"),
            AgentTitle(title="\ud800"),  # cannot be stored
            AgentText(role="agent", text="after", agent_id="msg_3"),
            PromptEnded(offer_id=prompt.offer_id, outcome="end_turn"),
        )
        settled = await c.wait(info.id, first.message_id, timeout=5)
        [second] = await waiting
        assert settled.outcome == "end_turn" and not isinstance(second, BaseException)
        texts = [line for line in await told(c, info.id) if line.startswith("agent")]
        assert texts == ["agent: before ", "agent: lone ?", "agent: after"]


async def test_with_a_full_disk_an_agent_can_be_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as c:
        info = await c.create(cwd="/w")
        admission = await c.submit(info.id, words("go"))
        await until(c, info.id, ev.MessageDelivered)
        real = c.store.commit

        def full(commit: Any) -> asyncio.Future[None]:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            future.set_exception(StoreError("the disk is full"))
            return future

        monkeypatch.setattr(c.store, "commit", full)
        with pytest.raises(StoreError, match="disk is full"):
            await c.abort(info.id)
        assert isinstance(farm.port.last(fx.CancelTurn), fx.CancelTurn)
        monkeypatch.setattr(c.store, "commit", real)
        prompt = farm.port.last(fx.OfferPrompt)
        assert isinstance(prompt, fx.OfferPrompt)
        farm.port.tell(PromptEnded(offer_id=prompt.offer_id, outcome="cancelled"))
        assert (await c.wait(info.id, admission.message_id, timeout=5)).outcome == "cancelled"


async def test_a_change_that_cannot_be_applied_gives_the_session_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    farm = Farm()
    async with gateway(tmp_path, farm) as c:
        info = await c.create(cwd="/w")

        def broken(*_: object) -> None:
            raise RuntimeError("a fault of ours")

        live = c.live[info.id]
        monkeypatch.setattr(live.tree, "apply", broken)
        with pytest.raises(GatewayError, match="loaded again"):
            await c.submit(info.id, words("go"), message_id=MessageId("msg_1"))
        settled = await c.wait(info.id, MessageId("msg_1"), timeout=5)  # it was stored, so it runs
        assert settled.outcome == "end_turn" and c.live[info.id] is not live
        assert farm.prompts == [["go"]]


async def test_aborted_while_the_agent_starts(tmp_path: Path) -> None:
    farm = Farm(auto_ready=False)
    async with gateway(tmp_path, farm) as c:
        info = await c.create(cwd="/w")
        admission = await c.submit(info.id, words("go"))
        await c.abort(info.id)
        assert (await c.wait(info.id, admission.message_id, timeout=5)).kind == "held"
        position = c.log.position
        farm.port.tell(AgentReady(own_id="agent-1"))
        entry = await until(c, info.id, ev.AgentStateChanged, after=position)
        assert isinstance(entry.record.event, ev.AgentStateChanged) and entry.record.event.idle


async def test_an_agent_is_read_no_further_while_much_of_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By bytes, not only by count: what came in one read is one fact."""
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as c:
        info = await c.create(cwd="/w")
        await c.submit(info.id, words("go"))
        await until(c, info.id, ev.MessageDelivered)
        real = c.store.commit
        held: list[tuple[Any, asyncio.Future[None]]] = []

        def slow(commit: Any) -> asyncio.Future[None]:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            held.append((commit, future))
            return future

        monkeypatch.setattr(c.store, "commit", slow)
        port = farm.port
        port.tell(AgentTitle(title="new"))  # its commit is on the way
        big = "x" * 1_000_000
        count = 0
        while not port.sink.full():
            port.tell(AgentText(role="agent", text=big))
            count += 1
        assert 15 <= count <= 18
        draining = asyncio.gather(port.sink.drained())
        monkeypatch.setattr(c.store, "commit", real)
        [(commit, future)] = held
        await real(commit)
        future.set_result(None)
        async with asyncio.timeout(10):
            await draining
        assert not port.sink.full()
        port.tell(PromptEnded(outcome="end_turn"))
        await c.wait(info.id, timeout=10)
        assert [len(line) for line in await told(c, info.id)][-1] == len("agent: ") + count * len(big)
