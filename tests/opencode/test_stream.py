"""The event streams: what they say folds to what GET lists, from the beginning, from the middle, cut anywhere."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from adapters.opencode import translate
from gateway.core import effects as fx
from gateway.core.inputs import AgentAsk, AgentPlan, AgentText, AgentTool, PromptEnded
from gateway.core.model import Option
from tests.fake_port import Farm
from tests.opencode.support import Gateway, Reader, Store, gateway, place, task

YES_NO = (Option("y", "Yes", "allow_once"), Option("n", "No", "reject_once"))


def offer(farm: Farm) -> Any:
    return farm.port.last(fx.OfferPrompt)


def end(farm: Farm, outcome: Any = "end_turn") -> None:
    farm.port.tell(PromptEnded(offer_id=offer(farm).offer_id, outcome=outcome))


async def story(one: Gateway, farm: Farm) -> str:
    """Two turns with everything: thought, text, tool, permission, plan, a queued prompt, an abort. The session's id."""
    sid = await one.new()
    await one.queue(sid, "first")
    await settled(one)
    tell = farm.port.tell
    tell(AgentText(role="thought", text="let me "), AgentText(role="thought", text="see"))
    tell(AgentText(role="agent", text="I will "), AgentText(role="agent", text="run it"))
    await one.queue(sid, "second")
    tell(AgentTool(call_id="c1", new=True, status="pending", kind="execute", title="ls", input={"command": "ls"}))
    tell(AgentAsk(agent_ref="r1", title="ls", tool=AgentTool(call_id="c1"), options=YES_NO))
    await settled(one)
    request = one.controller.requests()[0][1]
    answer = await one.http.post(f"/permission/{request.id}/reply", json={"reply": "once"})
    assert answer.json() is True
    tell(AgentTool(call_id="c1", status="completed", output="a.txt"))
    tell(AgentPlan(entries=[{"content": "one", "status": "pending", "priority": "high"}]))
    tell(AgentText(role="agent", text="done"))
    await one.queue(sid, "third")
    end(farm)
    await settled(one)
    tell(AgentText(role="agent", text="half a sen"))
    await settled(one)
    assert (await one.http.post(f"/session/{sid}/abort")).json() is True
    end(farm, "cancelled")
    await settled(one)
    return sid


async def settled(one: Gateway) -> None:
    """Until everything that was told is decided and stored."""
    async with asyncio.timeout(10):
        while any(live.working or live.queue for live in one.controller.live.values()):
            await asyncio.sleep(0)


async def fold(one: Gateway, reader: Reader, sid: str) -> None:
    """What the terminal client would hold is what GET lists."""
    await reader.now()
    store = Store().feed(*[event for _, event in reader.seen])
    assert store.messages(sid) == await one.messages(sid)
    assert store.todo.get(sid, []) == (await one.http.get(f"/session/{sid}/todo")).json()
    assert store.session[sid] == (await one.http.get(f"/session/{sid}")).json()
    busy = (await one.http.get("/session/status")).json()
    assert store.status.get(sid, "idle") == ("busy" if sid in busy else "idle")
    assert store.permission.get(sid, []) == (await one.http.get("/permission")).json()


def rising(reader: Reader) -> None:
    places = [place(cursor) for cursor, _ in reader.seen]
    assert places == sorted(set(places))


@pytest.mark.parametrize("kind", ["event", "global"])
async def test_the_fold_of_a_stream_is_the_list(tmp_path: Path, kind: Any) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        reader = one.read(kind=kind)
        await reader.until("server.connected")
        sid = await story(one, farm)
        await fold(one, reader, sid)
        rising(reader)
        roles = [m["info"]["role"] for m in await one.messages(sid)]
        assert roles == ["user", "assistant", "assistant", "user", "assistant", "user"]  # the third is held
        await reader.close()


