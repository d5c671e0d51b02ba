"""The chain of entries in the database: read it, find entries, append, and list its problems."""

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Connection, insert, select, update

from federated.config.population import PopulationKey
from pipeline.ground.errors import LedgerConflict, LedgerTampered
from pipeline.ledger import clock, receipts, results, schema, triggers
from pipeline.ledger.budget import require_clock
from pipeline.ledger.entries import (
    GENESIS,
    NO_UNIT,
    Entry,
    canonical,
    chain_problems,
    is_amount,
    with_spend,
)
from pipeline.ledger.receipts import ChainEntry, Receipt
from pipeline.ledger.spend import BESIDE, Spend

_READ = "entries"
_MOST_SHOWN = 8  # of problems, in an error
_NO_AMOUNTS = {"unit": NO_UNIT, "adjacency": "", "rho": None, "epsilon": 0.0, "delta": 0.0, "note": ""}


def entries_of(connection: Connection) -> list[Entry]:
    """All entries in order: read once a transaction, which excludes every other writer."""
    if _READ not in connection.info:
        rows = connection.execute(select(schema.ENTRIES).order_by(schema.ENTRIES.c.seq))
        connection.info[_READ] = [Entry.model_construct(**schema.plain(row)._mapping) for row in rows]
    return list(connection.info[_READ])


def forget(connection: Connection) -> None:
    """Forget what an earlier transaction of this connection read."""
    connection.info.pop(_READ, None)


def find(connection: Connection, launch_id: str, stage: str, kind: str) -> Entry | None:
    columns = schema.ENTRIES.c
    where = (columns.launch_id == launch_id) & (columns.stage == stage) & (columns.kind == kind)
    row = connection.execute(select(schema.ENTRIES).where(where)).one_or_none()
    return Entry.model_validate(row) if row else None


def standing_reservation(connection: Connection, launch_id: str, stage: str) -> Entry | None:
    """Return a stage's reservation that was not given back; None if there is none."""
    of_stage = [
        entry
        for entry in entries_of(connection)
        if (entry.launch_id, entry.stage) == (launch_id, stage) and entry.does in ("reserve", "release")
    ]
    return Entry.model_validate(of_stage[-1]) if of_stage and of_stage[-1].does == "reserve" else None


def numbered(connection: Connection, kind: str, launch_id: str, stage: str) -> str:
    """Numbered kind of the next entry, as each is unique per stage: ``reserve``, then ``reserve 2``."""
    columns = schema.ENTRIES.c
    where = (columns.launch_id == launch_id) & (columns.stage == stage)
    kinds = connection.execute(select(columns.kind).where(where)).scalars()
    before = sum(each.partition(" ")[0] == kind for each in kinds)
    return kind if before == 0 else f"{kind} {before + 1}"


def append(
    connection: Connection,
    kind: str,
    population: PopulationKey,
    launch_id: str,
    stage: str,
    spend: Spend | None,
    binding: Mapping[str, object],
) -> Entry:
    """Append an entry to the chain; an entry without a spend states a fact in its binding.

    Raises:
      PermanentError: it has a spend, and the clock is far ahead (``require_clock``).
    """
    if spend:
        require_clock(entries_of(connection), population)
    amounts = spend.model_dump(exclude=set(BESIDE)) if spend else _NO_AMOUNTS
    failure = spend.failure if spend else 0.0
    if not all(map(is_amount, (amounts["epsilon"], amounts["delta"], amounts["rho"] or 0.0, failure))):
        # ``Spend`` refuses it too, but a value can be constructed without its checks.
        raise ValueError(f"{launch_id}/{stage}: a spend of {spend} is negative or not finite; state what it costs")
    count, prev_hash = schema.read_head(connection)
    entry = Entry(
        seq=count + 1,
        kind=kind,
        population=population,
        launch_id=launch_id,
        stage=stage,
        **amounts,
        binding=canonical(with_spend(binding, spend) if spend else dict(binding)),
        created_at=clock.written(clock.now()),
        prev_hash=prev_hash,
        hash="",
    )
    entry = entry.model_copy(update={"hash": entry.expected_hash()})
    connection.execute(insert(schema.ENTRIES).values(**entry.model_dump()))
    connection.execute(update(schema.HEAD).values(entries=entry.seq, hash=entry.hash))
    if _READ in connection.info:
        connection.info[_READ].append(entry)
    return entry


def require_same(old: Entry, population: PopulationKey, spend: Spend, binding: Mapping[str, object]) -> None:
    where = f"{old.launch_id}/{old.stage}"
    if (old.population, old.spend) != (population, spend):
        raise LedgerConflict(
            f"{where}: the ledger holds a {old.kind} of rho {old.rho}, epsilon {old.epsilon}, delta {old.delta} on "
            f"{old.population!r}; this attempt says rho {spend.rho}, epsilon {spend.epsilon}, delta {spend.delta} on "
            f"{population!r}. A launch releases once: start a new launch for other amounts"
        )
    before = old.content
    # The spend's amounts were compared above.
    compared = (before.keys() | binding.keys()) - set(BESIDE)
    changed = sorted(name for name in compared if before.get(name) != binding.get(name))
    if changed:
        raise LedgerConflict(
            f"{where}: the {' and the '.join(changed)} changed since the ledger's {old.kind}, so this would be "
            "a second, unaccounted release. Restore the launch's folder (its private part holds the key), "
            "or start a new launch"
        )


def require_whole(connection: Connection, anchors: Iterable[str] = (), outside: Sequence[Receipt] = ()) -> list[Entry]:
    """Return all entries after checking the chain, and that it holds those which anchors and receipts name.

    Raises:
      LedgerTampered: the chain is broken, or lacks one of them.
    """
    problems = problems_of(connection, anchors, outside)
    if problems:
        shown = "; ".join(problems[:_MOST_SHOWN]) + ("; ..." if len(problems) > _MOST_SHOWN else "")
        raise LedgerTampered(f"the privacy ledger was altered: {shown}. Restore it from a backup")
    return entries_of(connection)


def problems_of(connection: Connection, anchors: Iterable[str] = (), outside: Sequence[Receipt] = ()) -> list[str]:
    entries, head = entries_of(connection), schema.read_head(connection)
    problems = chain_problems(entries)
    last = entries[-1].hash if entries else GENESIS
    if head != (len(entries), last):
        problems.append(f"the head says {head[0]} entries ending in {head[1][:12]}, not {len(entries)} in {last[:12]}")
    problems += triggers.problems(connection) + results.problems(connection)
    held = written(connection)
    unknown = sorted(set(anchors) - {each.hash for each in held})
    problems += [f"entry {anchor[:12]} is recorded by a launch but not in the ledger" for anchor in unknown]
    return problems + receipts.problems(outside, held)


def written(connection: Connection) -> list[ChainEntry]:
    """Places and hashes of all entries of both chains."""
    entries = [ChainEntry("entry", entry.seq, entry.hash, entry.launch_id) for entry in entries_of(connection)]
    return entries + results.written(connection)
