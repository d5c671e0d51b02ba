"""How small a fault a test would notice nine times out of ten."""

import math

from scipy import stats

POWER = 0.9


def least_noise(numbers: int, level: float) -> float:
    """Largest share of the claimed noise that a two-sided test of so many squares at this level would notice.

    ``share^2 chi2 < q`` with probability 0.9 for the lower critical value q.
    """
    critical = stats.chi2.ppf(level / 2, numbers)
    return math.sqrt(critical / stats.chi2.ppf(POWER, numbers))


def least_length(error: float, degrees: int, level: float) -> float:
    """Smallest length, where 1 is claimed, that a one-sided t-test at this level would notice.

    Args:
      error: standard error of the estimate.
    """
    return 1.0 + error * float(stats.t.isf(level, degrees) + stats.norm.ppf(POWER))
