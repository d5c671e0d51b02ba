"""The chain of entries in the database: read it, find entries, append, and list its problems."""

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import ColumnElement, Connection, insert, select, update

from federated.config.population import PopulationKey
from pipeline.ground.errors import LedgerConflict, LedgerTampered
from pipeline.ledger import clock, results, schema, triggers
from pipeline.ledger.budget import require_clock
from pipeline.ledger.entries import (
    GENESIS,
    KEY,
    NO_UNIT,
    SPENDING,
    Entry,
    canonical,
    chain_problems,
    is_amount,
    salt,
    with_spend,
)
from pipeline.ledger.leaves import Keys, Leaf, signature
from pipeline.ledger.outside import Known, Outside
from pipeline.ledger.spend import BESIDE, Spend

_READ = "entries"


_MOST_SHOWN = 8  # of problems, in an error
_NO_AMOUNTS = {"unit": NO_UNIT, "adjacency": "", "rho": None, "epsilon": 0.0, "delta": 0.0, "note": ""}


def entries_of(connection: Connection, population: PopulationKey | None = None) -> list[Entry]:
    """All entries in order, or those of one population: read once a transaction, which excludes every other writer."""
    read: dict[PopulationKey | None, list[Entry]] = connection.info.setdefault(_READ, {})
    if population not in read:
        read[population] = (
            [entry for entry in read[None] if entry.population == population]
            if None in read
            else _select(connection, None if population is None else schema.ENTRIES.c.population == population)
        )
    return list(read[population])


def forget(connection: Connection) -> None:
    """Forget what an earlier transaction of this connection read."""
    connection.info.pop(_READ, None)


def of_launch(connection: Connection, launch_id: str, stage: str | None = None) -> list[Entry]:
    """Entries of a launch, or of one of its stages, in order."""
    columns = schema.ENTRIES.c
    where = columns.launch_id == launch_id
    return _select(connection, where if stage is None else where & (columns.stage == stage))


def of_kinds(connection: Connection, *kinds: str, population: PopulationKey | None = None) -> list[Entry]:
    """Entries of kinds that bear no number, in order, of all populations or of one."""
    columns = schema.ENTRIES.c
    where = columns.kind.in_(kinds)
    return _select(connection, where if population is None else where & (columns.population == population))


def _select(connection: Connection, where: ColumnElement[bool] | None = None) -> list[Entry]:
    rows = select(schema.ENTRIES).order_by(schema.ENTRIES.c.seq)
    found = connection.execute(rows if where is None else rows.where(where))
    return [Entry.model_construct(**schema.plain(row)._mapping) for row in found]


def find(connection: Connection, launch_id: str, stage: str, kind: str) -> Entry | None:
    columns = schema.ENTRIES.c
    where = (columns.launch_id == launch_id) & (columns.stage == stage) & (columns.kind == kind)
    row = connection.execute(select(schema.ENTRIES).where(where)).one_or_none()
    return Entry.model_validate(row) if row else None


def standing_reservation(connection: Connection, launch_id: str, stage: str) -> Entry | None:
    """Return a stage's reservation that was not given back; None if there is none."""
    of_stage = [entry for entry in of_launch(connection, launch_id, stage) if entry.does in ("reserve", "release")]
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
        require_clock(entries_of(connection, population), population)
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
        salt=salt(),
        prev_hash=prev_hash,
        leaf=count + results.length(connection),
        hash="",
        signature="",
    )
    digest = entry.expected_hash()
    entry = entry.model_copy(update={"hash": digest, "signature": signature(connection, "entry", digest)})
    connection.execute(insert(schema.ENTRIES).values(**entry.model_dump()))
    connection.execute(update(schema.HEAD).values(entries=entry.seq, hash=entry.hash))
    for key, read in connection.info.get(_READ, {}).items():
        if key in (None, population):
            read.append(entry)
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


