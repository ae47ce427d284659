"""Ids over the wrap of their 48 bits (2028-10-17 20:04:31.872 UTC): what clients sort keeps its order."""

from pathlib import Path
from typing import Any

import pytest

from gateway.core.ids import SessionId
from gateway.core.inputs import AgentText, AgentTool
from tests.fake_port import Farm
from tests.opencode.support import Gateway, Store, gateway, key
from tests.opencode.test_stream import end, settled

WRAP = 27 * 2**36  # milliseconds


class Clock:
    """The gateway's clock, set by hand."""

    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock(WRAP - 50)


async def tell(one: Gateway, farm: Farm, clock: Clock, at: int, fact: Any) -> None:
    clock.now = at
    farm.port.tell(fact)
    await settled(one)


async def test_a_turn_that_streams_over_the_wrap(tmp_path: Path, clock: Clock) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm, clock=clock) as one:
        stream = one.read()
        await stream.now()
        sid = await one.new()
        await one.queue(sid, "before the wrap")
        await settled(one)
        call: dict[str, Any] = {"call_id": "c", "kind": "execute", "title": "make"}
        await tell(one, farm, clock, WRAP - 2, AgentText(role="thought", text="hm", agent_id="t1"))
        await tell(one, farm, clock, WRAP - 1, AgentText(role="agent", text="one", agent_id="m1"))
        await tell(one, farm, clock, WRAP, AgentText(role="agent", text=" more", agent_id="m1"))
        await tell(one, farm, clock, WRAP + 1, AgentTool(**call, new=True, input={"command": "make"}))
        await tell(one, farm, clock, WRAP + 2, AgentTool(call_id="c", status="completed"))
        await tell(one, farm, clock, WRAP + 3, AgentText(role="agent", text="two", agent_id="m2"))
        clock.now = WRAP + 4
        end(farm)
        await settled(one)
        clock.now = WRAP + 1000
        await one.queue(sid, "after the wrap")
        await settled(one)
        await tell(one, farm, clock, WRAP + 1001, AgentText(role="agent", text="three", agent_id="m3"))
        end(farm)
        await settled(one)

        listed = await one.messages(sid)
        assert [said(message) for message in listed] == [
            ["before the wrap"],
            ["step-start", "hm", "one more", "tool c", "step-finish"],
            ["step-start", "two", "step-finish"],
            ["after the wrap"],
            ["step-start", "three", "step-finish"],
        ]
        ids = [message["info"]["id"] for message in listed]
        assert ids != sorted(ids)  # it did wrap: they are in order by their times only
        for message in listed:
            parts = [part["id"] for part in message["parts"]]
            assert parts == sorted(parts) and len(set(parts)) == len(parts)
        assert [key(m["info"]) for m in listed] == sorted(key(m["info"]) for m in listed)
        # a client that keeps them by binary search has the same, live, in a snapshot, and after a restart
        events = await stream.now()
        assert Store().feed(*events).messages(sid) == listed
        await stream.close()
        again = one.read()
        assert Store().feed(*await again.now()).messages(sid) == listed
        await again.close()
    async with gateway(tmp_path, farm, clock=clock) as one:
        assert await one.messages(sid) == listed
        listed_sessions = (await one.http.get("/session")).json()
        assert [session["id"] for session in listed_sessions] == [sid]


async def test_a_part_that_was_opened_before_the_wrap_grows_after_it(tmp_path: Path, clock: Clock) -> None:
    """The first part of a message is the newest id there is; its step's end comes after the wrap."""
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm, clock=clock) as one:
        stream = one.read()
        await stream.now()
        clock.now = WRAP - 1
        sid = await one.new()
        await one.queue(sid, "x")
        await settled(one)
        await tell(one, farm, clock, WRAP - 1, AgentText(role="agent", text="a"))
        await tell(one, farm, clock, WRAP + 60_000, AgentText(role="agent", text="b"))
        end(farm)
        await settled(one)
        listed = await one.messages(sid)
        assert [said(message) for message in listed] == [["x"], ["step-start", "ab", "step-finish"]]
        parts = [part["id"] for part in listed[1]["parts"]]
        assert parts == sorted(parts) and parts[0].startswith("prt_fff") and parts[-1].startswith("prt_fff")
        assert Store().feed(*await stream.now()).messages(sid) == listed
        await stream.close()
        # sessions: the newest first, whatever their ids
        newest = await one.new()
        assert newest > sid
        sessions = (await one.http.get("/session")).json()
        assert [session["id"] for session in sessions] == [newest, sid]
        assert await one.controller.view(SessionId(sid))


def said(message: dict[str, Any]) -> list[str]:
    """Each part in a word: its text, its call, or its type."""
    found = []
    for part in message["parts"]:
        found.append(f"tool {part['callID']}" if part["type"] == "tool" else str(part.get("text", part["type"])))
    return found
