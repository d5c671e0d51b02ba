"""Tables and locks of the privacy ledger, for SQLite and PostgreSQL, as the ``migrations`` create them."""

import os
import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Row,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from pipeline.ground.errors import LedgerTampered

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
    Column("salt", Text, nullable=False),
    Column("hash", Text, nullable=False, unique=True),
    Column("signature", Text, nullable=False),  # of the hash, by the ledger's key
    UniqueConstraint("launch_id", "stage", "kind"),
    Index("privacy_ledger_by_population", "population", "seq"),
    Index("privacy_ledger_by_kind", "kind", "seq"),
)

# Secrets, each of which an entry of the same kind and population binds (``pipeline.ledger.sealed``).
SECRETS = Table(
    "privacy_ledger_secrets",
    _METADATA,
    Column("kind", Text, primary_key=True),
    Column("population", Text, primary_key=True),
    Column("content", LargeBinary, nullable=False),  # a salt, then the secret
)

# Any constant works, as long as all writers use the same one.
_ADVISORY_LOCK = 0x7AC17


def plain(row: Row[Any]) -> Row[Any]:
    """The row; LedgerTampered if it holds bytes, which SQLite takes in a column of any kind and no entry has."""
    if bytes in map(type, row):
        raise LedgerTampered(f"the privacy ledger was altered: row {row[0]!r} holds bytes; restore it from a backup")
    return row


def serialise(connection: Connection) -> None:
    """Serialise transactions; SQLite's are already serial through BEGIN IMMEDIATE."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"))


def make_sqlite_file(path: Path) -> None:
    """Create an empty database that only this user can read, as it will hold secrets."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))


def sqlite_manual_transactions(dbapi_connection: sqlite3.Connection, _record: object) -> None:
    """Stop the driver from opening transactions of its own, and make commits survive a power cut."""
    dbapi_connection.isolation_level = None
    dbapi_connection.execute("PRAGMA synchronous = FULL")


def sqlite_begin_immediate(connection: Connection) -> None:
    """Take the write lock at once: two readers that both write later would deadlock."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")
