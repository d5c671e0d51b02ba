"""Version 2: what may not stand in an entry, as entries are shown and exported: the secrets of populations."""

import secrets

import sqlalchemy as sa
from alembic import op

revision, down_revision = "2", "1"

_ONLY = "the privacy ledger is append-only"
_SQLITE_TRIGGERS = (
    "privacy_ledger_populations_stay BEFORE DELETE ON privacy_ledger_populations "
    f"BEGIN SELECT RAISE(ABORT, '{_ONLY}'); END",
    "privacy_ledger_secrets_stay BEFORE UPDATE ON privacy_ledger_populations "
    "WHEN NEW.name <> OLD.name OR NEW.split_secret <> OLD.split_secret "
    f"BEGIN SELECT RAISE(ABORT, '{_ONLY}'); END",
)
_POSTGRES_TRIGGERS = (
    "privacy_ledger_populations_stay BEFORE DELETE OR TRUNCATE ON privacy_ledger_populations FOR EACH STATEMENT "
    "EXECUTE FUNCTION privacy_ledger_refuse()",
    "privacy_ledger_secrets_stay BEFORE UPDATE OF name, split_secret ON privacy_ledger_populations "
    "FOR EACH STATEMENT EXECUTE FUNCTION privacy_ledger_refuse()",
)


def upgrade() -> None:
    """Add both tables, a key for device hashes, and what refuses changes; triggers that were taken away stay away."""
    meta = op.create_table(
        "privacy_ledger_meta",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("version", sa.Integer, nullable=False),  # of development versions, which read it
        sa.Column("device_key", sa.Text, nullable=False),
    )
    op.create_table(
        "privacy_ledger_populations",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("split_secret", sa.Text, nullable=False),
        sa.Column("devices", sa.LargeBinary, nullable=False),
        sa.Column("withdrawn", sa.LargeBinary, nullable=False),
    )
    op.bulk_insert(meta, [{"id": 1, "version": 2, "device_key": secrets.token_hex(32)}])
    postgres = op.get_context().dialect.name == "postgresql"
    for trigger in _POSTGRES_TRIGGERS if postgres else _SQLITE_TRIGGERS:
        op.execute(f"CREATE TRIGGER {trigger}")
