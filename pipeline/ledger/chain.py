"""The entries in the database: read them, find entries, and append."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from sqlalchemy import ColumnElement, Connection, func, insert, select

from federated.config.population import PopulationKey
from pipeline.ground import clock
from pipeline.ground.errors import KeyUnusable, LedgerConflict
from pipeline.ledger import schema
from pipeline.ledger.budget import require_clock
from pipeline.ledger.entries import (
    BESIDE,
    DIGEST,
    KEY,
    NO_UNIT,
    RESULT,
    SPENDING,
    WITNESS,
    Entry,
    Keys,
    Leaf,
    Spend,
    canonical,
    is_amount,
    salt,
    with_spend,
)

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner

# Of a connection: the entries that its transaction read, and who signs what it writes.
_READ, _SIGNER = "entries", "signer"
_IS_RESULT = schema.ENTRIES.c.kind.startswith(RESULT)
_NO_AMOUNTS = {"unit": NO_UNIT, "adjacency": "", "rho": None, "epsilon": 0.0, "delta": 0.0, "note": ""}


def entries_of(connection: Connection, population: PopulationKey | None = None) -> list[Entry]:
    """All entries in order but results of stages, or those of one population.

    They are read once a transaction, which excludes every other writer.
    """
    read: dict[PopulationKey | None, list[Entry]] = connection.info.setdefault(_READ, {})
    if population not in read:
        read[population] = (
            [entry for entry in read[None] if entry.population == population]
            if None in read
            else selected(connection, ~_IS_RESULT if population is None else schema.ENTRIES.c.population == population)
        )
    return list(read[population])


def forget(connection: Connection) -> None:
    """Forget what an earlier transaction of this connection read."""
    connection.info.pop(_READ, None)


def of_launch(connection: Connection, launch_id: str, stage: str | None = None) -> list[Entry]:
    """Entries of a launch, or of one of its stages, in order."""
    columns = schema.ENTRIES.c
    where = columns.launch_id == launch_id
    return selected(connection, where if stage is None else where & (columns.stage == stage))


def of_kinds(connection: Connection, *kinds: str, population: PopulationKey | None = None) -> list[Entry]:
    """Entries of kinds that bear no number, in order, of all populations or of one."""
    columns = schema.ENTRIES.c
    where = columns.kind.in_(kinds)
    return selected(connection, where if population is None else where & (columns.population == population))


def selected(connection: Connection, where: ColumnElement[bool]) -> list[Entry]:
    found = connection.execute(select(schema.ENTRIES).where(where).order_by(schema.ENTRIES.c.seq))
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
    """Append an entry; one without a spend states a fact in its binding.

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
    entry = Entry(
        seq=length(connection) + 1,
        kind=kind,
        population=population,
        launch_id=launch_id,
        stage=stage,
        **amounts,
        binding=canonical(with_spend(binding, spend) if spend else dict(binding)),
        created_at=clock.written(clock.now()),
        salt=salt(),
        hash="",
        signature="",
    )
    digest = entry.expected_hash()
    entry = entry.model_copy(update={"hash": digest, "signature": signature(connection, digest)})
    connection.execute(insert(schema.ENTRIES).values(**entry.model_dump()))
    for key, read in connection.info.get(_READ, {}).items():
        if key == population or (key is None and entry.does != RESULT):
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
    # The spend's amounts were compared above; the witness may have been replaced since.
    compared = (before.keys() | binding.keys()) - {*BESIDE, WITNESS}
    changed = sorted(name for name in compared if before.get(name) != binding.get(name))
    if changed:
        raise LedgerConflict(
            f"{where}: the {' and the '.join(changed)} changed since the ledger's {old.kind}, so this would be "
            "a second, unaccounted release. Restore the launch's folder (its private part holds the key), "
            "or start a new launch"
        )


def require_own_key(connection: Connection, launch_id: str, stage: str, binding: Mapping[str, str]) -> None:
    """Refuse a secret key that another stage, or another launch, has reserved with, on any population.

    Guarantee: noise is a function of key, stream and number, so that two releases under one key could have the same
    noise, and their difference none. A reservation that was given back keeps its key.

    Raises:
      LedgerConflict: the ledger holds the key's commitment for another release.
    """
    holds_key = schema.ENTRIES.c.binding.contains(canonical({KEY: binding.get(KEY)})[1:-1], autoescape=True)
    for entry in selected(connection, holds_key) if KEY in binding else ():
        other = (entry.launch_id, entry.stage) != (launch_id, stage)
        if other and entry.does in SPENDING and entry.names(KEY) == binding[KEY]:
            raise LedgerConflict(
                f"{launch_id}/{stage}: {entry.launch_id}/{entry.stage} has this key, and the difference of two "
                "releases under one key has no noise. Find out how it came here, delete the file 'key' in the private "
                "folder of this stage, and run it again: it draws a key of its own"
            )


