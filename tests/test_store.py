"""The store: what is promised about order, uniqueness, wholeness and the disk."""

import asyncio
import itertools
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine

from gateway import migrations
from gateway.core.errors import StoreError, Unstorable
from gateway.core.events import AgentUpdated, MessageHeld, PartEnded, PlanUpdated, Record, SessionUpdated
from gateway.core.ids import MessageId, PartId, SessionId, StepId
from gateway.core.model import By, SessionInfo, Source
from gateway.migrations.schema import metadata
from gateway.store import Store
from gateway.store_writer import Commit, Taken, Writer

ROOT = SessionId("ses_root")
OTHER = SessionId("ses_other")


def info(
    id: str = ROOT, *, root: str | None = None, parent: str | None = None, at: int = 1, **more: object
) -> SessionInfo:
    fields = {"cwd": "/work", "created": at, "updated": at} | more
    return SessionInfo(
        id=SessionId(id),
        root_id=SessionId(root or id),
        parent_id=None if parent is None else SessionId(parent),
        **fields,  # type: ignore[arg-type]
    )


def record(seq: int, session: str = ROOT, text: str = "why") -> Record:
    return Record(SessionId(session), seq, 1000 + seq, seq << 12, MessageHeld(MessageId(f"msg_{seq}"), text))


def commit(session: str = ROOT, *seqs: int, **more: object) -> Commit:
    fields = {"infos": (info(session),)} | more
    return Commit(SessionId(session), tuple(record(seq, session) for seq in seqs), **fields)  # type: ignore[arg-type]


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    store = Store.open("sqlite://")
    yield store
    await store.close()


async def outcomes(*futures: asyncio.Future[None]) -> list[object]:
    """None for stored; ``(id, owner)`` for Taken; StoreError for itself."""
    found = await asyncio.gather(*futures, return_exceptions=True)
    return [(e.id, e.session_id) if isinstance(e, Taken) else e if e is None else type(e) for e in found]


