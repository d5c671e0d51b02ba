"""BLT, with restarts and without: dense matrices, brute force, and two programs for one sensitivity."""

import itertools
import random
import time

import numpy as np
import pytest

from federated.config.blt_presets import PRESETS
from federated.mechanisms.blt import Blt, errors, inverse_coefficients, prefix_variances
from federated.mechanisms.second_sensitivity import sensitivity_squared_by_pairs
from federated.mechanisms.sensitivity import toeplitz_sensitivity_squared
from pretrain.randomness import noise
from tests.helpers.audits.strategies import KEY, block_toeplitz, pattern_sensitivity_squared, streamed

THETA, OMEGA = (0.95, 0.6, 0.2), (0.1, 0.2, 0.3)
BLT = Blt(2.0, THETA, OMEGA)


def dense(blt: Blt, rounds: int) -> np.ndarray:
    return block_toeplitz(blt.coefficients(rounds), blt.restarts)


def solved(blt: Blt, rounds: int) -> np.ndarray:
    """Noise of every round by its definition, ``C^-1 Z``."""
    drawn = np.array([noise.gaussian(KEY, "blt", number, 3) for number in range(rounds)])
    return np.linalg.solve(dense(blt, rounds), blt.noise_multiplier * drawn)


def random_run(rng: random.Random, longest: int, most_restarts: int) -> tuple[int, int, int, tuple[int, ...]]:
    rounds = rng.randint(1, longest)
    min_sep = rng.randint(1, rounds)
    most = rng.randint(1, -(-rounds // min_sep))
    cuts = rng.sample(range(1, rounds), rng.randint(0, min(most_restarts, rounds - 1)))
    return rounds, min_sep, most, tuple(sorted(cuts))


def random_blt(rng: random.Random, restarts: tuple[int, ...]) -> Blt:
    buffers = rng.randint(1, 3)
    theta = tuple(rng.uniform(0.05, 0.99999) for _ in range(buffers))
    return Blt(1.0, theta, tuple(rng.uniform(0.001, 1 / buffers) for _ in range(buffers)), restarts)


@pytest.mark.parametrize("restarts", [(), (1,), (4, 9), (3, 8, 16), (19,)])
@pytest.mark.parametrize("name", ["three buffers", *PRESETS])
def test_streamed_noise_is_the_dense_solution(name: str, restarts: tuple[int, ...]) -> None:
    theta, omega = (PRESETS[name].theta, PRESETS[name].omega) if name in PRESETS else (THETA, OMEGA)
    blt, rounds = Blt(1.5, theta, omega, restarts), 20 if restarts else 60
    right = solved(blt, rounds)
    np.testing.assert_allclose(streamed(blt, rounds), right, rtol=0, atol=1e-12)
    # Another scale, another buffer, and buffers kept over a restart are other noise.
    broken = [Blt(1.0, theta, omega, restarts), Blt(1.5, theta, (*omega[:-1], omega[-1] + 0.01), restarts)]
    for wrong in (*broken, *([Blt(1.5, theta, omega)] if restarts else [])):
        assert np.abs(streamed(wrong, rounds) - right).max() > 1e-3


def test_inverse_coefficients_and_errors_against_dense_matrices() -> None:
    inverse = np.linalg.inv(dense(BLT, 40))
    np.testing.assert_allclose(inverse_coefficients(BLT, 40), inverse[:, 0], atol=1e-13)
    workload = np.tril(np.ones((40, 40))) @ inverse
    largest, rms = errors(inverse_coefficients(BLT, 40))
    assert largest == pytest.approx(np.sqrt((workload**2).sum(axis=1).max()))
    assert rms == pytest.approx(np.sqrt((workload**2).sum() / 40))


@pytest.mark.slow
def test_every_small_case_equals_brute_force_by_both_programs() -> None:
    cases = 0
    for rounds in range(1, 8):
        for cuts in itertools.chain.from_iterable(itertools.combinations(range(1, rounds), n) for n in range(3)):
            blt = Blt(1.0, THETA, OMEGA, cuts)
            strategy = dense(blt, rounds)
            for min_sep in range(1, rounds + 1):
                for most in range(1, -(-rounds // min_sep) + 1):
                    right = pattern_sensitivity_squared(strategy, min_sep, most)
                    assert blt.sensitivity_squared(rounds, min_sep, most) == pytest.approx(right, rel=1e-12)
                    assert blt.second_sensitivity_squared(rounds, min_sep, most) == pytest.approx(right, rel=1e-12)
                    cases += 1
    assert cases > 500


def test_random_strategies_equal_brute_force_by_both_programs() -> None:
    rng = random.Random(4)
    for _ in range(150):
        rounds, min_sep, most, cuts = random_run(rng, longest=13, most_restarts=5)
        blt = random_blt(rng, cuts)
        right = pattern_sensitivity_squared(dense(blt, rounds), min_sep, most)
        assert blt.sensitivity_squared(rounds, min_sep, most) == pytest.approx(right, rel=1e-12)
        assert blt.second_sensitivity_squared(rounds, min_sep, most) == pytest.approx(right, rel=1e-12)


@pytest.mark.slow
def test_both_programs_agree_on_runs_too_long_for_brute_force() -> None:
    rng = random.Random(5)
    for _ in range(40):
        rounds, min_sep, most, cuts = random_run(rng, longest=3000, most_restarts=6)
        blt = random_blt(rng, cuts)
        run = (rounds, min_sep, min(most, 30))
        assert blt.second_sensitivity_squared(*run) == pytest.approx(blt.sensitivity_squared(*run), rel=1e-11)


def test_the_pattern_that_ignores_restarts_is_not_the_worst() -> None:
    """Rounds 0, b, 2b, ... would understate the guarantee here: a later start packs one block more tightly."""
    blt = Blt(1.0, (0.999,), (0.9,), restarts=(7,))
    naive = float(np.sum(dense(blt, 20)[:, [0, 6]].sum(axis=1) ** 2))
    exact = blt.sensitivity_squared(20, 6, 2)
    assert exact == pytest.approx(pattern_sensitivity_squared(dense(blt, 20), 6, 2))
    assert exact > 1.5 * naive
    # Neither would one sensitivity per block added up: the separation reaches across the restart.
    exact = blt.sensitivity_squared(14, 6, 3)
    assert exact == pytest.approx(pattern_sensitivity_squared(dense(blt, 14), 6, 3))
    assert exact < 0.9 * 2 * toeplitz_sensitivity_squared(blt.coefficients(7), 6, 2)


def test_restarts_lower_the_sensitivity_and_raise_the_error() -> None:
    preset = PRESETS["min-sep-400"]
    whole, cut = (Blt(1.0, preset.theta, preset.omega, cuts) for cuts in ((), (500, 1100)))
    assert cut.sensitivity_squared(2000, 400, 5) < whole.sensitivity_squared(2000, 400, 5)
    assert prefix_variances(cut, 2000)[-1] > prefix_variances(whole, 2000)[-1]
    # A run that ended before the restart is the run without it.
    assert cut.sensitivity_squared(500, 400, 2) == whole.sensitivity_squared(500, 400, 2)


def test_long_runs_take_less_than_a_third_of_a_second() -> None:
    preset = PRESETS["min-sep-100"]
    blt = Blt(1.0, preset.theta, preset.omega, restarts=(128, 1152, 2176, 3000, 3500))
    began = time.process_time()
    exact = blt.sensitivity_squared(4000, 200, 20)
    assert time.process_time() - began < 0.3
    assert blt.second_sensitivity_squared(4000, 200, 20) == pytest.approx(exact, rel=1e-11)


def test_too_many_pairs_give_no_answer_instead_of_a_wrong_one() -> None:
    assert sensitivity_squared_by_pairs(THETA, OMEGA, 6000, 500, 12) is None
    assert sensitivity_squared_by_pairs(THETA, OMEGA, 6000, 500, 12, restarts=(3000,)) is not None


def test_pairs_hold_where_the_theorem_does_not() -> None:
    """With scales above 1 in sum the coefficients rise; the earliest pattern is too low, the pairs never are."""
    rng, above = random.Random(6), 0
    for _ in range(60):
        rounds, min_sep, most, cuts = random_run(rng, longest=11, most_restarts=2)
        theta, omega = (rng.uniform(0.5, 0.99),), (rng.uniform(1.5, 4.0),)
        column = np.concatenate([[1.0], omega[0] * theta[0] ** np.arange(rounds - 1)])[:rounds]
        strategy = block_toeplitz(column, cuts)
        right = pattern_sensitivity_squared(strategy, min_sep, most)
        assert sensitivity_squared_by_pairs(theta, omega, rounds, min_sep, most, cuts) >= right * (1 - 1e-12)
        earliest = list(range(0, rounds, min_sep))[:most]
        above += right > 1.001 * float(np.sum(strategy[:, earliest].sum(axis=1) ** 2))
    assert above > 5


@pytest.mark.slow
def test_runs_on_past_the_rounds_it_was_made_for() -> None:
    blt = Blt(1.0, PRESETS["min-sep-400"].theta, PRESETS["min-sep-400"].omega)
    rows = streamed(blt, 4000, size=8)
    assert np.all(np.isfinite(rows))
    # A stable stream: prefix noise late in the run stays within the error that its coefficients predict.
    largest, _ = errors(inverse_coefficients(blt, 4000))
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
@pytest.mark.parametrize("restarts", [(), (1000, 2500)])
@pytest.mark.parametrize("name", PRESETS)
def test_the_stream_is_stable_in_single_precision(name: str, restarts: tuple[int, ...]) -> None:
    """4,000 rounds, twice what the parameters were made for; float16 shows what instability would look like."""
    blt, size = Blt(1.0, PRESETS[name].theta, PRESETS[name].omega, restarts), 16
    exact = np.cumsum(streamed(blt, 4000, size), axis=0)
    deviations = np.sqrt(prefix_variances(blt, 4000))[:, None]
    for precision, stays in ((np.float32, True), (np.float16, False)):
        prefixes = np.cumsum(streamed_in(precision, blt, 4000, size), axis=0)
        assert bool(np.max(np.abs(prefixes - exact) / deviations) < 1e-5) is stays


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


def test_restarts_outside_a_run_are_refused_by_the_formulas() -> None:
    with pytest.raises(ValueError, match="restarts"):
        toeplitz_sensitivity_squared(BLT.coefficients(10), 2, 2, (10,))
    with pytest.raises(ValueError, match="restarts"):
        sensitivity_squared_by_pairs(THETA, OMEGA, 10, 2, 2, (10,))
    with pytest.raises(ValueError, match="at most 5"):
        sensitivity_squared_by_pairs(THETA, OMEGA, 10, 2, 6)
