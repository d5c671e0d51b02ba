"""Version 2: the secrets of populations, which may stand in no entry, and digests of what stages said."""

import secrets

import sqlalchemy as sa
from alembic import op

from pipeline.ledger import triggers

revision, down_revision = "2", "1"


def upgrade() -> None:
    """Add the tables, a key for device hashes, and what refuses changes; triggers that were taken away stay away."""
    meta = op.create_table(
        "privacy_ledger_meta",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("version", sa.Integer, nullable=False),  # of development versions, which read it
        sa.Column("device_key", sa.Text, nullable=False),
    )
    op.create_table(
        "privacy_ledger_populations",
        sa.Column("population", sa.Text, primary_key=True),
        sa.Column("split_secret", sa.Text, nullable=False),
        sa.Column("devices", sa.LargeBinary, nullable=False),
        sa.Column("withdrawn", sa.LargeBinary, nullable=False),
    )
    op.bulk_insert(meta, [{"id": 1, "version": 2, "device_key": secrets.token_hex(32)}])
    op.create_table(
        "privacy_ledger_results",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("launch_id", "stage", "digest", "created_at")),
        *(sa.Column(name, sa.Text, nullable=False, unique=True) for name in ("prev_hash", "hash")),
    )
    tables = ("privacy_ledger_populations", "privacy_ledger_results")
    for statement in triggers.statements(op.get_context().dialect.name, *tables):
        op.execute(statement)
