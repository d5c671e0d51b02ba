"""Noisy total contribution of all devices: the denominator that turns word weights into shares of typed text."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from discovery.central.contributions import Contributions
from discovery.central.weighted_gaussian import GRID, drawn, make
from pretrain.randomness import noise

STREAM = "central discovery, filled places"
# The one sum's name.
_ALL = ("",)
# Standard errors to either end of a 95% interval.
_REACH = 1.96


@dataclass(frozen=True)
class TotalWeight:
    """The weight that devices gave all their words together, with a 95% interval; above 0 as the words are."""

    weight: float
    low: float
    high: float


def noisy_total(contributed: Iterable[Contributions], most: int, noise_multiplier: float, key: bytes) -> float:
    """The noisy sum of all weights: sqrt(t) of a device with t words, as each of them has 1 / sqrt(t).

    Most devices have far fewer unknown words than they may tell, so their number says little about what a weight is
    a share of. In units of a full device's: sqrt(C).

    Guarantee: a device adds sqrt(t / C), at most 1, so this is zCDP with ``rho = 1 / (2 noise_multiplier^2)``; unit
    one device, zero-out adjacency. It adds to what the words cost, and nothing can fail.

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
    """The weight that devices gave all words, from its noisy sum.

    Args:
      devices: in whole tens; they cannot give more than sqrt(C) each.
      least: summed weight of released words, below which the sum of all is not.
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
