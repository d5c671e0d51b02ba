"""Conversion of distances between normal distributions to epsilon, for the scores of audits.

This code is independent of the accountant on purpose: an audit that shares the accountant's code shares its
mistakes.
"""

import math

import numpy as np
from scipy import optimize, special


def epsilon_of_mu(mu: float, delta: float) -> float:
    """Smallest epsilon of a mu-GDP mechanism at this delta (Dong et al. 2022, corollary 2.13); 0 for mu below 0."""
    return epsilon_between(max(mu, 0.0), 1.0, delta) if mu > 0 else 0.0


def epsilon_between(mean: float, deviation: float, delta: float) -> float:
    """Smallest epsilon >= 0 with which N(mean, deviation^2) and N(0, 1) are (epsilon, delta)-close, both ways.

    Raises:
      ValueError: the deviation is not above 0, or delta not inside (0, 1).
      ArithmeticError: not a number.
    """
    if not 0 < delta < 1:
        raise ValueError(f"delta: got {delta}, expected a number between 0 and 1")
    if not deviation > 0:
        raise ValueError(f"deviation: got {deviation}, expected a number above 0; give scores that differ")
    # The reverse direction, in units of the other deviation.
    return max(_one_way(mean, deviation, delta), _one_way(-mean / deviation, 1 / deviation, delta))


def delta_between(epsilon: float, mean: float, deviation: float) -> float:
    """Hockey-stick divergence ``max over S of P(S) - e^epsilon Q(S)``, P = N(mean, deviation^2), Q = N(0, 1)."""
    # log p - log q - epsilon = curve x^2 + slope x + level, and S is where that is positive.
    curve = (1 - deviation**-2) / 2
    slope = mean / deviation**2
    level = -(mean**2) / (2 * deviation**2) - math.log(deviation) - epsilon
    if abs(curve) < 1e-12:
        if slope == 0:
            return 0.0 if level <= 0 else 1 - math.exp(epsilon)
        edge = -level / slope
        spans = [(edge, math.inf)] if slope > 0 else [(-math.inf, edge)]
    else:
        square = slope**2 - 4 * curve * level
        if square <= 0:
            spans = [(-math.inf, math.inf)] if curve > 0 else []
        else:
            low, high = sorted((-slope + sign * math.sqrt(square)) / (2 * curve) for sign in (1, -1))
            spans = [(-math.inf, low), (high, math.inf)] if curve > 0 else [(low, high)]
    total = 0.0
    for low, high in spans:
        first = _log_chance((low - mean) / deviation, (high - mean) / deviation)
        second = epsilon + _log_chance(low, high)
        # In logarithms: at delta 1e-10 both probabilities are tiny and e^epsilon is large.
        total += math.exp(first) * -math.expm1(second - first) if first > -math.inf else -math.exp(second)
    return max(total, 0.0)


def _one_way(mean: float, deviation: float, delta: float) -> float:
    if not math.isfinite(mean):
        raise ArithmeticError(f"scores: a mean of {mean} is no finite number")
    if delta_between(0.0, mean, deviation) <= delta:
        return 0.0
    upper = 1.0
    while delta_between(upper, mean, deviation) > delta:
        upper *= 2
    return float(
        optimize.brentq(lambda epsilon: delta_between(epsilon, mean, deviation) - delta, 0.0, upper, xtol=1e-10)
    )


def _log_chance(low: float, high: float) -> float:
    """``log P(low < N(0, 1) < high)`` from the smaller tail, which preserves digits."""
    if low > 0:
        low, high = -high, -low
    above, below = special.log_ndtr(high), special.log_ndtr(low)
    if above == -np.inf or above <= below:
        return -math.inf
    return float(above + math.log(-math.expm1(below - above)))
