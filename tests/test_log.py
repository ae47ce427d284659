"""The SessionLog: who reads what, in order, none twice, and who is told of a gap."""

import asyncio
from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.content import Text
from gateway.core.errors import ClientError, Limit
from gateway.core.events import MessageHeld, MessagePlaced, Record, TextDelta, ToolUpdated
from gateway.core.ids import MessageId, PartId, SessionId, StepId, TurnId
from gateway.core.model import Pending, SessionInfo, Source, ToolCall
from gateway.log import ENTRY_BYTES, MERGE_FROM, STALE, Batch, Closed, Entry, SessionLog, Subscription, merge

A, B, C = SessionId("ses_a"), SessionId("ses_b"), SessionId("ses_c")
Item = tuple[Record, SessionInfo, Pending | None]


def info(session: SessionId) -> SessionInfo:
    return SessionInfo(id=session, root_id=session, cwd="/", created=1, updated=1)


def delta(session: SessionId, text: str, part: str = "p", raw: bytes | None = None) -> Item:
    source = None if raw is None else Source("acp1", msgspec.Raw(raw))
    event = TextDelta(PartId(f"{part}_{session}"), "m", StepId("s"), "agent", text, source)
    return Record(session, 0, 1, 1, event), info(session), None


def other(session: SessionId, why: str) -> Item:
    return Record(session, 1, 1, 1, MessageHeld(MessageId("m"), why)), info(session), None


def text(entry: Entry) -> str:
    event = entry.record.event
    return event.text if isinstance(event, TextDelta) else event.why if isinstance(event, MessageHeld) else "?"


def read(subscription: Subscription, limit: int = 4096) -> list[tuple[int, str]] | str | None:
    batch = subscription.poll(limit)
    if batch is None:
        return None
    return "gap" if batch.gap else [(entry.pos, text(entry)) for entry in batch.entries]


