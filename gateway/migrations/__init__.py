"""Schema versions: from whatever a database has to ``HEAD``, in one transaction.

Alembic costs a good part of the start-up time, so it is imported only when there is something to do. Its scripts lie
beside this file and its configuration is made here: a wheel needs no ``alembic.ini``.
"""

from pathlib import Path

from sqlalchemy import Connection, text

HEAD = "0001"  # the newest file in versions/ (a test compares)


class UnknownVersion(Exception):
    """The database has a schema version that this program does not know; the argument is that version."""


def version(connection: Connection) -> str | None:
    """The database's schema version; None for an empty one."""
    found = connection.execute(text("SELECT 1 FROM sqlite_master WHERE type='table' AND name='alembic_version'"))
    if found.first() is None:
        return None
    row = connection.execute(text("SELECT version_num FROM alembic_version")).first()
    return None if row is None else str(row[0])


def upgrade(connection: Connection) -> None:
    """Bring the schema to ``HEAD`` inside the caller's transaction.

    Raises UnknownVersion for a database of a newer program, and SQLAlchemy's errors.
    """
    present = version(connection)
    if present == HEAD:
        return

    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if present is not None and present not in known:
        raise UnknownVersion(present)
    command.upgrade(config, HEAD)