class Held:
    """Keeps the writer from its queue while the test fills it, so that what is in it becomes one group."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.groups: list[int] = []
        self.store = store
        transact = Writer._transact

        def spy(writer: Writer, group: list[object]) -> None:
            self.groups.append(len(group))
            transact(writer, group)  # type: ignore[arg-type]

        monkeypatch.setattr(Writer, "_transact", spy)

    async def together(self, *items: Commit) -> list[object]:
        """The outcomes of these commits, made in one group."""
        blocker = sqlite3.connect(self.store.path, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        first = self.store.save_snapshot([])  # the writer waits for the database with this one
        while self.store._writer.jobs.qsize():
            await asyncio.sleep(0)
        futures = [self.store.commit(item) for item in items]
        blocker.execute("ROLLBACK")
        blocker.close()
        await first
        found = await outcomes(*futures)
        assert self.groups[-1] == len(items)
        return found


@pytest.fixture
def held(store: Store, monkeypatch: pytest.MonkeyPatch) -> Held:
    return Held(store, monkeypatch)


# --- what goes in comes out ----------------------------------------------------------------------------------------


async def test_records_come_back_as_they_were(store: Store) -> None:
    raw = Source("acp1", msgspec.Raw(b'{"sessionUpdate":"x","n":1.50}'))
    by = By("ada", "opencode", "c1")
    records = (
        Record(ROOT, 1, 5, 6, PlanUpdated(entries=[{"a": None}], source=raw), by),
        Record(ROOT, 2, 5, 7, PartEnded(PartId("prt_1"), "m", StepId("s"), "agent", "té\n\0x", 1, 2)),
        Record(ROOT, 3, 5, 8, AgentUpdated("new", {"deep": [1, 2.5, "x"]})),
        Record(ROOT, 4, 5, 9, SessionUpdated(info(title="T", mcp_servers=[{"env": {}}]))),
    )
    await store.commit(Commit(ROOT, records, (info(title="T"),)))
    assert await store.history(ROOT, 0, 10) == list(records)
    assert await store.history(ROOT, 1, 2) == list(records[1:3])
    assert await store.history(ROOT, 4, 2) == []
    (loaded,) = await store.load(ROOT)
    assert loaded.records == records
    assert loaded.info == info(title="T")
    assert (loaded.snapshot, loaded.snapshot_seq) == (None, 0)


async def test_a_raw_does_not_keep_the_body_it_was_decoded_from(store: Store) -> None:
    raw = msgspec.Raw(b'{"a":1}')
    await store.commit(Commit(ROOT, (Record(ROOT, 1, 1, 1, PlanUpdated([], source=Source("acp1", raw))),), (info(),)))
    (found,) = await store.history(ROOT, 0, 1)
    assert isinstance(found.event, PlanUpdated) and found.event.source is not None
    kept = found.event.source.raw
    assert bytes(kept) == b'{"a":1}'
    assert kept.copy() is kept  # a view would make a new one


async def test_a_tree_loads_from_any_of_its_sessions_root_first(store: Store) -> None:
    infos = (
        info("ses_c", root=ROOT, parent=ROOT, at=3),
        info(ROOT, at=2),
        info("ses_b", root=ROOT, parent=ROOT, at=3),
        info("ses_a", root=ROOT, parent="ses_b", at=4),
    )
    tree = [record(1), record(1, "ses_b"), record(1, "ses_c"), record(2), record(2, "ses_c"), record(1, "ses_a")]
    await store.commit(Commit(ROOT, tuple(tree), infos))
    await store.commit(commit(OTHER, 1))
    for id in (ROOT, "ses_a", "ses_c"):
        loaded = await store.load(SessionId(id))
        assert [one.info.id for one in loaded] == [ROOT, "ses_c", "ses_b", "ses_a"]
        assert [[r.seq for r in one.records] for one in loaded] == [[1, 2], [1, 2], [1], [1]]
    assert await store.load(SessionId("ses_unknown")) == ()


async def test_loading_begins_at_the_newest_snapshot(store: Store) -> None:
    await store.commit(commit(ROOT, 1, 2, 3))
    await store.save_snapshot([(ROOT, 2, b"two"), (OTHER, 1, b"of nobody")])
    await store.save_snapshot([(ROOT, 1, b"late")])
    (loaded,) = await store.load(ROOT)
    assert (loaded.snapshot, loaded.snapshot_seq, [r.seq for r in loaded.records]) == (b"two", 2, [3])
    await store.commit(commit(OTHER, 1))
    (loaded,) = await store.load(OTHER)
    assert loaded.snapshot is None


async def test_checkpoints_are_of_open_parts(store: Store) -> None:
    child = SessionId("ses_child")
    await store.commit(Commit(ROOT, (record(1),), (info(), info(child, root=ROOT, parent=ROOT))))
    await store.checkpoint([(ROOT, "prt_1", 0, "a"), (child, "prt_2", 0, "b")])
    await store.checkpoint([(ROOT, "prt_1", 1, "?"), (OTHER, "prt_3", 0, "of nobody")])
    await store.checkpoint([(ROOT, "prt_1", 1, "b")])  # the same piece again replaces it
    assert await store.checkpoints(ROOT) == {"prt_1": "ab", "prt_2": "b"}
    await store.commit(commit(ROOT, 2, ended_parts=("prt_1",)))
    assert await store.checkpoints(ROOT) == {"prt_2": "b"}


async def test_sessions_are_found(store: Store) -> None:
    await store.commit(
        Commit(
            ROOT,
            (),
            (
                info("ses_1", at=1, title="Größe 100%", cwd="/a"),
                info("ses_2", at=3, title="second", cwd="/a", archived=9),
                info("ses_3", at=2, root="ses_1", parent="ses_1", title="third"),
                info("ses_4", at=3, title="fourth"),
            ),
        )
    )

    async def found(**query: object) -> list[str]:
        return [one.id[4:] for one in await store.sessions(**query)]  # type: ignore[arg-type]

    assert await found() == ["4", "2", "3", "1"]
    assert await found(limit=2) == ["4", "2"]
    assert await found(roots=True) == ["4", "2", "1"]
    assert await found(parent_id=SessionId("ses_1")) == ["3"]
    assert await found(cwd="/a") == ["2", "1"]
    assert await found(start=3) == ["4", "2"]
    assert await found(archived=True) == ["2"]
    assert await found(archived=False, cwd="/a") == ["1"]
    assert await found(search="GRÖßE") == ["1"]
    assert await found(search="0%") == ["1"]
    assert await found(search="%o%") == []
    await store.commit(Commit(ROOT, (), (info("ses_1", at=9, title="new"),)))
    assert await found(search="NEW") == ["1"]
    assert (await found())[0] == "1"
    assert await store.info(SessionId("ses_1")) == info("ses_1", at=9, title="new")
    assert await store.info(ROOT) is None


async def test_unfinished_roots(store: Store) -> None:
    await store.commit(commit(OTHER, 1, busy=True))
    await store.commit(commit(ROOT, 1, busy=True))
    assert await store.unfinished() == [OTHER, ROOT]
    await store.commit(commit(OTHER, 2))
    assert await store.unfinished() == [ROOT]
    await store.commit(Commit(ROOT, (), deleted=(ROOT,), busy=True))
    assert await store.unfinished() == []


# --- unique ids ----------------------------------------------------------------------------------------------------


async def test_a_claim_is_for_one_commit_ever(store: Store) -> None:
    await store.commit(commit(ROOT, 1, claims=(("msg_1", ROOT), ("msg_1", ROOT))))
    assert await store.owner("msg_1") == ROOT
    assert await store.owner("msg_2") is None
    with pytest.raises(Taken, match="msg_1 is taken by ses_root") as taken:
        await store.commit(commit(OTHER, 1, claims=(("msg_2", OTHER), ("msg_1", OTHER))))
    assert (taken.value.id, taken.value.session_id) == ("msg_1", ROOT)
    with pytest.raises(Taken):
        await store.commit(commit(ROOT, 2, claims=(("msg_1", ROOT),)))
    with pytest.raises(Taken) as taken:
        await store.commit(commit(ROOT, 2, claims=(("msg_3", ROOT), ("msg_3", OTHER))))
    assert (taken.value.id, taken.value.session_id) == ("msg_3", ROOT)
    assert await store.info(OTHER) is None
    assert await store.owner("msg_2") is None
    assert len(await store.history(ROOT, 0, 10)) == 1


async def test_an_alias_is_of_one_session(store: Store) -> None:
    await store.commit(commit(ROOT, 1, aliases=(("agent", "a", ROOT), ("agent", "b", ROOT), ("agent", "a", ROOT))))
    await store.commit(commit(ROOT, 2, aliases=(("agent", "a", ROOT), ("thread", "b", OTHER))))
    assert await store.resolve("agent", "a") == ROOT
    assert await store.resolve("thread", "b") == OTHER
    assert await store.resolve("thread", "a") is None
    with pytest.raises(Taken) as taken:
        await store.commit(commit(OTHER, 1, aliases=(("agent", "c", OTHER), ("agent", "b", OTHER))))
    assert (taken.value.id, taken.value.session_id) == ("b", ROOT)
    assert await store.resolve("agent", "c") is None
    with pytest.raises(Taken) as taken:
        await store.commit(commit(ROOT, 3, aliases=(("agent", "d", ROOT), ("agent", "d", OTHER))))
    assert (taken.value.id, taken.value.session_id) == ("d", ROOT)


async def test_deleting_leaves_only_claims(store: Store) -> None:
    claims, alias = (("msg_1", ROOT),), (("agent", "a", ROOT),)
    await store.commit(commit(ROOT, 1, 2, claims=claims, aliases=alias))
    await store.commit(commit(OTHER, 1))
    await store.checkpoint([(ROOT, "prt_1", 0, "x")])
    await store.save_snapshot([(ROOT, 1, b"x")])
    await store.commit(commit(ROOT, 3, deleted=(ROOT,)))
    assert await store.load(ROOT) == ()
    assert await store.history(ROOT, 0, 9) == []
    assert await store.resolve("agent", "a") is None
    assert [one.id for one in await store.sessions()] == [OTHER]
    assert await store.owner("msg_1") == ROOT
    with sqlite3.connect(store.path) as database:
        for table in ("events", "snapshots", "checkpoints", "aliases", "sessions"):
            column = "id" if table == "sessions" else "session_id"
            assert database.execute(f"SELECT count(*) FROM {table} WHERE {column}=?", (ROOT,)).fetchone() == (0,)
    database.close()
    assert await outcomes(store.commit(commit(OTHER, 2, claims=(("msg_1", OTHER),)))) == [("msg_1", ROOT)]


# --- groups --------------------------------------------------------------------------------------------------------


async def test_one_of_a_group_fails_alone(store: Store, held: Held) -> None:
    await store.commit(commit(ROOT, 1, claims=(("msg_1", ROOT),), aliases=(("agent", "a", ROOT),)))
    found = await held.together(
        commit("ses_1", 1, claims=(("msg_2", SessionId("ses_1")),)),
        commit("ses_2", 1, claims=(("msg_1", SessionId("ses_2")),)),
        commit("ses_3", 1, claims=(("msg_2", SessionId("ses_3")),)),
        commit("ses_4", 1, aliases=(("agent", "a", SessionId("ses_4")),)),
        commit("ses_5", 2),
        commit("ses_1", 2),
        commit("ses_1", 2),
        commit("ses_1", 3, 5),
        commit("ses_1", 3),
    )
    taken = [("msg_1", ROOT), ("msg_2", "ses_1"), ("a", ROOT)]
    assert found == [None, *taken, StoreError, None, StoreError, StoreError, None]
    assert [one.id for one in await store.sessions()] == ["ses_1", ROOT]
    assert [r.seq for r in await store.history(SessionId("ses_1"), 0, 9)] == [1, 2, 3]


async def test_a_group_without_a_failure(store: Store, held: Held) -> None:
    items = [commit(f"ses_{n}", 1, 2, claims=((f"msg_{n}", SessionId(f"ses_{n}")),)) for n in range(20)]
    assert await held.together(*items) == [None] * 20
    assert len(await store.sessions()) == 20


async def test_a_deletion_keeps_its_place_in_the_group(store: Store, held: Held) -> None:
    await store.commit(commit(ROOT, 1))
    assert await held.together(commit(ROOT, 2, deleted=(ROOT,)), commit(ROOT, 1), commit(ROOT, 2)) == [None] * 3
    assert [r.seq for r in await store.history(ROOT, 0, 9)] == [1, 2]


async def test_a_row_after_a_deletion_in_the_same_group_stays(store: Store, held: Held) -> None:
    assert await held.together(commit(ROOT, deleted=(ROOT,)), commit(ROOT), commit(OTHER, 1)) == [None] * 3
    assert await store.info(ROOT) == info()


async def test_seqs_follow_across_a_restart(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/t.db"
    store = Store.open(url)
    await store.commit(commit(ROOT, 1, 2))
    await store.close()
    store = Store.open(url)
    for wrong in (1, 2, 4, 0):
        with pytest.raises(StoreError, match="repeat or leave a hole"):
            await store.commit(commit(ROOT, wrong))
    await store.commit(commit(ROOT, 3))
    await store.close()


async def test_what_cannot_be_encoded_is_an_error_of_that_commit(store: Store) -> None:
    bad = Record(ROOT, 1, 1, 1, AgentUpdated("x", object()))
    surrogate = commit(ROOT, 1, infos=(info(title="\ud800"),))
    huge = Commit(ROOT, (), (info(at=1 << 70),))
    found = await outcomes(
        store.commit(Commit(ROOT, (bad,))), store.commit(surrogate), store.commit(huge), store.commit(commit(ROOT, 1))
    )
    assert found == [Unstorable, Unstorable, StoreError, None]


Story = list[tuple[int, int, int | None, int | None, bool]]


def model(story: Story, prefix: str) -> tuple[list[Commit], list[object], dict[str, int]]:
    """Commits, and what becomes of them when they are done one after the other."""
    commits: list[Commit] = []
    expected: list[object] = []
    seqs: dict[str, int] = {}
    claimed: dict[str, str] = {}
    named: dict[str, str] = {}
    for who, step, claim, alias, delete in story:
        session = SessionId(f"ses_{prefix}_{who}")
        seq = seqs.get(session, 0) + step
        id, name = f"msg_{prefix}_{claim}", f"{prefix}_{alias}"
        more: dict[str, object] = {"deleted": (session,)} if delete else {}
        if claim is not None:
            more["claims"] = ((id, session),)
        if alias is not None:
            more["aliases"] = (("k", name, session),)
        commits.append(commit(session, seq, seq + 1, **more))
        if claim is not None and id in claimed:
            expected.append((id, claimed[id]))
        elif alias is not None and named.get(name, session) != session:
            expected.append((name, named[name]))
        elif step != 1:
            expected.append(StoreError)
        else:
            expected.append(None)
            seqs[session] = seq + 1
            if claim is not None:
                claimed[id] = session
            if alias is not None:
                named[name] = session
            if delete:
                del seqs[session]
                named = {key: owner for key, owner in named.items() if owner != session}
    return commits, expected, seqs


small = st.integers(0, 3)
ids = st.none() | st.integers(0, 20)
steps = st.sampled_from([1, 1, 1, 1, 1, 1, 0, 2])
counter = itertools.count()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(small, steps, ids, ids, st.sampled_from([False] * 9 + [True])), max_size=30))
def test_a_group_is_as_one_after_the_other(tmp_path: Path, story: Story) -> None:
    async def run() -> None:
        store = Store.open(f"sqlite:///{tmp_path}/t.db")
        try:
            commits, expected, seqs = model(story, str(next(counter)))
            assert await outcomes(*[store.commit(one) for one in commits]) == expected
            for session in {one.root_id for one in commits}:
                found = [r.seq for r in await store.history(session, 0, 1000)]
                assert found == list(range(1, seqs.get(session, 0) + 1))
        finally:
            await store.close()

    asyncio.run(run())


async def test_a_caller_that_gave_up_harms_nobody(store: Store) -> None:
    gone = store.commit(commit(ROOT, 1))
    gone.cancel()
    await store.commit(commit(ROOT, 2))
    assert len(await store.history(ROOT, 0, 9)) == 2


# --- the disk ------------------------------------------------------------------------------------------------------


def big(seq: int) -> Commit:
    return Commit(ROOT, (record(seq, text="x" * 200_000),), (info(title="big"),))


async def test_a_full_database_is_an_error_and_no_more(store: Store) -> None:
    await store.commit(commit(ROOT, 1))
    raw = store._writer._raw()
    (pages,) = raw.execute("PRAGMA page_count").fetchone()
    raw.execute(f"PRAGMA max_page_count={pages + 5}").fetchone()
    with pytest.raises(StoreError, match=r"memory\.db did not take .*full"):
        await store.commit(big(2))
    assert [r.seq for r in await store.history(ROOT, 0, 9)] == [1]
    assert await store.info(ROOT) == info()
    raw.execute("PRAGMA max_page_count=1000000").fetchone()
    await store.commit(big(2))
    assert len(await store.history(ROOT, 0, 9)) == 2


async def test_a_full_database_with_a_group(store: Store, held: Held) -> None:
    await store.commit(commit(ROOT, 1))
    raw = store._writer._raw()
    (pages,) = raw.execute("PRAGMA page_count").fetchone()
    raw.execute(f"PRAGMA max_page_count={pages + 5}").fetchone()
    small, large = await held.together(commit(OTHER, 1), big(2))
    assert large is StoreError
    stored = [r.seq for r in await store.history(OTHER, 0, 9)]
    assert stored == ([1] if small is None else [])
    raw.execute("PRAGMA max_page_count=1000000").fetchone()
    await store.commit(commit(OTHER, len(stored) + 1))
    await store.commit(big(2))


async def test_a_disk_that_takes_no_more(tmp_path: Path) -> None:
    """The file size limit of the process fails the write within COMMIT, as a full disk does."""
    store = Store.open(f"sqlite:///{tmp_path}/t.db")
    await store.commit(commit(ROOT, 1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = max(path.stat().st_size for path in tmp_path.iterdir())
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 4096, hard))
    try:
        found = await outcomes(store.commit(big(2)), store.commit(big(3)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert found == [StoreError, StoreError]
    assert [r.seq for r in await store.history(ROOT, 0, 9)] == [1]
    await store.commit(big(2))
    await store.close()
    store = Store.open(f"sqlite:///{tmp_path}/t.db")
    assert [r.seq for r in await store.history(ROOT, 0, 9)] == [1, 2]
    await store.close()


async def test_a_commit_that_fails_fails_its_group(store: Store, held: Held) -> None:
    def refuse() -> int:
        return 1  # SQLite makes a ROLLBACK of this COMMIT

    await store.commit(commit(ROOT, 1))
    raw = store._writer._raw()
    raw.execute("CREATE TABLE parent (id PRIMARY KEY)")
    raw.execute("CREATE TABLE child (id REFERENCES parent DEFERRABLE INITIALLY DEFERRED)")
    raw.execute("CREATE TRIGGER t AFTER INSERT ON ids WHEN NEW.id = 'bad' BEGIN INSERT INTO child VALUES (1); END")
    raw.execute("PRAGMA foreign_keys=ON")
    bad = commit(ROOT, 2, claims=(("bad", ROOT),))
    assert await held.together(commit(OTHER, 1), bad) == [StoreError, StoreError]
    assert [one.id for one in await store.sessions()] == [ROOT]
    assert await held.together(commit(OTHER, 1), commit(ROOT, 2)) == [None, None]


CHILD = """
import asyncio, sys
sys.path.insert(0, {tree!r})
from tests.test_store import commit, ROOT
from gateway.store import Store
async def main():
    store = Store.open({url!r})
    for seq in range(1, 100000):
        await store.commit(commit(ROOT, seq, claims=((f"msg_{{seq}}", ROOT),), busy=True))
        print(seq, flush=True)