async def steps(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# --- positions and cursors -----------------------------------------------------------------------------------------


def test_positions_count_publications_of_the_gateway() -> None:
    log = SessionLog(7)
    everything, of_a = log.subscribe(), log.subscribe({A})
    assert (log.position, log.cursor()) == (0, "7.0")
    log.publish([other(A, "1"), other(B, "2")])
    log.publish([])
    log.publish([other(A, "3")])
    assert log.cursor() == "7.3"
    assert log.cursor(2) == "7.2"
    assert (everything.pending(), of_a.pending()) == (3, 2)
    assert read(everything) == [(1, "1"), (2, "2"), (3, "3")]
    assert read(of_a) == [(1, "1"), (3, "3")]
    assert (everything.pending(), of_a.pending(), everything.position, of_a.position) == (0, 0, 3, 3)
    assert read(everything) is None


def test_an_entry_carries_what_an_encoder_needs() -> None:
    log = SessionLog(1)
    one, two = log.subscribe(), log.subscribe({A})
    message = Pending(MessageId("m"), (Text("x"),), (PartId("p"),), "m", "queue", 1, 1, MessageId("m"))
    log.publish([(Record(A, 1, 1, 1, MessagePlaced(MessageId("m"), 5)), info(A), message)])
    first, second = one.poll(), two.poll()
    assert first is not None and second is not None
    assert first.entries[0] is second.entries[0]
    assert (first.entries[0].info, first.entries[0].pending) == (info(A), message)
    first.entries[0].frames["wire"] = b"frame"
    assert second.entries[0].frames == {"wire": b"frame"}


def test_cursors() -> None:
    log = SessionLog(7)
    assert log.parse("7.12") == 12
    assert log.parse("6.12") is None
    assert (log.since("7.12"), log.since("6.12")) == (12, STALE)
    for bad in ("", "7", "7.", ".1", "7.-1", "7.1.2", "a.b", "7.٣", "7. 1", "7." + "1" * 50):
        with pytest.raises(ClientError, match="malformed cursor .*expected <epoch>.<position>") as error:
            log.parse(bad)
        assert error.value.status == 400


def test_going_on_after_a_position() -> None:
    log = SessionLog(1, max_entries=4)
    log.publish([other(A, str(n)) for n in range(1, 4)])
    assert read(log.subscribe(after=0)) == [(1, "1"), (2, "2"), (3, "3")]
    assert read(log.subscribe(after=2)) == [(3, "3")]
    assert read(log.subscribe(after=3)) is None
    assert read(log.subscribe()) is None
    assert read(log.subscribe(after=4)) == "gap"  # never was
    assert read(log.subscribe(after=STALE)) == "gap"
    log.publish([other(A, str(n)) for n in range(4, 6)])  # 1 falls out
    assert read(log.subscribe(after=0)) == "gap"
    assert read(log.subscribe(after=1)) == [(2, "2"), (3, "3"), (4, "4"), (5, "5")]


def test_after_a_gap_it_goes_on_live() -> None:
    log = SessionLog(1, max_entries=2)
    slow = log.subscribe({A})
    log.publish([other(A, str(n)) for n in range(1, 6)])
    log.publish([other(B, str(n)) for n in range(2)])
    assert slow.pending() == 7
    assert slow.poll() == Batch(True, [], 7)
    assert slow.poll() is None
    log.publish([other(A, "8")])
    assert read(slow) == [(8, "8")]


def test_at_most_so_many_a_read() -> None:
    log = SessionLog(1)
    everything, of_two = log.subscribe(), log.subscribe([A, B])
    picky = log.subscribe(lambda entry: text(entry) in "05")
    log.publish([other((A, B, C)[n % 3], str(n)) for n in range(7)])
    assert [read(everything, 3) for _ in range(4)] == [
        [(1, "0"), (2, "1"), (3, "2")],
        [(4, "3"), (5, "4"), (6, "5")],
        [(7, "6")],
        None,
    ]
    assert [read(of_two, 3) for _ in range(3)] == [[(1, "0"), (2, "1"), (4, "3")], [(5, "4"), (7, "6")], None]
    assert [read(picky, 2) for _ in range(3)] == [[(1, "0")], [(6, "5")], None]
    assert picky.position == 7


# --- waiting -------------------------------------------------------------------------------------------------------


async def test_a_read_waits_for_its_own_and_is_woken_once_a_publish() -> None:
    log = SessionLog(1)
    quiet, live = log.subscribe({A}), log.subscribe({B, C})
    async with asyncio.TaskGroup() as group:
        first, second = group.create_task(quiet.read()), group.create_task(live.read())
        await steps()
        log.publish([other(B, "1"), other(C, "2"), other(B, "3")])
        await steps()
        assert second.done() and not first.done()
        assert [text(entry) for entry in second.result().entries] == ["1", "2", "3"]
        log.publish([other(A, "4")])
    assert [text(entry) for entry in first.result().entries] == ["4"]


async def test_two_publications_before_the_reader_runs() -> None:
    log = SessionLog(1)
    for wanted in (None, {A}):
        reader = log.subscribe(wanted)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(reader.read())
            await steps()
            log.publish([other(A, "1")])
            log.publish([other(A, "2")])
        assert [text(entry) for entry in task.result().entries] == ["1", "2"]


async def test_a_quiet_session_is_no_gap_however_much_the_others_say() -> None:
    log = SessionLog(1, max_entries=8)
    quiet = log.subscribe({A})
    async with asyncio.TaskGroup() as group:
        task = group.create_task(quiet.read())
        await steps()
        log.publish([other(B, str(n)) for n in range(100)])
        log.publish([other(A, "mine")])
    assert [text(entry) for entry in task.result().entries] == ["mine"]


async def test_closing_wakes_the_reader() -> None:
    log = SessionLog(1)
    one, two = log.subscribe({A}), log.subscribe()
    tasks = [asyncio.get_running_loop().create_task(each.read()) for each in (one, two)]
    await steps()
    one.close()
    log.close()
    assert [type(found) for found in await asyncio.gather(*tasks, return_exceptions=True)] == [Closed, Closed]
    with pytest.raises(Closed):
        await one.read()
    assert (log._subscribers, log._waiting, log._waiting_for) == (set(), set(), {})


async def test_a_cancelled_read_loses_nothing_and_leaves_nothing() -> None:
    log = SessionLog(1)
    reader = log.subscribe({A})
    for published in ([], [other(A, "1")]):
        task = asyncio.get_running_loop().create_task(reader.read())
        await steps()
        log.publish(published)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert log._waiting_for == {}
    assert read(reader) == [(1, "1")]


async def test_one_task_reads_a_subscription() -> None:
    log = SessionLog(1)
    reader = log.subscribe()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reader.read())
        await steps()
        with pytest.raises(RuntimeError, match="two tasks"):
            await reader.read()
        log.publish([other(A, "1")])
    assert task.result().position == 1


