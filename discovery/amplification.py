"""What shuffling adds to local privacy: a certificate from the messages received.

Feldman, McMillan and Talwar 2021, *Hiding Among the Clones*, theorem 3.1 evaluated numerically.
Theorem 3.2 of their 2023 paper has an erratum and is not used.
"""

import math

import numpy as np
from scipy import special, stats

CERTIFICATE = "clones (Feldman et al. 2021, numerical)"
_BLOCKS = 2000
# Beyond it no number of messages that could exist holds a clone, and e^eps0 leaves the range of floats.
_NO_CLONES = 50.0


def clones(epsilon0: float, messages: int, delta: float) -> float:
    """Central epsilon of ``messages`` shuffled reports of an epsilon0-LDP randomiser.

    Guarantee: the shuffled reports of one layer are (result, delta)-DP for the item of one
    message under swap adjacency. The result is an upper bound and never above ``epsilon0``,
    which holds without any shuffling. It assumes that a report cannot be linked to its sender.

    Args:
      messages: those of one layer that really arrived.

    Raises:
      ValueError: a parameter outside its range.
    """
    if not (epsilon0 > 0 and messages >= 1 and 0 < delta < 1):
        raise ValueError(
            f"epsilon0, messages, delta: got {epsilon0}, {messages}, {delta}; expected above 0, at least 1, in (0, 1)"
        )
    if epsilon0 > _NO_CLONES:
        return epsilon0
    if _delta(epsilon0, 0.0, messages, delta / 1000) <= delta:
        return 0.0
    low, high = 0.0, epsilon0
    # delta falls with epsilon, and ``high`` always satisfies it.
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        if _delta(epsilon0, middle, messages, delta / 1000) <= delta:
            high = middle
        else:
            low = middle
    return high


def _delta(epsilon0: float, epsilon: float, messages: int, tail: float) -> float:
    """Upper bound on delta at epsilon, ``tail`` included.

    The number of clones is C ~ Bin(n - 1, e^-eps0). Given C the pair of theorem 3.1 is a pair of
    binomials; more clones never hurt, so a block of C is bounded by its least member.
    """
    chance = math.exp(-epsilon0)
    mean = (messages - 1) * chance
    # Bernstein's inequality: C leaves the window with probability at most ``tail``.
    log = math.log(2 / tail)
    reach = log / 3 + math.sqrt(log * log / 9 + 2 * mean * (1 - chance) * log)
    first, last = max(0, math.floor(mean - reach)), min(messages - 1, math.ceil(mean + reach))
    starts = np.unique(np.linspace(first, last + 1, _BLOCKS + 1).astype(np.int64))
    # Each difference on the side where the numbers are small: next to 1 they hold nothing below 1e-16.
    below, above = (tail_of(starts - 1, messages - 1, chance) for tail_of in (stats.binom.cdf, stats.binom.sf))
    weights = np.where(starts[:-1] > mean, -np.diff(above), np.diff(below))
    return float(np.sum(weights * _delta_given(epsilon0, epsilon, starts[:-1]))) + tail


def _delta_given(epsilon0: float, epsilon: float, clones_N: np.ndarray) -> np.ndarray:
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
    half = stats.binom(clones_N, 0.5)
    return np.maximum(u * half.pmf(threshold) - math.expm1(epsilon) * half.sf(threshold), 0.0)
