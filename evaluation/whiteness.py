"""Was noise used twice? Correlation between rounds of noise that should be independent.

Shape legend: T rounds, N canaries that never took part.

The noise of two rounds, whitened and seen along N directions, is 2 N independent normal numbers. Noise
drawn again, after a restart that begins its counter anew or from a key that was used before, makes two
rounds alike along *every* direction.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class Whiteness:
    """The most correlated pair of rounds, the most correlated lag, and how surprising they are.

    Attributes:
      p_value: of the worse of the two, all pairs and lags taken together.
      rounds: the pair.
      correlation: between them, -1 to 1.
      lag: rounds between pairs that are alike on average.
      lag_score: standard deviations of that average from 0.
    """

    p_value: float
    rounds: tuple[int, int]
    correlation: float
    lag: int
    lag_score: float


def whiteness(noise_TN: np.ndarray) -> Whiteness:
    """Test that whitened noise of different rounds is independent.

    Looks at each pair of rounds (noise used twice) and at each lag (a strategy that is not the claimed one);
    both are Bonferroni-corrected, so the p-value errs towards not alarming.

    Raises:
      ValueError: fewer than 2 rounds or 3 directions.
    """
    rounds, number = noise_TN.shape
    if rounds < 2 or number < 3:
        raise ValueError(f"noise_TN: {noise_TN.shape}; the test needs at least 2 rounds and 3 directions")
    lengths_T = np.linalg.norm(noise_TN, axis=1)
    if not np.all(lengths_T > 0):
        raise ArithmeticError(f"noise_TN: round {int(np.argmin(lengths_T))} has no noise at all")
    unit_TN = noise_TN / lengths_T[:, None]
    correlations_TT = unit_TN @ unit_TN.T
    first, second = np.triu_indices(rounds, 1)
    pairs = np.clip(correlations_TT[first, second], -1, 1)
    worst = int(np.argmax(np.abs(pairs)))
    # With a known mean of zero, r of N points is the cosine of a uniform direction: t with N - 1 degrees.
    strongest = abs(float(pairs[worst]))
    score = math.inf if strongest >= 1 else strongest * math.sqrt((number - 1) / (1 - strongest**2))
    p_pair = min(1.0, 2 * len(pairs) * float(stats.t.sf(score, number - 1)))
    lags = second - first
    # A sum of so many cosines; each has variance 1 / N.
    sums = np.bincount(lags, weights=pairs, minlength=rounds)[1:]
    scores = sums * np.sqrt(number / np.arange(rounds - 1, 0, -1))
    lag = int(np.argmax(np.abs(scores)))
    p_lag = min(1.0, 2 * len(scores) * float(stats.norm.sf(abs(scores[lag]))))
    return Whiteness(
        p_value=min(1.0, 2 * min(p_pair, p_lag)),
        rounds=(int(first[worst]), int(second[worst])),
        correlation=float(pairs[worst]),
        lag=lag + 1,
        lag_score=float(scores[lag]),
    )
