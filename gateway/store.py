"""The store: durable events, sessions, ids and aliases in SQLite, by SQLAlchemy Core and one writer thread.

Whatever waits for the writer goes into one transaction and one fsync; who waits is answered when it is on the disk.
Reads run beside it on their own connections. The store must not know what an event means: it keeps records in
their order, unique ids unique, and each commit whole.
"""

import asyncio
import fcntl
import os
import queue
import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from sqlalchemy import (
    ClauseElement,
    ColumnElement,
    Connection,
    Engine,
    LargeBinary,
    Select,
    bindparam,
    create_engine,
    delete,
    event,
    func,
    make_url,
    select,
    update,
)
from sqlalchemy.dialects.sqlite import dialect, insert
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.pool import NullPool, QueuePool

from gateway import migrations
from gateway.core.errors import StoreError
from gateway.core.events import Record
from gateway.core.ids import SessionId
from gateway.core.model import SessionInfo, Source
from gateway.migrations.schema import aliases, checkpoints, events, ids, meta, sessions, snapshots

T = TypeVar("T")
Row = tuple[Any, ...]

READERS = 4  # threads, each with a connection
BUSY_TIMEOUT = 5000  # ms; only a foreign program (a backup) can make us wait


class Taken(Exception):
    """An id or alias of a commit belongs to somebody already; nothing of the commit was stored."""

    def __init__(self, id: str, session_id: SessionId) -> None:
        super().__init__(f"{id} is taken by {session_id}")
        self.id = id
        self.session_id = session_id  # the owner


class Commit(msgspec.Struct, frozen=True):
    """What is stored together or not at all."""

    root_id: SessionId
    records: tuple[Record, ...]  # durable ones, of one root's sessions, each session's by rising ``seq``
    infos: tuple[SessionInfo, ...] = ()  # rows of sessions, new or newer
    claims: tuple[tuple[str, SessionId], ...] = ()  # ids unique in the gateway, each to be claimed by one commit ever
    aliases: tuple[tuple[str, str, SessionId], ...] = ()  # (kind, alias, session)
    deleted: tuple[SessionId, ...] = ()  # all but their claims goes
    ended_parts: tuple[str, ...] = ()  # checkpoints to delete
    busy: bool = False  # the root has a running turn or pending messages: see ``Store.unfinished``


class Loaded(msgspec.Struct, frozen=True):
    """One session of a tree."""

    info: SessionInfo
    snapshot: bytes | None
    snapshot_seq: int  # 0 without a snapshot
    records: tuple[Record, ...]  # after the snapshot, by seq


# --- statements ----------------------------------------------------------------------------------------------------


class Statement:
    """A Core statement, compiled once; ``row`` names its parameters in the order in which a row gives them.

    ``exact``: every row must have changed a row of the table, else the commit is refused.
    """

    def __init__(self, clause: ClauseElement, row: str, *, exact: bool = False) -> None:
        compiled: Any = clause.compile(dialect=dialect())
        self.sql = str(compiled)
        self.exact = exact
        assert compiled.positiontup == row.split(), (compiled.positiontup, row)


def _upsert_session() -> ClauseElement:
    """Root, parent and time of creation are for ever: naming them again would only rewrite their indexes."""
    fixed, changing = ("id", "root_id", "parent_id", "created"), ("cwd", "title", "updated", "archived", "info")
    new = insert(sessions).values({name: bindparam(name) for name in fixed + changing})
    return new.on_conflict_do_update(index_elements=["id"], set_={name: new.excluded[name] for name in changing})


def _upsert_alias() -> ClauseElement:
    new = insert(aliases).values(kind=bindparam("kind"), alias=bindparam("alias"), session_id=bindparam("session_id"))
    return new.on_conflict_do_update(
        index_elements=["kind", "alias"],
        set_={"session_id": new.excluded.session_id},
        where=aliases.c.session_id == new.excluded.session_id,
    )


def _upsert_checkpoint() -> ClauseElement:
    """Nothing for a session that is not (or no more) there: a late one leaves no orphan."""
    row = select(bindparam("part_id"), sessions.c.id, bindparam("text")).where(sessions.c.id == bindparam("session_id"))
    new = insert(checkpoints).from_select(["part_id", "session_id", "text"], row)
    return new.on_conflict_do_update(index_elements=["part_id"], set_={"text": new.excluded.text})


