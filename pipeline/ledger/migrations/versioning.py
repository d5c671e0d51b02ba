"""Versions of the ledger's tables, by Alembic: each a script in ``versions``, which nobody changes once it is released.

Entries are never migrated: each holds the hash of the one before. Nor is there a way back: a ledger that has been
opened by a newer tacit is refused by an older one.
"""

from pathlib import Path

from sqlalchemy import Connection, inspect, text

# In the order in which they were made; Alembic finds the same ones (a test holds the two together).
REVISIONS = ("1",)
TABLE = "privacy_ledger_version"
_META = "privacy_ledger_meta"  # its one row is the key of device hashes


def version(connection: Connection) -> str | None:
    """Version of the tables; None where there is no ledger, 'none' where it lost what says so."""
    tables = set(inspect(connection).get_table_names())
    if "privacy_ledger" not in tables:
        return None
    if not {TABLE, _META} <= tables or connection.execute(text(f"SELECT count(*) FROM {_META}")).scalar_one() != 1:
        return "none"
    return connection.execute(text(f"SELECT version_num FROM {TABLE}")).scalar_one_or_none() or "none"


def upgrade(connection: Connection) -> None:
    """Make the tables, or add those that they lack, within the connection's transaction; entries stay as they are."""
    if version(connection) == REVISIONS[-1]:
        return
    # Imported here: a ledger that is up to date, as nearly every one is, has no need of it.
    from alembic import command
    from alembic.config import Config

    settings = Config()
    settings.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    settings.attributes["connection"] = connection
    command.upgrade(settings, "head")
