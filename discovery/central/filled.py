"""Noisy total contribution of all devices: the denominator that turns word weights into shares of typed text."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from discovery.central.contributions import Contributions
from discovery.central.weighted_gaussian import GRID
from pretrain.randomness import noise

_STREAM = "central discovery, filled places"
# Standard errors to either end of a 95% interval.
_REACH = 1.96


@dataclass(frozen=True)
class Filled:
    """The weight that devices gave all their words together, with a 95% interval; above 0 as the words are."""

    weight: float
    low: float
    high: float


def filled(
    contributed: Iterable[Contributions], most: int, devices: int, noise_multiplier: float, least: float, key: bytes
) -> Filled:
    """The sum of all weights: sqrt(t) of a device with t words, as each of them has 1 / sqrt(t).

    Most devices have far fewer unknown words than they may tell, so their number says little about what a weight is
    a share of.

    Guarantee: a device adds sqrt(t / C), at most 1, so this is zCDP with ``rho = 1 / (2 noise_multiplier^2)``; unit
    one device, zero-out adjacency. It adds to what the words cost, and nothing can fail.

    Args:
      contributed: by shards of the population, at most C words of each device.
      most: C.
      devices: in whole tens; they cannot give more than sqrt(C) each.
      least: summed weight of released words, below which the sum of all is not.
      key: 32 secret bytes.

    Raises:
      ArithmeticError: noise beyond the grid; a property of the noise alone.
    """
    total = sum(units(shard, most) for shard in contributed)
    (drawn,) = noise_multiplier * noise.gaussian(key, _STREAM, 0, 1) * GRID
    if not abs(drawn) < 2**53:
        raise ArithmeticError("noise: not finite, or 2^21 and more; lower discovery.noise_multiplier")
    noisy = float(noise.on_grid(np.array(total + round(drawn)), noise_multiplier * GRID)) / GRID

    def possible(places: float) -> float:
        return max(min(places, devices) * most**0.5, least)

    reach = _REACH * noise_multiplier
    return Filled(possible(noisy), possible(noisy - reach), possible(noisy + reach))


def units(contributed: Contributions, most: int) -> int:
    """Total contribution of a shard's devices, in units of 1 / ``GRID``; private.

    Guarantee: one device adds at most ``GRID``.
    """
    devices_T = np.bincount(contributed.degree_D, minlength=most + 1)
    root_T = np.floor(np.sqrt(np.arange(most + 1) / most) * GRID).astype(np.int64)
    return sum(int(count) * int(root) for count, root in zip(devices_T, root_T, strict=True))