def _upsert_snapshot() -> ClauseElement:
    row = select(sessions.c.id, bindparam("seq"), bindparam("body", type_=LargeBinary())).where(
        sessions.c.id == bindparam("session_id")
    )
    new = insert(snapshots).from_select(["session_id", "seq", "body"], row)
    return new.on_conflict_do_update(
        index_elements=["session_id"],
        set_={"seq": new.excluded.seq, "body": new.excluded.body},
        where=snapshots.c.seq <= new.excluded.seq,
    )


def _set_busy() -> ClauseElement:
    busy = bindparam("is_busy", type_=sessions.c.busy.type)
    return update(sessions).values(busy=busy).where(sessions.c.id == bindparam("root"), sessions.c.busy != busy)


UPSERT_SESSION = Statement(_upsert_session(), "id root_id parent_id cwd title created updated archived info")
INSERT_EVENT = Statement(insert(events).values({c.name: bindparam(c.name) for c in events.c}), "session_id seq body")
INSERT_ID = Statement(insert(ids).values(id=bindparam("id"), session_id=bindparam("session_id")), "id session_id")
UPSERT_ALIAS = Statement(_upsert_alias(), "kind alias session_id", exact=True)
UPSERT_CHECKPOINT = Statement(_upsert_checkpoint(), "part_id text session_id")
UPSERT_SNAPSHOT = Statement(_upsert_snapshot(), "seq body session_id")
END_PART = Statement(delete(checkpoints).where(checkpoints.c.part_id == bindparam("part")), "part")
SET_BUSY = Statement(_set_busy(), "is_busy root is_busy")
DELETES = tuple(
    Statement(delete(column.table).where(column == bindparam("session")), "session")
    for column in (
        events.c.session_id,
        snapshots.c.session_id,
        checkpoints.c.session_id,
        aliases.c.session_id,
        sessions.c.id,
    )
)
# In this order the rows of many commits may be run statement by statement, instead of commit by commit: a checkpoint
# finds its session, the end of a part its checkpoint. Deletions are the exception (``Writer._all``).
ORDER = (
    UPSERT_SESSION,
    INSERT_EVENT,
    INSERT_ID,
    UPSERT_ALIAS,
    UPSERT_CHECKPOINT,
    UPSERT_SNAPSHOT,
    END_PART,
    SET_BUSY,
    *DELETES,
)

_encode = msgspec.json.Encoder().encode
_decode_record = msgspec.json.Decoder(Record).decode
_decode_info = msgspec.json.Decoder(SessionInfo).decode


class Job:
    """Rows to be written together or not at all, and who waits for them."""

    __slots__ = ("rows", "what", "loop", "future", "error")

    def __init__(self, what: str, rows: dict[Statement, list[Row]]) -> None:
        self.what = what
        self.rows = rows
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()
        self.error: Exception | None = None

    def resolve(self) -> None:
        if self.future.done():  # the caller gave up
            return
        if self.error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(self.error)


def _rows(commit: Commit) -> dict[Statement, list[Row]]:
    rows: dict[Statement, list[Row]] = {SET_BUSY: [(commit.busy, commit.root_id, commit.busy)]}
    if commit.records:
        rows[INSERT_EVENT] = [(r.session_id, r.seq, _encode(r)) for r in commit.records]
    if commit.infos:
        rows[UPSERT_SESSION] = [
            (i.id, i.root_id, i.parent_id, i.cwd, i.title.casefold(), i.created, i.updated, i.archived, _encode(i))
            for i in commit.infos
        ]
    if commit.claims:
        rows[INSERT_ID] = list(dict.fromkeys(commit.claims))
    if commit.aliases:
        rows[UPSERT_ALIAS] = list(commit.aliases)
    if commit.ended_parts:
        rows[END_PART] = [(part,) for part in commit.ended_parts]
    if commit.deleted:
        gone: list[Row] = [(session,) for session in commit.deleted]
        rows.update((statement, gone) for statement in DELETES)
    return rows


# --- the writer ----------------------------------------------------------------------------------------------------


class Refused(Exception):
    """A row of an ``exact`` statement changed nothing, or a seq does not follow; the message says which."""


