"""The splits of a population's devices, made again: nobody who is held out has trained.

A device's split follows from a hash of its id under the population's secret, so it can be told of each device alone.
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
      secret: that it was registered with.
      test, validation: shares of the devices that are held out.
    """
    key = hmac.digest(secret, f"tacit split {population}".encode(), hashlib.sha256)
    places = (int.from_bytes(hashlib.blake2b(one.encode(), digest_size=8, key=key).digest(), "big") for one in ids)
    shares = np.fromiter((place / 2**64 for place in places), dtype=np.float64)
    return np.where(shares < test, TEST, np.where(shares < test + validation, VALIDATION, TRAIN)).astype(np.uint8)


def split_audit(split_D: np.ndarray, stored_D: np.ndarray, cohorts: Iterable[np.ndarray], synthetic: int) -> Verdict:
    """The verdict on who trained: rounds number the devices of the train split, then made-up ones, and nobody else.

    Args:
      split_D: of each device, by ``splits_of``.
      stored_D: the same as the store has it, by which training chose.
      cohorts: devices of every round, numbered among those that train.
      synthetic: how many made-up devices follow the people.
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
    """Numbers of the devices that train, in the order in which rounds number them."""
    return np.flatnonzero(split_D == TRAIN).tolist()
