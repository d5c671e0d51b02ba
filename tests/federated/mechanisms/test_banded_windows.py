"""The banded mechanisms' two programs for the sensitivity: every small case, large ones, and a broken strategy."""

import random

import numpy as np
import pytest

from federated.mechanisms.banded import Banded, from_coefficients, from_matrix
from federated.mechanisms.optimise_banded import optimise_banded
from federated.mechanisms.second_sensitivity import MAX_ROUNDS, sensitivity_squared_by_windows
from tests.helpers.audits.strategies import pattern_sensitivity_squared


def random_strategy(rounds: int, bands: int, seed: int) -> np.ndarray:
    """Dense C, columns of all norms."""
    inside = np.tril(np.ones((rounds, rounds))) - np.tril(np.ones((rounds, rounds)), -bands)
    return inside * np.random.default_rng(seed).uniform(0.2, 1.0, size=(rounds, rounds))


@pytest.mark.slow
def test_every_small_case_equals_brute_force_by_both_programs() -> None:
    cases = 0
    for length in range(1, 9):
        for bands in range(1, length + 1):
            banded = from_matrix(1.0, random_strategy(length, bands, seed=17 * length + bands), bands)
            for rounds in range(bands, length + 1):
                strategy = banded.matrix()[:rounds, :rounds]
                for min_sep in range(bands, rounds + 1):
                    for most in range(1, -(-rounds // min_sep) + 1):
                        right = pattern_sensitivity_squared(strategy, min_sep, most)
                        assert banded.sensitivity_squared(rounds, min_sep, most) == pytest.approx(right, rel=1e-12)
                        second = banded.second_sensitivity_squared(rounds, min_sep, most)
                        assert second == pytest.approx(right, rel=1e-9)
                        cases += 1
    assert cases > 400


def test_both_programs_agree_on_long_runs() -> None:
    rng = random.Random(2)
    for seed in range(12):
        rounds = rng.randint(50, 600)
        bands = rng.randint(1, 30)
        min_sep = rng.randint(bands, rounds)
        most = rng.randint(1, -(-rounds // min_sep))
        banded = from_matrix(1.0, random_strategy(rounds, bands, seed), bands)
        first = banded.sensitivity_squared(rounds, min_sep, most)
        assert banded.second_sensitivity_squared(rounds, min_sep, most) == pytest.approx(first, rel=1e-10)


def test_both_programs_agree_where_columns_are_nearly_equal() -> None:
    """A solver of ordinary tolerance may stop at the worse of two nearly equal rounds."""
    banded = optimise_banded(90, 20, 4, 20).strategy
    for rounds in (90, 85, 70):
        first = banded.sensitivity_squared(rounds, 20, 4)
        assert banded.second_sensitivity_squared(rounds, 20, 4) == pytest.approx(first, rel=1e-10)


def test_columns_that_share_rows_are_noticed() -> None:
    """Adding the norms would be too low for these; the second program is never too low, so the two would differ."""
    for seed in range(20):
        strategy = random_strategy(10, 4, seed)
        right = pattern_sensitivity_squared(strategy, 2, 3)
        norms = float(np.sort(np.sum(strategy**2, axis=0))[-3:].sum())
        assert norms < 0.9 * right <= sensitivity_squared_by_windows(strategy, 2, 3)


def test_one_participation_needs_no_orthogonal_columns() -> None:
    strategy = random_strategy(12, 4, seed=1)
    largest = float(np.sum(strategy**2, axis=0).max())
    assert sensitivity_squared_by_windows(strategy, 3, 1) == pytest.approx(largest)


def test_too_many_rounds_give_no_answer() -> None:
    banded = from_coefficients(1.0, np.array([1.0, 0.5]), MAX_ROUNDS + 1)
    assert banded.second_sensitivity_squared(MAX_ROUNDS + 1, 50, 5) is None
    assert sensitivity_squared_by_windows(np.eye(1, MAX_ROUNDS + 1).repeat(MAX_ROUNDS + 1, axis=0), 50, 5) is None
    assert banded.second_sensitivity_squared(30, 10, 3) == pytest.approx(3.75)


def test_impossible_limits_are_refused() -> None:
    banded = from_coefficients(1.0, np.array([1.0, 0.5]), 10)
    with pytest.raises(ValueError, match="at most 5"):
        banded.second_sensitivity_squared(10, 2, 6)
    with pytest.raises(ValueError, match="this strategy has 10"):
        banded.second_sensitivity_squared(11, 2, 2)
    with pytest.raises(ValueError, match="less than the 2 bands"):
        banded.sensitivity_squared(10, 1, 2)
    for multiplier in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"noise_multiplier: got {multiplier}, expected a finite number above 0"):
            Banded(multiplier, np.ones((3, 1)))
