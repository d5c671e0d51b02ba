"""E-processes: values of closed form, a mean of 1 under the claim, and faults that they see in time."""

import math

import numpy as np
import pytest
from scipy import special, stats

from evaluation.audit.e_process import CORRELATIONS_K, SCALES_K, EProcess, reuse_ratios, scale_ratios

ROUNDS, DIRECTIONS = 12, 64


def rounds_until(noise_TN: np.ndarray, alpha: float) -> tuple[int | None, int | None]:
    """First rounds, from 1, in which scale and reuse refute the claim."""
    scale, reuse = EProcess.begin(len(noise_TN), len(SCALES_K)), EProcess.begin(len(noise_TN), len(CORRELATIONS_K))
    first: list[int | None] = [None, None]
    for number, white_N in enumerate(noise_TN):
        scale = scale.after(scale_ratios(white_N))
        reuse = reuse.after(reuse_ratios(noise_TN[:number], white_N))
        for place, each in enumerate((scale, reuse)):
            first[place] = first[place] or (number + 1 if each.refutes(alpha) else None)
    return first[0], first[1]


def test_ratios_are_those_of_the_densities() -> None:
    *before_TN, white_N = np.random.default_rng(0).standard_normal((4, 5))
    claimed = stats.norm.logpdf(white_N).sum()
    expected_K = [stats.norm.logpdf(white_N, scale=scale).sum() - claimed for scale in SCALES_K]
    np.testing.assert_allclose(scale_ratios(white_N), expected_K)
    for ratio, correlation in zip(reuse_ratios(np.array(before_TN), white_N), CORRELATIONS_K, strict=True):
        deviation = math.sqrt(1 - correlation**2)
        logs_T = [stats.norm.logpdf(white_N, correlation * row_N, deviation).sum() - claimed for row_N in before_TN]
        assert ratio == pytest.approx(special.logsumexp(logs_T) - math.log(len(logs_T)))


def test_a_value_is_the_mean_over_alternatives_and_first_rounds() -> None:
    ratios_TK = np.random.default_rng(0).uniform(0.2, 3.0, (4, 2))
    process = EProcess.begin(4, 2)
    assert process.log_value == 0
    for done in range(1, 5):
        process = process.after(np.log(ratios_TK[done - 1]))
        begun = [ratios_TK[first:done].prod(axis=0).mean() for first in range(done)]
        assert math.exp(process.log_value) == pytest.approx((sum(begun) + 4 - done) / 4)


@pytest.mark.statistical
def test_an_honest_run_of_any_length_is_refuted_no_more_often_than_stated() -> None:
    """Ville's inequality at a level where a thousand runs can tell; one direction has the most volatile values."""
    rng, stopped = np.random.default_rng(7), np.zeros(2)
    for _ in range(1000):
        first = rounds_until(rng.standard_normal((ROUNDS, 2)), 0.1)
        stopped += [round_number is not None for round_number in first]
    # 10% of 1,000, and three deviations.
    assert np.all(stopped <= 100 + 3 * math.sqrt(90))
    assert np.all(stopped > 0), "a test that never stops shows nothing"


@pytest.mark.parametrize(("share", "latest"), [(0.0, 6), (0.1, 6), (0.5, 6), (0.8, 10), (10.0, 6)])
def test_a_wrong_scale_from_the_sixth_round_on_is_seen(share: float, latest: int) -> None:
    noise_TN = np.random.default_rng(2).standard_normal((ROUNDS, DIRECTIONS))
    noise_TN[5:] *= share
    first = rounds_until(noise_TN, 0.0005)[0]
    assert first is not None
    assert 6 <= first <= latest


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("lag", [1, 4])
def test_noise_of_an_earlier_round_is_seen_in_its_round(lag: int, sign: int) -> None:
    noise_TN = np.random.default_rng(3).standard_normal((ROUNDS, DIRECTIONS))
    noise_TN[7] = sign * noise_TN[7 - lag]
    assert rounds_until(noise_TN, 0.0005) == (None, 8)


def test_a_value_that_is_not_a_number_refutes() -> None:
    assert EProcess.begin(3, 1).after(np.array([math.nan])).refutes(0.001)
