"""``PrivacyLedger``: what every launch spent on every population, for as long as the database lives.

Guarantee: with all writers going through this class, the device-level rho of a population
(the sum over launches of what was reserved, or of what was committed in its place) never
passes the budget named at the reservation, as long as no stage spends more than it reserved
(if one does, that is recorded, and nothing more can be reserved). A reservation counts as spent from the moment it
is written, before any noise is drawn, and for ever if the launch dies. zCDP composes by addition over
launches (Bun & Steinke 2016, lemma 1.7), however adaptively they were chosen. Item-level epsilons of
discovery never join that sum. They have one of their own, with a budget where one is named: a typed word may be
asked for in every launch, and its local losses add up (basic composition).

Entries are chained: each holds the SHA-256 of its own canonical JSON, which includes the hash
of the entry before. Triggers refuse updates, deletions and insertions anywhere but at the
end. ``verify`` finds what got past them; ``anchors`` (hashes written into finished stages'
records) expose a ledger that was rewritten from the start.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime

from sqlalchemy import Connection, create_engine, event, exc, insert, select, update
from sqlalchemy.engine import Engine, make_url

from pipeline.errors import LedgerConflict, LedgerTampered, ServiceUnavailable
from pipeline.ledger import schema
from pipeline.ledger.entries import GENESIS, Entry, canonical, chain_problems, require_room, total_spent
from pipeline.stage import Spend


class PrivacyLedger:
    """The ledger behind a SQLAlchemy URL; SQLite and PostgreSQL are supported."""

    def __init__(self, url: str) -> None:
        """Connect, and make the tables if they are missing.

        Raises:
          ValueError: the URL is not one of a supported database.
          ServiceUnavailable: the database does not answer.
        """
        self._engine = _engine(url)
        with self._transaction() as connection:
            schema.create(connection)

    def reserve(
        self,
        *,
        population: str,
        launch_id: str,
        stage: str,
        spend: Spend,
        budget_rho: float,
        binding: Mapping[str, str],
        budget_discovery_epsilon: float | None = None,
    ) -> Entry:
        """Write a spend down before it happens. The same reservation again is free.

        Args:
          budget_rho: ceiling on the population's device-level rho.
          budget_discovery_epsilon: ceiling on its item-level epsilon; None for no ceiling.

        Raises:
          BudgetExceeded: there is no room; the numbers are in the message.
          LedgerConflict: this stage of this launch already reserved something else.
          LedgerTampered: the ledger cannot be relied on.
        """
        with self._transaction() as connection:
            problems = _problems(connection)
            if problems:
                raise LedgerTampered(
                    f"the privacy ledger is not what was written to it: {'; '.join(problems)}. Restore it from a backup"
                )
            old = _find(connection, launch_id, stage, "reserve")
            if old:
                _require_same(old, population, spend, binding)
                return old
            ceiling = budget_rho if spend.unit == "device" else budget_discovery_epsilon
            require_room(_entries(connection), population, launch_id, spend, ceiling)
            return _append(connection, "reserve", population, launch_id, stage, spend, binding)

    def commit(self, launch_id: str, stage: str, spend: Spend) -> Entry:
        """Replace a reservation's amount by what was really spent. The same commit again is free.

        A spend above its reservation is written down as it happened: the ledger records, and
        the gates of the launch refuse it.

        Raises:
          LedgerConflict: nothing was reserved, or another amount was committed.
        """
        with self._transaction() as connection:
            reserved = _find(connection, launch_id, stage, "reserve")
            if reserved is None:
                raise LedgerConflict(f"{launch_id}/{stage}: nothing was reserved; reserve before any noise is drawn")
            binding = json.loads(reserved.binding)
            old = _find(connection, launch_id, stage, "commit")
            if old:
                _require_same(old, reserved.population, spend, binding)
                return old
            if (spend.unit, spend.adjacency) != (reserved.unit, reserved.adjacency):
                raise LedgerConflict(
                    f"{launch_id}/{stage}: reserved per {reserved.unit} ({reserved.adjacency}), committed per "
                    f"{spend.unit} ({spend.adjacency}); the two cannot replace each other"
                )
            return _append(connection, "commit", reserved.population, launch_id, stage, spend, binding)

    def entries(self, population: str | None = None) -> list[Entry]:
        """All entries in order, or those of one population."""
        with self._transaction() as connection:
            return [entry for entry in _entries(connection) if population in (None, entry.population)]

    def total(self, population: str) -> float:
        """Device-level rho spent on a population: commits, and reservations that have none."""
        return total_spent(self.entries(), population, "device")

    def discovery_total(self, population: str) -> float:
        """Item-level epsilon spent on a population; a figure of its own, of no use beside a rho."""
        return total_spent(self.entries(), population, "item")

    def verify(self, anchors: Iterable[str] = ()) -> list[str]:
        """Problems found, in words; an empty list means the ledger is whole.

        Args:
          anchors: entry hashes known from elsewhere, such as stage records; each must be in the chain.
        """
        with self._transaction() as connection:
            return _problems(connection, anchors)

    def export(self) -> dict:
        """The whole ledger as JSON values, with totals and what ``verify`` finds."""
        entries, problems = self.entries(), self.verify()
        names = sorted({entry.population for entry in entries})
        return {
            "entries": [entry.model_dump() for entry in entries],
            "totals": {name: total_spent(entries, name, "device") for name in names},
            "discovery_totals": {name: total_spent(entries, name, "item") for name in names},
            "head": entries[-1].hash if entries else GENESIS,
            "ok": not problems,
            "problems": problems,
        }

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """One transaction at a time over all processes and machines."""
        try:
            with self._engine.begin() as connection:
                schema.serialise(connection)
                yield connection
        except exc.OperationalError as error:
            raise ServiceUnavailable(f"the privacy ledger's database does not answer: {error.orig}") from error


def _engine(url: str) -> Engine:
    try:
        dialect = make_url(url).get_backend_name()
    except exc.ArgumentError as error:
        raise ValueError(
            "TACIT_LEDGER_URL: not a database URL; use sqlite:////absolute/path/ledger.db or "
            "postgresql+psycopg2://user:password@host/database"
        ) from error
    if dialect not in ("sqlite", "postgresql"):
        raise ValueError(f"TACIT_LEDGER_URL: {dialect!r} is not supported; use sqlite or postgresql")
    if dialect == "postgresql":
        return create_engine(url, pool_pre_ping=True)
    schema.prepare_sqlite_folder(make_url(url).database)
    engine = create_engine(url, connect_args={"timeout": 60})
    event.listen(engine, "connect", schema.sqlite_manual_transactions)
    event.listen(engine, "begin", schema.sqlite_begin_immediate)
    return engine


def _entries(connection: Connection) -> list[Entry]:
    rows = connection.execute(select(schema.ENTRIES).order_by(schema.ENTRIES.c.seq))
    return [Entry.model_construct(**row._mapping) for row in rows]


def _find(connection: Connection, launch_id: str, stage: str, kind: str) -> Entry | None:
    columns = schema.ENTRIES.c
    where = (columns.launch_id == launch_id) & (columns.stage == stage) & (columns.kind == kind)
    row = connection.execute(select(schema.ENTRIES).where(where)).one_or_none()
    return Entry.model_validate(row) if row else None


def _append(
    connection: Connection,
    kind: str,
    population: str,
    launch_id: str,
    stage: str,
    spend: Spend,
    binding: Mapping[str, str],
) -> Entry:
    count, prev_hash = schema.read_head(connection)
    entry = Entry(
        seq=count + 1,
        kind=kind,
        population=population,
        launch_id=launch_id,
        stage=stage,
        **spend.model_dump(),
        binding=canonical(dict(binding)),
        created_at=datetime.now(UTC).isoformat(timespec="microseconds"),
        prev_hash=prev_hash,
        hash="",
    )
    entry = entry.model_copy(update={"hash": entry.expected_hash()})
    connection.execute(insert(schema.ENTRIES).values(**entry.model_dump()))
    connection.execute(update(schema.HEAD).values(entries=entry.seq, hash=entry.hash))
    return entry


def _require_same(old: Entry, population: str, spend: Spend, binding: Mapping[str, str]) -> None:
    where = f"{old.launch_id}/{old.stage}"
    if (old.population, old.spend) != (population, spend):
        raise LedgerConflict(
            f"{where}: the ledger holds a {old.kind} of rho {old.rho}, epsilon {old.epsilon}, delta {old.delta} on "
            f"{old.population!r}; this attempt says rho {spend.rho}, epsilon {spend.epsilon}, delta {spend.delta} on "
            f"{population!r}. A launch releases once: start a new launch for other amounts"
        )
    before = json.loads(old.binding)
    changed = sorted(name for name in before.keys() | binding.keys() if before.get(name) != binding.get(name))
    if changed:
        raise LedgerConflict(
            f"{where}: the {' and the '.join(changed)} changed since the ledger's {old.kind}, so this would be "
            "a second release that nobody accounted for. Restore the launch's folder (its private part holds the key), "
            "or start a new launch"
        )


def _problems(connection: Connection, anchors: Iterable[str] = ()) -> list[str]:
    entries, head = _entries(connection), schema.read_head(connection)
    problems = chain_problems(entries)
    last = entries[-1].hash if entries else GENESIS
    if head != (len(entries), last):
        problems.append(f"the head says {head[0]} entries ending in {head[1][:12]}, not {len(entries)} in {last[:12]}")
    problems += [f"the append-only trigger {name} is gone" for name in schema.missing_triggers(connection)]
    recorded = {entry.hash for entry in entries}
    unknown = sorted(set(anchors) - recorded)
    return problems + [f"entry {anchor[:12]} is recorded by a launch but not in the ledger" for anchor in unknown]
