"""Tables, triggers and locks of the privacy ledger, for SQLite and PostgreSQL.

Version 1 of the schema, that of tacit 0.1, had the entries and their head alone. Version 2 adds what may not stand
in an entry, as entries are shown and exported: the secrets. Opening a ledger of version 1 adds it.
"""

import os
import secrets
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from sqlalchemy import (
    Column,
    Connection,
    Double,
    Integer,
    LargeBinary,
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

# The version of these tables, and the key under which device ids are hashed: one for all populations, so that the
# hashes of two can be compared.
META = Table(
    "privacy_ledger_meta",
    _METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
    Column("device_key", Text, nullable=False),
)

# A population's secrets. Its budget and who may change it stand in entries.
POPULATIONS = Table(
    "privacy_ledger_populations",
    _METADATA,
    Column("name", Text, primary_key=True),
    Column("split_secret", Text, nullable=False),
    Column("devices", LargeBinary, nullable=False),  # keyed hashes of device ids (``pipeline.ledger.devices``)
)

VERSION = 2

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
    "privacy_ledger_populations_stay": (
        f"BEFORE DELETE ON privacy_ledger_populations BEGIN SELECT RAISE(ABORT, '{_ONLY}'); END"
    ),
    "privacy_ledger_secrets_stay": (
        "BEFORE UPDATE ON privacy_ledger_populations WHEN NEW.name <> OLD.name OR NEW.split_secret <> OLD.split_secret "
        f"BEGIN SELECT RAISE(ABORT, '{_ONLY}'); END"
    ),
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
    "privacy_ledger_populations_stay": (
        "BEFORE DELETE OR TRUNCATE ON privacy_ledger_populations FOR EACH STATEMENT EXECUTE FUNCTION "
        "privacy_ledger_refuse()"
    ),
    "privacy_ledger_secrets_stay": (
        "BEFORE UPDATE OF name, split_secret ON privacy_ledger_populations FOR EACH STATEMENT EXECUTE FUNCTION "
        "privacy_ledger_refuse()"
    ),
}
# Opening a ledger of version 1 adds the others, and puts none of these back that somebody took away.
_FIRST_TRIGGERS = frozenset(
    {
        "privacy_ledger_no_update",
        "privacy_ledger_no_delete",
        "privacy_ledger_no_change",
        "privacy_ledger_at_end",
        "privacy_ledger_head_forward",
        "privacy_ledger_head_stays",
    }
)

# Any constant works, as long as every writer takes the same lock.
_ADVISORY_LOCK = 0x7AC17


def create(connection: Connection) -> None:
    """Make tables and triggers, once: what is there already, or was taken away later, stays as it is."""
    if version(connection):
        return
    _METADATA.create_all(connection)
    connection.execute(insert(HEAD).values(id=1, entries=0, hash="0" * 64))
    _write_meta(connection)
    if connection.dialect.name == "postgresql":
        for function in (_POSTGRES_REFUSE, _POSTGRES_AT_END, _POSTGRES_FORWARD):
            connection.execute(text(function))
    _add_triggers(connection, _triggers(connection).keys())


def migrate(connection: Connection) -> None:
    """Bring a ledger of version 1 to this version; its entries stay as they are."""
    if version(connection) != 1:
        return
    _METADATA.create_all(connection, tables=[META, POPULATIONS])
    _write_meta(connection)
    _add_triggers(connection, _triggers(connection).keys() - _FIRST_TRIGGERS)


def version(connection: Connection) -> int:
    """Which version of the tables there is; 0 where there is no ledger."""
    if not connection.dialect.has_table(connection, ENTRIES.name):
        return 0
    if not connection.dialect.has_table(connection, META.name):
        return 1
    return connection.execute(select(META.c.version)).scalar_one_or_none() or -1


def _write_meta(connection: Connection) -> None:
    connection.execute(insert(META).values(id=1, version=VERSION, device_key=secrets.token_hex(32)))


def _add_triggers(connection: Connection, names: Iterable[str]) -> None:
    bodies = _triggers(connection)
    for name in names:
        connection.execute(text(f"CREATE TRIGGER {name} {bodies[name]}"))


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


def sqlite_file(database: str | None) -> Path:
    """The file of a SQLite ledger.

    Raises:
      ValueError: it has none, or one that depends on the working directory.
    """
    if not database or database == ":memory:":
        raise ValueError(
            "TACIT_LEDGER_URL: a ledger in memory forgets what was spent; name a file, "
            "as in sqlite:////absolute/path/ledger.db"
        )
    if not Path(database).is_absolute():
        raise ValueError(
            f"TACIT_LEDGER_URL: {database!r} is another file in every working directory; use four slashes and the "
            "whole path, as in sqlite:////absolute/path/ledger.db"
        )
    return Path(database)


def make_sqlite_file(path: Path) -> None:
    """An empty database that this user alone can read: it is going to hold secrets."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))


def sqlite_manual_transactions(dbapi_connection: sqlite3.Connection, _record: object) -> None:
    """Keep the driver from opening transactions of its own, and make a commit survive a power cut."""
    dbapi_connection.isolation_level = None
    dbapi_connection.execute("PRAGMA synchronous = FULL")


def sqlite_begin_immediate(connection: Connection) -> None:
    """Take the write lock at once: two readers that both mean to write would deadlock."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _triggers(connection: Connection) -> dict[str, str]:
    return _POSTGRES_TRIGGERS if connection.dialect.name == "postgresql" else _SQLITE_TRIGGERS
