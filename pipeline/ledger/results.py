"""What the stages of every launch said, as digests in a chain of their own beside the privacy ledger.

A record (``result.json``) lies where people write, and states the digests of its own files: whoever changes a file
changes the digest along. So the runner writes the digest of each record down here when its stage ends, in the
ledger's database, which is append-only and which no stage and no tracking server writes to. A record that is not the
last one written down for its stage was not made by a stage of this installation.

A stage that is run again has a new entry; what it spent is in the ledger itself, once.
"""

import hashlib
from datetime import UTC, datetime

from sqlalchemy import Column, Connection, Integer, MetaData, Row, Table, Text, insert, select, text

from pipeline.ledger.entries import GENESIS, canonical

_METADATA = MetaData()
_RESULTS = Table(
    "privacy_ledger_results",
    _METADATA,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("launch_id", Text, nullable=False),
    Column("stage", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("created_at", Text, nullable=False),
    Column("prev_hash", Text, nullable=False, unique=True),
    Column("hash", Text, nullable=False, unique=True),
)
_ONLY = "what stages said is append-only"
_SQLITE_TRIGGERS = {
    "privacy_ledger_results_no_update": f"BEFORE UPDATE ON {_RESULTS.name} BEGIN SELECT RAISE(ABORT, '{_ONLY}'); END",
    "privacy_ledger_results_no_delete": f"BEFORE DELETE ON {_RESULTS.name} BEGIN SELECT RAISE(ABORT, '{_ONLY}'); END",
}
_POSTGRES_TRIGGERS = {
    "privacy_ledger_results_no_change": (
        f"BEFORE UPDATE OR DELETE OR TRUNCATE ON {_RESULTS.name} FOR EACH STATEMENT EXECUTE FUNCTION "
        "privacy_ledger_refuse()"
    ),
}


def write(connection: Connection, launch_id: str, stage: str, digest: str) -> str:
    """Write down the digest of what a stage said, unless it is the last one already; the entry's hash."""
    if not _there(connection):
        _METADATA.create_all(connection)
        for name, body in _triggers(connection).items():
            connection.execute(text(f"CREATE TRIGGER {name} {body}"))
    rows = _rows(connection)
    last = next((row for row in reversed(rows) if (row.launch_id, row.stage) == (launch_id, stage)), None)
    if last and last.digest == digest:
        return last.hash
    content = {
        "seq": len(rows) + 1,
        "launch_id": launch_id,
        "stage": stage,
        "digest": digest,
        "created_at": datetime.now(UTC).isoformat(timespec="microseconds"),
        "prev_hash": rows[-1].hash if rows else GENESIS,
    }
    entry_hash = _hash(content)
    connection.execute(insert(_RESULTS).values(**content, hash=entry_hash))
    return entry_hash


def latest(connection: Connection, launch_id: str) -> dict[str, tuple[str, str]]:
    """Digest and entry hash of what each stage of a launch said last."""
    return {row.stage: (row.digest, row.hash) for row in _rows(connection) if row.launch_id == launch_id}


def hashes(connection: Connection) -> set[str]:
    """Hashes of all entries, to hold receipts against."""
    return {row.hash for row in _rows(connection)}


def problems(connection: Connection) -> list[str]:
    """Where the chain of results is broken, in words; none where no result was ever written."""
    if not _there(connection):
        return []
    broken, previous = [], GENESIS
    for position, row in enumerate(_rows(connection), start=1):
        content = {name: value for name, value in row._mapping.items() if name != "hash"}
        if (row.seq, row.prev_hash, row.hash) != (position, previous, _hash(content)):
            broken.append(
                f"result {row.seq} ({row.launch_id}/{row.stage}) is not what was written, or not in its place"
            )
        previous = row.hash
    query = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
    if connection.dialect.name == "postgresql":
        query = "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal AND tgenabled IN ('O', 'A')"
    present = set(connection.execute(text(query)).scalars())
    return broken + [
        f"the append-only trigger {name} is gone" for name in sorted(_triggers(connection).keys() - present)
    ]


def _there(connection: Connection) -> bool:
    return connection.dialect.has_table(connection, _RESULTS.name)


def _rows(connection: Connection) -> list[Row]:
    return list(connection.execute(select(_RESULTS).order_by(_RESULTS.c.seq))) if _there(connection) else []


def _hash(content: dict) -> str:
    return hashlib.sha256(canonical(content).encode()).hexdigest()


def _triggers(connection: Connection) -> dict[str, str]:
    return _POSTGRES_TRIGGERS if connection.dialect.name == "postgresql" else _SQLITE_TRIGGERS
