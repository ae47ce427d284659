"""What the routes of AG-UI do with a run: delivery, answers, leaving, cursors."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from gateway.core import effects as fx
from gateway.core.errors import Busy, ClientError
from gateway.core.inputs import AgentText, AgentTool, PromptEnded, SteerVerdict
from tests.agui.client import Client, place, rising
from tests.agui.support import Json, ask, body, gateway, user, yes
from tests.fake_port import Farm

END = PromptEnded(outcome="end_turn")


def text(words: str) -> AgentText:
    return AgentText(role="agent", text=words)


# --- delivery --------------------------------------------------------------------------------------------------------


async def test_leaving_a_running_post_cancels_leaving_a_queued_one_revokes(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm(auto_answer=False)) as g:
        first = await g.run(body(user("a")))
        await g.prompted()
        g.told(text("hi"))
        await first.until("TEXT_MESSAGE_CONTENT")
        second = await g.run(body(user("a"), user("b"), run="r2"))
        third = await g.run(body(user("a"), user("c"), run="r3"))
        follower = await g.connect(body())
        await second.until("CUSTOM", name="acp.message_queued")
        await follower.until("TEXT_MESSAGE_START")
        await follower.close()
        await second.close()
        session_id = next(iter(g.controller.live))
        settled = await g.controller.wait(session_id, "b", timeout=10)  # type: ignore[arg-type]
        assert settled.kind == "revoked"
        assert not [e for e in g.farm.port.effects if isinstance(e, fx.CancelTurn)]
        await first.close()
        async with asyncio.timeout(10):
            while not [e for e in g.farm.port.effects if isinstance(e, fx.CancelTurn)]:
                await asyncio.sleep(0.001)
        g.told(PromptEnded(outcome="cancelled"))
        await g.prompted(2)
        g.told(text("third"), END)
        assert (await third.end())[-1]["outcome"] == {"type": "success"}
        assert g.farm.prompts == [["hello"], ["hello"]]


async def test_a_stream_that_was_never_read_is_left_all_the_same(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm(auto_answer=False, auto_ready=False)) as g:
        run = await g.run(body(user("a")))
        await run.close()
        session_id = next(iter(g.controller.live))
        assert (await g.controller.wait(session_id, "a", timeout=10)).kind == "revoked"  # type: ignore[arg-type]


async def test_the_end_of_the_gateway_cancels_nothing(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm(auto_answer=False)) as g:
        run = await g.run(body(user("a")))
        queued = await g.run(body(user("a"), user("b"), run="r2"))
        await g.prompted()
        g.closing.set()
        await run.close()
        await queued.close()
        await asyncio.sleep(0)
        view = await g.controller.view(next(iter(g.controller.live)))
        assert view.turn_id is not None and [p.id for p in view.pending] == ["b"]


@pytest.mark.parametrize("how", ["option", "setting"])
async def test_a_turn_may_go_on_without_its_client(tmp_path: Path, how: str) -> None:
    settings = {"agui_on_disconnect": "continue"} if how == "setting" else {}
    async with gateway(tmp_path, Farm(auto_answer=False), **settings) as g:
        given = body(user("a")) if how == "setting" else body(user("a"), onDisconnect="continue")
        run = await g.run(given)
        await g.prompted()
        g.told(text("half"))
        await run.until("TEXT_MESSAGE_CONTENT")
        last = run.ids[-1]
        await run.close()
        g.told(text(" whole"), END)
        back = await g.connect(body(), last)
        events = await back.end()
        assert [e.get("delta") for e in events if e["type"] == "TEXT_MESSAGE_CONTENT"] == [" whole"]
        assert events[-1]["type"] == "RUN_FINISHED"
        assert not [e for e in g.farm.port.effects if isinstance(e, fx.CancelTurn)]


async def test_reject_is_409_and_leaves_nothing(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm(auto_answer=False)) as g:
        await g.run(body(user("a")))
        await g.prompted()
        with pytest.raises(Busy):
            await g.run(body(user("b"), delivery="reject"))
        answer = await g.http.post("/agui/fake", json=body(user("b"), delivery="reject"))
        assert answer.status_code == 409 and answer.json()["error"]["code"] == "session_busy"
        view = await g.controller.view(next(iter(g.controller.live)))
        assert not view.pending


async def test_a_steer_appears_where_the_agent_took_it(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm(auto_answer=False, can_steer=True)) as g:
        run = await g.run(body(user("a")))
        await g.prompted()
        g.told(text("before"))
        await run.until("TEXT_MESSAGE_CONTENT")
        short = await g.run(body(user("a"), user("s", "turn left"), run="r2", delivery="steer"))
        events = await short.end()
        assert events[-1]["result"] == {"delivery": "steer", "activeRunId": "r1", "messageIds": ["s"]}
        offer = g.farm.port.last(fx.OfferSteer)
        assert isinstance(offer, fx.OfferSteer)
        assert "TEXT_MESSAGE_START" not in [e["type"] for e in run.events if e.get("messageId") == "s"]
        g.told(SteerVerdict(offer_id=offer.offer_id, verdict="injected"), text("after"), END)
        await run.end()
        said = [(e["type"], e["messageId"] == "s") for e in run.events if e["type"].startswith("TEXT_MESSAGE")]
        assert said == [
            ("TEXT_MESSAGE_START", False),
            ("TEXT_MESSAGE_CONTENT", False),
            ("TEXT_MESSAGE_END", False),
            ("TEXT_MESSAGE_START", True),
            ("TEXT_MESSAGE_CONTENT", True),
            ("TEXT_MESSAGE_END", True),
            ("TEXT_MESSAGE_START", False),
            ("TEXT_MESSAGE_CONTENT", False),
            ("TEXT_MESSAGE_END", False),
        ]
        first = next(e for e in run.events if e.get("messageId") == "s")
        assert first["role"] == "user" and first["metadata"] == {"delivery": "steered"}


async def test_who_waits_for_a_held_message_is_answered(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm(auto_answer=False)) as g:
        await g.run(body(user("a")))
        await g.prompted()
        held = await g.run(body(user("a"), user("b"), run="r2", onAbort="hold"))
        old = await g.run({**body(user("a"), user("c"), run="r3", onAbort="hold"), "protocolVersion": None})
        await g.http.post("/agui/fake/threads/t1/stop", json={})
        assert (await held.end())[-1]["outcome"] == {"type": "cancelled"}
        assert "outcome" not in (await old.end())[-1]


# --- requests --------------------------------------------------------------------------------------------------------


async def test_parallel_requests_are_one_interrupt_and_answered_together(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm(auto_answer=False)) as g:
        client = Client()
        run = await g.run(body(user("a")))
        await g.prompted()
        g.told(ask("A", "one"))
        g.told(ask("B", "two"))
        events = await run.end()
        asked = events[-1]["outcome"]["interrupts"]
        assert [i["toolCallId"] for i in asked] == ["one", "two"]
        for event in events:
            client.take(event)
        more = await g.run(body(user("a"), run="r2", resume=[yes(asked[0]), yes(asked[1], {"optionId": "no"})]))
        await more.until("CUSTOM", name="acp.request_settled")
        assert [getattr(a.outcome, "option_id", "") for a in g.answers()] == ["yes", "no"]
        g.told(AgentTool(call_id="one", status="completed"), AgentTool(call_id="two", status="failed"), END)
        client.stream()
        for event in await more.end():
            client.take(event)
        results = [m["id"] for m in client.messages if m["role"] == "tool"]
        assert results == ["res:one", "res:two"]


async def test_an_answer_to_one_of_two_leaves_the_other_open(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm(auto_answer=False)) as g:
        run = await g.run(body(user("a")))
        await g.prompted()
        g.told(ask("A", "one"), ask("B", "two"))
        asked = (await run.end())[-1]["outcome"]["interrupts"]
        more = await g.run(body(user("a"), run="r2", resume=[yes(asked[0])]))
        left = (await more.end())[-1]["outcome"]["interrupts"]
        assert [i["id"] for i in left] == [asked[1]["id"]]


async def test_what_is_no_answer_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm(auto_answer=False)) as g:
        run = await g.run(body(user("a")))
        await g.prompted()
        g.told(ask("A", "one"))
        (asked,) = (await run.end())[-1]["outcome"]["interrupts"]
        for payload in ({"maybe": 1}, "yes", {"approved": "yes"}, {"optionId": "never"}, 7):
            answer = await g.http.post("/agui/fake", json=body(user("a"), resume=[yes(asked, payload)]))
            assert answer.status_code == 400, payload
            assert answer.json()["error"]["data"]["problems"][0]["where"].startswith("resume.0.payload")
        assert not g.answers()
        two = [yes(asked), {"interruptId": "unknown", "status": "resolved", "payload": {"approved": True}}]
        refused = await g.run(body(user("a"), run="r2", resume=two))
        assert (await refused.end())[-1]["code"] == "interrupt_not_open"
        assert not g.answers()


async def test_a_request_that_expired_with_its_turn(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm(auto_answer=False)) as g:
        run = await g.run(body(user("a")))
        await g.prompted()
        g.told(ask("A", "one"))
        (asked,) = (await run.end())[-1]["outcome"]["interrupts"]
        g.told(PromptEnded(outcome="end_turn"))
        late = await g.run(body(user("a"), run="r2", resume=[yes(asked)]))
        last = (await late.end())[-1]
        assert last["code"] == "interrupt_not_open" and "cancelled" in last["message"]


# --- coming back -----------------------------------------------------------------------------------------------------


async def test_a_cut_stream_goes_on_exactly_where_it_was(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm(auto_answer=False)) as g:
        run = await g.run(body(user("a"), onDisconnect="continue"))
        await g.prompted()
        for i in range(1000):
            g.told(text(f"<{i}>"))
            await run.until("TEXT_MESSAGE_CONTENT", delta=f"<{i}>")
        g.told(END)
        events = await run.end()
        rising(run.ids)
        whole = [(c, e) for c, e in zip(run.ids, events, strict=True) if e["type"] == "TEXT_MESSAGE_CONTENT"]
        for cut in (0, 1, len(whole) // 2, len(whole) - 1):
            back = await g.connect(body(), whole[cut][0])
            rest = await back.end()
            rising([whole[cut][0], *back.ids])
            told = "".join(e["delta"] for _, e in whole[: cut + 1])
            told += "".join(e["delta"] for e in rest if e["type"] == "TEXT_MESSAGE_CONTENT")
            assert told == "".join(f"<{i}>" for i in range(1000))
            assert rest[-1]["type"] == "RUN_FINISHED"


async def test_a_cursor_that_means_nothing_here_gives_a_snapshot(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm(), log={"max_entries": 64}) as g:
        first = await g.run(body(user("a")))
        await first.end()
        for i in range(20):
            await (await g.run(body(user(f"b{i}"), run=f"r{i}"))).end()
        for cursor in (first.ids[-1], "0.3", f"1.{place(first.ids[-1])[1]}.2", "1.999999"):
            back = await g.connect(body(), cursor)
            await back.end()
            assert back.types() == ["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "RUN_FINISHED"], cursor
        with pytest.raises(ClientError):
            await g.connect(body(), "1.2.x")


async def test_a_reader_that_fell_out_of_the_tail_is_shown_a_snapshot(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm(auto_answer=False), log={"max_entries": 64}) as g:
        client = Client()
        run = await g.run(body(user("a")))
        await g.prompted()
        g.told(text("start "))
        await run.until("TEXT_MESSAGE_CONTENT")
        for i in range(500):
            g.told(text(f"<{i}>"), AgentText(role="thought", text="hm"))
        g.told(END)
        for event in await run.end():
            client.take(event)
        assert "MESSAGES_SNAPSHOT" in run.types()
        rising(run.ids)
        said = "".join(m["content"] for m in client.messages if m["role"] == "assistant")
        assert said == "start " + "".join(f"<{i}>" for i in range(500))


async def test_a_run_that_is_posted_again_attaches(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm(auto_answer=False)) as g:
        run = await g.run(body(user("a")))
        await g.prompted()
        g.told(text("hi"))
        await run.until("TEXT_MESSAGE_CONTENT")
        twin = await g.run(body(user("a")))
        await twin.until("MESSAGES_SNAPSHOT")
        await twin.close()
        other = await g.run(body(user("a"), run="empty"))
        assert (await other.end())[-1]["outcome"] == {"type": "success"}
        g.told(END)
        assert (await run.end())[-1]["outcome"] == {"type": "success"}
        assert g.farm.prompts == [["hello"]]


async def test_a_session_that_is_deleted_ends_its_streams(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm(auto_answer=False)) as g:
        run = await g.run(body(user("a")))
        await g.prompted()
        g.told(text("half"))
        await run.until("TEXT_MESSAGE_CONTENT")
        follower, queued = await g.connect(body()), await g.run(body(user("a"), user("b"), run="r2"))
        await g.controller.delete(next(iter(g.controller.live)))
        for each in (run, follower, queued):
            assert (await each.end())[-1]["code"] == "session_deleted"
        fresh = await g.threads.connect(g.asked(body()), "")
        assert isinstance(fresh, list), "its thread is unknown again"


async def test_a_thread_survives_a_restart(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm()) as g:
        await (await g.run(body(user("a")))).end()
        before: list[Json] = (await (await g.connect(body())).end())[2]["messages"]
    async with gateway(tmp_path, Farm()) as g:
        back = await g.connect(body())
        assert (await back.end())[2]["messages"] == before
        rising(back.ids)
        await (await g.run(body(user("a"), user("b"), run="r2"))).end()
        assert g.farm.prompts == [["hello"]]


async def test_what_is_too_large_for_one_event_comes_in_pieces(tmp_path: Path) -> None:
    """The clients give up at 10 MB without a frame's end."""
    async with gateway(tmp_path, Farm(auto_answer=False)) as g:
        run = await g.run(body(user("a")))
        await g.prompted()
        whole = "0123456789abcdef" * 500_000
        given = {"content": "é" * 600_000}
        g.told(AgentTool(call_id="c", new=True, status="in_progress", input=given), text(whole))
        g.told(AgentText(role="thought", text="hm" * 300_000), END)
        live, fresh = Client(), Client()
        for event in await run.end():
            assert len(msgspec.json.encode(event)) < 1 << 20, event["type"]
            live.take(event)
        for event in await (await g.connect(body())).end():
            assert len(msgspec.json.encode(event)) < 1 << 20, event["type"]
            fresh.take(event)
        assert [m for m in fresh.messages if m["role"] == "assistant"] == [
            m for m in live.messages if m["role"] == "assistant"
        ]
        assert whole in [m.get("content") for m in fresh.messages]
        calls = [c for m in fresh.messages for c in m.get("toolCalls", ())]
        assert msgspec.json.decode(calls[0]["function"]["arguments"]) == given
