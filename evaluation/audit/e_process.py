"""E-processes of the noise: evidence against its claimed scale and independence that is valid after every round.

Along orthonormal directions the whitened noise of a round is N independent standard normal numbers, in units of the
claimed noise, and independent of every round before. Given the rounds before, the likelihood ratio of an alternative
to this claim therefore has mean 1. A fault may begin in any round, so an e-process multiplies each alternative's ratios
from every possible first round on, and takes the mean over alternatives and first rounds; a first round that is still
to come counts 1.

Guarantee: under the claim the value is a nonnegative martingale that starts at 1. It reaches 1 / alpha in any round of
a run with probability at most alpha (Ville 1939), so a run may be stopped at the first round in which it does, and no
number of looks has to be planned (Ramdas et al. 2023, *Game-theoretic statistics and safe anytime-valid inference*).

Shape legend: N directions, K alternatives, T rounds.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

# Scales of the noise that stand against the claimed one. Too much noise is a fault too, of utility.
SCALES_K = np.array([0.01, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.05, 1.1, 1.3, 2.0, 10.0])
# Correlations with one earlier round that stand against independence.
CORRELATIONS_K = np.array([-0.999, -0.7, -0.3, 0.3, 0.7, 0.999])


@dataclass(frozen=True)
class EProcess:
    """E-value of the rounds done, as logarithms. Secret: it is a function of the noise.

    Attributes:
      rounds: of the whole run; the first round of a fault is one of them, each with the same weight.
      done: rounds seen.
      log_begun_K: for each alternative, the weighted sum over first rounds of the ratios' products since.
    """

    rounds: int
    done: int
    log_begun_K: np.ndarray

    @staticmethod
    def begin(rounds: int, alternatives: int) -> "EProcess":
        """The value 1, before the first round."""
        return EProcess(rounds, 0, np.full(alternatives, -np.inf))

    def after(self, log_ratios_K: np.ndarray) -> "EProcess":
        """The e-process with one more round, from its likelihood ratios given the rounds before."""
        begun_K = np.logaddexp(self.log_begun_K, -math.log(self.rounds)) + log_ratios_K
        return replace(self, done=self.done + 1, log_begun_K=begun_K)

    @property
    def log_value(self) -> float:
        """Natural logarithm of the e-value."""
        waiting = math.log(1 - self.done / self.rounds) if self.done < self.rounds else -math.inf
        with np.errstate(invalid="ignore"):
            begun = np.logaddexp.reduce(self.log_begun_K) - math.log(len(self.log_begun_K))
            return float(np.logaddexp(begun, waiting))

    def refutes(self, alpha: float) -> bool:
        """Return whether the e-value has reached ``1 / alpha``; a value that is not a number has."""
        return not self.log_value < -math.log(alpha)


def scale_ratios(white_N: np.ndarray) -> np.ndarray:
    """Log likelihood ratios of ``SCALES_K`` for one round's whitened noise, in units of the claimed noise."""
    return -len(white_N) * np.log(SCALES_K) + 0.5 * float(white_N @ white_N) * (1 - SCALES_K**-2)


def reuse_ratios(before_TN: np.ndarray, white_N: np.ndarray) -> np.ndarray:
    """Log likelihood ratios of ``CORRELATIONS_K`` with one of the rounds before, each equally likely; 0 without any."""
    if not len(before_TN):
        return np.zeros(len(CORRELATIONS_K))
    square, crossed_T, squares_T = white_N @ white_N, before_TN @ white_N, np.sum(before_TN**2, axis=1)
    rest_K = 1 - CORRELATIONS_K**2
    gaps_KT = square - 2 * np.outer(CORRELATIONS_K, crossed_T) + np.outer(CORRELATIONS_K**2, squares_T)
    logs_KT = 0.5 * (square - gaps_KT / rest_K[:, None] - len(white_N) * np.log(rest_K)[:, None])
    return np.logaddexp.reduce(logs_KT, axis=1) - math.log(len(before_TN))
