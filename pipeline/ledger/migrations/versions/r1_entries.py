"""Version 1, that of tacit 0.1: a chain of entries, and how long it is; nobody can change or remove one."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "1", None

_ONLY = "the privacy ledger is append-only"
_SQLITE_TRIGGERS = (
    f"privacy_ledger_no_update BEFORE UPDATE ON privacy_ledger BEGIN SELECT RAISE(ABORT, '{_ONLY}'); END",
    f"privacy_ledger_no_delete BEFORE DELETE ON privacy_ledger BEGIN SELECT RAISE(ABORT, '{_ONLY}'); END",
    "privacy_ledger_at_end BEFORE INSERT ON privacy_ledger "
    "WHEN NEW.seq <> (SELECT entries + 1 FROM privacy_ledger_head) "
    "OR NEW.prev_hash <> (SELECT hash FROM privacy_ledger_head) "
    f"BEGIN SELECT RAISE(ABORT, '{_ONLY}'); END",
    "privacy_ledger_head_forward BEFORE UPDATE ON privacy_ledger_head WHEN NEW.entries <> OLD.entries + 1 "
    f"BEGIN SELECT RAISE(ABORT, '{_ONLY}'); END",
    f"privacy_ledger_head_stays BEFORE DELETE ON privacy_ledger_head BEGIN SELECT RAISE(ABORT, '{_ONLY}'); END",
)
_POSTGRES_FUNCTIONS = (
    f"""
CREATE OR REPLACE FUNCTION privacy_ledger_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION '{_ONLY}'; END $$
""",
    f"""
CREATE OR REPLACE FUNCTION privacy_ledger_at_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM privacy_ledger_head WHERE NEW.seq = entries + 1 AND NEW.prev_hash = hash) THEN
    RAISE EXCEPTION '{_ONLY}';
  END IF;
  RETURN NEW;
END $$
""",
    f"""
CREATE OR REPLACE FUNCTION privacy_ledger_forward() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.entries <> OLD.entries + 1 THEN RAISE EXCEPTION '{_ONLY}'; END IF;
  RETURN NEW;
END $$
""",
)
_POSTGRES_TRIGGERS = (
    "privacy_ledger_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON privacy_ledger FOR EACH STATEMENT "
    "EXECUTE FUNCTION privacy_ledger_refuse()",
    "privacy_ledger_at_end BEFORE INSERT ON privacy_ledger FOR EACH ROW EXECUTE FUNCTION privacy_ledger_at_end()",
    "privacy_ledger_head_forward BEFORE UPDATE ON privacy_ledger_head FOR EACH ROW "
    "EXECUTE FUNCTION privacy_ledger_forward()",
    "privacy_ledger_head_stays BEFORE DELETE OR TRUNCATE ON privacy_ledger_head FOR EACH STATEMENT "
    "EXECUTE FUNCTION privacy_ledger_refuse()",
)


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
    postgres = op.get_context().dialect.name == "postgresql"
    for statement in _POSTGRES_FUNCTIONS if postgres else ():
        op.execute(statement)
    for trigger in _POSTGRES_TRIGGERS if postgres else _SQLITE_TRIGGERS:
        op.execute(f"CREATE TRIGGER {trigger}")
