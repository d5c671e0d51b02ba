"""Weights that leave words which pass anyway and go to a device's other words.

The idea of MaxAdaptiveDegree (Chen, Cohen-Addad, Epasto and Zadimoghaddam 2025, *Scalable Private Partition Selection
via Adaptive Weighting*), with a discount of our own on what is given back, so that the bound below can be shown.

Shape legend: V words, P pairs of a device and a word, D devices of a shard.
"""

import math
from collections.abc import Mapping

import numpy as np

from discovery.central.contributions import Contributions
from discovery.central.weighted_gaussian import GRID, add_up, unit_of

# Deviations of noise above the threshold that a word keeps: what it has more than that is given back.
ABOVE = 2.0
# Devices with fewer words give nothing back: of so few, each weighs too much for the discount to be small.
LEAST_WORDS = 16
# Of what is given back by a device's words, the part that its words get: the root of (1 + a^2) / sqrt(16) = 2 (1 - a).
DISCOUNT = -4.0 + math.sqrt(23.0)
# Given back in finer parts than weights, as each device has a little of it, and each part is cut towards zero.
_FINE = 24
# Strictly inside the ball, for what rounding may add.
_SAFETY = 1.0 - 2.0**-20


def first_weights(contributed: Contributions) -> np.ndarray:
    """Summed first weights, 1 / d of each of a device's d words, in units of 1 / ``GRID``; int64 ``[V]``."""
    unit_D = _first_unit(contributed.degree_D)
    return add_up(contributed.word_P, unit_D[contributed.device_P], len(contributed.words))


def limit_of(threshold: float, noise_multiplier: float) -> int:
    """First weight of a word above which it is given back, in units of 1 / ``GRID``."""
    return math.ceil((threshold + ABOVE * noise_multiplier) * GRID)


def later_weights(contributed: Contributions, first_of: Mapping[str, int], limit: int, most: int) -> np.ndarray:
    """What words get beside their first weights, in units of 1 / (``GRID`` 2^24).

    That is what 1 / sqrt(d) is more than 1 / d, which is never given back, and what a device's other words gave back.

    Guarantee: as ``together`` adds them up, one device moves the sums by a vector of length at most 1, and gives t
    words that it alone holds no more than 1 / sqrt(t) each. Let it have d words, 16 or more. Its first weights, 1 / d
    each, are kept or given back: e in total, ``x_i <= 1 / d`` of word i. What others get back rises with it and never
    falls, so that all of it together hands out y with ``sum y <= a e`` (a the discount), and at most
    ``a e / most <= a e / d`` to one word. Its own words change by ``1 / sqrt(d) - x_i + y_i``, others by y_i, and the
    square of the length is at most ``1 - 2 (e - a e) / sqrt(d) + e / d + (a e)^2 / d``, which is at most 1 where
    ``(1 + a^2) / sqrt(d) <= 2 (1 - a)``: a is the root for d = 16, and larger d ask for less. A device of fewer words
    gives and gets nothing. Of d words of which t are its own the others give back at most ``(d - t) / d``, so its own
    have ``1 / sqrt(d) + a (1 - t / d) / d <= 1 / sqrt(t)``.

    Args:
      first_of: first weights of all devices together. most: C.

    Returns:
      A Python int for each word, ``[V]``, so that sums over devices are exact.
    """
    first_V = np.array([first_of.get(word, 0) for word in contributed.words], dtype=np.float64)
    share_V = np.maximum(first_V - limit, 0.0) / np.maximum(first_V, 1.0)
    unit_D = _first_unit(contributed.degree_D)
    returned_D = np.bincount(contributed.device_P, share_V[contributed.word_P], minlength=len(unit_D)) * (unit_D / GRID)
    fine_D = np.floor(returned_D * (DISCOUNT * _SAFETY / most) * float(GRID * 2**_FINE)).astype(np.int64)
    fine_P = fine_D[contributed.device_P]
    most_D = unit_of(int(contributed.degree_D.max(initial=0)))[contributed.degree_D]
    beside_D = (most_D * _SAFETY).astype(np.int64) - unit_D
    coarse_P = beside_D[contributed.device_P] + (fine_P >> _FINE)
    coarse_V = add_up(contributed.word_P, coarse_P, len(contributed.words))
    rest_V = add_up(contributed.word_P, fine_P & (2**_FINE - 1), len(contributed.words))
    return (coarse_V.astype(object) << _FINE) + rest_V


def together(first_of: Mapping[str, int], later_of: Mapping[str, int], limit: int) -> dict[str, int]:
    """Weights of words in units of 1 / ``GRID``: first ones up to the limit, and later ones, cut towards zero once."""
    return {word: min(first_of.get(word, 0), limit) + (fine >> _FINE) for word, fine in later_of.items()}


def _first_unit(degree_D: np.ndarray) -> np.ndarray:
    """1 / d in units of 1 / ``GRID``; 0 for devices with too few words to take part."""
    part_D = np.floor(GRID * _SAFETY / np.maximum(degree_D, 1)).astype(np.int64)
    return np.where(degree_D >= LEAST_WORDS, part_D, 0)
