"""Snapshots: what new readers and those who missed something are shown; how large, how often made, and when cut."""

import asyncio
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from adapters.opencode import snapshot, snapshots
from adapters.opencode.translate_messages import Messages
from gateway.core.events import Record, SessionDeleted
from gateway.core.ids import SessionId
from gateway.core.inputs import AgentText
from gateway.core.model import SessionInfo
from gateway.store import Store as Database
from gateway.store_writer import Commit
from tests.fake_port import Farm
from tests.opencode.support import Gateway, Reader, Store, frames, gateway, place, task
from tests.opencode.test_stream import end, fold, rising, settled

MB = 1 << 20


async def said(one: Gateway, farm: Farm, sid: str, *texts: str) -> None:
    """A turn for each text."""
    for number, text in enumerate(texts):
        await one.queue(sid, f"prompt {number}")
        await settled(one)
        farm.port.tell(AgentText(role="agent", text=text))
        end(farm)
        await settled(one)


async def opened(one: Gateway, farm: Farm, sid: str, text: str) -> None:
    """A turn that runs, with an open text."""
    await one.queue(sid, "go on")
    await settled(one)
    farm.port.tell(*[AgentText(role="agent", text=text[at : at + 1000]) for at in range(0, len(text), 1000)])
    await settled(one)


def size(reader: Reader) -> int:
    return sum(len(str(event)) for _, event in reader.seen)


def texts(store: Store) -> set[str]:
    return {part["text"] for parts in store.part.values() for part in parts if part["type"] == "text"}


@pytest.mark.parametrize("kind", ["event", "global"])
@pytest.mark.parametrize("missed", [False, True])
async def test_large_messages_that_are_complete_are_left_out_and_what_runs_is_whole(
    tmp_path: Path, kind: Any, missed: bool
) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        sid = await one.new()
        await said(one, farm, sid, "a" * 2 * MB, "small", "b" * 2 * MB)
        running = "".join(f"word {n} ä\n" for n in range(130_000))
        assert len(running) > MB
        await opened(one, farm, sid, running)
        reader = one.read("0.1" if missed else "", kind)
        await reader.now()
        rising(reader)
        assert size(reader) < 3 * MB
        assert max(len(str(event)) for _, event in reader.seen) < MB // 4
        store = Store().feed(*deepcopy([event for _, event in reader.seen]))
        found = texts(store)
        assert running in found  # whole, and only so
        assert not any(text and running.startswith(text) and text != running for text in found)
        assert not any(text.startswith(("aa", "bb")) for text in found)
        if kind == "global" or missed:
            assert "small" in found
            assert [info["id"] for info in store.message[sid]] == [m["info"]["id"] for m in await one.messages(sid)]
        end(farm)
        await settled(one)
        await reader.now()
        assert running in texts(Store().feed(*[event for _, event in reader.seen]))
        await reader.close()


async def test_a_snapshot_is_limited_in_all_the_newest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "BYTES", 100_000)
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        sids = [await one.new() for _ in range(3)]
        for sid in sids:
            await said(one, farm, sid, *[f"{sid} {n} ".ljust(9_000, "x") for n in range(6)])
        reader = one.read()
        await reader.now()
        found = texts(Store().feed(*[event for _, event in reader.seen]))
        told = sorted(text.split()[1] for text in found if text.startswith(sids[2]))
        assert told == [str(n) for n in range(6)]  # the newest session has all of its own
        assert any(text.startswith(f"{sids[1]} 5") for text in found)
        assert not any(text.startswith(sids[0]) for text in found)
        assert 90_000 < size(reader) < 150_000
        await reader.close()


async def test_readers_at_one_place_share_what_is_encoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    item = Messages.item

    def counted(self: Messages, info: Any, one: Any) -> Any:
        made.append(info.id)
        return item(self, info, one)

    monkeypatch.setattr(Messages, "item", counted)
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        sid = await one.new()
        await said(one, farm, sid, *["x" * 100_000] * 5)
        made.clear()
        readers = [one.read() for _ in range(20)]
        for reader in readers:
            await reader.now()
        assert len(made) == 10  # five prompts, five answers
        assert all(reader.seen[1:] == readers[0].seen[1:] for reader in readers)
        for reader in readers:
            await reader.close()


