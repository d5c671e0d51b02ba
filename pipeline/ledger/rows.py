"""Rows of the database: entries, which are read, found and appended, and the secrets that entries bind.

Secrets are the device key, and split secrets, devices and withdrawals of populations.

Guarantee: an entry binds each secret by the SHA-256 of a random salt and the secret, so that a reader of all entries
can test no guess of it. A row that its latest entry does not bind is refused whenever it is read, and found by
``secret_problems``.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from sqlalchemy import ColumnElement, Connection, func, insert, select, update

from federated.config.population import PopulationKey
from federated.devices.withdrawals import HASH_BYTES, Withdrawals, withdrawal_key
from pipeline.ground import clock
from pipeline.ground.errors import KeyUnusable, LedgerConflict, LedgerTampered
from pipeline.ledger.budget import REGISTRATION, Population, require_clock, require_registered
from pipeline.ledger.database import ENTRIES, SECRETS, plain
from pipeline.ledger.entries import (
    BESIDE,
    DIGEST,
    KEY,
    RESULT,
    SECRET,
    SPENDING,
    WITNESS,
    Entry,
    Keys,
    Leaf,
    Spend,
    canonical,
    is_amount,
    unsigned,
)
from pretrain.randomness.entropy import fresh_bytes

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner

# Of a connection: the entries that its transaction read, and who signs what it writes.
_READ, _SIGNER = "entries", "signer"
IS_RESULT = ENTRIES.c.kind.startswith(RESULT)
NOBODY = PopulationKey("")
# Kind of the binding entry -> the secret's name in messages.
SECRETS_OF = {
    "device_key": "key of device hashes",
    "register": "split secret",
    "devices": "list of devices",
    "withdrawal": "list of withdrawals",
}
_SALT_BYTES = 32


def entries_of(connection: Connection, population: PopulationKey | None = None) -> list[Entry]:
    """All entries in order but results of stages, or those of one population.

    They are read once a transaction, which excludes every other writer.
    """
    read: dict[PopulationKey | None, list[Entry]] = connection.info.setdefault(_READ, {})
    if population not in read:
        read[population] = (
            [entry for entry in read[None] if entry.population == population]
            if None in read
            else selected(connection, ~IS_RESULT if population is None else ENTRIES.c.population == population)
        )
    return list(read[population])


def of_launch(connection: Connection, launch_id: str, stage: str | None = None) -> list[Entry]:
    """Entries of a launch, or of one of its stages, in order."""
    columns = ENTRIES.c
    where = columns.launch_id == launch_id
    return selected(connection, where if stage is None else where & (columns.stage == stage))


def of_kinds(connection: Connection, *kinds: str, population: PopulationKey | None = None) -> list[Entry]:
    """Entries of kinds that bear no number, in order, of all populations or of one."""
    columns = ENTRIES.c
    where = columns.kind.in_(kinds)
    return selected(connection, where if population is None else where & (columns.population == population))


def selected(connection: Connection, where: ColumnElement[bool]) -> list[Entry]:
    found = connection.execute(select(ENTRIES).where(where).order_by(ENTRIES.c.seq))
    return [Entry.model_construct(**plain(row)._mapping) for row in found]


def find(connection: Connection, launch_id: str, stage: str, kind: str) -> Entry | None:
    columns = ENTRIES.c
    where = (columns.launch_id == launch_id) & (columns.stage == stage) & (columns.kind == kind)
    row = connection.execute(select(ENTRIES).where(where)).one_or_none()
    return Entry.model_validate(row) if row else None


def standing_reservation(connection: Connection, launch_id: str, stage: str) -> Entry | None:
    """Return a stage's reservation that was not given back; None if there is none."""
    of_stage = [entry for entry in of_launch(connection, launch_id, stage) if entry.does in ("reserve", "release")]
    return Entry.model_validate(of_stage[-1]) if of_stage and of_stage[-1].does == "reserve" else None


def numbered(connection: Connection, kind: str, launch_id: str, stage: str) -> str:
    """Numbered kind of the next entry, as each is unique per stage: ``reserve``, then ``reserve 2``."""
    before = sum(entry.does == kind for entry in of_launch(connection, launch_id, stage))
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
        if not all(map(is_amount, (spend.epsilon, spend.delta, spend.rho or 0.0, spend.failure))):
            # ``Spend`` refuses it too, but a value can be constructed without its checks.
            raise ValueError(f"{launch_id}/{stage}: a spend of {spend} is negative or not finite; state what it costs")
    seq, at = length(connection) + 1, clock.written(clock.now())
    entry = unsigned(seq, kind, population, launch_id, stage, spend, binding, at)
    entry = entry.model_copy(update={"signature": signature(connection, entry.hash)})
    connection.execute(insert(ENTRIES).values(**entry.model_dump()))
    for key, read in connection.info.get(_READ, {}).items():
        if key == population or (key is None and entry.does != RESULT):
            read.append(entry)
    return entry


