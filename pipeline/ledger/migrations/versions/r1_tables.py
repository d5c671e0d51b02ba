"""Version 1: the chain of entries and its length, the secrets of populations, digests of stage results."""

import sqlalchemy as sa
from alembic import op

from pipeline.ledger import triggers
from pretrain.randomness.entropy import fresh_bytes

revision, down_revision = "1", None


def upgrade() -> None:
    """Create the tables, an empty head, a key for device hashes, and the append-only triggers."""
    op.create_table(
        "privacy_ledger",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
        *(
            sa.Column(name, sa.Text, nullable=False)
            for name in ("kind", "population", "launch_id", "stage", "unit", "adjacency")
        ),
        sa.Column("rho", sa.Double),
        sa.Column("epsilon", sa.Double, nullable=False),
        sa.Column("delta", sa.Double, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("binding", "note", "created_at", "salt")),
        *(sa.Column(name, sa.Text, nullable=False, unique=True) for name in ("prev_hash", "hash")),
        sa.Column("leaf", sa.Integer, nullable=False, unique=True),
        sa.Column("signature", sa.Text, nullable=False),
        sa.UniqueConstraint("launch_id", "stage", "kind"),
    )
    op.create_table(
        "privacy_ledger_head",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("entries", sa.Integer, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
    )
    op.execute(f"INSERT INTO privacy_ledger_head (id, entries, hash) VALUES (1, 0, '{'0' * 64}')")
    meta = op.create_table(
        "privacy_ledger_meta",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("device_key", sa.Text, nullable=False),
    )
    op.create_table(
        "privacy_ledger_populations",
        sa.Column("population", sa.Text, primary_key=True),
        sa.Column("split_secret", sa.Text, nullable=False),
        sa.Column("devices", sa.LargeBinary, nullable=False),
        sa.Column("withdrawn", sa.LargeBinary, nullable=False),
    )
    op.bulk_insert(meta, [{"id": 1, "device_key": fresh_bytes(32).hex()}])
    op.create_table(
        "privacy_ledger_results",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("launch_id", "stage", "digest", "created_at", "salt")),
        *(sa.Column(name, sa.Text, nullable=False, unique=True) for name in ("prev_hash", "hash")),
        sa.Column("leaf", sa.Integer, nullable=False, unique=True),
        sa.Column("signature", sa.Text, nullable=False),
    )
    for name, table, *columns in (
        ("privacy_ledger_by_population", "privacy_ledger", "population", "seq"),
        ("privacy_ledger_by_kind", "privacy_ledger", "kind", "seq"),
        ("privacy_ledger_results_by_launch", "privacy_ledger_results", "launch_id", "seq"),
        ("privacy_ledger_results_by_digest", "privacy_ledger_results", "digest"),
    ):
        op.create_index(name, table, columns)
    for statement in triggers.statements(op.get_context().dialect.name, *triggers.TABLES):
        op.execute(statement)
