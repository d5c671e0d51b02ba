"""The audit of the splits of a population's devices: no held-out device trained.

A device's split is a hash of its id under the population's secret, so it is computed for each device separately.
"""

import hashlib
import hmac
from collections.abc import Iterable, Sequence

import numpy as np

from evaluation.audit.verdict import Verdict

TRAIN, VALIDATION, TEST = range(3)


def splits_of(ids: Iterable[str], population: str, secret: bytes, test: float, validation: float) -> np.ndarray:
    """Split of each device, uint8, by its id.

    Args:
      population: the key that the population is registered under.
      secret: secret of its registration.
      test, validation: held-out shares of the devices.
    """
    key = hmac.digest(secret, f"tacit split {population}".encode(), hashlib.sha256)
    places = (int.from_bytes(hashlib.blake2b(one.encode(), digest_size=8, key=key).digest(), "big") for one in ids)
    shares = np.fromiter((place / 2**64 for place in places), dtype=np.float64)
    return np.where(shares < test, TEST, np.where(shares < test + validation, VALIDATION, TRAIN)).astype(np.uint8)


def split_audit(split_D: np.ndarray, stored_D: np.ndarray, cohorts: Iterable[np.ndarray], synthetic: int) -> Verdict:
    """The verdict on the trained devices: rounds contain only devices of the train split and synthetic ones.

    Args:
      split_D: split of each device, by ``splits_of``.
      stored_D: split of each device in the store, which training used.
      cohorts: devices of every round, as indices among training devices.
      synthetic: number of synthetic devices after the people.
    """
    devices = int(np.sum(split_D == TRAIN)) + synthetic
    numbers = np.concatenate([np.empty(0, dtype=np.int64), *cohorts])
    reason = ""
    if not np.array_equal(split_D, stored_D):
        reason = "the store's splits are not those of its devices' ids"
    elif len(numbers) and not (numbers.min() >= 0 and numbers.max() < devices):
        reason = "rounds were recorded with devices that are not among those that train"
    return Verdict(
        "split",
        "devices of every round are of the train split, which follows from their ids and the population's secret",
        "any device; that its own text was trained on, the chosen rounds tell",
        not reason,
        reason,
    )


def trains(split_D: np.ndarray) -> Sequence[int]:
    """Indices of the training devices, in the order of the rounds' numbering."""
    return np.flatnonzero(split_D == TRAIN).tolist()
