"""The store: durable events, sessions, ids and aliases in SQLite, by SQLAlchemy Core and one writer thread.

Whatever waits for the writer goes into one transaction and one fsync; who waits is answered when it is on the disk.
Reads run beside it on their own connections. The store must not know what an event means: it keeps records in
their order, unique ids unique, and each commit whole.
"""

import asyncio
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    and_,
    create_engine,
    event,
    func,
    make_url,
    or_,
    select,
)
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool, QueuePool

from gateway import migrations
from gateway.core.errors import StoreError, Unstorable
from gateway.core.events import Record
from gateway.core.ids import SessionId
from gateway.core.model import SessionInfo, Source
from gateway.migrations.schema import checkpoints, events, meta, sessions, snapshots
from gateway.store_writer import (
    UPSERT_CHECKPOINT,
    UPSERT_SNAPSHOT,
    Commit,
    Job,
    Row,
    Statement,
    Writer,
    alias_of,
    deletions,
    owner_of,
    rows_of,
)

T = TypeVar("T")

READERS = 4  # threads, each with a connection
BUSY_TIMEOUT = 5000  # ms; only a foreign program (a backup) can make us wait

_decode_record = msgspec.json.Decoder(Record).decode
_decode_info = msgspec.json.Decoder(SessionInfo).decode


class Loaded(msgspec.Struct, frozen=True):
    """One session of a tree."""

    info: SessionInfo
    snapshot: bytes | None
    snapshot_seq: int  # 0 without a snapshot
    records: tuple[Record, ...]  # after the snapshot, by seq


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
        raise StoreError(
            f"unknown kind of database: {parsed.get_backend_name()!r}; expected sqlite:////absolute/path.db"
        )
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
    def open(cls, url: str) -> Self:
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
        return self._put(f"a commit of {commit.root_id}", lambda: rows_of(commit))

    def checkpoint(self, pieces: Sequence[tuple[SessionId, str, int, str]]) -> asyncio.Future[None]:
        """Keep more text of open parts: (session, part, characters before this piece, the piece)."""
        rows = [(part, start, text, session) for session, part, start, text in pieces]
        return self._put("checkpoints", lambda: {UPSERT_CHECKPOINT: rows})

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
                job.error = Unstorable(f"{what} cannot be encoded: {error}")
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
        rows = await self._rows(found.where(sessions.c.root_id == root_id).order_by(checkpoints.c.start))
        texts: dict[str, list[str]] = {}
        for part, text in rows:
            texts.setdefault(part, []).append(text)
        return {part: "".join(pieces) for part, pieces in texts.items()}

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

    async def page(
        self,
        *,
        limit: int,
        ascending: bool = False,
        after: tuple[int, str] | None = None,
        cwd: str | None = None,
        search: str | None = None,
    ) -> list[SessionInfo]:
        """Sessions by creation, newest first or (``ascending``) oldest first: a place in this order stays.

        ``after``: only what follows the session of this time (ms) and id.
        """
        where: list[ColumnElement[bool]] = []
        created, n = sessions.c.created, sessions.c.n
        if after is not None:
            then, id = after
            there = select(n).where(sessions.c.id == id).scalar_subquery()
            later = or_(created > then, and_(created == then, n > there))
            earlier = or_(created < then, and_(created == then, n < there))
            where.append(later if ascending else earlier)
        if cwd is not None:
            where.append(sessions.c.cwd == cwd)
        if search:
            where.append(sessions.c.title.contains(search.casefold(), autoescape=True))
        found = select(sessions.c.id, sessions.c.info).where(*where).limit(limit)
        places = (created, n) if ascending else (created.desc(), n.desc())
        return [_info(*row) for row in await self._rows(found.order_by(*places))]

    async def info(self, session_id: SessionId) -> SessionInfo | None:
        rows = await self._rows(select(sessions.c.info).where(sessions.c.id == session_id))
        return _info(session_id, rows[0][0]) if rows else None

    async def resolve(self, kind: str, alias: str) -> SessionId | None:
        """The session that an alias names."""
        rows = await self._rows(alias_of(kind, alias))
        return SessionId(rows[0][0]) if rows else None

    async def owner(self, id: str) -> SessionId | None:
        """The session that claimed an id, perhaps a deleted one."""
        rows = await self._rows(owner_of(id))
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

    async def deleted(self) -> list[tuple[SessionId, str, int]]:
        """The sessions that were deleted last, newest first: id, cwd and when (ms)."""
        rows = await self._rows(deletions())
        told = [(key.split(".", 2), cwd) for key, cwd in rows]
        return [(SessionId(id), cwd, int(at)) for (_, at, id), cwd in told]

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