class Writer(threading.Thread):
    """Owns the one connection that writes."""

    def __init__(self, connection: Connection, path: Path) -> None:
        # A daemon: a process that ends without ``close`` loses only what nobody was told is stored.
        super().__init__(name="store-writer", daemon=True)
        self.connection = connection
        self.path = path
        self.jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._seqs: dict[str, int] = {}  # the last stored seq of each session that was written since the start

    def run(self) -> None:
        running = True
        while running:
            waiting = [self.jobs.get()]
            try:
                while True:
                    waiting.append(self.jobs.get_nowait())
            except queue.Empty:
                pass
            group = [job for job in waiting if job is not None]
            running = len(group) == len(waiting)
            if group:
                self._transact(group)
                _answer(group)
        self.connection.close()

    def _transact(self, group: list[Job]) -> None:
        """One transaction; sets the ``error`` of each job that is not stored after it."""
        try:
            with self.connection.begin():
                if len(group) == 1:
                    self._run(group)  # the transaction is its savepoint
                else:
                    self._each(group)
        except Exception as error:
            self._seqs.clear()
            self._explain(group, error)

    def _each(self, group: list[Job]) -> None:
        # Each commit has its savepoint, but nearly always all succeed: so first all share one, statement by statement.
        # With a deletion in the group the order between commits matters.
        if not any(DELETES[0] in job.rows for job in group) and self._attempt(group) is None:
            return
        for job in group:
            error = self._attempt([job])
            if error is not None:
                job.error = self._why(job, error)

    def _attempt(self, jobs: list[Job]) -> Exception | None:
        """Run in a savepoint. Returns what went wrong, and then it is rolled back."""
        savepoint = self.connection.begin_nested()
        try:
            self._run(jobs)
        except Exception as error:
            savepoint.rollback()  # raises if SQLite already rolled the whole transaction back: then the group fails
            return error
        savepoint.commit()
        return None

    def _run(self, jobs: list[Job]) -> None:
        last: dict[str, int] = {}
        for statement in ORDER:
            rows = [row for job in jobs for row in job.rows.get(statement, ())]
            if rows:
                if statement is INSERT_EVENT:
                    last = self._follow(rows)
                self._execute(statement, rows)
        self._seqs.update(last)
        for job in jobs:
            for (session,) in job.rows.get(DELETES[0], ()):
                self._seqs.pop(session, None)

    def _follow(self, rows: list[Row]) -> dict[str, int]:
        """The last seq of each session of these events. Raises Refused for a repeat or a hole."""
        last: dict[str, int] = {}
        for session, seq, _ in rows:
            before = last.get(session) or self._seqs.get(session)
            if before is None:
                found = select(func.max(events.c.seq)).where(events.c.session_id == session)
                before = self.connection.scalar(found) or 0
            if seq != before + 1:
                raise Refused(f"seq {seq} of {session} after {before}")
            last[session] = seq
        return last

    def _execute(self, statement: Statement, rows: list[Row]) -> None:
        if len(rows) == 1:
            result = self.connection.exec_driver_sql(statement.sql, rows[0])
        else:
            result = self.connection.exec_driver_sql(statement.sql, rows)
        if statement.exact and result.rowcount != len(rows):
            raise Refused(f"{result.rowcount} of {len(rows)} rows: {statement.sql}")

    def _explain(self, group: list[Job], error: Exception) -> None:
        """The transaction failed: give its jobs their errors and leave the connection in order."""
        failure: Exception = self._store_error(error, "these changes")
        try:
            if self.connection.invalidated or self._raw().in_transaction:
                self.connection.invalidate()  # not even the rollback worked: connect again
            if len(group) == 1:
                with self.connection.begin():
                    failure = self._why(group[0], error)
        except SQLAlchemyError:
            pass  # the first error is the one to tell
        for job in group:
            job.error = job.error or failure

    def _why(self, job: Job, error: Exception) -> Exception:
        """The error of a commit that was rolled back, told from what is stored."""
        if isinstance(error, Refused | IntegrityError):
            mine: dict[Row, SessionId] = {}  # a commit may be at odds with itself
            for id, session in job.rows.get(INSERT_ID, ()):
                stored = self.connection.scalar(_owner(id))
                owner = stored or mine.setdefault((id,), session)
                if stored is not None or owner != session:
                    return Taken(id, SessionId(owner))
            for kind, alias, session in job.rows.get(UPSERT_ALIAS, ()):
                owner = self.connection.scalar(_named(kind, alias)) or mine.setdefault((kind, alias), session)
                if owner != session:
                    return Taken(alias, SessionId(owner))
            seqs = [(row[0], row[1]) for row in job.rows.get(INSERT_EVENT, ())]
            return StoreError(f"{job.what} has seqs {seqs} that repeat or leave a hole, a bug of the gateway ({error})")
        return self._store_error(error, job.what)

    def _store_error(self, error: Exception, what: str) -> StoreError:
        cause = error.orig if isinstance(error, DBAPIError) else error
        failure = StoreError(f"{self.path} did not take {what}: {cause}", path=str(self.path))
        failure.__cause__ = error
        return failure

    def _raw(self) -> Any:
        return self.connection.connection.dbapi_connection


