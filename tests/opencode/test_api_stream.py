"""The streams of version 2: nothing is missing and nothing comes twice, wherever they are cut."""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.opencode.translate_v2 import STRIDE
from gateway.core.content import Image, Text
from gateway.core.errors import ClientError, Limit, NotFound
from gateway.core.ids import MessageId, SessionId
from gateway.core.inputs import AgentAsk, AgentBlock, AgentMessage, AgentText, AgentTool
from gateway.core.model import By
from tests.fake_port import Farm
from tests.opencode import test_stream as v1
from tests.opencode.api_support import Fold, Reader, durable, history, messages, plain, streams
from tests.opencode.support import Gateway, gateway, place, task
from tests.opencode.test_api_translate import check
from tests.opencode.test_stream import YES_NO, end, settled
from tests.served import Frames, Served, serve


async def story(one: Gateway, farm: Farm) -> str:
    """Version 1's story, and what only some agents do: a tool in one word, an image, a message that is replaced."""
    sid = await v1.story(one, farm)
    await one.queue(sid, "more")
    await settled(one)
    tell = farm.port.tell
    tell(AgentTool(call_id="c2", new=True, status="completed", kind="execute", input={"command": "id"}, output="root"))
    tell(AgentBlock(role="agent", block=Image("AAAA", "image/png")))
    tell(AgentText(role="agent", text="old words", agent_id="m1"))
    tell(AgentMessage(role="agent", agent_id="m1", content=(Text("new words"), Text("and more"))))
    tell(AgentTool(call_id="c3", new=True, status="pending", title="slow", kind="other"))
    tell(AgentTool(call_id="c3", status="in_progress", input={"n": 1}))
    tell(AgentTool(call_id="c3", status="in_progress", input={"n": 2}, output="half"))
    tell(AgentTool(call_id="c3", status="failed", output="no"))
    end(farm)
    await settled(one)
    return sid


# --- the durable stream --------------------------------------------------------------------------------------------


async def test_live_replayed_and_in_pages_it_is_the_same_and_folds_to_the_list(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        found = streams(one.controller)
        sid = await story(one, farm)
        replayed = await history(one.http, sid)
        last = replayed[-1]["durable"]["seq"]
        assert [event for _, event in await durable(found, sid, 0, last)] == replayed
        for limit in (1, 2, 7):
            assert await history(one.http, sid, limit=limit) == replayed
        for event in replayed:
            check(event)
            assert "location" not in event and event["durable"]["aggregateID"] == sid
        numbers = [event["durable"]["seq"] for event in replayed]
        assert numbers == sorted(set(numbers)), "each has its own"
        fold = Fold().feed(replayed)
        gone = [
            part for m in fold.messages.values() for part in m.get("content", {}).values() if part.get("text") == ""
        ]
        assert not gone
        assert fold.shown() == plain(await messages(one.http, sid))
        waiting = (await one.http.get(f"/api/session/{sid}/pending")).json()["data"]
        assert fold.pending == {m["id"]: {"delivery": m["delivery"], "prompt": m["prompt"]} for m in waiting}


async def test_read_live_from_the_beginning(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        found = streams(one.controller)
        sid = await one.new()
        reader = Reader(await found.durable(SessionId(sid), 0))
        assert await reader.more() and not reader.seen, "something at once, before there is an event"
        for number in range(3):
            await one.queue(sid, f"prompt {number}")
            await settled(one)
            await reader.until("session.next.prompted", number + 1)
            farm.port.tell(AgentText(role="agent", text="an "), AgentText(role="agent", text="answer"))
            end(farm)
            await settled(one)
        replayed = await history(one.http, sid)
        assert [e for _, e in await reader.upto(replayed[-1]["durable"]["seq"])] == replayed
        assert [cursor for cursor, _ in reader.seen] == [str(event["durable"]["seq"]) for event in replayed]
        await reader.close()


async def test_what_the_store_has_told_the_log_does_not_tell_again(tmp_path: Path) -> None:
    """The reader has its place in the log before it reads the store: both have what came between."""
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        sid = SessionId(await one.new())
        source = await streams(one.controller).durable(sid, 0)
        reader = Reader(source)
        await reader.more()
        await one.queue(sid, "first")
        await settled(one)
        await reader.upto((await history(one.http, sid))[-1]["durable"]["seq"])
        reading = task(reader.more())
        async with asyncio.timeout(10):
            while "waiting" not in repr(source._reader) and not reading.done():
                await asyncio.sleep(0)
        farm.port.tell(AgentText(role="agent", text="live"))
        end(farm)
        await settled(one)
        assert await reading
        whole = await history(one.http, sid)
        assert [event for _, event in await reader.upto(whole[-1]["durable"]["seq"])] == whole
        await reader.close()


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_cut_at_any_number_and_resumed_it_is_the_same_also_after_a_restart(data: st.DataObject) -> None:
    """A reader that goes on from wherever it was cut, while the story goes on, in two gateways over one database."""

    async def play(path: Path) -> None:
        farm = Farm(auto_answer=False)
        got: list[dict[str, Any]] = []

        async def read(one: Gateway, sid: str, count: int) -> None:
            """``count`` pieces more, then cut: perhaps in the middle of a piece."""
            after = got[-1]["durable"]["seq"] if got else data.draw(st.sampled_from([0, STRIDE, STRIDE + 1]))
            reader = Reader(await streams(one.controller).durable(SessionId(sid), after))
            newest = (await history(one.http, sid, after))[-1:]
            for _ in range(count):
                if newest and reader.events[-1:] != newest:
                    await reader.more()
            taken = reader.events
            got.extend(taken[: data.draw(st.integers(0, len(taken)))])
            await reader.close()

        async with gateway(path, farm) as one:
            sid = await one.new()
            for step in range(data.draw(st.integers(1, 4))):
                await one.queue(sid, f"prompt {step}")
                await settled(one)
                if data.draw(st.booleans()):
                    await read(one, sid, data.draw(st.integers(1, 3)))
                call = f"c{step}"
                farm.port.tell(AgentTool(call_id=call, new=True, status="completed", input={"n": step}, output="x"))
                farm.port.tell(AgentText(role="agent", text="words"))
                await settled(one)
                await read(one, sid, data.draw(st.integers(1, 3)))
                if data.draw(st.booleans()):
                    end(farm)
                    await settled(one)
        async with gateway(path, Farm()) as one:
            await settled(one)
            await read(one, sid, data.draw(st.integers(0, 2)))
            whole = await history(one.http, sid)
            last = whole[-1]["durable"]["seq"]
            after = got[-1]["durable"]["seq"] if got else 0
            got.extend(event for _, event in await durable(streams(one.controller), sid, after, last))
            assert got == whole

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder)))


