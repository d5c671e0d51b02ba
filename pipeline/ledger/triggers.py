"""Triggers that make the ledger's tables append-only, and a comparison of their content with a database's triggers.

Guarantee: ``problems`` reports a trigger that is gone, that does something else under its name, that is switched off,
or that is on a ledger table without being one of them; also a rule of PostgreSQL, which acts before any trigger.
"""

from collections.abc import Iterator, Mapping

from sqlalchemy import Connection, text

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


def statements(dialect: str, *tables: str) -> Iterator[str]:
    """SQL statements that create the triggers of the given tables, with the functions that they call."""
    if dialect == "postgresql":
        for name, body in _FUNCTIONS.items():
            yield f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $${body}$$"
    for name, definition in _of(dialect).items():
        if any(f" ON {table} " in definition for table in tables):
            yield f"CREATE TRIGGER {name} {definition}"


def problems(connection: Connection) -> list[str]:
    """List differences between a database's triggers and those of ``statements``, as messages."""
    dialect = connection.dialect.name
    present = _in_postgres(connection) if dialect == "postgresql" else _in_sqlite(connection)
    expected = {name: f"CREATE TRIGGER {name} {definition}" for name, definition in _of(dialect).items()}
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


def _of(dialect: str) -> Mapping[str, str]:
    return _POSTGRES if dialect == "postgresql" else _SQLITE
