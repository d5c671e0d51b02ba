"""Alembic environment: runs the scripts of ``versions`` on the connection and in the transaction of ``upgrade``."""

from alembic import context

from pipeline.ledger.migrations.versioning import TABLE

context.configure(connection=context.config.attributes["connection"], version_table=TABLE)
with context.begin_transaction():
    context.run_migrations()
