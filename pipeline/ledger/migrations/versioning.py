"""Versions of the ledger's tables, by Alembic: each is a script in ``versions`` that never changes once released.

Entries are never migrated, as the log holds their hashes. There is no downgrade: an older tacit refuses a
ledger that a newer one has opened.
"""

from pathlib import Path

from sqlalchemy import Connection, inspect, text

# Oldest first, as whole numbers in order; a test compares the list with the scripts that Alembic finds.
REVISIONS = ("1",)
TABLE = "privacy_ledger_version"


def version(connection: Connection) -> str | None:
    """Version of the tables; None without a ledger, 'none' if the ledger's version row is gone."""
    tables = set(inspect(connection).get_table_names())
    if "privacy_ledger" not in tables:
        return None
    if TABLE not in tables:
        return "none"
    return connection.execute(text(f"SELECT version_num FROM {TABLE}")).scalar_one_or_none() or "none"


def upgrade(connection: Connection) -> None:
    """Create the tables, or add missing ones, within the connection's transaction; entries stay unchanged."""
    if version(connection) == REVISIONS[-1]:
        return
    # Imported here: a ledger that is up to date, as almost all are, does not need it.
    from alembic import command
    from alembic.config import Config

    settings = Config()
    settings.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    settings.attributes["connection"] = connection
    command.upgrade(settings, "head")
