"""Populations in the database: registration, budget changes, and keyed hashes of their devices.

A registration and every later change of the budget are entries of the chain; the secrets are in a table beside it.

A budget belongs to a population, so the same devices under another name would get a second one. The ledger keeps a
64-bit hash per device, under a key of its own, of at most a million devices (the smallest hashes, so that two samples
hold the same ones of their common devices).

Guarantee: the hashes are as private as the ledger's database: with the key, which is stored there too, anyone can test
whether a device of known id takes part. No entry holds them, so no command shows or exports them.
"""

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping

import numpy as np
from sqlalchemy import Connection, insert, select, update

from federated.config.population import PopulationKey, is_simulation
from pipeline.ground.errors import BudgetExceeded, LedgerConflict, LedgerTampered
from pipeline.ledger import schema
from pipeline.ledger.budget import REGISTRATION, Budget, Population, registered, require_registered
from pipeline.ledger.chain import append, entries_of, of_kinds
from pipeline.ledger.entries import Entry

SECRET_BYTES = 32
MOST_HASHES = 2**20
# Two locales share the people who write both; the same population under another name shares nearly all.
MOST_SHARED = 0.1
_TYPE = np.dtype(">u8")


def register(
    connection: Connection, key: PopulationKey, budget: Budget, by: str, raised_by: tuple[str, ...]
) -> Population:
    """Register a population, with a split secret of its own; see ``PrivacyLedger.register``."""
    old = registered(entries_of(connection, key), key)
    if old is not None:
        if (old.budget, old.raised_by) != (budget, raised_by):
            raise LedgerConflict(
                f"population {key!r}: registered by {old.registered_by} with rho {old.budget.max_rho:g}; "
                f"{' or '.join(old.raised_by)} may change that: tacit ledger budget {key}"
            )
        return old
    # A simulation protects no one, and its secret is a function of its key so that runs repeat anywhere.
    repeatable = hashlib.sha256(f"tacit split secret of {key}".encode()).digest()
    secret = repeatable if is_simulation(key) else secrets.token_bytes(SECRET_BYTES)
    made = Population(
        key=key,
        budget=budget,
        raised_by=raised_by,
        registered_by=by,
        secret_digest=_secret_digest(secret),
    )
    lists = {"devices": b"", "withdrawn": b""}
    connection.execute(insert(schema.POPULATIONS).values(population=key, split_secret=secret.hex(), **lists))
    append(connection, "register", key, "", key, None, made.model_dump(mode="json"))
    return made


def change_budget(connection: Connection, key: PopulationKey, budget: Budget, by: str, reason: str) -> Population:
    """Record a changed budget; see ``PrivacyLedger.change_budget``."""
    if not reason.strip():
        raise LedgerConflict(f"population {key!r}: say why its budget changes: --reason ...")
    entries = entries_of(connection, key)
    population = require_registered(entries, key)
    if by not in population.raised_by:
        raise LedgerConflict(
            f"population {key!r}: its budget may be changed by {' or '.join(population.raised_by)}, not by {by}"
        )
    change = {"budget": budget.model_dump(), "by": by, "reason": reason}
    append(connection, "budget", key, "", _numbered(entries, "budget", key), None, change)
    return population.model_copy(update={"budget": budget})


def split_secret(connection: Connection, key: PopulationKey) -> bytes:
    """Return a population's split secret; see ``PrivacyLedger.split_secret``."""
    population = require_registered(of_kinds(connection, *REGISTRATION, population=key), key)
    of_key = select(schema.POPULATIONS.c.split_secret).where(schema.POPULATIONS.c.population == key)
    text = connection.execute(of_key).scalar_one_or_none()
    secret = bytes.fromhex(text) if text else b""
    if _secret_digest(secret) != population.secret_digest:
        raise LedgerTampered(
            f"population {key!r}: its split secret is not the one it was registered with. Restore the ledger from a "
            "backup"
        )
    return secret


