"""Alembic environment: runs the scripts of ``versions`` in the connection and transaction of ``upgrade``."""

from alembic import context

from pipeline.ledger.migrations.versioning import TABLE

context.configure(connection=context.config.attributes["connection"], version_table=TABLE)
with context.begin_transaction():
    context.run_migrations()