def append_numbered(
    connection: Connection, kind: str, population: PopulationKey, content: Mapping[str, object]
) -> Entry:
    """Append an entry of no launch, of a kind that a population may repeat."""
    number = len(of_kinds(connection, kind, population=population)) + 1
    return append(connection, kind, population, "", f"{population or kind} {number}", None, content)


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
    holds_key = ENTRIES.c.binding.contains(canonical({KEY: binding.get(KEY)})[1:-1], autoescape=True)
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
    for row in connection.execute(select(ENTRIES).order_by(ENTRIES.c.seq)):
        yield Entry.model_construct(**plain(row)._mapping)


def leaves(connection: Connection, begin: int) -> list[Leaf]:
    """Entries after a place, in order, as leaves of the log."""
    columns = ENTRIES.c
    rows = select(columns.seq, columns.hash, columns.signature).where(columns.seq > begin).order_by(columns.seq)
    return [Leaf(*row) for row in connection.execute(rows)]


def length(connection: Connection) -> int:
    """Number of entries, by the last one's place."""
    return connection.execute(select(func.coalesce(func.max(ENTRIES.c.seq), 0))).scalar_one()


def hash_at(connection: Connection, seq: int) -> str:
    """Hash of the entry at a place, from 1; empty without one."""
    return connection.execute(select(ENTRIES.c.hash).where(ENTRIES.c.seq == seq)).scalar() or ""


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


def secret(connection: Connection, kind: str, population: PopulationKey = NOBODY) -> bytes:
    """Return a secret; empty if no entry binds one.

    Raises:
      LedgerTampered: it is gone, or not the one that its latest entry binds.
    """
    content, noted = _content(connection, kind, population), of_kinds(connection, kind, population=population)
    if (None if content is None else _digest(kind, content)) != (noted[-1].names(SECRET) if noted else None):
        raise LedgerTampered(f"the privacy ledger was altered: {_fault(kind, population)}; restore it from a backup")
    return b"" if content is None else content[_SALT_BYTES:]


def put_secret(
    connection: Connection, kind: str, population: PopulationKey, hidden: bytes, salt: bytes | None = None
) -> dict[str, object]:
    """Store a secret, and return what its entry, which the caller appends, says of it.

    Args:
      salt: by default random; that of a secret that everybody may know is constant.
    """
    content = (fresh_bytes(_SALT_BYTES) if salt is None else salt) + hidden
    where = (SECRETS.c.kind == kind) & (SECRETS.c.population == population)
    if _content(connection, kind, population) is None:
        connection.execute(insert(SECRETS).values(kind=kind, population=population, content=content))
    else:
        connection.execute(update(SECRETS).where(where).values(content=content))
    return {SECRET: _digest(kind, content)}


def write_secret(connection: Connection, kind: str, hidden: bytes, population: PopulationKey = NOBODY) -> None:
    """Store a secret with an entry of its own."""
    append_numbered(connection, kind, population, put_secret(connection, kind, population, hidden))


def secret_problems(connection: Connection, bound: Mapping[tuple[str, str], str]) -> Iterator[str]:
    """List secrets that are gone, that no entry binds, or that another entry binds, as messages.

    Args:
      bound: digest in the latest entry of each kind and population.
    """
    held = {(row.kind, row.population): _digest(row.kind, row.content) for row in connection.execute(select(SECRETS))}
    for place in sorted(bound.keys() | held.keys(), key=str):
        if bound.get(place) != held.get(place):
            yield _fault(*place)


def _content(connection: Connection, kind: str, population: str) -> bytes | None:
    where = (SECRETS.c.kind == kind) & (SECRETS.c.population == population)
    return connection.execute(select(SECRETS.c.content).where(where)).scalar_one_or_none()


def _digest(kind: str, content: object) -> str:
    """Digest of a salt and a secret; empty for what SQLite may hold in a column of bytes and is none."""
    return hashlib.sha256(f"tacit {kind}\n".encode() + content).hexdigest() if isinstance(content, bytes) else ""


def _fault(kind: str, population: str) -> str:
    owner = f" of population {population!r}" if population else ""
    return f"the {SECRETS_OF.get(kind, kind)}{owner} is not the one that its entry binds"


def population(connection: Connection, key: PopulationKey) -> Population:
    """Return a registered population; see ``budget.require_registered``."""
    return require_registered(of_kinds(connection, *REGISTRATION, population=key), key)


def split_secret(connection: Connection, key: PopulationKey) -> bytes:
    """Return a population's split secret; see ``PrivacyLedger.split_secret``."""
    population(connection, key)
    return secret(connection, "register", key)


def withdrawn(connection: Connection, key: PopulationKey) -> Withdrawals:
    """Return the devices that are excluded from a population; see ``PrivacyLedger.withdrawn``."""
    rules, hash_key = population(connection, key).rules, withdrawal_key(key, split_secret(connection, key))
    digits = secret(connection, "withdrawal", key).hex()
    hashes = frozenset(digits[at : at + 2 * HASH_BYTES] for at in range(0, len(digits), 2 * HASH_BYTES))
    return Withdrawals(hash_key, hashes, rules.case_sensitive_ids)
