"""Banded mechanisms against dense solves, brute force, published losses and a lower bound from duality."""

import random

import numpy as np
import pytest
from scipy.linalg import sqrtm

from federated.mechanisms.banded import Banded, BandedState, from_coefficients, from_matrix
from federated.mechanisms.optimise_banded import (
    fhu_coefficients,
    full_losses,
    matrix_objective,
    optimise_banded,
    toeplitz_objective,
)
from pretrain.randomness import noise
from tests.helpers.audits.strategies import pattern_sensitivity_squared

KEY = noise.seeded_key(12)
SIZE = 3


def random_strategy(rounds: int, bands: int, seed: int) -> np.ndarray:
    """Dense C, columns of all norms."""
    rng = np.random.default_rng(seed)
    inside = np.tril(np.ones((rounds, rounds))) - np.tril(np.ones((rounds, rounds)), -bands)
    return inside * rng.uniform(0.2, 1.0, size=(rounds, rounds))


def streamed(banded: Banded, rounds: int) -> np.ndarray:
    state, rows = banded.init(SIZE), []
    for number in range(rounds):
        row, state = banded.noise(state, number, KEY)
        rows.append(row)
    return np.array(rows)


def solved(strategy: np.ndarray, multiplier: float) -> np.ndarray:
    drawn = np.array([noise.gaussian(KEY, "banded", number, SIZE) for number in range(len(strategy))])
    return np.linalg.solve(strategy, multiplier * drawn)


@pytest.mark.parametrize("bands", [1, 2, 5, 20])
def test_streamed_noise_is_the_dense_solution(bands: int) -> None:
    strategy = random_strategy(20, bands, seed=bands)
    np.testing.assert_allclose(
        streamed(from_matrix(1.5, strategy, bands), 20), solved(strategy, 1.5), rtol=1e-9, atol=1e-9
    )


def test_broken_scales_and_bands_are_noticed() -> None:
    strategy = random_strategy(20, 4, seed=0)
    right = solved(strategy, 1.5)
    short = np.triu(strategy, -2)  # a band lost
    for broken in (from_matrix(1.0, strategy, 4), from_matrix(1.5, short, 3)):
        assert np.abs(streamed(broken, 20) - right).max() > 1e-2


def test_matrix_and_lags_are_the_same_strategy() -> None:
    strategy = random_strategy(9, 4, seed=2)
    np.testing.assert_array_equal(from_matrix(1.0, strategy, 4).matrix(), strategy)
    toeplitz = from_coefficients(1.0, np.array([1.0, 0.5, 0.25]), 5).matrix()
    np.testing.assert_array_equal(toeplitz[2:, 2], [1.0, 0.5, 0.25])
    with pytest.raises(ValueError, match="outside its 3"):
        from_matrix(1.0, strategy, 3)


