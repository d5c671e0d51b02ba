"""BLT with restarts: every small case against brute force, the stream against a dense matrix, two programs."""

import itertools
import random
import time

import numpy as np
import pytest

from federated.config.blt_presets import PRESETS
from federated.mechanisms.blt import Blt, prefix_variances
from federated.mechanisms.second_sensitivity import sensitivity_squared_by_pairs
from federated.mechanisms.sensitivity import toeplitz_sensitivity_squared
from pretrain.randomness import noise
from tests.helpers.audits.strategies import pattern_sensitivity_squared

KEY = noise.seeded_key(9)
THETA, OMEGA = (0.95, 0.6, 0.2), (0.1, 0.2, 0.3)
SIZE = 3


def block_diagonal(blt: Blt, rounds: int) -> np.ndarray:
    """Dense C, entry by entry: zero between rounds that a restart separates."""
    column, strategy = blt.coefficients(rounds), np.zeros((rounds, rounds))
    for later in range(rounds):
        for earlier in range(later + 1):
            if not any(earlier < restart <= later for restart in blt.restarts):
                strategy[later, earlier] = column[later - earlier]
    return strategy


def streamed(blt: Blt, rounds: int) -> np.ndarray:
    state, rows = blt.init(SIZE), []
    for number in range(rounds):
        row, state = blt.noise(state, number, KEY)
        rows.append(row)
    return np.array(rows)


def random_blt(rng: random.Random, restarts: tuple[int, ...]) -> Blt:
    buffers = rng.randint(1, 3)
    theta = tuple(rng.uniform(0.05, 0.99999) for _ in range(buffers))
    omega = tuple(rng.uniform(0.001, 1 / buffers) for _ in range(buffers))
    return Blt(1.0, theta, omega, restarts)


def random_run(rng: random.Random, longest: int, most_restarts: int) -> tuple[int, int, int, tuple[int, ...]]:
    rounds = rng.randint(1, longest)
    min_sep = rng.randint(1, rounds)
    most = rng.randint(1, -(-rounds // min_sep))
    cuts = rng.sample(range(1, rounds), rng.randint(0, min(most_restarts, rounds - 1)))
    return rounds, min_sep, most, tuple(sorted(cuts))


@pytest.mark.slow
def test_every_small_case_equals_brute_force_by_both_programs() -> None:
    cases = 0
    for rounds in range(1, 8):
        for cuts in itertools.chain.from_iterable(itertools.combinations(range(1, rounds), n) for n in range(3)):
            blt = Blt(1.0, THETA, OMEGA, cuts)
            strategy = block_diagonal(blt, rounds)
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
        right = pattern_sensitivity_squared(block_diagonal(blt, rounds), min_sep, most)
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
    strategy = block_diagonal(blt, 20)
    naive = float(np.sum(strategy[:, [0, 6]].sum(axis=1) ** 2))
    exact = blt.sensitivity_squared(20, 6, 2)
    assert exact == pytest.approx(pattern_sensitivity_squared(strategy, 6, 2))
    assert exact > 1.5 * naive
    # Neither would one sensitivity per block added up: the separation reaches across the restart.
    exact = blt.sensitivity_squared(14, 6, 3)
    assert exact == pytest.approx(pattern_sensitivity_squared(block_diagonal(blt, 14), 6, 3))
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
        strategy = np.zeros((rounds, rounds))
        for start, end in itertools.pairwise([0, *cuts, rounds]):
            for place in range(start, end):
                strategy[place:end, place] = column[: end - place]
        right = pattern_sensitivity_squared(strategy, min_sep, most)
        assert sensitivity_squared_by_pairs(theta, omega, rounds, min_sep, most, cuts) >= right * (1 - 1e-12)
        earliest = list(range(0, rounds, min_sep))[:most]
        above += right > 1.001 * float(np.sum(strategy[:, earliest].sum(axis=1) ** 2))
    assert above > 5


@pytest.mark.parametrize("restarts", [(1,), (4, 9), (3, 8, 16), (19,)])
def test_streamed_noise_is_the_dense_solution(restarts: tuple[int, ...]) -> None:
    drawn = np.array([noise.gaussian(KEY, "blt", number, SIZE) for number in range(20)])
    for preset in PRESETS.values():
        blt = Blt(1.5, preset.theta, preset.omega, restarts)
        dense = np.linalg.solve(block_diagonal(blt, 20), 1.5 * drawn)
        np.testing.assert_allclose(streamed(blt, 20), dense, rtol=0, atol=1e-12)
        # A stream that forgot to empty its buffers would be another one.
        kept = streamed(Blt(1.5, preset.theta, preset.omega), 20)
        assert np.abs(kept[restarts[0] :] - dense[restarts[0] :]).max() > 1e-3


def test_saved_state_goes_on_bitwise_over_a_restart() -> None:
    blt = Blt(2.0, THETA, OMEGA, restarts=(4, 9))
    rows, state = streamed(blt, 12), blt.init(SIZE)
    for number in range(12):
        row, state = blt.noise(state, number, KEY)
        assert np.array_equal(row, rows[number])
        state = blt.load({name: array.copy() for name, array in blt.save(state).items()})


@pytest.mark.parametrize("restarts", [(), (5,), (3, 8)])
def test_prefix_variances_are_those_of_the_dense_matrix(restarts: tuple[int, ...]) -> None:
    blt = Blt(1.0, THETA, OMEGA, restarts)
    workload = np.tril(np.ones((12, 12))) @ np.linalg.inv(block_diagonal(blt, 12))
    np.testing.assert_allclose(prefix_variances(blt, 12), np.sum(workload**2, axis=1), rtol=1e-12)


@pytest.mark.parametrize("restarts", [(0, 5), (-1,), (5, 5), (8, 3)])
def test_restarts_that_cannot_be_are_refused(restarts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="restarts: got"):
        Blt(1.0, THETA, OMEGA, restarts)


def test_restarts_outside_a_run_are_refused_by_the_formulas() -> None:
    with pytest.raises(ValueError, match="restarts"):
        toeplitz_sensitivity_squared(Blt(1.0, THETA, OMEGA).coefficients(10), 2, 2, (10,))
    with pytest.raises(ValueError, match="restarts"):
        sensitivity_squared_by_pairs(THETA, OMEGA, 10, 2, 2, (10,))
    with pytest.raises(ValueError, match="at most 5"):
        sensitivity_squared_by_pairs(THETA, OMEGA, 10, 2, 6)
