"""Sensitivity and losses of strategies by definition: what the product's fast programs are held against.

Suffixes: N rounds (rows of a strategy too), T rounds.
"""

from collections.abc import Iterator

import numpy as np
from scipy.signal import lfilter

from federated.mechanisms.blt import errors
from federated.mechanisms.optimise_banded import Losses
from federated.mechanisms.sensitivity import check_pattern


def patterns(rounds: int, min_sep: int, max_participations: int) -> Iterator[tuple[int, ...]]:
    """Every allowed pattern, smallest first: the brute force that the fast routes are held against."""

    def extend(pattern: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        yield pattern
        if len(pattern) < max_participations:
            for following in range(pattern[-1] + min_sep if pattern else 0, rounds):
                yield from extend((*pattern, following))

    return extend(())


def pattern_sensitivity_squared(strategy_NT: np.ndarray, min_sep: int, max_participations: int) -> float:
    """The largest ``||C 1_P||^2`` by trying every pattern; for small T only."""
    check_pattern(strategy_NT.shape[1], min_sep, max_participations)
    tried = patterns(strategy_NT.shape[1], min_sep, max_participations)
    return max(float(np.sum(strategy_NT[:, list(pattern)].sum(axis=1) ** 2)) for pattern in tried)


def toeplitz_losses(coefficients_N: np.ndarray, sensitivity_squared: float) -> Losses:
    """Losses of a lower-triangular Toeplitz C of n rounds, without a matrix."""
    impulse_N = np.zeros(len(coefficients_N))
    impulse_N[0] = 1.0
    largest, rms = errors(lfilter([1.0], coefficients_N, impulse_N))
    return Losses(largest * sensitivity_squared**0.5, rms * sensitivity_squared**0.5)