asyncio.run(main())
"""


async def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/t.db"
    code = CHILD.format(url=url, tree=str(Path(__file__).parents[1]))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        seen = [int(next(child.stdout)) for _ in range(40)]
        with pytest.raises(StoreError, match=f"in use by another gateway \\(pid {child.pid}\\)"):
            Store.open(url)
        os.kill(child.pid, signal.SIGKILL)
        seen += [int(line) for line in child.stdout if line.endswith("\n")]
    store = Store.open(url)
    assert store.epoch == 2
    stored = [r.seq for r in await store.history(ROOT, 0, 1_000_000)]
    assert stored[: len(seen)] == seen
    assert len(seen) <= len(stored) <= len(seen) + 1
    assert await store.owner(f"msg_{seen[-1]}") == ROOT
    assert await store.unfinished() == [ROOT]
    await store.close()


# --- opening and closing -------------------------------------------------------------------------------------------


async def test_the_epoch_rises(tmp_path: Path) -> None:
    epochs = []
    for _ in range(3):
        store = Store.open(f"sqlite:///{tmp_path}/t.db")
        epochs.append(store.epoch)
        await store.close()
    assert epochs == [1, 2, 3]


async def test_close_stores_what_waits_and_then_all_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new/dir/t.db"
    store = Store.open(url)
    waiting = [store.commit(commit(ROOT, seq)) for seq in range(1, 20)]
    await store.close()
    await store.close()
    await asyncio.gather(*waiting)
    with pytest.raises(StoreError, match="closed"):
        await store.commit(commit(ROOT, 20))
    with pytest.raises(StoreError, match="closed"):
        await store.history(ROOT, 0, 1)
    assert sorted(path.name for path in (tmp_path / "new/dir").iterdir()) == ["t.db", "t.db.lock"]
    assert (tmp_path / "new/dir/t.db").stat().st_mode & 0o077 == 0
    store = Store.open(url)
    assert len(await store.history(ROOT, 0, 100)) == 19
    await store.close()


async def test_memory_leaves_nothing(store: Store) -> None:
    folder = store.path.parent
    assert folder.exists()
    await store.close()
    assert not folder.exists()


async def test_one_gateway_a_database(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/t.db"
    store = Store.open(url)
    with pytest.raises(StoreError, match=f"{tmp_path}/t.db is in use by another gateway \\(pid {os.getpid()}\\)"):
        Store.open(url)
    await store.close()
    await Store.open(url).close()


def test_what_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is no database at all, " * 100)
    with pytest.raises(StoreError, match=r"cannot open .*text\.db: file is not a database"):
        Store.open(f"sqlite:///{tmp_path}/text.db")
    with pytest.raises(StoreError, match=r"cannot open .*text\.db/x\.db: "):
        Store.open(f"sqlite:///{tmp_path}/text.db/x.db")
    (tmp_path / "folder.db").mkdir()
    with pytest.raises(StoreError, match=r"cannot open .*folder\.db: Is a directory"):
        Store.open(f"sqlite:///{tmp_path}/folder.db")
    with pytest.raises(StoreError, match="unknown kind of database: 'postgresql'"):
        Store.open("postgresql://localhost/x")
    with pytest.raises(StoreError, match="not a database URL"):
        Store.open("nonsense")


async def test_a_newer_schema_is_refused_and_untouched(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/t.db"
    await Store.open(url).close()
    with sqlite3.connect(tmp_path / "t.db") as database:
        database.execute("UPDATE alembic_version SET version_num='9999'")
    with pytest.raises(StoreError, match="schema 9999 is unknown here .*needs a newer Trunkline"):
        Store.open(url)
    with pytest.raises(StoreError, match="schema 9999"):  # and it let go of the lock
        Store.open(url)
    assert database.execute("SELECT version_num FROM alembic_version").fetchone() == ("9999",)
    assert database.execute("SELECT value FROM meta").fetchone() == ("1",)
    database.close()


async def test_a_damaged_event_is_named(store: Store) -> None:
    await store.commit(commit(ROOT, 1, 2))
    with sqlite3.connect(store.path) as database:
        database.execute("UPDATE events SET body='{}' WHERE seq=2")
    database.execute("UPDATE sessions SET info='[]'")
    database.commit()
    database.close()
    with pytest.raises(StoreError, match="event 2 of session ses_root cannot be read"):
        await store.history(ROOT, 0, 9)
    with pytest.raises(StoreError, match="the info of session ses_root cannot be read"):
        await store.info(ROOT)


async def test_the_settings_of_the_connections(store: Store) -> None:
    raw = store._writer._raw()
    assert [raw.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")] == ["wal", 2]
    with pytest.raises(StoreError, match="readonly"):
        await store._read(lambda connection: connection.exec_driver_sql("DELETE FROM ids"))


def shape(path: Path) -> set[tuple[str, str, str]]:
    with sqlite3.connect(path) as database:
        rows = database.execute("SELECT type, name, sql FROM sqlite_master WHERE name != 'alembic_version'").fetchall()
    database.close()
    return {(kind, name, " ".join((sql or "").split())) for kind, name, sql in rows if "alembic" not in name}


async def test_migrating_gives_the_tables_of_the_schema(tmp_path: Path) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    await Store.open(f"sqlite:///{tmp_path}/a.db").close()
    made = create_engine(f"sqlite:///{tmp_path}/b.db")
    metadata.create_all(made)
    made.dispose()
    assert shape(tmp_path / "a.db") == shape(tmp_path / "b.db")
    engine = create_engine(f"sqlite:///{tmp_path}/a.db")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()


def test_head_is_the_newest_script() -> None:
    folder = Path(migrations.__file__).parent / "versions"
    assert max(path.name for path in folder.glob("*.py")).startswith(migrations.HEAD + "_")


def test_alembic_is_imported_only_to_migrate(tmp_path: Path) -> None:
    code = f"""
import asyncio, sys
from gateway.store import Store
asyncio.run(Store.open("sqlite:///{tmp_path}/t.db").close())
print("alembic" in sys.modules)
"""
    found = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        for _ in range(2)
    ]
    assert found == ["True", "False"]