def bind_devices(connection: Connection, key: PopulationKey, device_ids: Iterable[str]) -> None:
    """Compare devices with those of other populations and store them; see ``PrivacyLedger.bind_devices``."""
    entries = entries_of(connection, key)
    require_registered(entries, key)
    hash_key = bytes.fromhex(connection.execute(select(schema.META.c.device_key)).scalar_one())
    sample = _hashes(device_ids, hash_key)
    sealed = {row.population: row.devices for row in connection.execute(select(schema.POPULATIONS))}
    _require_unchanged(of_kinds(connection, "devices"), sealed)
    for other in sorted(sealed.keys() - {key}):
        if _shared(sample, _from_bytes(sealed[other])) > MOST_SHARED:
            raise BudgetExceeded(_taken(key, other))
    content = _to_bytes(_joined(_from_bytes(sealed[key]), sample))
    if content == sealed[key]:
        return
    if sealed[key] and is_simulation(key):
        raise BudgetExceeded(
            f"private_text: these are not the devices of the first launch of {key!r}, and a simulation's devices never "
            "change, or people's text could join it; give this text another private_text.name"
        )
    columns = schema.POPULATIONS.c
    connection.execute(update(schema.POPULATIONS).where(columns.population == key).values(devices=content))
    noted = {"digest": _devices_digest(content)}
    append(connection, "devices", key, "", _numbered(entries, "devices", key), None, noted)


def _hashes(device_ids: Iterable[str], key: bytes) -> np.ndarray:
    """Ascending 64-bit hashes of device ids, at most ``MOST_HASHES`` of them."""
    digests = b"".join(
        hashlib.blake2b(device.encode("utf-8", "surrogatepass"), digest_size=8, key=key).digest()
        for device in device_ids
    )
    return np.unique(np.frombuffer(digests, dtype=_TYPE))[:MOST_HASHES]


def _joined(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Union of the device hashes of two stores of one population."""
    return np.union1d(first, second)[:MOST_HASHES]


def _shared(first: np.ndarray, second: np.ndarray) -> float:
    """Share of the smaller of two sets of devices that is in the other; exact while both are kept whole."""
    # A full sample says nothing of hashes above its largest one.
    ends = [sample[-1] for sample in (first, second) if len(sample) == MOST_HASHES]
    if ends:
        first, second = first[first <= min(ends)], second[second <= min(ends)]
    smaller = min(len(first), len(second))
    return len(np.intersect1d(first, second, assume_unique=True)) / smaller if smaller else 0.0


def _to_bytes(sample: np.ndarray) -> bytes:
    """Encode hashes for the database."""
    return sample.astype(_TYPE).tobytes()


def _from_bytes(content: bytes) -> np.ndarray:
    """Decode hashes that ``_to_bytes`` encoded."""
    return np.frombuffer(content, dtype=_TYPE)


def _devices_digest(content: bytes) -> str:
    """Digest of the encoded hashes, for an entry."""
    return hashlib.sha256(b"tacit devices" + content).hexdigest()


def _taken(key: PopulationKey, other: PopulationKey) -> str:
    """Message for devices that belong to another population, with the fix."""
    unique = "If they are other devices with the same ids, make the ids unique, as by a prefix"
    if is_simulation(key) == is_simulation(other):
        return (
            f"private_text.name: {key!r}, but these are devices of population {other!r}, whose budget they spend "
            f"from; write name: {other.rpartition(':')[2]}. {unique}"
        )
    return (
        f"private_text: devices of population {key!r} are devices of population {other!r}, and no device may be in a "
        f"simulation and among people; read people's text with source files alone. {unique}"
    )


def _require_unchanged(entries: Iterable[Entry], sealed: Mapping[PopulationKey, bytes]) -> None:
    """Check that each population's device hashes match the digest in its latest entry of the kind ``devices``."""
    latest = {entry.population: json.loads(entry.binding)["digest"] for entry in entries}
    for key, digest in latest.items():
        if _devices_digest(sealed.get(key, b"")) != digest:
            raise LedgerTampered(
                f"population {key!r}: the device hashes in the ledger do not match their entry. Restore the ledger "
                "from a backup"
            )


def _numbered(entries: Iterable[Entry], kind: str, key: PopulationKey) -> str:
    """Numbered stage name for an entry kind that a population may repeat."""
    return f"{key} {sum((entry.kind, entry.population) == (kind, key) for entry in entries) + 1}"


def _secret_digest(secret: bytes) -> str:
    return hashlib.sha256(b"tacit split secret" + secret).hexdigest()
