"""The ledger's database, SQLite or PostgreSQL: its transactions, its tables, and their append-only triggers.

Guarantee: ``trigger_problems`` reports a trigger that is gone, that does something else under its name, that is
switched off, or that is on a ledger table without being one of them; also a rule of PostgreSQL, which acts before any.
"""

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
    create_engine,
    event,
    exc,
    text,
)
from sqlalchemy.engine import Engine, make_url

from pipeline.ground.errors import LedgerMissing, LedgerTampered, PermanentError, ServiceUnavailable, lasts
from pipeline.ground.settings import Settings, database_address
from pipeline.ledger.log.tiles import Log
from pretrain.files import widened

METADATA = MetaData()

ENTRIES = Table(
    "privacy_ledger",
    METADATA,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    *(Column(name, Text, nullable=False) for name in ("kind", "population", "launch_id", "stage", "unit", "adjacency")),
    Column("rho", Double),
    *(Column(name, Double, nullable=False) for name in ("epsilon", "delta")),
    *(Column(name, Text, nullable=False) for name in ("binding", "note", "created_at", "salt")),
    Column("hash", Text, nullable=False, unique=True),
    Column("signature", Text, nullable=False),  # of the hash, by the ledger's key
    UniqueConstraint("launch_id", "stage", "kind"),
    Index("privacy_ledger_by_population", "population", "seq"),
    Index("privacy_ledger_by_kind", "kind", "seq"),
)