def require_own_key(entries: Iterable[Entry], launch_id: str, stage: str, binding: Mapping[str, str]) -> None:
    """Refuse a secret key that another stage, or another launch, has reserved with, on any population.

    Guarantee: noise is a function of key, stream and number, so that two releases under one key could have the same
    noise, and their difference none. A reservation that was given back keeps its key.

    Raises:
      LedgerConflict: the ledger holds the key's commitment for another release.
    """
    for entry in entries if KEY in binding else ():
        other = (entry.launch_id, entry.stage) != (launch_id, stage)
        if other and entry.does in SPENDING and entry.names(KEY) == binding[KEY]:
            raise LedgerConflict(
                f"{launch_id}/{stage}: {entry.launch_id}/{entry.stage} has this key, and the difference of two "
                "releases under one key has no noise. Find out how it came here, delete the file 'key' in the private "
                "folder of this stage, and run it again: it draws a key of its own"
            )


def require_whole(
    connection: Connection, anchors: Iterable[str] = (), outside: Outside | None = None, elsewhere: Sequence[Known] = ()
) -> list[Entry]:
    """Return all entries after checking the chain, and that it continues every checkpoint.

    Raises:
      LedgerTampered: the chain is broken, or lacks an entry of a checkpoint or of an anchor.
    """
    problems = problems_of(connection, anchors, outside, elsewhere)
    if problems:
        shown = "; ".join(problems[:_MOST_SHOWN]) + ("; ..." if len(problems) > _MOST_SHOWN else "")
        raise LedgerTampered(f"the privacy ledger was altered: {shown}. Restore it from a backup")
    return entries_of(connection)


def problems_of(
    connection: Connection, anchors: Iterable[str] = (), outside: Outside | None = None, elsewhere: Sequence[Known] = ()
) -> list[str]:
    """List the problems of both chains, as messages.

    Args:
      anchors: hashes of entries that must be there.
      outside: None leaves out signatures and the log.
      elsewhere: checkpoints that are kept elsewhere.
    """
    entries, head = entries_of(connection), schema.read_head(connection)
    problems = chain_problems(entries)
    last = entries[-1].hash if entries else GENESIS
    if head != (len(entries), last):
        problems.append(f"the head says {head[0]} entries ending in {head[1][:12]}, not {len(entries)} in {last[:12]}")
    problems += triggers.problems(connection) + results.problems(connection)
    held = leaves(connection)
    unknown = sorted(set(anchors) - {each.hash for each in held})
    problems += [f"entry {anchor[:12]} is recorded by a launch but not in the ledger" for anchor in unknown]
    return problems + (outside.problems(held, elsewhere, keys(connection, outside.first_key)) if outside else [])


def leaves(connection: Connection, begin: int = 0) -> list[Leaf]:
    """Entries of both chains from a place in the log on, in order."""
    columns = schema.ENTRIES.c
    rows = select(columns.seq, columns.hash, columns.leaf, columns.signature).where(columns.leaf >= begin)
    of_entries = [Leaf.of("entry", *row) for row in connection.execute(rows)]
    return sorted([*of_entries, *results.leaves(connection, begin)], key=lambda leaf: leaf.place)


def revealed(connection: Connection, launch_id: str) -> list[tuple[Leaf, str]]:
    """A launch's entries of both chains as leaves of the log, each with what may be shown of it."""
    of_entries = [
        (Leaf.of("entry", entry.seq, entry.hash, entry.leaf, entry.signature), entry.revealed)
        for entry in of_launch(connection, launch_id)
    ]
    return of_entries + results.revealed_of_launch(connection, launch_id)


def length(connection: Connection) -> int:
    """Number of entries of both chains."""
    return schema.read_head(connection)[0] + results.length(connection)


def keys(connection: Connection, first: bytes, role: str = "ledger") -> Keys:
    """Keys of a role, and the leaf from which each signs: a rotation's entry is signed by the key before."""
    rotated = (entry for entry in of_kinds(connection, "key") if entry.names("role") == role)
    return [(0, first), *((entry.leaf + 1, bytes.fromhex(entry.names("public"))) for entry in rotated)]
