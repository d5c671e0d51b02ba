"""Detect devices of a store that already belong to another population, from keyed hashes of their ids.

A budget is a population's, so the same devices under another name would get a second one. The ledger keeps 64 bits
a device, hashed under a key of its own, of at most a million devices (the smallest hashes, so that any two samples
hold the same devices of those that they share).

Guarantee: what is kept is private, as is the ledger's database: with the key beside it anyone can ask whether a
device whose id they know takes part. It stands in no entry, so no command shows it or exports it.
"""

import hashlib
from collections.abc import Iterable

import numpy as np

MOST_HASHES = 2**20
# Two locales share people who write both; a population by another name shares nearly all.
MOST_SHARED = 0.1
_TYPE = np.dtype(">u8")


def hashes(device_ids: Iterable[str], key: bytes) -> np.ndarray:
    """Ascending 64-bit hashes of device ids, at most ``MOST_HASHES`` of them."""
    digests = b"".join(
        hashlib.blake2b(device.encode("utf-8", "surrogatepass"), digest_size=8, key=key).digest()
        for device in device_ids
    )
    return np.unique(np.frombuffer(digests, dtype=_TYPE))[:MOST_HASHES]


def joined(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The hashes of two stores of one population together."""
    return np.union1d(first, second)[:MOST_HASHES]


def shared(first: np.ndarray, second: np.ndarray) -> float:
    """Share of the smaller of two sets of devices that is in the other; exact while both are kept whole."""
    # Beyond the largest hash that a full sample kept, it says nothing.
    ends = [sample[-1] for sample in (first, second) if len(sample) == MOST_HASHES]
    if ends:
        first, second = first[first <= min(ends)], second[second <= min(ends)]
    smaller = min(len(first), len(second))
    return len(np.intersect1d(first, second, assume_unique=True)) / smaller if smaller else 0.0


def to_bytes(sample: np.ndarray) -> bytes:
    """The bytes that the database keeps."""
    return sample.astype(_TYPE).tobytes()


def from_bytes(content: bytes) -> np.ndarray:
    """Hashes in the bytes that ``to_bytes`` wrote."""
    return np.frombuffer(content, dtype=_TYPE)


def digest(content: bytes) -> str:
    """Digest by which an entry names the bytes in the database."""
    return hashlib.sha256(b"tacit devices" + content).hexdigest()