def _answer(group: list[Job]) -> None:
    """Wake each event loop once."""
    loops: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in group:
        loops.setdefault(job.loop, []).append(job)
    for loop, jobs in loops.items():
        try:
            loop.call_soon_threadsafe(_resolve, jobs)
        except RuntimeError:
            pass  # this loop is closed: nobody waits


def _resolve(jobs: list[Job]) -> None:
    for job in jobs:
        job.resolve()


# --- opening -------------------------------------------------------------------------------------------------------


def _engine(path: Path, *, writer: bool) -> Engine:
    pool: dict[str, Any] = {"poolclass": NullPool} if writer else {"poolclass": QueuePool, "pool_size": READERS}
    engine = create_engine(f"sqlite:///{path}", connect_args={"check_same_thread": False}, **pool)

    @event.listens_for(engine, "connect")
    def connect(connection: Any, _: Any) -> None:
        # pysqlite's own transaction control commits behind our back and breaks savepoints: we say BEGIN ourselves.
        connection.isolation_level = None
        for pragma in (
            f"busy_timeout={BUSY_TIMEOUT}",
            "journal_mode=WAL",
            "synchronous=FULL",
            "foreign_keys=OFF",
            f"query_only={'OFF' if writer else 'ON'}",
        ):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writer else "BEGIN")

    return engine