async def test_cut_anywhere_and_resumed_by_id_nothing_is_missing_or_doubled(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        reader = one.read()
        await reader.until("server.connected")
        sid = await story(one, farm)
        await reader.now()
        whole = reader.seen
        assert len(whole) > 60
        for at in range(len(whole)):
            again = one.read(whole[at][0])
            await again.now()
            assert again.seen[0][1]["type"] == "server.connected"
            if whole[at][1]["type"] == "server.connected":
                continue  # nothing but the beginning of a snapshot was seen
            assert again.seen[1:] == whole[at + 1 :], whole[at]
            await again.close()
        chance = random.Random(7)
        for _ in range(20):
            events, cursor = [], ""
            while True:
                part = one.read(cursor)
                await part.now()
                some = part.seen[1:] if cursor else part.seen
                if not some:
                    break
                cut = chance.randint(1, len(some))
                events += some[:cut]
                cursor = some[cut - 1][0]
                await part.close()
            store = Store().feed(*[event for _, event in events])
            assert store.messages(sid) == await one.messages(sid)
        await reader.close()


@pytest.mark.parametrize("steps", range(1, 12))
async def test_attached_in_the_middle(tmp_path: Path, steps: int) -> None:
    """A new reader of /global/event is shown what there is, then what comes: it holds what GET lists."""
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        first = one.read()
        await first.until("server.connected")
        running = task(story(one, farm))
        while len(first.seen) < steps * 6 and not running.done():
            await first.until("message.part.updated")
        late = one.read()
        sid = await running
        await fold(one, late, sid)
        rising(late)
        await late.close()
        await first.close()


async def test_a_client_without_messages_of_a_session_is_not_stopped(tmp_path: Path) -> None:
    """``message.removed`` alone would stop the terminal client that shows its home screen."""
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        sid = await one.new()
        await one.queue(sid, "one")
        await settled(one)
        farm.port.tell(AgentText(role="agent", text="x"))
        await settled(one)
        start = one.controller.log.position
        await one.queue(sid, "two", messageID="msg_two")
        await one.queue(sid, "three", messageID="msg_three")
        assert (await one.http.delete(f"/session/{sid}/message/msg_three")).json() is True
        end(farm)
        await settled(one)
        reader = one.read(one.controller.log.cursor(start))
        await reader.now()
        bursts = [event for _, event in reader.seen]
        for index, event in enumerate(bursts):
            if event["type"] == "message.removed":
                # whoever begins to listen right before this burst holds nothing: the burst brings its own guard
                while bursts[index - 1]["type"] != "message.updated":
                    index -= 1
                assert index > 0
        Store().feed(*bursts)
        await reader.close()


async def test_a_pending_prompt_stays_last_and_keeps_its_parts(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        reader = one.read()
        sid = await one.new()
        await one.queue(sid, "one")
        await settled(one)
        farm.port.tell(AgentText(role="agent", text="working"))
        await one.queue(sid, "two", messageID="msg_two")
        for n in range(3):
            farm.port.tell(AgentTool(call_id=f"c{n}", new=True, status="completed", title="t"))
            farm.port.tell(AgentText(role="agent", text=f"after {n}"))
            await settled(one)
            await fold(one, reader, sid)
            assert (await one.messages(sid))[-1]["info"]["id"] == "msg_two"
        end(farm)
        await settled(one)
        farm.port.tell(AgentText(role="agent", text="second answer"))
        await settled(one)
        await fold(one, reader, sid)
        listed = await one.messages(sid)
        assert [m["info"]["role"] for m in listed[-2:]] == ["user", "assistant"]
        assert listed[-1]["info"]["parentID"] == "msg_two"
        created = [m["info"]["time"]["created"] for m in listed]
        assert created == sorted(set(created))
        await reader.close()


async def test_revoked_while_nobody_listened(tmp_path: Path) -> None:
    """A client that comes back is told what vanished."""
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        sid = await one.new()
        await one.queue(sid, "one")
        await settled(one)
        farm.port.tell(AgentText(role="agent", text="x"))
        await one.queue(sid, "two", messageID="msg_two")
        reader = one.read()
        await reader.now()
        await reader.close()
        store = Store().feed(*[event for _, event in reader.seen])
        assert "msg_two" in [info["id"] for info in store.message[sid]]
        await one.http.delete(f"/session/{sid}/message/msg_two")
        again = one.read()
        await again.now()
        store.feed(*[event for _, event in again.seen])
        assert store.messages(sid) == await one.messages(sid)
        await again.close()


async def test_delivered_while_nobody_listened(tmp_path: Path) -> None:
    """A client that comes back holds the prompt in its old place: it is shown once, in the new one."""
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        sid = await one.new()
        await one.queue(sid, "one")
        await settled(one)
        farm.port.tell(AgentText(role="agent", text="x"))
        await one.queue(sid, "two", messageID="msg_two")
        reader = one.read()
        await reader.now()
        await reader.close()
        end(farm)
        await settled(one)
        farm.port.tell(AgentText(role="agent", text="y"))
        await settled(one)
        again = one.read()
        await again.now()
        store = Store().feed(*[event for _, event in (*reader.seen, *again.seen)])
        assert store.messages(sid) == await one.messages(sid)
        await again.close()


async def test_an_event_that_cannot_be_encoded_ends_no_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("a fault of ours")

    monkeypatch.setattr(translate, "todos", broken)
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        reader = one.read()
        await reader.now()
        sid = await one.new()
        await one.queue(sid, "one")
        await settled(one)
        farm.port.tell(AgentPlan(entries=[]), AgentText(role="agent", text="after"))
        await settled(one)
        events = await reader.now()
        assert "after" in [event["properties"].get("delta") for event in events]
        await reader.close()


@pytest.mark.parametrize("kind", ["event", "global"])
async def test_out_of_the_tail_or_of_another_epoch_a_gap_and_a_snapshot(tmp_path: Path, kind: Any) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm, log={"max_entries": 20}) as one:
        sid = await story(one, farm)
        log = one.controller.log
        for cursor in (log.cursor(1), f"{log.epoch - 1}.{log.position}", f"{log.epoch}.3.4096.9"):
            reader = one.read(cursor, kind)
            events = await reader.now()
            assert [event["type"] for event in events[:2]] == ["server.connected", "server.gap"]
            await fold(one, reader, sid)
            rising(reader)
            await reader.close()


async def test_a_slow_reader_gets_a_gap_and_recovers(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm, log={"max_entries": 30}) as one:
        slow, fast = one.read(), one.read()
        await slow.until("server.connected")
        sid = await one.new()
        await one.queue(sid, "go")
        for _ in range(40):
            farm.port.tell(AgentText(role="agent", text="x")) if farm.ports else None
            await settled(one)
            await fast.now()
        end(farm)
        await settled(one)
        await fold(one, slow, sid)
        rising(slow)
        assert "server.gap" in [event["type"] for _, event in slow.seen]
        assert "server.gap" not in [event["type"] for _, event in fast.seen]
        await slow.close()
        await fast.close()


async def test_a_new_reader_of_one_directory_gets_nothing_that_is_over(tmp_path: Path) -> None:
    """``opencode run --attach -s ID`` prints every finished text that it is sent, and leaves at ``idle``."""
    farm = Farm()
    async with gateway(tmp_path, farm) as one:
        sid = await one.new()
        assert (await one.prompt(sid, "old")).status_code == 200
        reader = one.read(kind="event")
        assert [event["type"] for event in await reader.now()] == ["server.connected"]
        await reader.close()


async def test_a_new_reader_of_one_directory_gets_the_open_turn_and_its_requests(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        sid = await one.new()
        await one.queue(sid, "go")
        await settled(one)
        farm.port.tell(AgentText(role="agent", text="wor"))
        farm.port.tell(AgentAsk(agent_ref="r1", title="may I", tool=AgentTool(call_id="c", new=True), options=YES_NO))
        await settled(one)
        reader = one.read(kind="event")
        events = await reader.now()
        assert {"session.status", "message.updated", "message.part.updated", "permission.asked"} <= {
            event["type"] for event in events
        }
        assert Store().feed(*events).messages(sid) == await one.messages(sid)
        await reader.close()


async def test_event_is_of_one_directory(tmp_path: Path) -> None:
    farm = Farm()
    async with gateway(tmp_path, farm) as one:
        (one.workspace / "sub").mkdir()
        here, everywhere = one.read(kind="event"), one.read()
        await here.until("server.connected")
        await everywhere.until("server.connected")
        answer = await one.http.post("/session", params={"directory": str(one.workspace / "sub")}, json={})
        assert answer.json()["directory"] == str(one.workspace / "sub")
        sid = await one.new()
        assert {event["properties"]["sessionID"] for event in await here.now()} == {sid}
        assert {event["properties"]["sessionID"] for event in await everywhere.now()} == {sid, answer.json()["id"]}
        await here.close()
        await everywhere.close()
