"""Open streams: their limits, heartbeats, and the answers that wait for them."""

import asyncio
from pathlib import Path

import pytest

from adapters.opencode import streams
from gateway.core.errors import ClientError, Limit
from tests.fake_port import Farm
from tests.opencode.support import gateway, task
from tests.opencode.test_stream import rising, settled


async def test_heartbeats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT", 0.01)
    async with gateway(tmp_path, Farm()) as one:
        reader = one.read()
        await reader.until("server.heartbeat", 3)
        rising(reader)
        cursor = reader.seen[-1][0]
        sid = await one.new()
        again = one.read(cursor)
        await again.until("session.created")
        assert again.seen[1][1]["properties"]["sessionID"] == sid
        await reader.close()
        await again.close()


async def test_an_answer_waits_for_the_streams(tmp_path: Path) -> None:
    """``opencode run --attach`` stops reading when its POST is answered."""
    farm = Farm()
    async with gateway(tmp_path, farm) as one:
        sid = await one.new()
        reader = one.streams.open("event", str(one.workspace), "")
        await anext(reader)
        await one.queue(sid, "x")
        await settled(one)
        position = one.controller.log.position
        waiting = task(one.streams.flushed(position))
        await anext(reader)  # handed over, and not yet written: only the next call says so
        done, _ = await asyncio.wait([waiting], timeout=0.05)
        assert not done
        reading = task(anext(reader))
        await asyncio.wait_for(waiting, 1)
        reading.cancel()
        await asyncio.wait([reading])
        await reader.aclose()


async def test_a_stalled_stream_holds_answers_back_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "FLUSH", 0.05)
    farm = Farm()
    async with gateway(tmp_path, farm) as one:
        sid = await one.new()
        reader = one.streams.open("global", "", "")
        await anext(reader)
        await one.queue(sid, "x")
        await settled(one)
        await asyncio.wait_for(one.streams.flushed(one.controller.log.position), 1)
        monkeypatch.setattr(streams, "FLUSH", 60)
        await asyncio.wait_for(one.streams.flushed(one.controller.log.position), 1)
        await reader.aclose()


async def test_limits_and_malformed_cursors_are_said_before_the_stream_begins(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm(), max_subscribers=1) as one:
        for cursor in ("x", "1", "1.2.3.4.5", "1.2.x"):
            for path in ("/event", "/global/event"):
                answer = await one.http.get(path, params={"cursor": cursor})
                assert answer.status_code == 400 and "cursor" in answer.json()["data"]["message"]
                answer = await one.http.get(path, headers={"last-event-id": cursor})
                assert answer.status_code == 400
            with pytest.raises(ClientError):
                one.streams.open("global", "", cursor)


@pytest.mark.parametrize("whose", ["the adapter's", "the log's"])
async def test_one_stream_too_many_is_refused_before_it_begins(tmp_path: Path, whose: str) -> None:
    farm = Farm()
    async with gateway(tmp_path, farm, max_subscribers=2, log={"max_subscribers": 2}) as one:
        sid = await one.new()
        await one.prompt(sid, "hello")
        one.streams._limit = 2 if whose == "the adapter's" else 100
        # opened, and not yet read; one of them gets a snapshot after a gap, which is no other subscription
        held = [one.streams.open("global", "", "0.1"), one.streams.open("event", str(one.workspace), "")]
        with pytest.raises(Limit):
            one.streams.open("global", "", "")
        for path in ("/event", "/global/event"):
            answer = await one.http.get(path)
            assert answer.status_code == 429 and answer.headers["content-type"] == "application/json"
            assert "close some" in answer.json()["data"]["message"]
        data = b""
        while b"server.gap" not in data:
            data += await asyncio.wait_for(anext(held[0]), 5)
        for each in held:
            await each.aclose()
        assert one.controller.log.subscribers == 0 and not one.streams._open
        again = one.read()  # there is room
        await again.until("server.connected")
        await again.close()


async def test_head_opens_no_stream(tmp_path: Path) -> None:
    async with gateway(tmp_path, Farm(), max_subscribers=1, log={"max_subscribers": 1}) as one:
        for _ in range(3):
            answer = await one.http.head("/event")
            assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
        assert one.controller.log.subscribers == 0