def _lock(path: Path) -> int:
    """Take ``<db>.lock`` for as long as the returned descriptor is open; a dead process holds nothing."""
    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        pid = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise StoreError(
            f"{path} is in use by another gateway (pid {pid}): stop that one or give another database",
            path=str(path),
            pid=pid,
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def _prepare(connection: Connection) -> int:
    """The schema at head and a new epoch, in one transaction; returns the epoch."""
    with connection.begin():
        migrations.upgrade(connection)
        found = connection.scalar(select(meta.c.value).where(meta.c.key == "epoch"))
        epoch = int(found or 0) + 1
        new = insert(meta).values(key="epoch", value=str(epoch))
        connection.execute(new.on_conflict_do_update(index_elements=["key"], set_={"value": new.excluded.value}))
    return epoch


def _path(url: str) -> tuple[Path, bool]:
    """The database file, and whether it is a temporary one (``sqlite://``)."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise StoreError(f"not a database URL: {url!r}; expected sqlite:////absolute/path.db") from None
    if parsed.get_backend_name() != "sqlite":
        raise StoreError(f"unknown kind of database: {parsed.get_backend_name()!r}; expected sqlite:////absolute/path.db")
    if parsed.database in (None, "", ":memory:"):
        # Readers beside a writer need a file: so tests see what users see.
        return Path(tempfile.mkdtemp(prefix="trunkline-")) / "memory.db", True
    return Path(parsed.database or "").resolve(), False


# --- the store -----------------------------------------------------------------------------------------------------


class Store:
    """See the module. Made by ``open``; every coroutine raises StoreError when the database fails."""

    def __init__(self, path: Path, epoch: int, writer: Writer, readers: Engine, lock: int, temporary: bool) -> None:
        self.path = path
        self.epoch = epoch  # rises by one at each open
        self._writer = writer
        self._readers = readers
        self._lock = lock
        self._temporary = temporary
        self._threads = ThreadPoolExecutor(READERS, "store-reader")
        self._closed = False

    def __repr__(self) -> str:
        return f"<Store {self.path} epoch={self.epoch} waiting={self._writer.jobs.qsize()} closed={self._closed}>"

    @classmethod
    def open(cls, url: str) -> "Store":
        """Open ``sqlite:////absolute/path.db`` (made if absent), or ``sqlite://`` for one that ends with the store.

        Blocks for the migration if there is one. Raises StoreError when the file cannot be used, has a newer schema
        or belongs to a running gateway.
        """
        path, temporary = _path(url)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = _lock(path)
        except OSError as error:
            raise StoreError(f"cannot open {path}: {error.strerror}", path=str(path)) from error
        connection = None
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # what people said is for its owner only
            connection = _engine(path, writer=True).connect()
            epoch = _prepare(connection)
        except (OSError, SQLAlchemyError, migrations.UnknownVersion) as error:
            if connection is not None:
                connection.close()
            os.close(lock)
            raise _not_opened(path, error) from error
        writer = Writer(connection, path)
        writer.start()
        return cls(path, epoch, writer, _engine(path, writer=False), lock, temporary)

    async def close(self) -> None:
        """Store what waits, then close everything. May be called twice."""
        if self._closed:
            return
        self._closed = True
        self._writer.jobs.put(None)
        await asyncio.to_thread(self._finish)

    def _finish(self) -> None:
        self._writer.join()
        self._threads.shutdown()
        self._readers.dispose()
        if self._temporary:
            shutil.rmtree(self.path.parent, ignore_errors=True)
        os.close(self._lock)

    # --- writing: each call takes its place in the order at once; the future tells when it is on the disk

    def commit(self, commit: Commit) -> asyncio.Future[None]:
        """Store it whole. The future raises Taken, or StoreError; then nothing of it is stored."""
        return self._put(f"a commit of {commit.root_id}", lambda: _rows(commit))

    def checkpoint(self, texts: Sequence[tuple[SessionId, str, str]]) -> asyncio.Future[None]:
        """Keep the text so far of open parts: (session, part, whole text)."""
        return self._put("checkpoints", lambda: {UPSERT_CHECKPOINT: [(part, text, s) for s, part, text in texts]})

    def save_snapshot(self, items: Sequence[tuple[SessionId, int, bytes]]) -> asyncio.Future[None]:
        """Keep (session, seq, bytes): loading begins there. An older one than the stored one is dropped."""
        return self._put("snapshots", lambda: {UPSERT_SNAPSHOT: [(seq, body, s) for s, seq, body in items]})

    def _put(self, what: str, rows: Callable[[], dict[Statement, list[Row]]]) -> asyncio.Future[None]:
        job = Job(what, {})
        if self._closed:
            job.error = StoreError("the store is closed")
        else:
            try:
                job.rows = rows()
            except (TypeError, ValueError, msgspec.MsgspecError) as error:
                job.error = StoreError(f"{what} cannot be encoded: {error}")
        if job.error is None:
            self._writer.jobs.put(job)
        else:
            job.resolve()
        return job.future

    # --- reading

    async def load(self, session_id: SessionId) -> tuple[Loaded, ...]:
        """The whole tree of this session, root first, then by creation; empty if it is unknown."""
        return await self._read(lambda connection: _load(connection, session_id))

    async def checkpoints(self, root_id: SessionId) -> dict[str, str]:
        """The texts of the open parts of a tree, by part id."""
        found = select(checkpoints.c.part_id, checkpoints.c.text).join(
            sessions, sessions.c.id == checkpoints.c.session_id
        )
        rows = await self._rows(found.where(sessions.c.root_id == root_id))
        return {part: text for part, text in rows}

    async def sessions(
        self,
        *,
        roots: bool = False,
        cwd: str | None = None,
        search: str | None = None,
        start: int | None = None,
        archived: bool | None = None,
        limit: int | None = None,
        parent_id: SessionId | None = None,
    ) -> list[SessionInfo]:
        """Sessions, newest ``updated`` first. ``search`` is a part of the title in any case, ``start`` the earliest
        ``updated`` (ms), ``archived`` None means both.
        """
        where: list[ColumnElement[bool]] = []
        if roots:
            where.append(sessions.c.parent_id.is_(None))
        if parent_id is not None:
            where.append(sessions.c.parent_id == parent_id)
        if cwd is not None:
            where.append(sessions.c.cwd == cwd)
        if search:
            where.append(sessions.c.title.contains(search.casefold(), autoescape=True))
        if start is not None:
            where.append(sessions.c.updated >= start)
        if archived is not None:
            where.append(sessions.c.archived.is_not(None) if archived else sessions.c.archived.is_(None))
        found = select(sessions.c.id, sessions.c.info).where(*where)
        rows = await self._rows(found.order_by(sessions.c.updated.desc(), sessions.c.n.desc()).limit(limit))
        return [_info(id, body) for id, body in rows]

    async def info(self, session_id: SessionId) -> SessionInfo | None:
        rows = await self._rows(select(sessions.c.info).where(sessions.c.id == session_id))
        return _info(session_id, rows[0][0]) if rows else None

    async def resolve(self, kind: str, alias: str) -> SessionId | None:
        """The session that an alias names."""
        rows = await self._rows(_named(kind, alias))
        return SessionId(rows[0][0]) if rows else None

    async def owner(self, id: str) -> SessionId | None:
        """The session that claimed an id, perhaps a deleted one."""
        rows = await self._rows(_owner(id))
        return SessionId(rows[0][0]) if rows else None

    async def history(self, session_id: SessionId, after: int, limit: int) -> list[Record]:
        """At most ``limit`` records of one session with a seq greater than ``after``, by seq."""
        found = select(events.c.seq, events.c.body).where(events.c.session_id == session_id, events.c.seq > after)
        rows = await self._rows(found.order_by(events.c.seq).limit(limit))
        return [_record(session_id, seq, body) for seq, body in rows]

    async def unfinished(self) -> list[SessionId]:
        """Roots whose last commit was ``busy``, oldest first."""
        rows = await self._rows(select(sessions.c.id).where(sessions.c.busy).order_by(sessions.c.n))
        return [SessionId(row[0]) for row in rows]

    async def _rows(self, found: Any) -> Sequence[Any]:
        return await self._read(lambda connection: connection.execute(found).all())

    async def _read(self, work: Callable[[Connection], T]) -> T:
        if self._closed:
            raise StoreError("the store is closed")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._consistently, work)

    def _consistently(self, work: Callable[[Connection], T]) -> T:
        try:
            with self._readers.begin() as connection:  # one moment for all selects of ``work``
                return work(connection)
        except SQLAlchemyError as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            raise StoreError(f"cannot read {self.path}: {cause}", path=str(self.path)) from error


def _owner(id: str) -> Select[str]:
    return select(ids.c.session_id).where(ids.c.id == id)


def _named(kind: str, alias: str) -> Select[str]:
    return select(aliases.c.session_id).where(aliases.c.kind == kind, aliases.c.alias == alias)


def _load(connection: Connection, session_id: SessionId) -> tuple[Loaded, ...]:
    root_id = connection.scalar(select(sessions.c.root_id).where(sessions.c.id == session_id))
    if root_id is None:
        return ()
    found = (
        select(sessions.c.id, sessions.c.info, snapshots.c.seq, snapshots.c.body)
        .outerjoin(snapshots, snapshots.c.session_id == sessions.c.id)
        .where(sessions.c.root_id == root_id)
        .order_by(sessions.c.id != root_id, sessions.c.created, sessions.c.n)
    )
    tree = connection.execute(found).all()
    since = (
        select(events.c.session_id, events.c.seq, events.c.body)
        .join(sessions, sessions.c.id == events.c.session_id)
        .outerjoin(snapshots, snapshots.c.session_id == events.c.session_id)
        .where(sessions.c.root_id == root_id, events.c.seq > func.coalesce(snapshots.c.seq, 0))
        .order_by(events.c.session_id, events.c.seq)
    )
    records: dict[str, list[Record]] = {row.id: [] for row in tree}
    for id, seq, body in connection.execute(since):
        records[id].append(_record(id, seq, body))
    return tuple(
        Loaded(info=_info(id, info), snapshot=body, snapshot_seq=seq or 0, records=tuple(records[id]))
        for id, info, seq, body in tree
    )


def _record(session_id: str, seq: int, body: bytes) -> Record:
    try:
        record = _decode_record(body)
    except msgspec.MsgspecError as error:
        raise StoreError(f"event {seq} of session {session_id} cannot be read: {error}") from error
    source: Source | None = getattr(record.event, "source", None)
    if source is None:
        return record
    # A decoded Raw is a view that would keep the whole body.
    kept = Source(wire=source.wire, raw=source.raw.copy())
    return msgspec.structs.replace(record, event=msgspec.structs.replace(record.event, source=kept))


def _info(session_id: str, body: bytes) -> SessionInfo:
    try:
        return _decode_info(body)
    except msgspec.MsgspecError as error:
        raise StoreError(f"the info of session {session_id} cannot be read: {error}") from error


def _not_opened(path: Path, error: Exception) -> StoreError:
    if isinstance(error, migrations.UnknownVersion):
        why = f"its schema {error} is unknown here (newest: {migrations.HEAD}): it needs a newer Trunkline"
    elif isinstance(error, OSError):
        why = str(error.strerror)
    else:
        why = str(error.orig if isinstance(error, DBAPIError) else error)
    return StoreError(f"cannot open {path}: {why}", path=str(path))