# Secrets, each of which an entry of the same kind and population binds (``rows``).
SECRETS = Table(
    "privacy_ledger_secrets",
    METADATA,
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


@contextmanager
def transaction(database: Engine) -> Iterator[Connection]:
    """Begin a transaction that excludes all others, of any process and machine."""
    try:
        with database.begin() as connection:
            if connection.dialect.name == "postgresql":  # SQLite's are serial through BEGIN IMMEDIATE.
                connection.execute(text(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"))
            connection.info.clear()  # of what an earlier transaction read
            yield connection
    except exc.OperationalError as error:
        if getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR:  # a column that is gone
            raise LedgerTampered(f"the privacy ledger was altered: {error.orig}; restore it from a backup") from error
        if lasts(error.orig):
            raise PermanentError(
                f"the privacy ledger's database may not be opened or written: {error.orig}; let the account that owns "
                "it run the command, or make its disk writable"
            ) from error
        raise ServiceUnavailable(f"the privacy ledger's database does not answer: {error.orig}") from error
    except exc.DatabaseError as error:
        raise LedgerTampered(f"the privacy ledger cannot be read or written: {error.orig}; restore it") from error
    except exc.MultipleResultsFound as error:
        raise LedgerTampered(
            "the privacy ledger was altered: a row that is there once stands twice; restore it"
        ) from error


def address(url: str) -> str:
    """Address of a ledger for messages: a file, or the URL without its password."""
    parsed = make_url(url)
    is_file = parsed.get_backend_name() == "sqlite" and parsed.database
    return str(parsed.database) if is_file else parsed.render_as_string(hide_password=True)


def missing(here: Settings) -> LedgerMissing:
    """Error for an address without a ledger, with the fix."""
    where, size = address(here.ledger_url), Log(here.log_dir).size
    if size:
        return LedgerMissing(
            f"{here.log_dir} is the log of a privacy ledger with {size} entries that is not at {where}: a "
            "new one would forget what they spent. Restore it, or set TACIT_LEDGER_URL to its address"
        )
    return none_at(where)


def none_at(where: str) -> LedgerMissing:
    """Error for an address without a ledger."""
    return LedgerMissing(
        f"there is no privacy ledger at {where}. If there was one, restore it from its backup. "
        "If this is a new installation, make it: tacit ledger init. If it is elsewhere, set TACIT_LEDGER_URL"
    )


def engine(url: str, *, make: bool = False) -> Engine:
    """Engine of the database at an address; ``make`` creates an empty file of SQLite."""
    place = make_url(database_address("TACIT_LEDGER_URL", url))
    if place.get_backend_name() == "postgresql":
        return create_engine(place, pool_pre_ping=True)
    file = Path(str(place.database))
    if make:
        file.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600))  # It will hold secrets.
    if not file.is_file():
        raise none_at(str(file))  # Connecting would make an empty database.
    if mode := widened(file):
        raise LedgerTampered(
            f"{file}: has mode {mode}, so other accounts may read its secrets or write to it; chmod 600 {file}, then "
            "tacit ledger verify"
        )
    made = create_engine(url, connect_args={"timeout": 60})
    event.listen(made, "connect", _manual_transactions)
    event.listen(made, "begin", _begin_immediate)
    return made


def _manual_transactions(dbapi_connection: sqlite3.Connection, _record: object) -> None:
    """Stop the driver from opening transactions of its own, and make commits survive a power cut."""
    dbapi_connection.isolation_level = None
    dbapi_connection.execute("PRAGMA synchronous = FULL")


def _begin_immediate(connection: Connection) -> None:
    """Take the write lock at once: two readers that both write later would deadlock."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")


_ONLY = "the privacy ledger is append-only"
_REFUSE = f"BEGIN SELECT RAISE(ABORT, '{_ONLY}'); END"
TABLES = ("privacy_ledger", "privacy_ledger_secrets")
_LISTS = "('devices', 'withdrawal')"  # secrets that grow
_NEXT = "(SELECT coalesce(max(seq), 0) + 1 FROM privacy_ledger)"

# Name -> the rest of its definition, spelt as PostgreSQL's ``pg_get_triggerdef`` returns it.
_SQLITE: Mapping[str, str] = {
    "privacy_ledger_no_update": f"BEFORE UPDATE ON privacy_ledger {_REFUSE}",
    "privacy_ledger_no_delete": f"BEFORE DELETE ON privacy_ledger {_REFUSE}",
    "privacy_ledger_at_end": f"BEFORE INSERT ON privacy_ledger WHEN NEW.seq <> {_NEXT} {_REFUSE}",
    "privacy_ledger_secrets_no_delete": f"BEFORE DELETE ON privacy_ledger_secrets {_REFUSE}",
    "privacy_ledger_secrets_stay": (
        f"BEFORE UPDATE ON privacy_ledger_secrets WHEN OLD.kind NOT IN {_LISTS} "
        f"OR NEW.kind <> OLD.kind OR NEW.population <> OLD.population {_REFUSE}"
    ),
}
_REFUSING = "FOR EACH STATEMENT EXECUTE FUNCTION privacy_ledger_refuse()"
_POSTGRES: Mapping[str, str] = {
    "privacy_ledger_no_change": f"BEFORE DELETE OR UPDATE OR TRUNCATE ON privacy_ledger {_REFUSING}",
    "privacy_ledger_at_end": "BEFORE INSERT ON privacy_ledger FOR EACH ROW EXECUTE FUNCTION privacy_ledger_at_end()",
    "privacy_ledger_secrets_no_delete": f"BEFORE DELETE OR TRUNCATE ON privacy_ledger_secrets {_REFUSING}",
    "privacy_ledger_secrets_stay": (
        "BEFORE UPDATE ON privacy_ledger_secrets FOR EACH ROW EXECUTE FUNCTION privacy_ledger_stay()"
    ),
}
# Name of a function that triggers call -> its body.
_FUNCTIONS: Mapping[str, str] = {
    "privacy_ledger_refuse": f"BEGIN RAISE EXCEPTION '{_ONLY}'; END",
    "privacy_ledger_at_end": (f"BEGIN IF NEW.seq <> {_NEXT} THEN RAISE EXCEPTION '{_ONLY}'; END IF; RETURN NEW; END"),
    "privacy_ledger_stay": (
        f"BEGIN IF OLD.kind NOT IN {_LISTS} OR NEW.kind <> OLD.kind OR NEW.population <> OLD.population "
        f"THEN RAISE EXCEPTION '{_ONLY}'; END IF; RETURN NEW; END"
    ),
}
_OF_POSTGRES = """
SELECT t.tgname, pg_get_triggerdef(t.oid, true) AS definition, t.tgenabled IN ('O', 'A') AS enabled,
       p.proname, p.prosrc, l.lanname
FROM pg_trigger t
JOIN pg_class c ON c.oid = t.tgrelid
JOIN pg_proc p ON p.oid = t.tgfoid
JOIN pg_language l ON l.oid = p.prolang
WHERE NOT t.tgisinternal AND c.relname = ANY (:tables) AND pg_table_is_visible(c.oid)
"""
_RULES = "SELECT rulename FROM pg_rules WHERE tablename = ANY (:tables) AND schemaname = current_schema()"


def trigger_statements(dialect: str) -> Iterator[str]:
    """SQL statements that create the triggers, with the functions that they call."""
    if dialect == "postgresql":
        for name, body in _FUNCTIONS.items():
            yield f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $${body}$$"
    for name, definition in _triggers_of(dialect).items():
        yield f"CREATE TRIGGER {name} {definition}"


def trigger_problems(connection: Connection) -> list[str]:
    """List differences between a database's triggers and those of ``trigger_statements``, as messages."""
    dialect = connection.dialect.name
    present = _in_postgres(connection) if dialect == "postgresql" else _in_sqlite(connection)
    expected = {name: f"CREATE TRIGGER {name} {definition}" for name, definition in _triggers_of(dialect).items()}
    gone = [f"the append-only trigger {name} is gone" for name in expected if name not in present]
    changed = [
        f"the append-only trigger {name} was changed: {present[name]}"
        for name, definition in expected.items()
        if name in present and present[name] != definition
    ]
    added = [f"{name} is not one of the ledger's triggers, but is on its table" for name in present.keys() - expected]
    return sorted(gone) + sorted(changed) + sorted(added)


def _in_sqlite(connection: Connection) -> dict[str, str]:
    rows = connection.execute(text("SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'trigger'"))
    return {row.name: row.sql for row in rows if row.tbl_name.lower() in TABLES}


def _in_postgres(connection: Connection) -> dict[str, str]:
    """Trigger definitions by name, or the fault of one that is off or calls another function; rules included."""
    present = {}
    for row in connection.execute(text(_OF_POSTGRES), {"tables": list(TABLES)}):
        same = _FUNCTIONS.get(row.proname) == row.prosrc and row.lanname == "plpgsql"
        present[row.tgname] = (
            "switched off" if not row.enabled else row.definition if same else f"{row.proname}() does something else"
        )
    rules = connection.execute(text(_RULES), {"tables": list(TABLES)}).scalars()
    return present | {f"rule {name}": "" for name in rules}


def _triggers_of(dialect: str) -> Mapping[str, str]:
    return _POSTGRES if dialect == "postgresql" else _SQLITE
