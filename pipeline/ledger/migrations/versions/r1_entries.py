"""Version 1, that of tacit 0.1: a chain of entries, and how long it is; nobody can change or remove one."""

import sqlalchemy as sa
from alembic import op

from pipeline.ledger import triggers

revision, down_revision = "1", None


def upgrade() -> None:
    """Make both tables, an empty head, and what refuses changes."""
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
        *(sa.Column(name, sa.Text, nullable=False) for name in ("binding", "note", "created_at")),
        *(sa.Column(name, sa.Text, nullable=False, unique=True) for name in ("prev_hash", "hash")),
        sa.UniqueConstraint("launch_id", "stage", "kind"),
    )
    op.create_table(
        "privacy_ledger_head",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("entries", sa.Integer, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
    )
    op.execute(f"INSERT INTO privacy_ledger_head (id, entries, hash) VALUES (1, 0, '{'0' * 64}')")
    for statement in triggers.statements(op.get_context().dialect.name, "privacy_ledger", "privacy_ledger_head"):
        op.execute(statement)