def test_the_number_of_subscribers_is_limited() -> None:
    log = SessionLog(1, max_subscribers=2)
    first, _ = log.subscribe(), log.subscribe()
    with pytest.raises(Limit, match="2 streams are open"):
        log.subscribe()
    first.close()
    first.close()
    log.subscribe()


# --- the bounds ----------------------------------------------------------------------------------------------------


def test_the_tail_is_bounded_by_entries() -> None:
    log = SessionLog(1, max_entries=100)
    for n in range(1000):
        log.publish([other((A, B)[n % 7 == 0], str(n))])
        assert len(log._tail) <= 100
    assert len(log._tail) > 90
    assert sum(len(mine) for mine in log._of.values()) == len(log._tail)
    log.publish([other(C, str(n)) for n in range(200)])
    assert list(log._of) == [C]


def test_the_tail_is_bounded_by_bytes() -> None:
    log = SessionLog(1, max_bytes=100 * ENTRY_BYTES)
    for _ in range(200):
        log.publish([delta(A, "x" * 1000)])
        assert log._bytes == sum(entry.weight for entry in log._tail) <= 100 * ENTRY_BYTES
    call = ToolCall("c", PartId("p"), StepId("s"), TurnId("t"), 1, output={"text": "x" * 1_000_000})
    log.publish([(Record(A, 1, 1, 1, ToolUpdated(call)), info(A), None)])
    assert [entry.pos for entry in log._tail] == [201]  # the newest always stays
    assert log._bytes > 1_000_000


def test_an_event_that_cannot_be_weighed_changes_nothing() -> None:
    log = SessionLog(1)
    call = ToolCall("c", PartId("p"), StepId("s"), TurnId("t"), 1, output=object())
    with pytest.raises(TypeError):
        log.publish([other(A, "1"), (Record(A, 1, 1, 1, ToolUpdated(call)), info(A), None)])
    assert (log.position, log._tail, log._of, log._bytes) == (0, [], {}, 0)


# --- merging -------------------------------------------------------------------------------------------------------


def entries(*items: Item) -> list[Entry]:
    return [Entry(pos, *item, {}) for pos, item in enumerate(items, 1)]


def merged(*items: Item) -> list[tuple[int, str]]:
    return [(entry.pos, text(entry)) for entry in merge(entries(*items))]


def test_neighbouring_plain_deltas_of_a_part_are_one() -> None:
    assert merged() == []
    assert merged(delta(A, "a"), delta(A, "b"), delta(A, "c")) == [(3, "abc")]
    assert merged(delta(A, "a"), delta(A, "b", part="q"), delta(A, "c")) == [(1, "a"), (2, "b"), (3, "c")]
    assert merged(delta(A, "a"), delta(B, "b"), delta(A, "c")) == [(1, "a"), (2, "b"), (3, "c")]
    assert merged(delta(A, "a"), other(A, "!"), delta(A, "b"), delta(A, "c")) == [(1, "a"), (2, "!"), (4, "bc")]
    raw = delta(A, "r", raw=b"{}")
    assert merged(delta(A, "a"), raw, raw, delta(A, "b"), delta(A, "c")) == [(1, "a"), (2, "r"), (3, "r"), (5, "bc")]


def test_merging_leaves_the_shared_entries_alone() -> None:
    shared = entries(delta(A, "a"), delta(A, "b"), other(A, "!"))
    shared[1].frames["wire"] = b"b"
    found = merge(shared)
    assert found[0].frames == {}
    assert [text(entry) for entry in shared] == ["a", "b", "!"]
    assert found[1] is shared[2]


def test_only_a_reader_that_lags_gets_merged_deltas() -> None:
    log = SessionLog(1)
    reader = log.subscribe()
    log.publish([delta(A, "x") for _ in range(MERGE_FROM)])
    assert read(reader) == [(n, "x") for n in range(1, MERGE_FROM + 1)]
    log.publish([delta(A, "x") for _ in range(MERGE_FROM + 1)])
    assert read(reader) == [(2 * MERGE_FROM + 1, "x" * (MERGE_FROM + 1))]


# --- any interleaving ----------------------------------------------------------------------------------------------

