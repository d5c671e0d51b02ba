"""Keyed hashes of a population's devices, by which the ledger refuses the same devices under another name.

A budget belongs to a population, so the same devices under another name would get a second one. The ledger keeps a
64-bit hash per device, under a key of its own, of at most a million devices (the smallest hashes, so that two samples
hold the same ones of their common devices). A device is not new under another spelling of its id (``ids.normal_form``).

Guarantee: the hashes are as private as the ledger's database: with the key, which is stored there too, anyone can test
whether a device of known id takes part. No entry holds them, so no command shows or exports them.
"""

import hashlib
from collections.abc import Iterable

import numpy as np
from sqlalchemy import Connection

from federated.config.population import PopulationKey, is_simulation
from federated.devices.ids import normal_form
from pipeline.ground.errors import BudgetExceeded
from pipeline.ledger import rows
from pretrain.randomness.entropy import fresh_bytes

MOST_HASHES = 2**20
# Two locales share the people who write both; the same population under another name shares nearly all.
MOST_SHARED = 0.1
_TYPE = np.dtype(">u8")
_KEY_BYTES = 32


def bind(connection: Connection, key: PopulationKey, device_ids: Iterable[str]) -> None:
    """Compare devices with those of other populations and store them; see ``PrivacyLedger.bind_devices``."""
    rows.population(connection, key)
    hash_key = rows.secret(connection, "device_key")
    if not hash_key:
        hash_key = fresh_bytes(_KEY_BYTES)
        rows.write_secret(connection, "device_key", hash_key)
    sample = _hashes(device_ids, hash_key)
    for other in sorted({entry.population for entry in rows.of_kinds(connection, "devices")} - {key}):
        if _shared(sample, _decoded(rows.secret(connection, "devices", other))) > MOST_SHARED:
            raise BudgetExceeded(_taken(key, other))
    held = rows.secret(connection, "devices", key)
    content = np.union1d(_decoded(held), sample)[:MOST_HASHES].astype(_TYPE).tobytes()
    if content == held:
        return
    if held and is_simulation(key):
        raise BudgetExceeded(
            f"private_text: these are not the devices of the first launch of {key!r}, and a simulation's devices never "
            "change, or people's text could join it; give this text another private_text.name"
        )
    rows.write_secret(connection, "devices", content, key)


def _hashes(device_ids: Iterable[str], key: bytes) -> np.ndarray:
    """Ascending 64-bit hashes of device ids in normal form, at most ``MOST_HASHES`` of them."""
    digests = b"".join(
        hashlib.blake2b(normal_form(device).encode("utf-8", "surrogatepass"), digest_size=8, key=key).digest()
        for device in device_ids
    )
    return np.unique(_decoded(digests))[:MOST_HASHES]


def _shared(first: np.ndarray, second: np.ndarray) -> float:
    """Share of the smaller of two sets of devices that is in the other; exact while both are kept whole."""
    # A full sample says nothing of hashes above its largest one.
    ends = [sample[-1] for sample in (first, second) if len(sample) == MOST_HASHES]
    if ends:
        first, second = first[first <= min(ends)], second[second <= min(ends)]
    smaller = min(len(first), len(second))
    return len(np.intersect1d(first, second, assume_unique=True)) / smaller if smaller else 0.0


def _decoded(content: bytes) -> np.ndarray:
    return np.frombuffer(content, dtype=_TYPE)


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
