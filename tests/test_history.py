"""What the controller tells of committed events and of all sessions: pages that stay as they are."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.agents import AgentConfig
from gateway.controller import SessionController
from gateway.core import events as ev
from gateway.core.content import Text
from gateway.core.errors import NotFound
from gateway.core.ids import MessageId, SessionId
from gateway.core.inputs import AgentTool, PromptEnded
from gateway.log import SessionLog
from gateway.store import Store
from gateway.store_writer import Taken
from tests.fake_port import Farm


@pytest.fixture
def farm() -> Farm:
    return Farm(auto_answer=False)


@pytest.fixture
async def controller(tmp_path: Path, farm: Farm) -> AsyncIterator[SessionController]:
    store = Store.open(f"sqlite:///{tmp_path / 'test.db'}")
    one = SessionController(store, SessionLog(store.epoch), {"fake": AgentConfig()}, farm, default_agent="fake")
    await one.start()
    yield one
    await one.close()
    await store.close()


async def test_pages_by_creation_stay_whatever_changes(controller: SessionController) -> None:
    made = [(await controller.create(cwd="/w", title=f"Number {n}")).id for n in range(5)]
    await controller.update(made[0], title="Changed")
    for ascending, whole in ((False, made[::-1]), (True, made)):
        seen: list[str] = []
        after: tuple[int, str] | None = None
        while page := await controller.page(limit=2, ascending=ascending, after=after):
            seen += [info.id for info in page]
            after = (page[-1].created, page[-1].id)
        assert seen == whole, "also of one millisecond"
    assert [i.id for i in await controller.page(limit=9, search="chan")] == [made[0]]
    assert await controller.page(limit=9, cwd="/other") == []


async def test_history_is_what_was_committed_and_an_unknown_session_has_none(controller: SessionController) -> None:
    info = await controller.create(cwd="/w")
    await controller.submit(info.id, (Text("x"),), if_idle="store")
    records = await controller.history(info.id, 0, 100)
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    assert await controller.history(info.id, 1, 1) == records[1:2]
    assert await controller.history(info.id, 1000, 5) == []
    with pytest.raises(NotFound):
        await controller.history(SessionId("ses_none"), 0, 5)


async def test_a_session_id_of_a_client_is_taken_once_and_for_ever(controller: SessionController) -> None:
    mine = SessionId("ses_mine")
    made = await asyncio.gather(
        *(controller.create(cwd="/w", session_id=mine) for _ in range(3)), return_exceptions=True
    )
    assert sorted(type(one).__name__ for one in made) == ["SessionInfo", "Taken", "Taken"]
    assert (await controller.info(mine)) is not None
    await controller.delete(mine)
    assert (await controller.info(mine)) is None
    with pytest.raises(Taken):
        await controller.create(cwd="/w", session_id=mine)


async def test_what_is_known_of_a_message_names_the_events_of_its_admission_and_delivery(
    controller: SessionController,
) -> None:
    info = await controller.create(cwd="/w")
    mine = MessageId("msg_mine")
    await controller.submit(info.id, (Text("x"),), message_id=mine)
    async with asyncio.timeout(10):
        while not (await controller.view(info.id)).known[mine].delivered_seq:
            await asyncio.sleep(0)
    known = (await controller.view(info.id)).known[mine]
    [admitted] = await controller.history(info.id, known.admitted_seq - 1, 1)
    [delivered] = await controller.history(info.id, known.delivered_seq - 1, 1)
    assert isinstance(admitted.event, ev.MessageAdmitted) and admitted.at == known.admitted_at
    assert isinstance(delivered.event, ev.MessageDelivered)


async def test_a_tool_is_called_when_it_works_and_again_when_its_input_is_another(
    controller: SessionController, farm: Farm
) -> None:
    info = await controller.create(cwd="/w")
    await controller.submit(info.id, (Text("x"),))
    async with asyncio.timeout(10):
        while not farm.prompts:
            await asyncio.sleep(0)
    tell = farm.port.tell
    tell(AgentTool(call_id="a", new=True, input={}))
    tell(AgentTool(call_id="a", title="named"))
    tell(AgentTool(call_id="a", status="in_progress", input={"n": 1}))
    tell(AgentTool(call_id="a", output="more"))
    tell(AgentTool(call_id="a", input={"n": 2}))
    tell(AgentTool(call_id="a", status="completed", input={"n": 2}))
    tell(AgentTool(call_id="b", new=True, input={"known": "at once"}))
    tell(AgentTool(call_id="c", new=True))
    offer = next(e for e in farm.port.effects if hasattr(e, "offer_id"))
    tell(PromptEnded(offer_id=offer.offer_id, outcome="cancelled"))
    await controller.wait(info.id)
    events = [record.event for record in await controller.history(info.id, 0, 1000)]
    told = [(e.call.call_id, e.called) for e in events if isinstance(e, ev.ToolUpdated)]
    assert told == [
        ("a", False),
        ("a", False),
        ("a", True),
        ("a", False),
        ("a", True),
        ("a", False),
        ("b", False),  # its input is known, and nothing runs yet
        ("c", False),
        ("b", True),
        ("c", True),
    ]
