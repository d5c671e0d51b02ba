"""Buffered linear Toeplitz mechanisms: correlated noise in constant memory.

McMahan et al. 2024, *A Hassle-free Algorithm for Private Learning in Practice: Don't Use Tree
Aggregation, Use BLTs*. Symbols: theta buffer decays, omega output scales, C the strategy with
Toeplitz coefficients ``c_0 = 1, c_i = sum_j omega_j theta_j^(i - 1)`` (their equation 2).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from federated.mechanisms.second_sensitivity import sensitivity_squared_by_pairs
from federated.mechanisms.sensitivity import (
    check_noise_multiplier,
    check_pattern,
    check_restarts,
    segments,
    toeplitz_sensitivity_squared,
)
from pretrain.randomness import noise

STREAM = "blt"


@dataclass(frozen=True)
class BltState:
    """Buffers of past noise. Secret: they let anyone subtract the noise.

    Attributes:
      round: the round that comes next.
      buffers_BP: float64 ``[buffers, P]``, in clip norms.
    """

    round: int
    buffers_BP: np.ndarray


@dataclass(frozen=True)
class Blt:
    """DP-FTRL with BLT noise ``C^-1 z``.

    Guarantee: the released sums ``sum_t + C_clip * (C^-1 z)_t`` are post-processing of one Gaussian
    release of ``C x`` with standard deviation ``noise_multiplier`` per clip norm. With at most
    ``max_participations`` participations ``min_sep`` or more apart it is rho-zCDP with
    ``rho = sensitivity^2 / (2 z^2)`` under zero-out adjacency (their theorem 3.1). A restart
    empties the buffers, so C is then block diagonal: the same release, another C.

    Attributes:
      noise_multiplier: z, per clip norm and before the sensitivity; not comparable with the tree's.
      theta: decays in (0, 1).
      omega: scales above 0 whose coefficients never rise, which theorem 3.1 needs.
      restarts: rounds that begin with empty buffers, rising; those past a run's end do nothing.

    Raises:
      ValueError: values that give no noise, or a C that the sensitivity formula does not cover.
    """

    noise_multiplier: float
    theta: tuple[float, ...]
    omega: tuple[float, ...]
    restarts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_noise_multiplier(self.noise_multiplier)
        check_restarts(self.restarts)
        if len(self.theta) != len(self.omega) or not self.theta:
            raise ValueError(
                f"theta, omega: {len(self.theta)} and {len(self.omega)} numbers; give one of each a buffer"
            )
        for name, values in (("theta", self.theta), ("omega", self.omega)):
            wrong = [value for value in values if not (0 < value < 1 if name == "theta" else value > 0)]
            if wrong:
                raise ValueError(f"{name}: {wrong[0]} lies outside {'(0, 1)' if name == 'theta' else '(0, inf)'}")
        # c_1 = sum(omega), and every later ratio c_(i+1) / c_i is at most max(theta) < 1.
        if sum(self.omega) > 1:
            raise ValueError(
                f"omega: the scales add up to {sum(self.omega):.6g}, so the second coefficient would exceed the first "
                "and the sensitivity formula would not hold; scale omega down to a sum of at most 1"
            )

    @property
    def secret_sample(self) -> None:
        """None: the guarantee does not use sampling."""

    def init(self, num_parameters: int) -> BltState:
        """State before the first round: empty buffers."""
        return BltState(0, np.zeros((len(self.theta), num_parameters)))

    def noise(self, state: BltState, round_number: int, key: bytes) -> tuple[np.ndarray, BltState]:
        """Noise of one round, ``(C^-1 z)_t`` by their algorithm 3, and the state after it.

        The algorithm uses C's own parameters and never inverts anything, so decays as close to 1
        as ``1 - 8e-12`` are harmless. It runs on past the rounds it was optimised for.

        Returns:
          float64 ``[P]`` in clip norms.
        """
        if round_number != state.round:
            raise ValueError(f"round: got {round_number}, but this state continues with round {state.round}")
        theta_B = np.array(self.theta)
        buffers_BP = np.zeros_like(state.buffers_BP) if round_number in self.restarts else state.buffers_BP
        noise_P = self.noise_multiplier * noise.gaussian(key, STREAM, round_number, buffers_BP.shape[1])
        # One buffer after the other: a BLAS would add in an order that is its processor's.
        for omega, buffer_P in zip(self.omega, buffers_BP, strict=True):
            noise_P -= omega * buffer_P
        return noise_P, BltState(round_number + 1, theta_B[:, None] * buffers_BP + noise_P)

    def coefficients(self, rounds: int) -> np.ndarray:
        """First column of C without restarts, float64 ``[rounds]``; each block of C holds its beginning."""
        powers_NB = np.array(self.theta) ** np.arange(rounds - 1)[:, None]
        return np.concatenate([[1.0], powers_NB @ np.array(self.omega)])[:rounds]

    def sensitivity_squared(self, rounds: int, min_sep: int, max_participations: int) -> float:
        """Exact squared sensitivity in clip norms squared, before the noise multiplier."""
        check_pattern(rounds, min_sep, max_participations)
        restarts = [restart for restart in self.restarts if restart < rounds]
        return toeplitz_sensitivity_squared(self.coefficients(rounds), min_sep, max_participations, restarts)

    def second_sensitivity_squared(self, rounds: int, min_sep: int, max_participations: int) -> float | None:
        """The squared sensitivity by an unrelated program; None where that would take too long."""
        restarts = [restart for restart in self.restarts if restart < rounds]
        return sensitivity_squared_by_pairs(self.theta, self.omega, rounds, min_sep, max_participations, restarts)

    def rms_error(self, rounds: int) -> float:
        """Root mean square, over prefixes, of the noise's standard deviation at multiplier 1."""
        return float(np.sqrt(prefix_variances(self, rounds).mean()))

    def noise_std(self, weights_T: np.ndarray) -> float:
        """Standard deviation of the weighted sum of the rounds' noise, ``weights_T @ noise_TP``, at multiplier 1."""
        spans = segments(len(weights_T), [restart for restart in self.restarts if restart < len(weights_T)])
        inverse_T = inverse_coefficients(self, max(end - start for start, end in spans))
        # C^-T w of each block: draw s counts in all rounds t >= s of its block, inverse[t - s] times.
        return math.sqrt(sum(float(np.sum(_counts(weights_T[first:last], inverse_T) ** 2)) for first, last in spans))

    def save(self, state: BltState) -> dict[str, np.ndarray]:
        """The state as arrays, for a private checkpoint."""
        return {"round": np.asarray(state.round, dtype=np.int64), "buffers": state.buffers_BP}

    def load(self, arrays: Mapping[str, np.ndarray]) -> BltState:
        """The state from the arrays of a checkpoint."""
        return BltState(int(arrays["round"]), np.asarray(arrays["buffers"]))