async def test_inside_of_one_record_it_goes_on_right_after_the_event_that_was_seen(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        sid = await story(one, farm)
        whole = await history(one.http, sid)
        crowded = [e["durable"]["seq"] for e in whole if e["durable"]["seq"] % STRIDE]
        assert len(crowded) >= 5, "records that are several events"
        for number in crowded:
            rest = [event for event in whole if event["durable"]["seq"] > number]
            assert await history(one.http, sid, after=number) == rest
            got = await durable(streams(one.controller), sid, number, whole[-1]["durable"]["seq"])
            assert [event for _, event in got] == rest


async def test_a_reader_that_fell_out_of_the_log_reads_on_from_the_store(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm, log={"max_entries": 8}) as one:
        sid = await one.new()
        reader = Reader(await streams(one.controller).durable(SessionId(sid), 0))
        await one.queue(sid, "first")
        await settled(one)
        await reader.until("session.next.prompted")
        for number in range(30):
            farm.port.tell(AgentTool(call_id=f"c{number}", new=True, status="completed", output=str(number)))
        await settled(one)
        whole = await history(one.http, sid)
        assert [e for _, e in await reader.upto(whole[-1]["durable"]["seq"])] == whole
        await reader.close()


async def test_after_a_number_that_is_not_there_yet_nothing_comes_until_it_is_passed(tmp_path: Path) -> None:
    farm = Farm()
    async with gateway(tmp_path, farm) as one:
        sid = await one.new()
        await one.prompt(sid, "one")
        newest = (await history(one.http, sid))[-1]["durable"]["seq"]
        reader = Reader(await streams(one.controller).durable(SessionId(sid), newest + 5 * STRIDE))
        await reader.more()
        await one.prompt(sid, "two")
        whole = await history(one.http, sid)
        assert [e for _, e in await reader.upto(whole[-1]["durable"]["seq"])] == [
            e for e in whole if e["durable"]["seq"] > newest + 5 * STRIDE
        ]
        await reader.close()


async def test_a_deleted_session_ends_its_stream_and_an_unknown_one_has_none(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm(), log={"max_subscribers": 1}) as one:
        found = streams(one.controller)
        sid = await one.new()
        reader = Reader(await found.durable(SessionId(sid), 0))
        with pytest.raises(Limit):
            await found.durable(SessionId(sid), 0)
        await reader.more()
        assert (await one.http.delete(f"/session/{sid}")).json() is True
        while await reader.more():
            pass
        await reader.close()
        with pytest.raises(NotFound):
            await found.durable(SessionId(sid), 0)
        assert one.controller.log.subscribers == 0
        await found.events("").aclose()  # never read: its place is given up all the same
        assert one.controller.log.subscribers == 0


async def test_a_message_that_another_protocol_calls_otherwise_has_one_id_here(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        sid = SessionId(await one.new())
        everything = Reader(streams(one.controller).events(""))
        await one.queue(sid, "first")
        await settled(one)
        theirs = MessageId("their-id")
        words = (Text("theirs"),)
        admission = await one.controller.submit(sid, words, message_id=theirs, local_id=True, by=By("", "agui"))
        await one.controller.promote(sid, admission.message_id)
        await settled(one)
        whole = await history(one.http, sid)
        events = await everything.until("session.next.pending.updated", 2)
        for told in (whole, events):
            ids = [e["data"]["messageID"] for e in told if e["type"].endswith(("admitted", "pending.updated"))]
            assert "their-id" not in ids and ids[-1] == ids[-2] == admission.ascending_id
        await everything.close()


# --- /api/event ----------------------------------------------------------------------------------------------------


async def test_everything_is_said_and_folds_to_the_list(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        reader = Reader(streams(one.controller).events(""))
        await reader.more()
        sid = await story(one, farm)
        await reader.until("session.idle")
        for event in reader.events[1:]:
            check(event)
            assert event["location"] == {"directory": str(one.workspace)}
        assert reader.events[0]["type"] == "server.connected"
        mine = [event for event in reader.events if event["type"].startswith("session.next.")]
        assert Fold().feed(mine).shown() == plain(await messages(one.http, sid))
        whole = await history(one.http, sid)
        bare = [{k: v for k, v in e.items() if k != "location"} for e in mine if "durable" in e]
        assert bare == whole, "the same numbers and ids as in the history"
        kinds = {event["type"] for event in reader.events}
        assert {"session.created", "session.updated", "permission.v2.asked", "permission.v2.replied"} <= kinds
        assert {"todo.updated", "session.status", "session.next.text.delta"} <= kinds
        await reader.close()


async def test_cut_anywhere_and_resumed_by_id(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        found = streams(one.controller)
        start = one.controller.log.cursor()
        await story(one, farm)
        whole = Reader(found.events(start))
        await whole.until("session.idle")
        places = [place(cursor) for cursor, _ in whole.seen[1:]]
        assert places == sorted(set(places)), "ids rise"
        for cut in range(1, len(whole.seen), 3):
            again = Reader(found.events(whole.seen[cut][0]))
            await again.more()
            assert again.events[0]["type"] == "server.connected"
            while again.seen[-1][0] != whole.seen[-1][0]:
                assert await again.more()
            assert joined(again.seen[1:]) == joined(whole.seen[cut + 1 :])
            await again.close()
        await whole.close()


def joined(seen: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    """Neighbouring deltas of one part as one: who reads many at once gets them so."""
    found: list[tuple[str, dict[str, Any]]] = []
    for cursor, event in seen:
        before: dict[str, Any] = found[-1][1] if found else {"type": ""}
        if event["type"].endswith(".delta") and event["type"] == before["type"]:
            if event["data"].get("textID") == before["data"].get("textID"):
                delta = before["data"]["delta"] + event["data"]["delta"]
                found[-1] = (cursor, {**event, "data": {**event["data"], "delta": delta}})
                continue
        found.append((cursor, event))
    return found


async def test_out_of_the_log_or_of_another_epoch_a_gap_is_said_and_what_is_open_is_shown(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm, log={"max_entries": 8}) as one:
        found = streams(one.controller)
        cursor = one.controller.log.cursor()
        sid = await one.new()
        await one.queue(sid, "first")
        await settled(one)
        for _ in range(30):
            farm.port.tell(AgentText(role="agent", text="x"))
        farm.port.tell(AgentAsk(agent_ref="r1", title="ls", tool=AgentTool(call_id="c1", new=True), options=YES_NO))
        farm.port.tell(AgentText(role="agent", text="y" * 40))
        await settled(one)
        for old in (cursor, "0.5", f"{one.controller.log.epoch}.999999"):
            reader = Reader(found.events(old))
            await reader.until("permission.v2.asked")
            kinds = [event["type"] for event in reader.events]
            assert kinds[:2] == ["server.connected", "server.gap"]
            assert [cursor for cursor, _ in reader.seen[1:-1]] == [""] * (len(kinds) - 2), "only the last has an id"
            [delta] = [event for event in reader.events if event["type"] == "session.next.text.delta"]
            assert delta["data"]["delta"] == "y" * 40
            farm.port.tell(AgentText(role="agent", text="z"))
            await settled(one)
            live = await reader.until("session.next.text.delta", 2)
            assert live[-1]["data"]["delta"] == "z" and live[-1]["data"]["textID"] == delta["data"]["textID"]
            resumed = Reader(found.events(reader.seen[len(kinds) - 1][0]))
            assert (await resumed.until("session.next.text.delta"))[1:] == [live[-1]]
            await reader.close()
            await resumed.close()
            farm.port.tell(AgentTool(call_id=f"end {old}", new=True))
            farm.port.tell(AgentText(role="agent", text="y" * 40))
            await settled(one)
        for wrong in ("x", "1", "1.x", "1.2.3.4.5", "-1.2"):
            with pytest.raises(ClientError):
                found.events(wrong)


async def test_an_event_that_cannot_be_encoded_ends_no_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        reader = Reader(streams(one.controller).events(""))
        await reader.more()

        def broken(*_: object) -> Any:
            raise ValueError("cannot be said")

        monkeypatch.setattr("adapters.opencode.translate_v2.todos", broken)
        await v1.story(one, farm)
        events = await reader.until("session.idle")
        assert not any(event["type"] == "todo.updated" for event in events)
        await reader.close()


# --- over a socket -------------------------------------------------------------------------------------------------


async def test_headers_and_a_heartbeat_come_at_once_and_last_event_id_goes_before_after(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        sid = (await served.http.post("/api/session", json={})).json()["data"]["id"]
        path = f"/api/session/{sid}/event"
        for where, first in ((path, ": heartbeat"), ("/api/event", "id: ")):
            async with asyncio.timeout(10), served.http.stream("GET", where) as answer:
                assert answer.headers["content-type"].startswith("text/event-stream")
                assert answer.headers["cache-control"] == "no-cache, no-transform"
                lines = answer.aiter_lines()
                line = await anext(lines)
                assert line.startswith(first)
                while line != ": heartbeat":
                    line = await anext(lines)
        await served.http.post(f"/api/session/{sid}/prompt", json={"prompt": {"text": "say one"}})
        assert (await served.http.post(f"/api/session/{sid}/wait")).status_code == 204
        whole = await history(served.http, sid)
        middle = whole[4]["durable"]["seq"]
        async with served.events(f"{path}?after=0", **{"last-event-id": str(middle)}) as stream:
            assert [await stream.next() for _ in whole[5:]] == whole[5:]
            assert [cursor for cursor, _ in stream.seen] == [str(event["durable"]["seq"]) for event in whole[5:]]
        for wrong in ("x", "-1", "1.5"):
            answer = await served.http.get(path, headers={"last-event-id": wrong})
            assert answer.status_code == 400 and answer.json()["_tag"] == "InvalidRequestError"


async def test_killed_with_9_in_a_turn_the_durable_stream_goes_on_where_it_was(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        sid = (await served.http.post("/api/session", json={})).json()["data"]["id"]
        seen: list[dict[str, Any]] = []

        async def read(frames: Frames, kind: str, count: int = 1) -> None:
            while sum(e["type"] == f"session.next.{kind}" for e in seen) < count:
                async with asyncio.timeout(60):
                    seen.append(await frames.next())

        async with served.events(f"/api/session/{sid}/event") as frames:
            for text in ("stream 100000 5", "say second"):
                body = {"prompt": {"text": text}, "delivery": "queue"}
                assert (await served.http.post(f"/api/session/{sid}/prompt", json=body)).status_code == 200
            await read(frames, "text.started")
            await read(frames, "prompt.admitted", 2)
        await served.kill()
    again = Served(tmp_path, [], {})
    await again.start()
    try:
        after = seen[-1]["durable"]["seq"]
        async with again.events(f"/api/session/{sid}/event?after={after}") as frames:
            await read(frames, "step.failed")
            await read(frames, "step.ended")
        whole = await history(again.http, sid)
        assert whole[: len(seen)] == seen
        fold = Fold().feed(whole)
        assert fold.shown() == plain(await messages(again.http, sid))
        users = [m["text"] for m in fold.shown() if m["type"] == "user"]
        assert users == ["stream 100000 5", "say second"] and not fold.pending
        assert json.dumps(whole).count("say second") == 2, "admitted once, prompted once"
    finally:
        assert await again.stop() == 0
