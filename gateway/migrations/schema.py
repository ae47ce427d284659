"""The tables as they stand at ``HEAD``. A migration must not import this: it keeps saying what it did on its day.

Times are milliseconds since the epoch. ``body`` and ``info`` are msgspec JSON; a snapshot's ``body`` is opaque here.
"""

from sqlalchemy import Boolean, Column, Index, Integer, LargeBinary, MetaData, String, Table, text

metadata = MetaData()

meta = Table(
    "meta",
    metadata,
    Column("key", String, primary_key=True),
    Column("value", String, nullable=False),
)

sessions = Table(
    "sessions",
    metadata,
    Column("n", Integer, primary_key=True),  # order of creation, also for equal times
    Column("id", String, nullable=False, unique=True),
    Column("root_id", String, nullable=False),
    Column("parent_id", String),
    Column("cwd", String, nullable=False),
    Column("title", String, nullable=False),
    Column("created", Integer, nullable=False),
    Column("updated", Integer, nullable=False),
    Column("archived", Integer),
    Column("busy", Boolean, nullable=False, server_default=text("0")),  # of a root: work is left to do
    Column("info", LargeBinary, nullable=False),
)
Index("sessions_root", sessions.c.root_id)
Index("sessions_parent", sessions.c.parent_id)
Index("sessions_updated", sessions.c.updated)
Index("sessions_busy", sessions.c.id, sqlite_where=sessions.c.busy)

# Without a rowid a session's events lie together: one page to write a commit, one range to read a session.
events = Table(
    "events",
    metadata,
    Column("session_id", String, primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("body", LargeBinary, nullable=False),
)

# Rows outlive their session: a deleted session's ids are never given again.
ids = Table(
    "ids",
    metadata,
    Column("id", String, primary_key=True),
    Column("session_id", String, nullable=False),
    sqlite_with_rowid=False,
)

aliases = Table(
    "aliases",
    metadata,
    Column("kind", String, primary_key=True),
    Column("alias", String, primary_key=True),
    Column("session_id", String, nullable=False),
    sqlite_with_rowid=False,
)
Index("aliases_session", aliases.c.session_id)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("part_id", String, primary_key=True),
    Column("start", Integer, primary_key=True),  # characters of the part before this piece
    Column("session_id", String, nullable=False),
    Column("text", String, nullable=False),
)
Index("checkpoints_session", checkpoints.c.session_id)

snapshots = Table(
    "snapshots",
    metadata,
    Column("session_id", String, primary_key=True),
    Column("seq", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
