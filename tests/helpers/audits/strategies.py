"""Noise, sensitivity and losses of strategies by definition: what the product's fast programs are held against.

Suffixes: N rounds (rows of a strategy too), T rounds, P parameters.
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest
from scipy.signal import lfilter

from federated.mechanisms import Mechanism, optimise_blt
from federated.mechanisms.blt import errors
from federated.mechanisms.optimise_banded import Losses
from federated.mechanisms.sensitivity import check_pattern
from federated.planning import search
from pretrain.randomness.noise import seeded_key

KEY = seeded_key(9)


def streamed(mechanism: Mechanism, rounds: int, size: int = 3, key: bytes = KEY) -> np.ndarray:
    """Noise of every round as a launch makes it, ``[T, P]``."""
    state, rows = mechanism.init(size), []
    for number in range(rounds):
        row, state = mechanism.noise(state, number, key)
        rows.append(row)
    return np.array(rows)


def block_toeplitz(column_N: np.ndarray, restarts: Sequence[int] = ()) -> np.ndarray:
    """Dense C of one column for all rounds: zero between rounds that a restart separates."""
    strategy_NN = np.zeros((len(column_N), len(column_N)))
    for start, end in itertools.pairwise([0, *restarts, len(column_N)]):
        for place in range(start, end):
            strategy_NN[place:end, place] = column_N[: end - place]
    return strategy_NN


def random_banded(rounds: int, bands: int, seed: int) -> np.ndarray:
    """Dense C, columns of all norms."""
    inside = np.tril(np.ones((rounds, rounds))) - np.tril(np.ones((rounds, rounds)), -bands)
    return inside * np.random.default_rng(seed).uniform(0.2, 1.0, size=(rounds, rounds))


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


@contextmanager
def two_starts() -> Iterator[None]:
    """Search BLTs from two starts of twelve, for tests that do not depend on the quality of the result."""
    starts = optimise_blt.starts
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimise_blt, "starts", lambda *limits: starts(*limits)[:2])
        search.blt.cache_clear()
        yield
    search.blt.cache_clear()
