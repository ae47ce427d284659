"""What Alembic runs: the scripts, on the connection and in the transaction of ``gateway.migrations.upgrade``."""

from alembic import context

from gateway.migrations.schema import metadata

# SQLite's DDL is transactional once pysqlite's own transaction control is off (gateway/store.py turns it off), so a
# crash within a migration leaves the old schema whole. Alembic's default for SQLite says otherwise.
context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
