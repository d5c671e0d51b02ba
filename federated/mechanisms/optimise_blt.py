"""Parameters of a BLT for one training run: least loss by L-BFGS from several starts.

McMahan et al. 2024, *A Hassle-free Algorithm for Private Learning in Practice: Don't Use Tree
Aggregation, Use BLTs*, section 3.3. Symbols: n rounds, b ``min_sep``, k ``max_participations``;
theta, omega of C and theta^, omega^ (``inverse_*``) of C^-1.

The decays interlace, ``1 > theta_1 > theta^_1 > theta_2 > theta^_2 > ... > 0``, as running products
of sigmoids. That makes every omega positive and ``sum(omega) = sum(theta) - sum(theta^) < 1``, so
every point of the search is a valid strategy to which theorem 3.1 applies: no constraint is left.

Suffixes: N rounds, B buffers, Q the 2 B interlaced decays.
"""

import itertools
import logging
import time
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit
from threadpoolctl import threadpool_limits

from federated.mechanisms.blt import Blt, errors, inverse_coefficients
from federated.mechanisms.sensitivity import check_pattern, toeplitz_sensitivity_squared

logger = logging.getLogger(__name__)

MAX_BUFFERS = 8
# Keeps parameters finite where the loss is flat; changes the loss by less than 1e-5 of it.
_BARRIER = 1e-7
# Decays stay this many logits from 0 and 1, where float64 still tells them apart.
_LOGIT_BOUND = 30.0
JITTER = 0.01


@dataclass(frozen=True)
class OptimisedBlt:
    """Parameters of a BLT with their error and sensitivity for the run of their optimisation.

    Attributes:
      theta: decays, falling.
      omega: output scales.
      max_loss: MaxErr times sensitivity: the largest standard deviation of a prefix sum's noise
        at the noise multiplier that gives ``mu = 1``, in clip norms.
      rms_loss: RmsErr times sensitivity, the same over all prefixes as a root mean square.
      sensitivity_squared: exact, in clip norms squared (theorem 3.1).
      seconds: CPU seconds that the search took.
    """

    theta: tuple[float, ...]
    omega: tuple[float, ...]
    max_loss: float
    rms_loss: float
    sensitivity_squared: float
    seconds: float


def optimise_blt(
    rounds: int, min_sep: int, max_participations: int, num_buffers: int, loss: Literal["max", "rms"]
) -> OptimisedBlt:
    """The BLT of least MaxLoss or RmsLoss, the best of twelve starts.

    One start is not enough: with three buffers the usual one ends 0.4% above the best for
    (2052, 342, 6), and for (20,000, 1000, 20) even two buffers end 9% above it.

    Args:
      rounds: n, rounds of the run.
      min_sep: b, rounds from one participation of a device to its next, at least.
      max_participations: k, most rounds one device joins.
      num_buffers: B; memory of the streamed noise is B model copies.
      loss: which of the two is minimised; the other is reported.

    Raises:
      ValueError: an argument out of range, with the reason.
      ArithmeticError: no start ended with a finite loss.
    """
    check_pattern(rounds, min_sep, max_participations)
    if not 1 <= num_buffers <= MAX_BUFFERS:
        raise ValueError(f"num_buffers: got {num_buffers}, expected 1 to {MAX_BUFFERS}; more gain nothing measurable")
    if loss not in ("max", "rms"):
        raise ValueError(f"loss: got {loss!r}, expected 'max' or 'rms'")
    began = time.process_time()
    weights_N = np.ones(rounds) if loss == "max" else np.arange(rounds, 0, -1) / rounds
    ends = []
    # L-BFGS-B multiplies matrices of a few numbers; several threads would spend ten times the CPU on waiting.
    with threadpool_limits(1, user_api="blas"):
        for start_Q in starts(rounds, min_sep, num_buffers):
            end = minimize(
                objective,
                start_Q,
                (weights_N, min_sep, max_participations),
                "L-BFGS-B",
                jac=True,
                bounds=[(-_LOGIT_BOUND, _LOGIT_BOUND)] * len(start_Q),
                options={"maxiter": 600, "maxcor": 20, "ftol": 1e-11, "gtol": 1e-8},
            )
            if np.isfinite(end.fun):
                ends.append((float(end.fun), end.x))
    if not ends:
        raise ArithmeticError(f"no start for {num_buffers} buffers over {rounds} rounds ended with a finite loss")
    best, logits_Q = min(ends, key=lambda end: end[0])
    worst = max(value for value, _ in ends)
    logger.debug("BLT of %d buffers: log squared loss %.6f to %.6f by start", num_buffers, best, worst)
    decays_Q, _ = decays(logits_Q)
    omega_B, _ = scales(decays_Q)
    blt = Blt(1.0, tuple(map(float, decays_Q[::2])), tuple(map(float, omega_B)))
    # The parameters as they will be used, by the routes that account for them: not the objective's own value.
    largest, rms = errors(inverse_coefficients(blt, rounds))
    squared = toeplitz_sensitivity_squared(blt.coefficients(rounds), min_sep, max_participations)
    sensitivity = squared**0.5
    spent = time.process_time() - began
    return OptimisedBlt(blt.theta, blt.omega, largest * sensitivity, rms * sensitivity, squared, spent)


