"""BLT against dense matrices, brute force and the published guarantees."""

import math
import random

import numpy as np
import pytest

from federated.accounting.gaussian import epsilon_of_rho
from federated.config.blt_presets import PRESETS
from federated.mechanisms.blt import Blt, errors, inverse_coefficients, prefix_variances
from federated.mechanisms.sensitivity import toeplitz_sensitivity_squared
from pretrain.randomness import noise
from tests.helpers.audits.strategies import pattern_sensitivity_squared

KEY = noise.seeded_key(9)
BLT = Blt(noise_multiplier=2.0, theta=(0.95, 0.6, 0.2), omega=(0.1, 0.2, 0.3))


def toeplitz(column: np.ndarray) -> np.ndarray:
    """Lower-triangular Toeplitz matrix of a first column."""
    lags = np.subtract.outer(np.arange(len(column)), np.arange(len(column)))
    return np.where(lags >= 0, column[np.abs(lags)], 0.0)


def streamed(blt: Blt, rounds: int, size: int = 3) -> np.ndarray:
    state, rows = blt.init(size), []
    for number in range(rounds):
        row, state = blt.noise(state, number, KEY)
        rows.append(row)
    return np.array(rows)


def drawn(rounds: int, size: int = 3) -> np.ndarray:
    return np.array([noise.gaussian(KEY, "blt", number, size) for number in range(rounds)])


@pytest.mark.parametrize("blt", [BLT, *(Blt(1.0, preset.theta, preset.omega) for preset in PRESETS.values())])
def test_streamed_noise_is_the_dense_solution(blt: Blt) -> None:
    dense = np.linalg.solve(toeplitz(blt.coefficients(60)), blt.noise_multiplier * drawn(60))
    np.testing.assert_allclose(streamed(blt, 60), dense, rtol=0, atol=1e-12)


def test_broken_scales_and_buffers_are_noticed() -> None:
    dense = np.linalg.solve(toeplitz(BLT.coefficients(30)), 2.0 * drawn(30))
    for broken in (Blt(2.0 * 2 / 3, BLT.theta, BLT.omega), Blt(2.0, BLT.theta, (0.1, 0.2, 0.31))):
        assert np.abs(streamed(broken, 30) - dense).max() > 1e-3


def test_inverse_coefficients_and_errors_against_dense_matrices() -> None:
    strategy = toeplitz(BLT.coefficients(40))
    inverse = np.linalg.inv(strategy)
    np.testing.assert_allclose(inverse_coefficients(BLT, 40), inverse[:, 0], atol=1e-13)
    workload = np.tril(np.ones((40, 40))) @ inverse
    largest, rms = errors(inverse_coefficients(BLT, 40))
    assert largest == pytest.approx(np.sqrt((workload**2).sum(axis=1).max()))
    assert rms == pytest.approx(np.sqrt((workload**2).sum() / 40))


