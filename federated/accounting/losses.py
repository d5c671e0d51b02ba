"""The second accountant: Gaussian releases through dp_accounting's privacy loss distributions.

Importing dp_accounting takes longer than most answers, so ``guarantees`` imports this module only
where it is asked for.
"""

import functools
from collections.abc import Mapping, Sequence

import dp_accounting
from dp_accounting import pld


def epsilon_by_losses(noise_multipliers: Sequence[float], epsilon: Mapping[float, float]) -> dict[float, float]:
    """Epsilon of Gaussian releases together under dp_accounting's zero-out relation, for each delta.

    Args:
      noise_multipliers: standard deviation of the noise over the sensitivity, of each whole release.
      epsilon: delta -> epsilon by another accountant, which decides how fine the grid is.
    """
    # A grid that suits the loss: at the usual 1e-4 an epsilon of 3,000 takes minutes and gigabytes.
    grid = max(1e-4, max(epsilon.values(), default=0.0) / 1e5)
    return dict(zip(epsilon, _epsilons(tuple(noise_multipliers), tuple(epsilon), grid), strict=True))


@functools.lru_cache(maxsize=64)  # a launch and its verification compute the same, and it takes up to a second
def _epsilons(noise_multipliers: tuple[float, ...], deltas: tuple[float, ...], grid: float) -> tuple[float, ...]:
    accountant = pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_SPECIAL, grid)
    for noise_multiplier in noise_multipliers:
        accountant.compose(dp_accounting.GaussianDpEvent(noise_multiplier))
    return tuple(float(accountant.get_epsilon(delta)) for delta in deltas)
