"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "meta",
        sa.Column("key", sa.String, primary_key=True),
        sa.Column("value", sa.String, nullable=False),
    )
    op.create_table(
        "sessions",
        sa.Column("n", sa.Integer, primary_key=True),
        sa.Column("id", sa.String, nullable=False, unique=True),
        sa.Column("root_id", sa.String, nullable=False),
        sa.Column("parent_id", sa.String),
        sa.Column("cwd", sa.String, nullable=False),
        sa.Column("title", sa.String, nullable=False),
        sa.Column("created", sa.Integer, nullable=False),
        sa.Column("updated", sa.Integer, nullable=False),
        sa.Column("archived", sa.Integer),
        sa.Column("busy", sa.Boolean, nullable=False, server_default=sa.text("0")),
        sa.Column("info", sa.LargeBinary, nullable=False),
    )
    op.create_index("sessions_root", "sessions", ["root_id"])
    op.create_index("sessions_parent", "sessions", ["parent_id"])
    op.create_index("sessions_updated", "sessions", ["updated"])
    op.create_index("sessions_busy", "sessions", ["id"], sqlite_where=sa.text("busy"))
    op.create_table(
        "events",
        sa.Column("session_id", sa.String, primary_key=True),
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "ids",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("session_id", sa.String, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "aliases",
        sa.Column("kind", sa.String, primary_key=True),
        sa.Column("alias", sa.String, primary_key=True),
        sa.Column("session_id", sa.String, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("aliases_session", "aliases", ["session_id"])
    op.create_table(
        "checkpoints",
        sa.Column("part_id", sa.String, primary_key=True),
        sa.Column("start", sa.Integer, primary_key=True),
        sa.Column("session_id", sa.String, nullable=False),
        sa.Column("text", sa.String, nullable=False),
    )
    op.create_index("checkpoints_session", "checkpoints", ["session_id"])
    op.create_table(
        "snapshots",
        sa.Column("session_id", sa.String, primary_key=True),
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )


def downgrade() -> None:
    raise NotImplementedError("going back would lose the history: restore a copy of the database instead")
