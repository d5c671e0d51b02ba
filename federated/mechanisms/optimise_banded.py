"""Banded strategies of least RmsLoss, and the losses of any dense strategy for comparison.

Choquette-Choo et al. 2023, *(Amplified) Banded Matrix Factorization*, section 4, and McMahan et al.
2024 (BLT), table 3. Symbols: n rounds, A the prefix sums (ones on and below the diagonal), C the
strategy, ``X = C^T C``.

Suffixes: N rounds, K bands, L free coefficients, M rows of a strategy.
"""

import time
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.linalg import lapack, solve_triangular
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from federated.config.mechanism import MOST_BANDED_ROUNDS, MOST_MATRIX_ROUNDS
from federated.config.training import MOMENTUM
from federated.mechanisms.banded import Banded, from_coefficients, from_matrix, inverse_series
from federated.mechanisms.sensitivity import check_pattern

Loss = Literal["rms", "model"]
_LAST = {"rms": 0.0, "model": 1.0}  # squared error of the last round, beside the mean over rounds

_LARGEST_ERROR = 1e100  # of any use; its square is still a number
_BLOCK = 128  # columns whose slope is computed at a time
_ONE_THREAD_ROUNDS = 256


@dataclass(frozen=True)
class Losses:
    """Standard deviation of prefix sums' noise in clip norms, at the noise multiplier for ``mu = 1``.

    Attributes:
      max_loss: the largest over prefixes.
      rms_loss: root mean square over prefixes.
    """

    max_loss: float
    rms_loss: float


@dataclass(frozen=True)
class OptimisedBanded:
    """A banded strategy with its error and sensitivity for the run of its optimisation.

    Attributes:
      strategy: with ``noise_multiplier`` 1; ``dataclasses.replace`` gives it another.
      losses: for the participations it was made for.
      sensitivity_squared: exact, in clip norms squared.
      iterations: steps of L-BFGS.
      seconds: CPU seconds that the search took.
    """

    strategy: Banded
    losses: Losses
    sensitivity_squared: float
    iterations: int
    seconds: float


def optimise_banded(
    rounds: int,
    min_sep: int,
    max_participations: int,
    bands: int,
    kind: Literal["matrix", "toeplitz"] = "matrix",
    max_iterations: int = 500,
    loss: Loss = "rms",
) -> OptimisedBanded:
    """BandMF (``matrix``) or BandToep (``toeplitz``) of least loss.

    With ``bands <= min_sep`` and columns of norm 1 the sensitivity is sqrt(k) whatever C is, so
    BandMF minimises the error alone. C is free but for its bands and its columns' norm, which
    corresponds one to one and smoothly to the positive definite banded X with ones on the
    diagonal; the squared error is convex in X, so the one place without slope is the best there is.
    A step of BandMF costs O(n^3), half a CPU second for 2,000 rounds, where it takes about 90 steps for
    RmsLoss.

    Args:
      rounds: n.
      min_sep: rounds from one participation of a device to its next, at least.
      max_participations: most rounds one device joins.
      bands: diagonals of C, at most ``min_sep`` and n; also the noise vectors kept while streaming.
      kind: any column for itself, or one column shifted.
      max_iterations: the search ends there even if it has not settled.
      loss: what is minimised: RmsLoss, or the noise in the models that a server with momentum makes of the rounds, the
        last as heavy as the mean of all, in which devices train.

    Raises:
      ValueError: an argument out of range, with the reason.
    """
    check_pattern(rounds, min_sep, max_participations)
    if not 1 <= bands <= min(rounds, min_sep):
        raise ValueError(
            f"bands: got {bands}, expected 1 to {min(rounds, min_sep)} for {rounds} rounds at min_sep {min_sep}; with "
            "more the columns of one device overlap and their norms do not add up"
        )
    if kind not in ("matrix", "toeplitz"):
        raise ValueError(f"kind: got {kind!r}, expected 'matrix' or 'toeplitz'")
    most = MOST_MATRIX_ROUNDS if kind == "matrix" else MOST_BANDED_ROUNDS
    if rounds > most:
        raise ValueError(
            f"rounds: got {rounds:,}, expected at most {most:,} for kind {kind!r}, whose search takes too long beyond; "
            + ("use kind 'toeplitz'" if kind == "matrix" else "use a BLT")
        )
    if max_iterations < 1:
        raise ValueError(f"max_iterations: got {max_iterations}, expected at least 1")
    began = time.process_time()
    coefficients_K, iterations = search_toeplitz(rounds, bands, loss, max_iterations)
    strategy = from_coefficients(1.0, coefficients_K, rounds)
    if kind == "matrix":
        strategy, iterations = _search_matrix(strategy, loss, max_iterations)
    squared = strategy.sensitivity_squared(rounds, min_sep, max_participations)
    largest, rms = _prefix_errors(_inverse(strategy.matrix()))
    sensitivity = squared**0.5
    spent = time.process_time() - began
    return OptimisedBanded(strategy, Losses(largest * sensitivity, rms * sensitivity), squared, iterations, spent)