def test_sensitivity_equals_brute_force() -> None:
    rng = random.Random(3)
    for _ in range(40):
        rounds = rng.randint(1, 12)
        min_sep = rng.randint(1, rounds)
        most = rng.randint(1, -(-rounds // min_sep))
        column = BLT.coefficients(rounds)
        fast = toeplitz_sensitivity_squared(column, min_sep, most)
        assert fast == pytest.approx(pattern_sensitivity_squared(toeplitz(column), min_sep, most))


# McMahan et al. 2024, table 4: preset, noise multiplier, rounds, MinS, MaxP, rho and epsilon as printed (rounded up).
PUBLISHED = [
    ("min-sep-400", 7.379, 1280, 300, 4, 0.16, 3.46),
    ("min-sep-400", 7.379, 2350, 447, 5, 0.20, 3.93),
    ("min-sep-1000", 8.681, 2000, 2001, 1, 2.23e-2, 1.25),
    ("min-sep-1000", 16.1, 2000, 1181, 2, 1.40e-2, 0.98),
    ("min-sep-100", 3.12, 430, 92, 4, 1.11, 10.19),
    ("min-sep-100", 5.5, 320, 49, 6, 0.75, 8.19),
]


@pytest.mark.parametrize("row", PUBLISHED)
def test_published_guarantees(row: tuple[str, float, int, int, int, float, float]) -> None:
    name, multiplier, rounds, mins, most, rho, epsilon = row
    blt = Blt(multiplier, PRESETS[name].theta, PRESETS[name].omega)
    exact = blt.sensitivity_squared(rounds, min(mins + 1, rounds), most) / (2 * multiplier**2)
    digits = 4 if rho < 0.1 else 2
    assert math.ceil(exact * 10**digits) / 10**digits == pytest.approx(rho)
    assert math.ceil(epsilon_of_rho(exact, 1e-10) * 100) / 100 == pytest.approx(epsilon)


def test_runs_on_past_the_rounds_it_was_made_for() -> None:
    preset = PRESETS["min-sep-400"]
    rows = streamed(Blt(1.0, preset.theta, preset.omega), 4000, size=8)
    assert np.all(np.isfinite(rows))
    # A stable stream: prefix noise late in the run stays within the error that its coefficients predict.
    largest, _ = errors(inverse_coefficients(Blt(1.0, preset.theta, preset.omega), 4000))
    assert np.abs(rows.cumsum(axis=0)).max() < 6 * largest


def streamed_in(precision: type[np.floating], blt: Blt, rounds: int, size: int) -> np.ndarray:
    """Algorithm 3 with parameters, buffers and fresh noise of that precision."""
    theta, omega = np.array(blt.theta, precision), np.array(blt.omega, precision)
    buffers, rows = np.zeros((len(theta), size), precision), []
    for number in range(rounds):
        if number in blt.restarts:
            buffers = np.zeros_like(buffers)
        fresh = noise.gaussian(KEY, "blt", number, size).astype(precision)
        value = fresh - omega @ buffers
        buffers = theta[:, None] * buffers + value
        rows.append(value)
    return np.array(rows, np.float64)


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [(), pytest.param((1000, 2500), marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", PRESETS)
def test_the_stream_is_stable_in_single_precision(name: str, restarts: tuple[int, ...]) -> None:
    """4,000 rounds, twice what the parameters were made for; float16 shows what instability would look like."""
    blt, size = Blt(1.0, PRESETS[name].theta, PRESETS[name].omega, restarts), 16
    exact = np.cumsum(streamed(blt, 4000, size), axis=0)
    deviations = np.sqrt(prefix_variances(blt, 4000))[:, None]
    for precision, stays in ((np.float32, True), (np.float16, False)):
        prefixes = np.cumsum(streamed_in(precision, blt, 4000, size), axis=0)
        assert bool(np.max(np.abs(prefixes - exact) / deviations) < 1e-5) is stays


def test_saved_state_goes_on_bitwise() -> None:
    rows, state = streamed(BLT, 12), BLT.init(3)
    for number in range(12):
        row, state = BLT.noise(state, number, KEY)
        assert np.array_equal(row, rows[number])
        state = BLT.load({name: array.copy() for name, array in BLT.save(state).items()})


@pytest.mark.parametrize(
    ("theta", "omega", "message"),
    [
        ((0.9,), (0.1, 0.2), "one of each"),
        ((1.0,), (0.1,), "theta: 1.0"),
        ((0.0,), (0.1,), "theta: 0.0"),
        ((0.9, float("nan")), (0.1, 0.1), "theta: nan"),
        ((0.9,), (-0.1,), "omega: -0.1"),
        ((0.9,), (0.0,), "omega: 0.0"),
        ((0.9,), (float("nan"),), "omega: nan"),
        ((0.9,), (float("inf"),), "add up to inf"),
        ((0.9, 0.5), (0.8, 0.3), "add up to 1.1"),
        ((), (), "one of each"),
    ],
)
def test_bad_parameters_are_refused(theta: tuple[float, ...], omega: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Blt(1.0, theta, omega)


@pytest.mark.parametrize("multiplier", [0.0, -1.0, float("nan"), float("inf")])
def test_a_multiplier_without_noise_is_refused(multiplier: float) -> None:
    with pytest.raises(ValueError, match=f"noise_multiplier: got {multiplier}, expected a finite number above 0"):
        Blt(multiplier, (0.9,), (0.1,))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([1.0, 0.5, 0.6], "number 2 is larger than the one before it"),
        ([1.0, 1.0 + 1e-9], "never rise"),
        ([1.0, -0.1], "non-negative"),
        ([1.0, float("nan")], "finite"),
    ],
)
def test_coefficients_that_the_theorem_does_not_cover_are_refused(column: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        toeplitz_sensitivity_squared(np.array(column), 1, 1)


def test_coefficients_of_decays_next_to_one_do_not_rise_by_rounding() -> None:
    flat = Blt(1.0, (float(np.nextafter(1.0, 0.0)), 1 - 1e-15, 0.999), (0.2, 0.3, 0.1))
    squared = flat.sensitivity_squared(4000, 100, 7)
    assert squared == pytest.approx(flat.second_sensitivity_squared(4000, 100, 7), rel=1e-11)


def test_participations_that_cannot_happen_are_refused() -> None:
    with pytest.raises(ValueError, match="max_participations: 6 cannot happen, 10 rounds at min_sep 2 allow at most 5"):
        BLT.sensitivity_squared(10, 2, 6)
