"""Version 1: the entries, and the secrets that they bind."""

import sqlalchemy as sa
from alembic import op

from pipeline.ledger import schema

revision, down_revision = "1", None


def upgrade() -> None:
    """Create the tables and the append-only triggers."""
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
        sa.Column("hash", sa.Text, nullable=False, unique=True),
        sa.Column("signature", sa.Text, nullable=False),
        sa.UniqueConstraint("launch_id", "stage", "kind"),
    )
    op.create_table(
        "privacy_ledger_secrets",
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("population", sa.Text, primary_key=True),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
    for column in ("population", "kind"):
        op.create_index(f"privacy_ledger_by_{column}", "privacy_ledger", [column, "seq"])
    for statement in schema.trigger_statements(op.get_context().dialect.name, *schema.TABLES):
        op.execute(statement)