def fhu_coefficients(count: int) -> np.ndarray:
    """First column of the square root of A, ``[count]`` (Fichtenberger, Henzinger and Upadhyay 2023)."""
    places = np.arange(1, count)
    return np.cumprod(np.concatenate([[1.0], (2 * places - 1) / (2 * places)]))


def full_losses(strategy_MN: np.ndarray, sensitivity_squared: float) -> Losses:
    """Losses of any C of full column rank, with the best reconstruction ``B = A C^+``.

    For a tree's C (``strategy.tree_matrix``) this is TreeAgg-Full, which may use nodes of later
    rounds; the streamed tree cannot, and has 1.5 to 2.5 times this loss. ``B B^T = A X^-1 A^T``, so
    no pseudo-inverse is made.

    Raises:
      ArithmeticError: the columns are linearly dependent.
    """
    factor_NN, status = lapack.dpotrf(strategy_MN.T @ strategy_MN, lower=1)
    if status:
        raise ArithmeticError(f"strategy: column {status - 1} depends on those before it, so C has no left inverse")
    workload_NN = np.tril(np.ones(factor_NN.shape))
    squares_N = np.sum(solve_triangular(factor_NN, workload_NN.T, lower=True) ** 2, axis=0)
    return Losses(
        float((squares_N.max() * sensitivity_squared) ** 0.5), float((squares_N.mean() * sensitivity_squared) ** 0.5)
    )


def matrix_objective(free_F: np.ndarray, places_F: np.ndarray, rounds: int, loss: Loss) -> tuple[float, np.ndarray]:
    """``log`` of the squared error of ``C = W / column norms`` and its gradient.

    Args:
      free_F: entries of W below the diagonal and inside the bands; W has ones on the diagonal.
      places_F: where they stand in W, flattened.
      rounds: n.
    """
    raw_NN = np.eye(rounds)
    raw_NN.reshape(-1)[places_F] = free_F
    norms_N = np.sqrt(np.sum(raw_NN**2, axis=0))
    inverse_NN = _inverse(raw_NN / norms_N)
    prefix_NN = _summed(inverse_NN, loss) / np.sqrt(rounds)
    prefix_NN[-1] *= np.sqrt(1 + _LAST[loss] * rounds)
    square = np.sum(prefix_NN**2)
    # d ||A C^-1||^2 = -2 <B^T B C^-T, dC>; the slope by W leaves out what the norms take back.
    gram_NN = lapack.dlauum(prefix_NN.T, lower=0)[0].T
    keep_NN = np.eye(rounds, dtype=bool)
    keep_NN.reshape(-1)[places_F] = True
    slope_NN = _product_inside(gram_NN, inverse_NN, keep_NN) * (-2.0 / square)
    strategy_NN = raw_NN / norms_N
    slope_NN = (slope_NN - strategy_NN * np.sum(slope_NN * strategy_NN, axis=0)) / norms_N
    return float(np.log(square)), slope_NN.reshape(-1)[places_F]


def toeplitz_objective(free_L: np.ndarray, rounds: int, loss: Loss) -> tuple[float, np.ndarray]:
    """``log (error ||c||)^2`` of coefficients ``1, free`` and its gradient ``[L]``.

    ``d (1 / c) = -(1 / c)^2 dc`` as power series gives the slope by one correlation. Where ``1 / c`` grows
    past all numbers, as a long step of the search can make it, the largest loss there is, and no slope.
    """
    from scipy.signal import fftconvolve  # See ``inverse_series``.

    column_N = np.zeros(rounds)
    column_N[: len(free_L) + 1] = np.concatenate([[1.0], free_L])
    weights_N = np.arange(rounds, 0, -1) / rounds + _LAST[loss]
    with np.errstate(over="ignore", invalid="ignore"):
        inverse_N = inverse_series(column_N[: len(free_L) + 1], rounds)
        sums_N = _summed(inverse_N, loss)
        error = weights_N @ sums_N**2
    if not error < _LARGEST_ERROR:
        return float(np.log(_LARGEST_ERROR)), np.zeros(len(free_L))
    norm = column_N @ column_N
    by_inverse_N = _summed((weights_N * sums_N)[::-1], loss)[::-1] * (2 / error)
    twice_N = fftconvolve(inverse_N, inverse_N)[:rounds]
    slope_N = -fftconvolve(by_inverse_N[::-1], twice_N)[:rounds][::-1] + 2 * column_N / norm
    return float(np.log(error) + np.log(norm)), slope_N[1 : len(free_L) + 1]


