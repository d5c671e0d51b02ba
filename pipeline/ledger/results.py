"""Digests of every stage's results, in a hash chain of their own beside the privacy ledger.

A record (``result.json``) is in a folder that people can write to, and states the digests of its own files, so a file
and its digest can be changed together. The runner therefore writes the digest of each record here when its stage ends,
in the ledger's database, which is append-only and which no stage and no tracking server writes to. Readers accept a
record only if its digest is the last one written for its stage.

A stage that runs again gets a new entry; its spend is in the ledger itself, once.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

from sqlalchemy import Connection, Row, func, insert, select

from pipeline.ledger.entries import GENESIS, revealed, salt, sha256_of
from pipeline.ledger.leaves import Leaf, signature
from pipeline.ledger.schema import RESULTS, plain, read_head

_WITHHELD = ("created_at", "salt", "prev_hash")
_SHOWN = ("seq", "launch_id", "stage", "digest", "leaf")


def write(connection: Connection, launch_id: str, stage: str, digest: str) -> str:
    """Append the digest of a stage's result, unless it is the last one already, and return the entry's hash."""
    last = latest(connection, launch_id).get(stage)
    if last and last[0] == digest:
        return last[1]
    end = connection.execute(select(RESULTS).order_by(RESULTS.c.seq.desc()).limit(1)).one_or_none()
    content = {
        "seq": end.seq + 1 if end else 1,
        "launch_id": launch_id,
        "stage": stage,
        "digest": digest,
        "created_at": datetime.now(UTC).isoformat(timespec="microseconds"),
        "salt": salt(),
        "prev_hash": end.hash if end else GENESIS,
        "leaf": read_head(connection)[0] + (end.seq if end else 0),
    }
    entry_hash = sha256_of(revealed_of(content))
    signed = signature(connection, "result", entry_hash)
    connection.execute(insert(RESULTS).values(**content, hash=entry_hash, signature=signed))
    return entry_hash


def latest(connection: Connection, launch_id: str) -> dict[str, tuple[str, str]]:
    """Digest and entry hash of the latest result of each stage of a launch."""
    if not _there(connection):
        return {}  # No record counts; ``problems`` lists the reason.
    of_launch = select(RESULTS).where(RESULTS.c.launch_id == launch_id).order_by(RESULTS.c.seq)
    return {row.stage: (row.digest, row.hash) for row in connection.execute(of_launch)}


def latest_of_all(connection: Connection) -> dict[tuple[str, str], str]:
    """Digest of the latest result of each stage, by launch and stage."""
    return {(row.launch_id, row.stage): row.digest for row in _rows(connection)}


def holds(connection: Connection, digest: str) -> bool:
    """True if the chain holds a digest."""
    return connection.execute(select(RESULTS.c.seq).where(RESULTS.c.digest == digest).limit(1)).first() is not None


def leaves(connection: Connection, begin: int) -> list[Leaf]:
    """Entries from a place in the log on, in order."""
    if not _there(connection):
        return []
    columns = RESULTS.c
    rows = select(columns.seq, columns.hash, columns.leaf, columns.signature).where(columns.leaf >= begin)
    return [Leaf.of("result", *row) for row in connection.execute(rows.order_by(columns.leaf))]


def revealed_of_launch(connection: Connection, launch_id: str) -> list[tuple[Leaf, str]]:
    """Entries of a launch, in order, each with what may be shown of it."""
    rows = connection.execute(select(RESULTS).where(RESULTS.c.launch_id == launch_id).order_by(RESULTS.c.seq))
    return [
        (Leaf.of("result", row["seq"], row["hash"], row["leaf"], row["signature"]), revealed_of(dict(row)))
        for row in rows.mappings()
    ]


def length(connection: Connection) -> int:
    """Place of the last entry; 0 without one."""
    if not _there(connection):
        return 0
    return connection.execute(select(func.coalesce(func.max(RESULTS.c.seq), 0))).scalar_one()


def problems(connection: Connection) -> list[str]:
    """List breaks of the chain of results, as messages."""
    if not _there(connection):
        return [f"the table {RESULTS.name} is gone, and with it the digests of all stage results"]
    broken, previous = [], GENESIS
    for position, row in enumerate(_rows(connection), start=1):
        if (row.seq, row.prev_hash, row.hash) != (position, previous, sha256_of(revealed_of(dict(row._mapping)))):
            broken.append(f"result {row.seq} ({row.launch_id}/{row.stage}) was altered, or is out of place")
        previous = row.hash
    return broken


def _there(connection: Connection) -> bool:
    return connection.dialect.has_table(connection, RESULTS.name)


def _rows(connection: Connection) -> list[Row]:
    if not _there(connection):
        return []
    return [plain(row) for row in connection.execute(select(RESULTS).order_by(RESULTS.c.seq))]


def revealed_of(content: Mapping[str, object]) -> str:
    """The part of an entry that a proof publishes, with a digest of the rest, as ``Entry.revealed``."""
    return revealed({name: content[name] for name in _SHOWN}, {name: content[name] for name in _WITHHELD})
