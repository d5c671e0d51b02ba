"""Noisy total contribution of all devices: the denominator that turns word weights into shares of typed text."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from discovery.central.contributions import Contributions
from discovery.central.weighted_gaussian import GRID, drawn, make
from pretrain.randomness import noise

STREAM = "central discovery, filled places"
# Name of the only sum.
_ALL = ("",)
# Standard errors to either end of a 95% interval.
_REACH = 1.96


@dataclass(frozen=True)
class TotalWeight:
    """Total weight of all words of all devices, with a 95% interval; positive."""

    weight: float
    low: float
    high: float


def noisy_total(contributed: Iterable[Contributions], most: int, noise_multiplier: float, key: bytes) -> float:
    """The noisy sum of all weights: sqrt(t) of a device with t words, as each of them has 1 / sqrt(t).

    Most devices have far fewer OOV words than they may report, so the number of devices is a poor denominator. The unit
    is the total of a full device, sqrt(C).

    Guarantee: a device adds sqrt(t / C), at most 1, so this is zCDP with ``rho = 1 / (2 noise_multiplier^2)``; unit
    one device, zero-out adjacency. It adds to the cost of the words, without a failure probability.

    Args:
      contributed: by shards of the population, at most C words of each device.
      most: C.
      key: 32 secret bytes.

    Raises:
      ArithmeticError: noise beyond the grid; a property of the noise alone.
    """
    return make(
        contributed,
        drawn(key, STREAM, noise_multiplier),
        lambda shard: (_ALL, np.array([units(shard, most)])),
        lambda _, noisy: float(noise.on_grid(noisy, noise_multiplier * GRID)[0]) / GRID,
        _ALL,
    )


def estimate(noisy: float, most: int, devices: int, noise_multiplier: float, least: float) -> TotalWeight:
    """Total weight of all words, from its noisy sum.

    Args:
      devices: in whole tens; each contributes at most sqrt(C).
      least: summed weight of released words, a lower bound of the total.
    """

    def possible(places: float) -> float:
        return max(min(places, devices) * most**0.5, least)

    reach = _REACH * noise_multiplier
    return TotalWeight(possible(noisy), possible(noisy - reach), possible(noisy + reach))


def units(contributed: Contributions, most: int) -> int:
    """Total contribution of a shard's devices, in units of 1 / ``GRID``; private.

    Guarantee: one device adds at most ``GRID``.
    """
    devices_T = np.bincount(contributed.degree_D, minlength=most + 1)
    root_T = np.floor(np.sqrt(np.arange(most + 1) / most) * GRID).astype(np.int64)
    return sum(int(count) * int(root) for count, root in zip(devices_T, root_T, strict=True))