def search_toeplitz(rounds: int, bands: int, loss: Loss, max_iterations: int = 500) -> tuple[np.ndarray, int]:
    """Coefficients ``[bands]`` of least error times norm, scaled to norm 1; iterations."""
    free_L, iterations = fhu_coefficients(bands)[1:], 0
    if bands > 1:
        options = {"maxiter": max_iterations, "maxcor": 20, "ftol": 1e-13, "gtol": 1e-8}
        with threadpool_limits(1, user_api="blas"):  # nothing here is large enough for two
            end = minimize(toeplitz_objective, free_L, (rounds, loss), "L-BFGS-B", jac=True, options=options)
        free_L, iterations = end.x, int(end.nit)
    coefficients_K = np.concatenate([[1.0], free_L])
    return coefficients_K / np.linalg.norm(coefficients_K), iterations


def _search_matrix(start: Banded, loss: Loss, max_iterations: int) -> tuple[Banded, int]:
    """BandMF from a banded start; every column of the result has norm 1."""
    raw_NN = start.matrix() / start.lags_NL[:, 0]
    rounds, bands = start.rounds, start.bands
    inside_NN = np.tril(np.ones((rounds, rounds), dtype=bool), -1) & ~np.tril(
        np.ones((rounds, rounds), dtype=bool), -bands
    )
    places_F = np.flatnonzero(inside_NN)
    iterations = 0
    if len(places_F):
        options = {"maxiter": max_iterations, "maxcor": 10, "ftol": 1e-7, "gtol": 1e-9}
        free_F = raw_NN.reshape(-1)[places_F]
        # Of few rounds, threads only wait for each other, and another number of them ends in other last digits.
        with threadpool_limits(1 if rounds <= _ONE_THREAD_ROUNDS else None, user_api="blas"):
            end = minimize(matrix_objective, free_F, (places_F, rounds, loss), "L-BFGS-B", jac=True, options=options)
        raw_NN.reshape(-1)[places_F] = end.x
        iterations = int(end.nit)
    return from_matrix(start.noise_multiplier, raw_NN / np.linalg.norm(raw_NN, axis=0), bands), iterations


def _inverse(lower_NN: np.ndarray) -> np.ndarray:
    """Inverse of a lower-triangular matrix with positive diagonal."""
    # Transposed, so that rows in memory are the columns that LAPACK expects and nothing is copied.
    inverse_NN, _ = lapack.dtrtri(np.ascontiguousarray(lower_NN).T, lower=0)
    return inverse_NN.T


def _summed(rows: np.ndarray, loss: Loss) -> np.ndarray:
    """Prefix sums over the first axis, or what a server with momentum and rate 1 makes of these rows."""
    if loss == "rms":
        return np.cumsum(rows, axis=0)
    from scipy.signal import lfilter  # See ``inverse_series``.

    return lfilter([1.0], [1.0, -1.0 - MOMENTUM, MOMENTUM], rows, axis=0)


def _product_inside(gram_NN: np.ndarray, inverse_NN: np.ndarray, keep_NN: np.ndarray) -> np.ndarray:
    """``G C^-T`` where ``keep`` holds and 0 elsewhere; only the rows that a block of columns keeps are computed.

    Args:
      gram_NN: G; its lower half is enough, as row i and column j <= i meet only ``G[i, :j + 1]``.
      inverse_NN: C^-1.
      keep_NN: bool, nothing above the diagonal.
    """
    product_NN = np.zeros(gram_NN.shape)
    for start in range(0, len(gram_NN), _BLOCK):
        end = min(start + _BLOCK, len(gram_NN))
        last = int(np.flatnonzero(keep_NN[:, start:end].any(axis=1))[-1]) + 1
        product_NN[start:last, start:end] = gram_NN[start:last, :end] @ inverse_NN[start:end, :end].T
    product_NN *= keep_NN
    return product_NN


def _prefix_errors(inverse_NN: np.ndarray) -> tuple[float, float]:
    """MaxErr and RmsErr of prefix sums from a dense C^-1."""
    squares_N = np.sum(np.cumsum(inverse_NN, axis=0) ** 2, axis=1)
    return float(squares_N.max() ** 0.5), float(squares_N.mean() ** 0.5)
