"""The one-run bound against jax-privacy's numbers, against its own ceiling, and against randomised response."""

import math

import numpy as np
import pytest
from scipy import stats

from evaluation.audit.one_run import GUESSED_SHARES, epsilon_at_least, one_run, p_value

# Printed by ``_one_run_p_value`` and ``_epsilon_one_run`` of jax_privacy/auditing.py, version 2.0.0 from PyPI.
P_VALUES = (
    ((1000, 1000, 900, 2.0, 1e-5), 0.03223377543618542),
    ((1000, 100, 100, 3.0, 1e-5), 0.010411268784327625),
    ((500, 200, 150, 0.5, 1e-3), 0.026690482160882843),
    ((100, 10, 9, 0.0, 1e-10), 0.01074219076953125),
    ((10000, 2500, 1800, 0.9, 1e-6), 0.1648357151084839),
)
BOUNDS = (
    ((1000, 1000, 900, 1e-5, 0.05), 2.020645594168416),
    ((1000, 100, 100, 1e-5, 0.05), 3.465376229385333),
    ((500, 200, 150, 1e-3, 0.05), 0.7230295514277179),
    ((1000, 10, 10, 0.0, 0.05), 1.0518732154273494),
    ((10000, 2500, 1800, 1e-6, 0.01), 0.8401366984007542),
)


@pytest.mark.parametrize(("inputs", "expected"), P_VALUES)
def test_p_values_are_those_of_jax_privacy(inputs: tuple[int, int, int, float, float], expected: float) -> None:
    assert p_value(*inputs) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(("inputs", "expected"), BOUNDS)
def test_bounds_are_those_of_jax_privacy(inputs: tuple[int, int, int, float, float], expected: float) -> None:
    assert epsilon_at_least(*inputs) == pytest.approx(expected, abs=1e-5)


def test_perfect_guesses_end_at_the_logit() -> None:
    for guesses in (10, 100, 1000):
        chance = 0.05 ** (1 / guesses)
        assert epsilon_at_least(1000, guesses, guesses, 0.0, 0.05) == pytest.approx(math.log(chance / (1 - chance)))


def test_scores_that_tell_everything_and_nothing() -> None:
    rng = np.random.default_rng(0)
    included_N = rng.random(1000) < 0.5
    everything = one_run(included_N + 0.1 * rng.random(1000), included_N, 1e-6, alpha=0.05)
    assert everything.correct == everything.guesses
    assert everything.epsilon_at_least > 4.5
    nothing = one_run(rng.random(1000), included_N, 1e-6)
    assert nothing.epsilon_at_least == 0
    assert nothing.guesses > 0
    # The other way round is no evidence either.
    assert one_run(-1.0 * included_N, included_N, 1e-6).epsilon_at_least == 0


@pytest.mark.slow
@pytest.mark.statistical
def test_the_bound_holds_for_randomised_response_and_fails_for_a_better_one() -> None:
    """Each canary's coin comes out right with e^eps / (1 + e^eps): the mechanism the theorem is tight for."""
    rng, epsilon = np.random.default_rng(1), 1.0
    above = 0
    for _ in range(60):
        included_N = rng.random(400) < 0.5
        right_N = rng.random(400) < 1 / (1 + math.exp(-epsilon))
        scores_N = np.where(right_N, included_N, ~included_N) + 1e-3 * rng.random(400)
        above += one_run(scores_N, included_N, 1e-9, alpha=0.05).epsilon_at_least > epsilon
    assert above <= stats.binom.ppf(0.999, 60, 0.05)
    right_N = rng.random(400) < 1 / (1 + math.exp(-2.0))
    leaky = one_run(np.where(right_N, included_N, ~included_N) + 1e-3 * rng.random(400), included_N, 1e-9)
    assert leaky.epsilon_at_least > epsilon


@pytest.mark.slow
def test_a_shifted_normal_gives_the_reference_size() -> None:
    """GDP of epsilon 3 at delta 1e-10 (mu 0.495) with 1,000 canaries: bounds near 0.6, far below the truth."""
    bounds = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        included_N = rng.random(1000) < 0.5
        bounds.append(one_run(0.495 * included_N + rng.standard_normal(1000), included_N, 1e-10).epsilon_at_least)
    assert 0.1 < np.mean(bounds) < 0.8
    assert max(bounds) < 3


def test_what_does_not_fit_is_refused() -> None:
    assert max(GUESSED_SHARES) <= 1
    with pytest.raises(ValueError, match="at least 2 canaries"):
        one_run(np.zeros(1), np.zeros(1, dtype=bool), 1e-6)
    with pytest.raises(ValueError, match="a coin for each"):
        one_run(np.zeros(3), np.zeros(2, dtype=bool), 1e-6)


def test_the_bounds_that_are_tried_share_their_alpha() -> None:
    included_N = np.arange(100) % 2 == 0
    bound = one_run(included_N.astype(float), included_N, 0.0, alpha=0.05)
    assert (bound.guesses, bound.correct) == (100, 100)
    assert bound.epsilon_at_least == pytest.approx(epsilon_at_least(100, 100, 100, 0.0, 0.05 / len(GUESSED_SHARES)))
