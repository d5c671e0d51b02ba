"""Keyed hashes of a population's devices, by which the ledger refuses the same devices under another name.

A budget belongs to a population, so the same devices under another name would get a second one. The ledger keeps a
64-bit hash per device, under a key of its own, of at most a million devices (the smallest hashes, so that two samples
hold the same ones of their common devices). A device is not new under another spelling of its id (``ids.normal_form``).

Guarantee: the hashes are as private as the ledger's database: with the key, which is stored there too, anyone can test
whether a device of known id takes part. No entry holds them, so no command shows or exports them.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping

import numpy as np
from sqlalchemy import Connection, select, update

from federated.config.population import PopulationKey, is_simulation
from federated.devices.ids import normal_form
from pipeline.ground.errors import BudgetExceeded, LedgerTampered
from pipeline.ledger import schema
from pipeline.ledger.budget import require_registered
from pipeline.ledger.chain import append, entries_of, of_kinds
from pipeline.ledger.entries import Entry
from pipeline.ledger.populations import numbered_stage

MOST_HASHES = 2**20
# Two locales share the people who write both; the same population under another name shares nearly all.
MOST_SHARED = 0.1
_TYPE = np.dtype(">u8")


def bind(connection: Connection, key: PopulationKey, device_ids: Iterable[str]) -> None:
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
    append(connection, "devices", key, "", numbered_stage(entries, "devices", key), None, noted)


def _hashes(device_ids: Iterable[str], key: bytes) -> np.ndarray:
    """Ascending 64-bit hashes of device ids in normal form, at most ``MOST_HASHES`` of them."""
    digests = b"".join(
        hashlib.blake2b(normal_form(device).encode("utf-8", "surrogatepass"), digest_size=8, key=key).digest()
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