def walk(connection: Connection) -> Iterator[Entry]:
    """All entries in order, one at a time, results of stages among them."""
    for row in connection.execute(select(schema.ENTRIES).order_by(schema.ENTRIES.c.seq)):
        yield Entry.model_construct(**schema.plain(row)._mapping)


def leaves(connection: Connection, begin: int) -> list[Leaf]:
    """Entries after a place, in order, as leaves of the log."""
    columns = schema.ENTRIES.c
    rows = select(columns.seq, columns.hash, columns.signature).where(columns.seq > begin).order_by(columns.seq)
    return [Leaf(*row) for row in connection.execute(rows)]


def length(connection: Connection) -> int:
    """Number of entries, by the last one's place."""
    return connection.execute(select(func.coalesce(func.max(schema.ENTRIES.c.seq), 0))).scalar_one()


def hash_at(connection: Connection, seq: int) -> str:
    """Hash of the entry at a place, from 1; empty without one."""
    return connection.execute(select(schema.ENTRIES.c.hash).where(schema.ENTRIES.c.seq == seq)).scalar() or ""


def keys(connection: Connection, first: bytes, role: str = "ledger") -> Keys:
    """Keys of a role, and the entry from which each signs: a rotation's entry is signed by the key before."""
    rotated = rotations(connection, role)
    return [(1, first), *((entry.seq + 1, bytes.fromhex(entry.names("public"))) for entry in rotated)]


def rotations(connection: Connection, role: str) -> list[Entry]:
    """Entries that replace keys of a role, in order."""
    return [entry for entry in of_kinds(connection, "key") if entry.names("role") == role]


def sign_with(connection: Connection, signer: "CryptoSigner", valid: Keys) -> None:
    """Let a signer sign what transactions of a connection write."""
    connection.info[_SIGNER] = signer, valid[-1][1].hex()


def signature(connection: Connection, digest: str) -> str:
    """Sign an entry's hash.

    Raises:
      KeyUnusable: the ledger names another key than the signer's, as after a rotation that was interrupted.
    """
    signer, named = connection.info[_SIGNER]
    public = signer.public_key.keyval["public"]
    if public != named:
        raise KeyUnusable(
            f"the ledger's key is {named[:12]} by its entries, and the one here is {public[:12]}: if a rotation was "
            "interrupted, repeat it: tacit ledger rotate ledger; else restore the keys (TACIT_KEYS)"
        )
    return signer.sign(Leaf(0, digest).message).signature


def bind_result(connection: Connection, launch_id: str, stage: str, digest: str) -> str:
    """Append the digest of a stage's result, unless it is the last one already, and return the entry's hash.

    A record (``result.json``) is in a folder that people can write to, and states the digests of its own files, so a
    file and its digest can be changed together. Readers accept a record only if its digest is the last one of its
    stage here. A stage that runs again gets a new entry; its spend is in the ledger once.
    """
    last = latest_results(connection, launch_id).get(stage)
    if last and last[0] == digest:
        return last[1]
    kind = numbered(connection, RESULT, launch_id, stage)
    return append(connection, kind, PopulationKey(""), launch_id, stage, None, {DIGEST: digest}).hash


def latest_results(connection: Connection, launch_id: str) -> dict[str, tuple[str, str]]:
    """Digest and entry hash of the latest result of each stage of a launch."""
    of_stages = (entry for entry in of_launch(connection, launch_id) if entry.does == RESULT)
    return {entry.stage: (entry.names(DIGEST), entry.hash) for entry in of_stages}


def latest_results_of_all(connection: Connection) -> dict[tuple[str, str], str]:
    """Digest of the latest result of each stage, by launch and stage."""
    results = selected(connection, _IS_RESULT)
    return {(entry.launch_id, entry.stage): entry.names(DIGEST) for entry in results}


def holds_result(connection: Connection, digest: str) -> bool:
    """True if an entry holds the digest of a result."""
    where = _IS_RESULT & (schema.ENTRIES.c.binding == canonical({DIGEST: digest}))
    return connection.execute(select(schema.ENTRIES.c.seq).where(where).limit(1)).first() is not None
