"""Word selection by the weighted Gaussian mechanism (Gopi et al. 2020, *Differentially Private Set Union*).

A device with t words adds 1 / sqrt(t) to each of them, so that it moves the sums by a vector of length 1. Noise is
added to every sum, and a word is released if its noisy sum passes a threshold that a word of one device alone passes
only with a small failure probability. No list of words is needed beforehand.

Shape legend: V words, P pairs of a device and a word.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np
from scipy import special

from discovery.central.contributions import Contributions, Name, add_to
from pretrain.randomness import noise

# Units per weight 1. Weights are added as whole numbers, so the sum depends neither on the order of devices nor on
# shards.
GRID = 2**32
# Half of the range of int64 is reserved for the noise.
MOST_DEVICES = 2**62 // GRID
# Whole numbers up to here are exact in float64, whose sums numpy computes fastest.
_EXACT = 2**53
STREAM = "central discovery, noise"
Contribution = TypeVar("Contribution")
Made = TypeVar("Made")


def threshold(noise_multiplier: float, most: int, failure: float) -> float:
    """Least noisy weight of a word that is released.

    Guarantee: for any number of words (at most ``most``) that one device alone holds, one or more of them pass with
    probability at most ``failure``. With t words of weight 1 / sqrt(t) at most that is
    ``1 - Phi((threshold - 1 / sqrt(t)) / sigma)^t``, and the threshold serves the worst t.
    """
    t = np.arange(1, most + 1)
    tail_T = -np.expm1(np.log1p(-failure) / t)
    return float(np.max(1 / np.sqrt(t) - noise_multiplier * special.ndtri(tail_T)))


def unit_of(most: int) -> np.ndarray:
    """Weight of each word of a device by its number of words, from 0 to ``most``, in units of 1 / ``GRID``; int64.

    Guarantee: t words of this weight have L2 norm at most 1, in whole numbers: ``t unit^2 <= GRID^2``.
    """
    return np.array([0, *(math.isqrt(GRID**2 // t) for t in range(1, most + 1))], dtype=np.int64)


def weights(contributed: Contributions) -> np.ndarray:
    """Summed weight of each word in units of 1 / ``GRID``, int64 ``[V]``; private.

    Guarantee: one device adds a vector of L2 norm at most 1.
    """
    degree_D = contributed.degree_D
    unit_D = unit_of(int(degree_D.max(initial=0)))[degree_D]
    return add_up(contributed.word_P, unit_D[contributed.device_P], len(contributed.words))


def add_up(word_P: np.ndarray, units_P: np.ndarray, words: int) -> np.ndarray:
    """Exact sums of whole numbers by word, int64 ``[V]``."""
    total_V = np.zeros(words, dtype=np.int64)
    step = _EXACT // GRID
    for first in range(0, len(word_P), step):
        part = slice(first, first + step)
        total_V += np.bincount(word_P[part], units_P[part].astype(np.float64), minlength=words).astype(np.int64)
    return total_V


def release(
    contributed: Iterable[Contributions], noise_multiplier: float, least: float, key: bytes
) -> dict[str, float]:
    """Words whose noisy weight is at least ``least``, with it, in alphabetical order.

    Guarantee: if words of one device alone pass ``least`` with probability at most ``failure``, the release is
    approximately zCDP with ``rho = 1 / (2 noise_multiplier^2)`` except with that probability; unit one device, zero-out
    adjacency. Words without holders are never released, with or without the device. Noise is a function of the key and
    of the word's rank among all words in alphabetical order, so that a retry is the same release; the output is the
    exact sum plus noise, rounded to a millionth of the noise.

    Args:
      contributed: by shards of the population, words of each device.
      key: 32 secret bytes.

    Raises:
      ArithmeticError: noise beyond the grid; a property of the noise alone.
    """
    return make(
        contributed,
        drawn(key, STREAM, noise_multiplier),
        lambda some: (some.words, weights(some)),
        passing(noise_multiplier, least),
    )


def make(
    contributions: Iterable[Contribution],
    noise_of: Callable[[int], np.ndarray],
    bound: Callable[[Contribution], tuple[Sequence[Name], np.ndarray]],
    finish: Callable[[Sequence[Name], np.ndarray], Made],
    names: Iterable[Name] = (),
) -> Made:
    """Release a sum by names: the only place of a central discovery that adds noise to a sum.

    Args:
      contributions: of devices, by shards. Private.
      noise_of: noise for a number of names, whole numbers in units of 1 / ``GRID``.
      bound: names and bounded sums of a shard, in the same units; limits each device's contribution.
      finish: release from all names in order and their noisy sums.
      names: names that always have a sum; others have one if some device holds them.
    """
    unnoised_of: dict[Name, int] = dict.fromkeys(names, 0)
    for contribution in contributions:
        add_to(unnoised_of, *bound(contribution))
    ordered = sorted(unnoised_of)
    unnoised = np.fromiter(map(unnoised_of.__getitem__, ordered), np.int64, len(ordered))
    return finish(ordered, unnoised + noise_of(len(ordered)))


def drawn(key: bytes, stream: str, noise_multiplier: float) -> Callable[[int], np.ndarray]:
    """Noise of a discovery's sum, as whole numbers in units of 1 / ``GRID``: a function of key and stream."""

    def noise_of(size: int) -> np.ndarray:
        noise_N = noise_multiplier * noise.gaussian(key, stream, 0, size) * GRID
        # Beyond, floats skip whole numbers, and low bits of a sum would be visible.
        if not np.all(np.abs(noise_N) < _EXACT):
            raise ArithmeticError("noise: not finite, or 2^21 and more; lower discovery.noise_multiplier")
        return np.rint(noise_N).astype(np.int64)

    return noise_of


def passing(noise_multiplier: float, least: float) -> Callable[[Sequence[str], np.ndarray], dict[str, float]]:
    """Release of the names whose noisy sum is at least ``least``, with it."""

    def finish(words: Sequence[str], noisy_V: np.ndarray) -> dict[str, float]:
        # Noise is rounded: one more unit preserves the failure probability.
        passed = np.flatnonzero(noisy_V >= math.ceil(least * GRID) + 1)
        shown = noise.on_grid(noisy_V[passed], noise_multiplier * GRID) / GRID
        return {words[place]: weight for place, weight in zip(passed.tolist(), shown.tolist(), strict=True)}

    return finish