async def test_others_are_served_between_the_pieces_and_a_stalled_reader_holds_one(tmp_path: Path) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        sid = await one.new()
        await said(one, farm, sid, *["x" * 900_000] * 8)
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = task(other())
        source = one.streams.open("global", "", "")
        whole = b""
        while source.stream.written < 0:
            before = turns
            reading = task(anext(source))
            await asyncio.wait([reading], timeout=0.5)
            if not reading.done():
                reading.cancel()
                break
            assert len(reading.result()) <= snapshots.PIECE
            assert len(whole) < 1000 or turns > before
            whole += reading.result()
        assert len(whole) > 7_000_000 and len(list(frames(whole))) > 24
        beside.cancel()
        await asyncio.wait([beside])
        await source.aclose()
        stalled = []
        for _ in range(30):  # each at a place of its own
            await one.queue(sid, "more")
            await settled(one)
            stalled.append(one.streams.open("global", "", ""))
            for _ in range(4):
                assert len(await anext(stalled[-1])) <= snapshots.PIECE
        assert one.streams._snapshots._bytes <= snapshots.CACHE
        assert len(one.streams._snapshots._kept) <= snapshots.KEEP
        for source in stalled:
            await source.aclose()


async def test_nothing_is_made_for_a_reader_that_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        sid = await one.new()
        await said(one, farm, sid, *["x" * 500_000] * 8)
        made: list[int] = []
        item = Messages.item
        monkeypatch.setattr(Messages, "item", lambda self, info, x: made.append(1) or item(self, info, x))
        source = one.streams.open("global", "", "")
        await source.aclose()  # before the first frame
        assert not made and not one.streams._open and one.controller.log.subscribers == 0
        source = one.streams.open("global", "", "")
        await anext(source)
        await anext(source)
        await source.aclose()
        assert len(made) <= 3


# --- cut -------------------------------------------------------------------------------------------------------------


async def cut(one: Gateway, cursor: str, count: int) -> list[tuple[str, dict[str, Any]]]:
    """The first ``count`` frames of a connection, or what there is."""
    source = one.streams.open("global", "", cursor)
    data, seen = b"", []
    while len(seen) < count:
        reading = task(anext(source))
        while not reading.done() and source.stream.written < one.controller.log.position:
            await asyncio.sleep(0)
        if not reading.done():
            reading.cancel()
            await asyncio.wait([reading])
            break
        data += reading.result()
        at = data.rfind(b"\n\n") + 2 if b"\n\n" in data else 0
        seen = list(frames(data[:at])) if at else []
    await source.aclose()
    return seen[:count]


@pytest.mark.parametrize("moving", [False, True])
async def test_cut_every_seven_frames_it_gets_to_the_end_with_rising_ids(tmp_path: Path, moving: bool) -> None:
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        sid, other = await one.new(), await one.new()
        await said(one, farm, sid, *[f"answer {n}" for n in range(20)])
        await opened(one, farm, sid, "x" * 5000)
        seen: list[tuple[str, dict[str, Any]]] = []
        cursor, connections = "", 0
        while True:
            some = await cut(one, cursor, 7)
            connections += 1
            assert connections < 100, "no progress"
            assert not cursor or place(some[0][0]) >= place(cursor)
            seen += some if not cursor else some[1:]
            cursor = seen[-1][0]
            if len(some) < 7:
                break
            if moving:
                await one.http.patch(f"/session/{other}", json={"title": f"title {connections}"})
        places = [place(at) for at, _ in seen]
        assert places == sorted(set(places))
        assert [event["type"] for _, event in seen].count("server.connected") == 1
        assert "server.gap" not in [event["type"] for _, event in seen]
        assert Store().feed(*[event for _, event in seen]).messages(sid) == await one.messages(sid)


async def test_a_snapshot_that_is_not_kept_any_more_begins_anew_with_greater_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "KEEP", 1)
    farm = Farm(auto_answer=False)
    async with gateway(tmp_path, farm) as one:
        sid = await one.new()
        await said(one, farm, sid, *[f"answer {n}" for n in range(5)])
        some = await cut(one, "", 9)
        other = one.read(kind="event")  # takes the only place
        await other.now()
        again = one.read(some[-1][0])
        events = await again.now()
        assert [event["type"] for event in events[:2]] == ["server.connected", "server.gap"]
        assert place(again.seen[0][0]) > place(some[-1][0])
        rising(again)
        await fold(one, again, sid)
        await other.close()
        await again.close()


