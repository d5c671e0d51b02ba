"""The audits of the splits of a population's devices, and of the devices of training's rounds.

A device's split is a hash of its id under the population's secret, so it is computed for each device separately.
"""

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from evaluation.audit.keyed_noise import uniform_words
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


def sampled(key: bytes, number: int, devices: int, rate: float, size: int | None) -> np.ndarray:
    """Devices of a round's secret sample, ascending: a word of the key's keystream decides for each device.

    Args:
      rate: chance of a device, where each has a coin of its own.
      size: devices with the least words make up the sample; None: each by its coin.
    """
    words_D = uniform_words(key, "sampling", number, devices)
    if size is None:
        return np.flatnonzero(np.ldexp((words_D >> np.uint64(11)).astype(np.float64), -53) < rate)
    return np.sort(np.argsort(words_D, kind="stable")[:size])


def split_audit(split_D: np.ndarray, used: Mapping[int, np.ndarray]) -> Verdict:
    """The verdict on the devices that releases read: each split holds those of its ids, so that no two share a device.

    Args:
      split_D: split of each device, by ``splits_of``.
      used: indices of the devices of each split, as the store gives them to every stage.
    """
    same = all(np.array_equal(np.flatnonzero(split_D == split), used[split]) for split in (TRAIN, VALIDATION, TEST))
    return Verdict(
        "split",
        "devices that train, validate and test are disjoint: the split of each follows from its id and the "
        "population's secret",
        "any device",
        same,
        "" if same else "the store's splits are not those of its devices' ids",
    )


def cohorts_audit(devices: int, cohorts: Sequence[np.ndarray], samples: Iterable[np.ndarray] = ()) -> Verdict:
    """The verdict on the devices of training's rounds: those that train, or the secret sample of them.

    Args:
      devices: number of training devices, synthetic ones included.
      cohorts: devices of every round, as indices among training devices.
      samples: ``sampled`` devices of the same rounds; empty where no secret sample is drawn. A round whose sum was
        lost has no devices.
    """
    numbers = np.concatenate([np.empty(0, dtype=np.int64), *cohorts])
    reason = ""
    if len(numbers) and not (numbers.min() >= 0 and numbers.max() < devices):
        reason = "rounds were recorded with devices that are not among those that train"
    elif any(len(own) and not np.array_equal(own, drawn) for own, drawn in zip(cohorts, samples, strict=False)):
        reason = "devices of a round are not the secret sample of the key"
    return Verdict(
        "cohorts",
        "devices of every round are among those that train; a secret sample follows from the key",
        "any device; that its own text was trained on, the chosen rounds tell",
        not reason,
        reason,
    )
