"""Shuffle amplification certificate, from the number of messages received.

Feldman, McMillan and Talwar 2021, *Hiding Among the Clones*, theorem 3.1 evaluated numerically.
Theorem 3.2 of their 2023 paper has an erratum and is not used.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy import optimize, special, stats

CERTIFICATE = "clones (Feldman et al. 2021, numerical)"
ERRATUM = "Theorem 3.2 of Feldman et al. 2023: erratum, not certified"
# The coarse sum brackets the answer. The fine one has every number of clones in a block of its own
# until the blocks are so narrow against that number that they cost less than 1e-6 of epsilon.
_COARSE, _FINE = 300, 20_000
# Beyond it no number of messages that could exist hides a message, and e^eps0 leaves the range of floats.
NO_COVER = 50.0
# A thousandth of it is spent on what lies outside the sums: below it that leaves the range of floats, and
# no number of messages earns such a delta an epsilon that is worth its name.
LEAST_DELTA = 1e-200


@lru_cache(maxsize=64)  # the layers of a pass ask for the same
def clones(epsilon0: float, messages: int, delta: float) -> float:
    """Central epsilon of ``messages`` shuffled reports of an epsilon0-LDP randomiser.

    Guarantee: the shuffled reports of one layer are (result, delta)-DP for the item of one
    message under swap adjacency. The result is an upper bound and never above ``epsilon0``,
    which holds without any shuffling. It assumes that a report cannot be linked to its sender.

    Args:
      messages: messages of one layer that actually arrived.

    Raises:
      ValueError: a parameter outside its range.
    """
    checked(epsilon0, messages, delta)
    if epsilon0 > NO_COVER or delta < LEAST_DELTA:
        return epsilon0
    coarse = least_epsilon(_delta_of(epsilon0, messages, delta * 1e-6, _COARSE), delta, epsilon0, 1e-4)
    return least_epsilon(_delta_of(epsilon0, messages, delta * 1e-6, _FINE), delta, coarse, 1e-9)


def closed_2023(epsilon0: float, messages: int, delta: float) -> float | None:
    """The closed form of theorem 3.2 of Feldman et al. 2023, which Sun & Sun 2024 print; None outside its range.

    It certifies nothing: the theorem has an erratum. Show it beside ``ERRATUM`` only, to compare with the paper.

    Raises:
      ValueError: a parameter outside its range.
    """
    checked(epsilon0, messages, delta)
    cover = messages / (8 * math.log(2 / delta)) - 1
    if cover <= 0 or epsilon0 > min(math.log(cover), NO_COVER):
        return None
    ratio = math.exp(epsilon0)
    spread = 4 * math.sqrt(2 * math.log(4 / delta) / ((ratio + 1) * messages)) + 4 / messages
    return math.log1p(math.expm1(epsilon0) * spread)


def checked(epsilon0: float, messages: int, delta: float) -> None:
    """Refuse parameters outside their ranges with a ValueError."""
    if not (epsilon0 > 0 and messages >= 1 and 0 < delta < 1):
        raise ValueError(
            f"epsilon0, messages, delta: got {epsilon0}, {messages}, {delta}; expected above 0, at least 1, in (0, 1)"
        )


def least_epsilon(delta_at: Callable[[float], float], delta: float, certified: float, precision: float) -> float:
    """Least epsilon whose delta is small enough, from above and to ``precision`` of it; at most ``certified``.

    Args:
      delta_at: falls with epsilon; above 0.
      certified: an epsilon that holds already.
    """

    def excess(epsilon: float) -> float:
        return math.log(delta_at(epsilon) / delta)

    if excess(certified) >= 0:
        return certified
    low = 0.9 * certified  # often a coarser sum's answer, and then close
    if excess(low) <= 0:
        if excess(0.0) <= 0:
            return 0.0
        low, certified = 0.0, low
    # Nearly a straight line in most cases, so a few steps do.
    least = optimize.brentq(excess, low, certified, xtol=precision * certified * 1e-3, rtol=max(precision / 4, 1e-15))
    step = precision / 4 * max(least, 1e-3 * certified)
    while least < certified and excess(least) > 0:  # the root may be approached from below
        least, step = least + step, 2 * step
    return min(least, certified)


def window(trials: int, chance: float, tail: float, blocks: int) -> np.ndarray:
    """Edges of blocks of a binomial's values, int64: block i is ``edges[i] .. edges[i + 1] - 1``.

    By Bernstein's inequality the binomial is outside all of them with probability at most ``tail``.
    """
    mean, log = trials * chance, math.log(2 / tail)
    reach = log / 3 + math.sqrt(log * log / 9 + 2 * mean * (1 - chance) * log)
    first, last = max(0, math.floor(mean - reach)), min(trials, math.ceil(mean + reach))
    return np.unique(np.linspace(first, last + 1, blocks + 1).astype(np.int64))


def block_chances(edges: np.ndarray, trials: int, chance: float) -> np.ndarray:
    """Probability of each block of ``window``."""
    # Each difference on the side where the numbers are small: next to 1 they hold nothing below 1e-16.
    below, above = (tail_of(edges - 1, trials, chance) for tail_of in (stats.binom.cdf, stats.binom.sf))
    return np.where(edges[:-1] > trials * chance, -np.diff(above), np.diff(below))


def _delta_of(epsilon0: float, messages: int, tail: float, blocks: int) -> Callable[[float], float]:
    """Upper bound on delta as a function of epsilon, ``tail`` included.

    The number of clones is C ~ Bin(n - 1, e^-eps0). Given C the pair of theorem 3.1 is a pair of
    binomials; more clones never hurt, so a block of C is bounded by its least member.
    """
    chance = math.exp(-epsilon0)
    edges = window(messages - 1, chance, tail, blocks)
    weights = block_chances(edges, messages - 1, chance)
    return lambda epsilon: float(np.sum(weights * delta_given(epsilon0, epsilon, edges[:-1]))) + tail


def delta_given(epsilon0: float, epsilon: float, clones_N: np.ndarray) -> np.ndarray:
    """delta for exact numbers of clones, without differences of nearly equal numbers.

    With ``E = e^eps``, ``p = e^eps0 / (e^eps0 + 1)``, ``u = p - E (1 - p)``, ``v = E p - (1 - p)`` and
    ``t = floor(v (c + 1) / (u + v)) + 1``: ``u pmf(t - 1) - (E - 1) P(X > t - 1)``, X ~ Bin(c, 1/2).
    Here ``u = p (1 - e^(eps - eps0))``, ``u + v = (E + 1) (2 p - 1)`` and ``t = c + 2 - ceil(u (c + 1) / (u + v))``.
    """
    u = special.expit(epsilon0) * -math.expm1(epsilon - epsilon0)
    if u <= 0:
        return np.zeros(len(clones_N))
    share = u / ((math.exp(epsilon) + 1) * math.tanh(epsilon0 / 2))
    threshold = clones_N + 1 - np.maximum(np.ceil(share * (clones_N + 1)), 1)
    # Not a frozen ``binom(clones_N, 0.5)``: to make one takes longer than its probabilities.
    exactly, above = (chance(threshold, clones_N, 0.5) for chance in (stats.binom.pmf, stats.binom.sf))
    return np.maximum(u * exactly - math.expm1(epsilon) * above, 0.0)