async def test_ids_rise_over_a_restart(tmp_path: Path) -> None:
    farm = Farm()
    async with gateway(tmp_path, farm) as one:
        sid = await one.new()
        await one.prompt(sid, "hello")
        reader = one.read()
        await reader.now()
        last = reader.seen[-1][0]
        await reader.close()
    async with gateway(tmp_path, Farm()) as one:
        assert one.controller.log.position == 0
        some = await cut(one, last, 4)
        assert place(last) < place(some[0][0])
        rest = one.read(some[-1][0])
        await rest.now()
        seen = [*some, *rest.seen[1:]]
        places = [place(at) for at, _ in seen]
        assert places == sorted(set(places))
        assert Store().feed(*[event for _, event in seen]).messages(sid) == await one.messages(sid)
        await rest.close()


# --- what vanished ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("how", ["restart", "overflow"])
async def test_revoked_messages_and_deleted_sessions_are_told_after_a_gap(
    tmp_path: Path, how: str, resumed: bool
) -> None:
    farm = Farm(auto_answer=False)
    store = Store()
    bounds = {"max_entries": 20}
    async with gateway(tmp_path, farm, log=bounds) as one:
        gone, child, sid, alone = [await one.new() for _ in range(4)]
        await said(one, farm, sid, "x")
        await opened(one, farm, sid, "working")
        await one.queue(sid, "to be revoked", messageID="msg_revoked")
        answer = await one.prompt(alone, "the only one", messageID="msg_only", noReply=True)
        assert answer.status_code == 200
        reader = one.read()
        await reader.now()
        store.feed(*[event for _, event in reader.seen])
        assert "msg_revoked" in [info["id"] for info in store.message[sid]] and gone in store.session
        cursor = reader.seen[-1][0]
        await reader.close()
        assert (await one.http.delete(f"/session/{sid}/message/msg_revoked")).json() is True
        assert (await one.http.delete(f"/session/{alone}/message/msg_only")).json() is True
        for each in (gone, child):
            assert (await one.http.delete(f"/session/{each}")).json() is True
        end(farm)
        await settled(one)
        if how == "overflow":
            for n in range(30):
                await one.http.patch(f"/session/{sid}", json={"title": f"title {n}"})
            await shown(one, store, cursor if resumed else "", sid, alone, (gone, child))
    if how == "restart":
        async with gateway(tmp_path, Farm(), log=bounds) as one:
            assert not one.controller.live
            await shown(one, store, cursor if resumed else "", sid, alone, (gone, child))


async def shown(one: Gateway, store: Store, cursor: str, sid: str, alone: str, gone: tuple[str, ...]) -> None:
    again = one.read(cursor)
    await again.now()
    assert ("server.gap" in [event["type"] for _, event in again.seen]) is bool(cursor)
    store.feed(*[event for _, event in again.seen])
    assert store.messages(sid) == await one.messages(sid)
    assert store.messages(alone) == []
    assert set(store.session) == {sid, alone}
    Store().feed(*[event for _, event in again.seen])  # nobody is stopped by it
    await again.close()


async def test_deleted_while_a_snapshot_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the answer of the store and the plan."""
    async with gateway(tmp_path, Farm()) as one:
        sid, gone = await one.new(), await one.new()
        deleted = one.controller.store.deleted

        async def late() -> Any:
            found = await deleted()
            await one.controller.delete(gone)  # type: ignore[arg-type]
            return found

        monkeypatch.setattr(one.controller.store, "deleted", late)
        reader = one.read()
        events = await reader.now()
        assert gone in [e["properties"]["sessionID"] for e in events if e["type"] == "session.deleted"]
        assert set(Store().feed(*events).session) == {sid}
        await reader.close()


async def test_the_store_remembers_the_last_500_deletions(tmp_path: Path) -> None:
    store = Database.open(f"sqlite:///{tmp_path / 'one.db'}")
    infos = [SessionInfo(SessionId(f"ses_{n:03}"), SessionId("ses_000"), f"/w/{n}", 1, 1) for n in range(510)]
    root = infos[0].id
    await store.commit(Commit(root, (), tuple(infos)))
    for some in (infos[:300], infos[300:]):
        gone = tuple(Record(i.id, 1, 7 + (i is not infos[0]), 1, SessionDeleted(i)) for i in some)
        await store.commit(Commit(root, gone, deleted=tuple(i.id for i in some)))
    for _ in range(2):
        found = await store.deleted()
        assert found == [(i.id, i.cwd, 8) for i in infos[:9:-1]]
        await store.close()
        store = Database.open(f"sqlite:///{tmp_path / 'one.db'}")
    await store.close()
