"""Banded mechanisms against dense solves and brute force, by both programs for their sensitivity."""

import random

import numpy as np
import pytest

from federated.mechanisms.banded import Banded, BandedState, from_coefficients, from_matrix
from federated.mechanisms.optimise_banded import optimise_banded
from federated.mechanisms.second_sensitivity import MAX_ROUNDS, sensitivity_squared_by_windows
from pretrain.randomness import noise
from tests.helpers.audits.strategies import KEY, pattern_sensitivity_squared, random_banded, streamed


def solved(strategy: np.ndarray, multiplier: float) -> np.ndarray:
    drawn = np.array([noise.gaussian(KEY, "banded", number, 3) for number in range(len(strategy))])
    return np.linalg.solve(strategy, multiplier * drawn)


@pytest.mark.parametrize("bands", [1, 2, 5, 20])
def test_streamed_noise_is_the_dense_solution(bands: int) -> None:
    strategy = random_banded(20, bands, seed=bands)
    right = solved(strategy, 1.5)
    np.testing.assert_allclose(streamed(from_matrix(1.5, strategy, bands), 20), right, rtol=1e-9, atol=1e-9)
    broken = [from_matrix(1.0, strategy, bands)]
    if bands > 1:
        broken.append(from_matrix(1.5, np.triu(strategy, 2 - bands), bands - 1))  # a band lost
    for wrong in broken:
        assert np.abs(streamed(wrong, 20) - right).max() > 1e-2


def test_matrix_and_lags_are_the_same_strategy() -> None:
    strategy = random_banded(9, 4, seed=2)
    np.testing.assert_array_equal(from_matrix(1.0, strategy, 4).matrix(), strategy)
    toeplitz = from_coefficients(1.0, np.array([1.0, 0.5, 0.25]), 5).matrix()
    np.testing.assert_array_equal(toeplitz[2:, 2], [1.0, 0.5, 0.25])
    with pytest.raises(ValueError, match="outside its 3"):
        from_matrix(1.0, strategy, 3)


def require_brute_force(banded: Banded, rounds: int, min_sep: int, most: int) -> None:
    right = pattern_sensitivity_squared(banded.matrix()[:rounds, :rounds], min_sep, most)
    assert banded.sensitivity_squared(rounds, min_sep, most) == pytest.approx(right, rel=1e-12)
    assert banded.second_sensitivity_squared(rounds, min_sep, most) == pytest.approx(right, rel=1e-9)


@pytest.mark.slow
def test_sensitivity_equals_brute_force() -> None:
    rng = random.Random(6)
    for seed in range(60):
        rounds = rng.randint(1, 13)
        min_sep = rng.randint(1, rounds)
        bands = rng.randint(1, min_sep)
        most = rng.randint(1, -(-rounds // min_sep))
        # The run may end before the strategy does.
        banded = from_matrix(1.0, random_banded(rounds + seed % 3, bands, seed), bands)
        require_brute_force(banded, rounds, min_sep, most)


@pytest.mark.slow
def test_every_small_case_equals_brute_force_by_both_programs() -> None:
    cases = 0
    for length in range(1, 9):
        for bands in range(1, length + 1):
            banded = from_matrix(1.0, random_banded(length, bands, seed=17 * length + bands), bands)
            for rounds in range(bands, length + 1):
                for min_sep in range(bands, rounds + 1):
                    for most in range(1, -(-rounds // min_sep) + 1):
                        require_brute_force(banded, rounds, min_sep, most)
                        cases += 1
    assert cases > 400


def test_both_programs_agree_on_long_runs() -> None:
    rng = random.Random(2)
    for seed in range(12):
        rounds = rng.randint(50, 600)
        bands = rng.randint(1, 30)
        min_sep = rng.randint(bands, rounds)
        most = rng.randint(1, -(-rounds // min_sep))
        banded = from_matrix(1.0, random_banded(rounds, bands, seed), bands)
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
        strategy = random_banded(10, 4, seed)
        right = pattern_sensitivity_squared(strategy, 2, 3)
        norms = float(np.sort(np.sum(strategy**2, axis=0))[-3:].sum())
        assert norms < 0.9 * right <= sensitivity_squared_by_windows(strategy, 2, 3)


def test_overlapping_columns_are_refused_unless_a_device_joins_once() -> None:
    strategy = random_banded(12, 4, seed=1)
    banded = from_matrix(1.0, strategy, 4)
    with pytest.raises(ValueError, match="at most 3 bands"):
        banded.sensitivity_squared(12, 3, 2)
    largest = pattern_sensitivity_squared(strategy, 3, 1)
    assert banded.sensitivity_squared(12, 3, 1) == pytest.approx(largest)
    assert sensitivity_squared_by_windows(strategy, 3, 1) == pytest.approx(largest)


def test_too_many_rounds_give_no_answer() -> None:
    banded = from_coefficients(1.0, np.array([1.0, 0.5]), MAX_ROUNDS + 1)
    assert banded.second_sensitivity_squared(MAX_ROUNDS + 1, 50, 5) is None
    assert sensitivity_squared_by_windows(np.eye(1, MAX_ROUNDS + 1).repeat(MAX_ROUNDS + 1, axis=0), 50, 5) is None
    assert banded.second_sensitivity_squared(30, 10, 3) == pytest.approx(3.75)


def test_a_strategy_cannot_be_changed_afterwards() -> None:
    lags = np.array([[1.0, 0.0], [1.0, 0.5]])
    banded = Banded(1.0, lags)
    lags[1, 1] = 9.0
    assert banded.lags_NL[1, 1] == 0.5
    with pytest.raises(ValueError, match="read-only"):
        banded.lags_NL[1, 1] = 9.0


def test_bad_strategies_and_rounds_are_refused() -> None:
    good = np.array([[1.0, 0.0], [1.0, 0.5], [1.0, 0.5]])
    cases = [
        (good * [[0.0, 1.0]], "positive diagonal"),
        (good * np.nan, "finite"),
        (good + np.array([0.0, 1.0]), "before round 0"),
        (np.ones((1, 2)), "2 bands for 1 rounds"),
    ]
    for lags, message in cases:
        with pytest.raises(ValueError, match=message):
            Banded(1.0, lags)
    banded = Banded(1.0, good)
    with pytest.raises(ValueError, match="past the 3 rounds"):
        banded.noise(BandedState(3, (), 2), 3, KEY)
    for program in (banded.sensitivity_squared, banded.second_sensitivity_squared):
        with pytest.raises(ValueError, match="this strategy has 3"):
            program(4, 2, 2)
        with pytest.raises(ValueError, match="at most 2"):
            program(3, 2, 3)
    with pytest.raises(ValueError, match="less than the 2 bands"):
        banded.sensitivity_squared(3, 1, 2)
