"""The store's writer: one thread, one connection, whatever waits in one transaction and one fsync.

Each commit is whole or not there. The writer must not know what an event means.
"""

import asyncio
import queue
import threading
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from sqlalchemy import (
    ClauseElement,
    Connection,
    LargeBinary,
    Select,
    bindparam,
    delete,
    func,
    literal_column,
    select,
    update,
)
from sqlalchemy.dialects.sqlite import dialect, insert
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from gateway.core.errors import StoreError
from gateway.core.events import Record
from gateway.core.ids import SessionId
from gateway.core.model import SessionInfo
from gateway.migrations.schema import aliases, checkpoints, events, ids, meta, sessions, snapshots

T = TypeVar("T")
Row = tuple[Any, ...]

DELETED = "deleted."  # of keys in ``meta``: and the time in 15 digits, a dot, the session's id. The value: its cwd
DELETIONS = 500  # so many are told of


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
    row = select(bindparam("part_id"), bindparam("start"), sessions.c.id, bindparam("text")).where(
        sessions.c.id == bindparam("session_id")
    )
    new = insert(checkpoints).from_select(["part_id", "start", "session_id", "text"], row)
    return new.on_conflict_do_update(index_elements=["part_id", "start"], set_={"text": new.excluded.text})


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


def _tell_deleted() -> ClauseElement:
    """A row of ``meta`` that outlives its session: DELETED + time + id → its directory."""
    row = select(bindparam("note"), sessions.c.cwd).where(sessions.c.id == bindparam("gone"))
    new = insert(meta).from_select(["key", "value"], row)
    return new.on_conflict_do_nothing()


def _deletions() -> Select[tuple[str]]:
    mine = meta.c.key.between(literal_column(f"'{DELETED}'"), literal_column(f"'{DELETED}~'"))
    return select(meta.c.key).where(mine)


def deletions() -> Select[tuple[str, str]]:
    """The newest first."""
    return _deletions().add_columns(meta.c.value).order_by(meta.c.key.desc())


def _trim_deletions() -> ClauseElement:
    past = _deletions().order_by(meta.c.key.desc()).limit(literal_column("-1")).offset(literal_column(str(DELETIONS)))
    return delete(meta).where(meta.c.key.in_(past))


UPSERT_SESSION = Statement(_upsert_session(), "id root_id parent_id cwd title created updated archived info")
INSERT_EVENT = Statement(insert(events).values({c.name: bindparam(c.name) for c in events.c}), "session_id seq body")
INSERT_ID = Statement(insert(ids).values(id=bindparam("id"), session_id=bindparam("session_id")), "id session_id")
UPSERT_ALIAS = Statement(_upsert_alias(), "kind alias session_id", exact=True)
UPSERT_CHECKPOINT = Statement(_upsert_checkpoint(), "part_id start text session_id")
UPSERT_SNAPSHOT = Statement(_upsert_snapshot(), "seq body session_id")
END_PART = Statement(delete(checkpoints).where(checkpoints.c.part_id == bindparam("part")), "part")
SET_BUSY = Statement(_set_busy(), "is_busy root is_busy")
TELL_DELETED = Statement(_tell_deleted(), "note gone")
TRIM_DELETIONS = Statement(_trim_deletions(), "")
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
    TELL_DELETED,
    TRIM_DELETIONS,
    *DELETES,
)

_encode = msgspec.json.Encoder().encode


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


def rows_of(commit: Commit) -> dict[Statement, list[Row]]:
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
        at = max((record.at for record in commit.records), default=0)
        rows[TELL_DELETED] = [(f"{DELETED}{at:015d}.{session}", session) for session in commit.deleted]
        rows[TRIM_DELETIONS] = [()]
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
                stored = self.connection.scalar(owner_of(id))
                owner = stored or mine.setdefault((id,), session)
                if stored is not None or owner != session:
                    return Taken(id, SessionId(owner))
            for kind, alias, session in job.rows.get(UPSERT_ALIAS, ()):
                owner = self.connection.scalar(alias_of(kind, alias)) or mine.setdefault((kind, alias), session)
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


def owner_of(id: str) -> Select[str]:
    return select(ids.c.session_id).where(ids.c.id == id)


def alias_of(kind: str, alias: str) -> Select[str]:
    return select(aliases.c.session_id).where(aliases.c.kind == kind, aliases.c.alias == alias)