sessions = st.sampled_from([A, B, C])
published = st.tuples(sessions, st.booleans(), st.integers(1, 5)).map(
    lambda t: [(delta if t[1] else other)(t[0], "") for _ in range(t[2])]
)
actions = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.lists(published, max_size=3)),
        st.tuples(st.just("burst"), st.integers(65, 90)),
        st.tuples(st.just("start"), st.integers(0, 3)),
        st.tuples(st.just("poll"), st.integers(0, 3)),
        st.tuples(st.just("cancel"), st.integers(0, 3)),
        st.tuples(st.just("reconnect"), st.integers(0, 3)),
        st.tuples(st.just("run"), st.just(0)),
    ),
    max_size=60,
)
FILTERS = (None, {A}, {A, B}, lambda entry: entry.record.session_id != B)


def relevant(which: int, item: tuple[SessionId, str]) -> bool:
    return item[0] in ({A, B, C}, {A}, {A, B}, {A, C})[which]


class Reader:
    """Checks each batch against what was published; resumes where a client would, from the last entry's cursor."""

    def __init__(self, log: SessionLog, which: int, all: list[tuple[SessionId, str]]) -> None:
        self.log, self.which, self.all = log, which, all
        self.subscription = log.subscribe(FILTERS[which])  # type: ignore[arg-type]
        self.task: asyncio.Task[Batch] | None = None
        self.seen = 0  # everything of its own up to here was read, or was announced as a gap

    def took(self, batch: Batch) -> None:
        if batch.gap:
            assert not batch.entries
            assert batch.position >= self.seen
            self.seen = batch.position
            return
        assert batch.entries
        for entry in batch.entries:
            own = [one for one in self.all[self.seen : entry.pos] if relevant(self.which, one)]
            assert {session for session, _ in own} == {entry.record.session_id}
            assert "".join(said for _, said in own) == text(entry)  # in order, none twice, none missing
            self.seen = entry.pos
        assert batch.position >= self.seen

    def finish(self) -> None:
        if self.task is not None and self.task.done():
            if not self.task.cancelled():
                self.took(self.task.result())
            self.task = None

    async def act(self, kind: str, limit: int) -> None:
        self.finish()
        if kind == "start" and self.task is None:
            self.task = asyncio.get_running_loop().create_task(self.subscription.read(limit))
        elif kind == "poll" and self.task is None:
            batch = self.subscription.poll(limit)
            if batch is not None:
                self.took(batch)
        elif kind == "cancel" and self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
            self.finish()
        elif kind == "reconnect" and self.task is None:
            self.subscription.close()
            after = self.log.since(self.log.cursor(self.seen))
            self.subscription = self.log.subscribe(FILTERS[self.which], after=after)  # type: ignore[arg-type]


def numbered(items: Iterable[Item], all: list[tuple[SessionId, str]]) -> list[Item]:
    """Give each item its own text, so that none can be mistaken for another."""
    made = []
    for record, about, _ in items:
        said = f"{len(all)},"
        make = delta if isinstance(record.event, TextDelta) else other
        all.append((about.id, said))
        made.append(make(about.id, said))
    return made


@settings(max_examples=300, deadline=None)
@given(actions, st.sampled_from([4, 20, 100, 1000]), st.sampled_from([1, 2, 70, 4096]))
def test_any_reader_saw_what_was_published(story: list[tuple[str, object]], max_entries: int, limit: int) -> None:
    async def run() -> None:
        log = SessionLog(3, max_entries=max_entries)
        all: list[tuple[SessionId, str]] = []
        readers = [Reader(log, which, all) for which in range(4)]
        for kind, argument in story:
            if kind == "publish":
                log.publish(numbered((item for items in argument for item in items), all))  # type: ignore[attr-defined]
            elif kind == "burst":
                log.publish(numbered([delta(A, "")] * argument, all))  # type: ignore[operator]
            elif kind == "run":
                await steps()
            else:
                await readers[argument].act(kind, limit)  # type: ignore[index]
            assert log.position == len(all)
        await steps()
        for reader in readers:
            await reader.act("cancel", limit)
            while reader.subscription.pending():
                await reader.act("poll", limit)
            assert not [one for one in all[reader.seen :] if relevant(reader.which, one)]
        log.close()

    asyncio.run(run())