def test_sensitivity_equals_brute_force() -> None:
    rng = random.Random(6)
    for seed in range(60):
        rounds = rng.randint(1, 13)
        min_sep = rng.randint(1, rounds)
        bands = rng.randint(1, min_sep)
        most = rng.randint(1, -(-rounds // min_sep))
        strategy = random_strategy(rounds, bands, seed)
        exact = from_matrix(1.0, strategy, bands).sensitivity_squared(rounds, min_sep, most)
        assert exact == pytest.approx(pattern_sensitivity_squared(strategy, min_sep, most))


def test_sensitivity_of_a_run_that_ended_early() -> None:
    strategy = random_strategy(12, 3, seed=1)
    exact = from_matrix(1.0, strategy, 3).sensitivity_squared(7, 3, 2)
    assert exact == pytest.approx(pattern_sensitivity_squared(strategy[:7, :7], 3, 2))


def test_overlapping_columns_are_refused_unless_a_device_joins_once() -> None:
    strategy = random_strategy(12, 4, seed=1)
    banded = from_matrix(1.0, strategy, 4)
    with pytest.raises(ValueError, match="at most 3 bands"):
        banded.sensitivity_squared(12, 3, 2)
    assert banded.sensitivity_squared(12, 3, 1) == pytest.approx(pattern_sensitivity_squared(strategy, 3, 1))
    # What adding the norms would have missed: one round in which both columns are 1.
    flat = from_coefficients(1.0, np.ones(4), 12).matrix()
    assert pattern_sensitivity_squared(flat, 3, 2) == 10 > 2 * np.sum(flat[:, 0] ** 2)


def test_optimised_columns_have_one_norm() -> None:
    found = optimise_banded(40, 10, 4, 10)
    np.testing.assert_allclose(np.linalg.norm(found.strategy.matrix(), axis=0), 1.0, rtol=1e-12)
    assert found.sensitivity_squared == pytest.approx(4)
    # Row norms are what a Cholesky factor taken the wrong way round makes 1 instead.
    assert np.abs(np.linalg.norm(found.strategy.matrix(), axis=1) - 1).max() > 0.05
    for most in (1, 2, 3):
        assert found.strategy.sensitivity_squared(40, 10, most) == pytest.approx(most)


def lower_bound(strategy: np.ndarray, bands: int) -> float:
    """No C with these bands and columns of norm 1 has a smaller ``||A C^-1||_F^2``.

    For Z >= 0 that is 0 inside the bands off the diagonal and any X that BandMF may choose,
    ``tr(M X^-1) + tr(Z) = tr(M X^-1) + tr(Z X) >= 2 tr((M^1/2 Z M^1/2)^1/2)``, with ``M = A^T A``.
    """
    rounds = len(strategy)
    workload = np.tril(np.ones((rounds, rounds)))
    gram = workload.T @ workload
    inverse = np.linalg.inv(strategy.T @ strategy)
    apart = np.abs(np.subtract.outer(np.arange(rounds), np.arange(rounds)))
    certificate = np.where((apart == 0) | (apart >= bands), inverse @ gram @ inverse, 0.0)
    certificate += max(0.0, -np.linalg.eigvalsh(certificate).min()) * np.eye(rounds)
    root = np.real(sqrtm(gram))
    values = np.linalg.eigvalsh(root @ certificate @ root)
    return float(2 * np.sqrt(np.maximum(values, 0)).sum() - np.trace(certificate))


@pytest.mark.parametrize(("rounds", "bands"), [(1, 1), (12, 1), (12, 2), (40, 8), (60, 20), (30, 30)])
def test_bandmf_is_the_best_there_is(rounds: int, bands: int) -> None:
    found = optimise_banded(rounds, bands, 1, bands)
    bound = (lower_bound(found.strategy.matrix(), bands) / rounds) ** 0.5
    assert bound * (1 - 1e-9) <= found.losses.rms_loss <= bound * 1.0005
    if 1 < bands < rounds:  # the certificate tells a good strategy from the best
        toeplitz = optimise_banded(rounds, bands, 1, bands, "toeplitz")
        assert toeplitz.losses.rms_loss > bound * 1.0005


@pytest.mark.parametrize("kind", ["matrix", "toeplitz"])
def test_losses_are_those_of_the_dense_matrices(kind: str) -> None:
    found = optimise_banded(25, 6, 4, 5, kind)
    rows = np.sum((np.tril(np.ones((25, 25))) @ np.linalg.inv(found.strategy.matrix())) ** 2, axis=1)
    squared = pattern_sensitivity_squared(found.strategy.matrix(), 6, 4)
    assert found.losses.max_loss == pytest.approx((rows.max() * squared) ** 0.5)
    assert found.losses.rms_loss == pytest.approx((rows.mean() * squared) ** 0.5)


def test_gradients_against_differences() -> None:
    rng = np.random.default_rng(0)
    places = np.flatnonzero(np.tril(np.ones((9, 9)), -1) - np.tril(np.ones((9, 9)), -4))
    searches = (
        (lambda free: matrix_objective(free, places, 9), rng.normal(size=len(places)) / 2),
        (lambda free: toeplitz_objective(free, 17), fhu_coefficients(5)[1:] + 0.05 * rng.normal(size=4)),
    )
    for objective, point in searches:
        steps = 1e-5 * np.eye(len(point))
        numeric = [(objective(point + step)[0] - objective(point - step)[0]) / 2e-5 for step in steps]
        slope = objective(point)[1]
        np.testing.assert_allclose(slope, numeric, atol=1e-8)
        assert np.abs(slope * 2 / 3 - numeric).max() > 1e-3


def test_full_and_triangular_routes_agree() -> None:
    found = optimise_banded(30, 6, 5, 6)
    losses = full_losses(found.strategy.matrix(), found.sensitivity_squared)
    assert losses.max_loss == pytest.approx(found.losses.max_loss)
    assert losses.rms_loss == pytest.approx(found.losses.rms_loss)
    with pytest.raises(ArithmeticError, match="column 1 depends"):
        full_losses(np.ones((3, 3)), 1.0)


def test_saved_state_goes_on_bitwise() -> None:
    banded = from_matrix(2.0, random_strategy(12, 4, seed=5), 4)
    rows, state = streamed(banded, 12), banded.init(SIZE)
    for number in range(12):
        row, state = banded.noise(state, number, KEY)
        assert np.array_equal(row, rows[number])
        state = banded.load({name: array.copy() for name, array in banded.save(state).items()})
    assert len(state.recent) == 3


def test_an_old_state_stays_what_it_was() -> None:
    banded = from_matrix(1.0, random_strategy(12, 4, seed=5), 4)
    states: list[BandedState] = [banded.init(SIZE)]
    for number in range(12):
        states.append(banded.noise(states[-1], number, KEY)[1])
    rows = streamed(banded, 12)
    for number in reversed(range(12)):
        assert np.array_equal(banded.noise(states[number], number, KEY)[0], rows[number])


@pytest.mark.statistical
def test_noise_has_the_covariance_of_the_strategy() -> None:
    size, strategy = 50_000, random_strategy(5, 3, seed=3)
    banded = from_matrix(2.0, strategy, 3)
    state, rows = banded.init(size), []
    for number in range(5):
        row, state = banded.noise(state, number, KEY)
        rows.append(row)
    white = strategy @ np.array(rows) / 2.0
    for factor, right in ((1.0, True), (2 / 3, False), (3 / 2, False)):
        off = np.abs(np.cov(factor * white) - np.eye(5)).max()
        assert bool(off < 5 * np.sqrt(2 / size)) is right


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
        (0.0, good, "noise_multiplier: got 0.0"),
        (1.0, good * [[0.0, 1.0]], "positive diagonal"),
        (1.0, good * np.nan, "finite"),
        (1.0, good + np.array([0.0, 1.0]), "before round 0"),
        (1.0, np.ones((1, 2)), "2 bands for 1 rounds"),
    ]
    for multiplier, lags, message in cases:
        with pytest.raises(ValueError, match=message):
            Banded(multiplier, lags)
    banded = Banded(1.0, good)
    with pytest.raises(ValueError, match="goes on with round 0"):
        banded.noise(banded.init(2), 1, KEY)
    with pytest.raises(ValueError, match="past the 3 rounds"):
        banded.noise(BandedState(3, (), 2), 3, KEY)
    with pytest.raises(ValueError, match="this strategy has 3"):
        banded.sensitivity_squared(4, 2, 2)
    with pytest.raises(ValueError, match="at most 2"):
        banded.sensitivity_squared(3, 2, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((10, 3, 2, 4), "bands: got 4, expected 1 to 3"),
        ((10, 3, 2, 0), "bands: got 0"),
        ((10, 3, 5, 3), "max_participations: 5 cannot happen"),
        ((10, 3, 2, 3, "full"), "kind: got 'full'"),
        ((10, 3, 2, 3, "matrix", 0), "max_iterations: got 0"),
    ],
)
def test_bad_arguments_are_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        optimise_banded(*arguments)