def starts(rounds: int, min_sep: int, num_buffers: int) -> list[np.ndarray]:
    """Twelve starting points, logits ``[Q]``: distances of the decays from 1 in geometric progression."""
    rng = np.random.default_rng(0)
    logits = []
    for low, high in itertools.product((0.5 / rounds, 0.5 / min_sep, 5 / rounds, 1e-8), (0.3, 0.7, 0.95)):
        decays_Q = 1 - np.geomspace(min(low, high / 10), high, 2 * num_buffers)
        ratios_Q = decays_Q / np.concatenate([[1.0], decays_Q[:-1]])
        logits.append(np.log(ratios_Q) - np.log1p(-ratios_Q) + JITTER * rng.standard_normal(2 * num_buffers))
    return logits


def decays(logits_Q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Interlaced decays ``[Q]`` (theta and theta^ in turn) and their derivatives ``[Q, Q]`` by the logits."""
    decays_Q = np.exp(-np.cumsum(np.logaddexp(0.0, -logits_Q)))
    return decays_Q, np.tril(decays_Q[:, None] * expit(-logits_Q))


def scales(decays_Q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scales of the decays at even places, from a partial fraction (their algorithm 5).

    ``omega_i = prod_j (theta_i - theta^_j) / prod_(j != i) (theta_i - theta_j)``.

    Returns:
      ``[B]``, and the derivatives of their logarithms by the decays, ``[B, Q]``.
    """
    size = len(decays_Q)
    signs_Q = np.where(np.arange(size) % 2 == 0, -1.0, 1.0)
    gaps_BQ = decays_Q[::2, None] - decays_Q
    diagonal = (np.arange(size // 2), np.arange(0, size, 2))
    gaps_BQ[diagonal] = 1.0
    omega_B = np.prod(gaps_BQ**signs_Q, axis=1)
    slopes_BQ = -signs_Q / gaps_BQ
    slopes_BQ[diagonal] = 0.0
    slopes_BQ[diagonal] = -slopes_BQ.sum(axis=1)
    return omega_B, slopes_BQ


def objective(
    logits_Q: np.ndarray, weights_N: np.ndarray, min_sep: int, max_participations: int
) -> tuple[float, np.ndarray]:
    """``log Loss^2`` plus a faint barrier, and its gradient ``[Q]``.

    Args:
      logits_Q: parameters, any real numbers.
      weights_N: of the squared entries of ``A C^-1``'s first column (proposition 3.3).
    """
    rounds = len(weights_N)
    decays_Q, jacobian_QQ = decays(logits_Q)
    omega_B, slopes_BQ = scales(decays_Q)
    # C^-1 is a BLT too, with the roles of the two kinds of decays exchanged.
    inverse_B, inverse_slopes_BQ = scales(np.roll(decays_Q, -1))
    inverse_slopes_BQ = np.roll(inverse_slopes_BQ, 1, axis=1)
    powers_BN, inverse_powers_BN = _powers(decays_Q[::2], rounds - 1), _powers(decays_Q[1::2], rounds - 1)

    column_N = np.concatenate([[1.0], omega_B @ powers_BN])
    pattern_N = _participations(column_N, min_sep, max_participations)
    squared = pattern_N @ pattern_N
    column_slope_N = _participations(pattern_N[::-1], min_sep, max_participations)[::-1] * (2 / squared)

    sums_N = np.cumsum(np.concatenate([[1.0], inverse_B @ inverse_powers_BN]))
    error = weights_N @ sums_N**2
    inverse_slope_N = np.cumsum((weights_N * sums_N)[::-1])[::-1] * (2 / error)

    value = np.log(squared) + np.log(error)
    slope_Q = np.zeros(len(logits_Q))
    for first, powers, scale_B, rows_BQ, by_column_N in (
        (0, powers_BN, omega_B, slopes_BQ, column_slope_N),
        (1, inverse_powers_BN, inverse_B, inverse_slopes_BQ, inverse_slope_N),
    ):
        slope_Q += (powers @ by_column_N[1:] * scale_B) @ rows_BQ
        slope_Q[first::2] += scale_B * (powers[:, :-1] @ (by_column_N[2:] * np.arange(1, rounds - 1)))
    value -= _BARRIER * (np.log(omega_B).sum() + np.log(expit(-logits_Q[0])) + np.log(decays_Q[-1]))
    slope_Q -= _BARRIER * slopes_BQ.sum(axis=0)
    slope_Q[-1] -= _BARRIER / decays_Q[-1]
    gradient_Q = slope_Q @ jacobian_QQ
    gradient_Q[0] += _BARRIER * expit(logits_Q[0])
    return float(value), gradient_Q


def _powers(bases_B: np.ndarray, count: int) -> np.ndarray:
    """``base^0 ... base^(count - 1)``, ``[B, count]``."""
    return np.exp(np.log(bases_B)[:, None] * np.arange(count))


def _participations(column_N: np.ndarray, min_sep: int, most: int) -> np.ndarray:
    """Sum of the column shifted by 0, b, ..., (most - 1) b: the worst pattern's ``C 1_P``."""
    rows_Rb = np.zeros((-(-len(column_N) // min_sep), min_sep))
    rows_Rb.reshape(-1)[: len(column_N)] = column_N
    sums_Rb = np.cumsum(rows_Rb, axis=0)
    if most < len(sums_Rb):
        sums_Rb[most:] -= sums_Rb[:-most].copy()
    return sums_Rb.reshape(-1)[: len(column_N)]