def inverse_coefficients(blt: Blt, rounds: int) -> np.ndarray:
    """First column of C^-1, ``[rounds]``, by running algorithm 3 on a unit impulse."""
    theta_B, omega_B = np.array(blt.theta), np.array(blt.omega)
    buffers_B, column = np.zeros(len(theta_B)), []
    for number in range(rounds):
        value = float(number == 0) - omega_B @ buffers_B
        buffers_B = theta_B * buffers_B + value
        column.append(value)
    return np.array(column)


def _counts(weights_T: np.ndarray, inverse_T: np.ndarray) -> np.ndarray:
    rounds = len(weights_T)
    return np.convolve(weights_T[::-1], inverse_T[:rounds])[:rounds]


def errors(inverse_coefs: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """MaxErr and RmsErr of prefix sums per unit of noise, in a run without restarts (their proposition 3.3).

    ``B = A C^-1`` is Toeplitz with the running sums of the inverse's coefficients.
    """
    squares = np.cumsum(inverse_coefs) ** 2
    rounds = len(squares)
    return float(np.sqrt(squares.sum())), float(np.sqrt((np.arange(rounds, 0, -1) * squares).sum() / rounds))


def prefix_variances(blt: Blt, rounds: int) -> np.ndarray:
    """Variance of the noise in each prefix of released sums, ``[rounds]``, for ``z = 1``.

    Blocks have independent noise, and all of a closed block's stays in every later prefix.
    """
    spans = segments(rounds, [restart for restart in blt.restarts if restart < rounds])
    within_T = np.cumsum(np.cumsum(inverse_coefficients(blt, max(end - start for start, end in spans))) ** 2)
    variances, closed = [], 0.0
    for start, end in spans:
        variances.append(closed + within_T[: end - start])
        closed = variances[-1][-1]
    return np.concatenate(variances)
