"""Version 1: the entries, and the secrets that they bind."""

from alembic import op

from pipeline.ledger import database

revision, down_revision = "1", None


def upgrade() -> None:
    """Create the tables and the append-only triggers."""
    database.METADATA.create_all(op.get_bind())
    for statement in database.trigger_statements(op.get_context().dialect.name):
        op.execute(statement)
