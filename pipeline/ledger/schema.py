"""Tables, triggers and locks of the privacy ledger, for SQLite and PostgreSQL."""

import sqlite3
from pathlib import Path

from sqlalchemy import (
    Column,
    Connection,
    Double,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    insert,
    select,
    text,
)

_METADATA = MetaData()

ENTRIES = Table(
    "privacy_ledger",
    _METADATA,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("population", Text, nullable=False),
    Column("launch_id", Text, nullable=False),
    Column("stage", Text, nullable=False),
    Column("unit", Text, nullable=False),
    Column("adjacency", Text, nullable=False),
    Column("rho", Double),
    Column("epsilon", Double, nullable=False),
    Column("delta", Double, nullable=False),
    Column("binding", Text, nullable=False),
    Column("note", Text, nullable=False),
    Column("created_at", Text, nullable=False),
    Column("prev_hash", Text, nullable=False, unique=True),
    Column("hash", Text, nullable=False, unique=True),
    UniqueConstraint("launch_id", "stage", "kind"),
)

# How long the chain is and how it ends, so that a cut-off tail shows.
HEAD = Table(
    "privacy_ledger_head",
    _METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("entries", Integer, nullable=False),
    Column("hash", Text, nullable=False),
)

_ONLY = "the privacy ledger is append-only"

_SQLITE_TRIGGERS = {
    "privacy_ledger_no_update": f"BEFORE UPDATE ON privacy_ledger BEGIN SELECT RAISE(ABORT, '{_ONLY}'); END",
    "privacy_ledger_no_delete": f"BEFORE DELETE ON privacy_ledger BEGIN SELECT RAISE(ABORT, '{_ONLY}'); END",
    "privacy_ledger_at_end": (
        "BEFORE INSERT ON privacy_ledger "
        "WHEN NEW.seq <> (SELECT entries + 1 FROM privacy_ledger_head) "
        "OR NEW.prev_hash <> (SELECT hash FROM privacy_ledger_head) "
        f"BEGIN SELECT RAISE(ABORT, '{_ONLY}'); END"
    ),
    "privacy_ledger_head_forward": (
        "BEFORE UPDATE ON privacy_ledger_head WHEN NEW.entries <> OLD.entries + 1 "
        f"BEGIN SELECT RAISE(ABORT, '{_ONLY}'); END"
    ),
    "privacy_ledger_head_stays": (f"BEFORE DELETE ON privacy_ledger_head BEGIN SELECT RAISE(ABORT, '{_ONLY}'); END"),
}

_POSTGRES_REFUSE = f"""
CREATE OR REPLACE FUNCTION privacy_ledger_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION '{_ONLY}'; END $$
"""
_POSTGRES_AT_END = f"""
CREATE OR REPLACE FUNCTION privacy_ledger_at_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM privacy_ledger_head WHERE NEW.seq = entries + 1 AND NEW.prev_hash = hash) THEN
    RAISE EXCEPTION '{_ONLY}';
  END IF;
  RETURN NEW;
END $$
"""
_POSTGRES_FORWARD = f"""
CREATE OR REPLACE FUNCTION privacy_ledger_forward() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.entries <> OLD.entries + 1 THEN RAISE EXCEPTION '{_ONLY}'; END IF;
  RETURN NEW;
END $$
"""
_POSTGRES_TRIGGERS = {
    "privacy_ledger_no_change": (
        "BEFORE UPDATE OR DELETE OR TRUNCATE ON privacy_ledger FOR EACH STATEMENT EXECUTE FUNCTION "
        "privacy_ledger_refuse()"
    ),
    "privacy_ledger_at_end": ("BEFORE INSERT ON privacy_ledger FOR EACH ROW EXECUTE FUNCTION privacy_ledger_at_end()"),
    "privacy_ledger_head_forward": (
        "BEFORE UPDATE ON privacy_ledger_head FOR EACH ROW EXECUTE FUNCTION privacy_ledger_forward()"
    ),
    "privacy_ledger_head_stays": (
        "BEFORE DELETE OR TRUNCATE ON privacy_ledger_head FOR EACH STATEMENT EXECUTE FUNCTION privacy_ledger_refuse()"
    ),
}

# Any constant works, as long as every writer takes the same lock.
_ADVISORY_LOCK = 0x7AC17


def create(connection: Connection) -> None:
    """Make tables and triggers, once: what is there already, or was taken away later, stays as it is."""
    if connection.dialect.has_table(connection, ENTRIES.name):
        return
    _METADATA.create_all(connection)
    connection.execute(insert(HEAD).values(id=1, entries=0, hash="0" * 64))
    if connection.dialect.name == "postgresql":
        for function in (_POSTGRES_REFUSE, _POSTGRES_AT_END, _POSTGRES_FORWARD):
            connection.execute(text(function))
    for name, body in _triggers(connection).items():
        connection.execute(text(f"CREATE TRIGGER {name} {body}"))


def read_head(connection: Connection) -> tuple[int, str]:
    """Number of entries and hash of the last one; ``(-1, '')`` if the row is gone."""
    row = connection.execute(select(HEAD.c.entries, HEAD.c.hash)).one_or_none()
    return (row.entries, row.hash) if row else (-1, "")


def missing_triggers(connection: Connection) -> list[str]:
    """Names of the append-only triggers that are not there, or not switched on."""
    query = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
    if connection.dialect.name == "postgresql":
        query = "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal AND tgenabled IN ('O', 'A')"
    present = set(connection.execute(text(query)).scalars())
    return sorted(_triggers(connection).keys() - present)


def serialise(connection: Connection) -> None:
    """Let one transaction at a time through. SQLite's began with BEGIN IMMEDIATE, which does it."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"))


def prepare_sqlite_folder(database: str | None) -> None:
    """Make the folder of a database file."""
    if not database or database == ":memory:":
        raise ValueError(
            "TACIT_LEDGER_URL: a ledger in memory forgets what was spent; name a file, "
            "as in sqlite:////absolute/path/ledger.db"
        )
    Path(database).parent.mkdir(parents=True, exist_ok=True)


def sqlite_manual_transactions(dbapi_connection: sqlite3.Connection, _record: object) -> None:
    """Keep the driver from opening transactions of its own, and make a commit survive a power cut."""
    dbapi_connection.isolation_level = None
    dbapi_connection.execute("PRAGMA synchronous = FULL")


def sqlite_begin_immediate(connection: Connection) -> None:
    """Take the write lock at once: two readers that both mean to write would deadlock."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _triggers(connection: Connection) -> dict[str, str]:
    return _POSTGRES_TRIGGERS if connection.dialect.name == "postgresql" else _SQLITE_TRIGGERS
