"""The estimate on the final model: a known Gaussian release, two normals by quadrature, equal variances by theory."""

import numpy as np
import pytest
from scipy import integrate, stats

from evaluation.audit.directions import Directions
from evaluation.audit.gaussian_dp import delta_between, epsilon_between, epsilon_of_mu
from evaluation.audit.one_shot import cosines, one_shot
from federated.accounting.gaussian import epsilon_of_rho


@pytest.mark.parametrize(
    ("mean", "deviation"), [(1.0, 1.0), (2.0, 0.7), (0.5, 1.6), (-1.2, 1.1), (0.0, 1.3), (0.0, 0.6)]
)
def test_divergence_of_two_normals_by_quadrature(mean: float, deviation: float) -> None:
    places = np.linspace(-14, 14, 400_001)
    for epsilon in (0.0, 0.4, 1.5):
        gap = stats.norm.pdf(places, mean, deviation) - np.exp(epsilon) * stats.norm.pdf(places)
        expected = integrate.trapezoid(np.maximum(gap, 0), places)
        assert delta_between(epsilon, mean, deviation) == pytest.approx(expected, abs=1e-7)


def test_equal_variances_are_the_accountants_curve() -> None:
    for mu in (0.1, 0.7, 3.0):
        for delta in (1e-5, 1e-10):
            assert epsilon_of_mu(mu, delta) == pytest.approx(epsilon_of_rho(mu**2 / 2, delta), rel=1e-9)
    assert epsilon_of_mu(-1.0, 1e-5) == 0
    # A deviation that differs can be told from either side; the worse one counts.
    assert epsilon_between(1.0, 1.3, 1e-5) > epsilon_of_mu(1.0, 1e-5)
    assert epsilon_between(1.0, 1.3, 1e-5) == pytest.approx(epsilon_between(-1 / 1.3, 1 / 1.3, 1e-5), rel=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("true", [1.0, 3.0, 10.0])
def test_a_gaussian_release_of_known_epsilon(true: float) -> None:
    """The sum of 500 unit directions plus noise: the estimate lies within its own interval of the truth."""
    sigma, delta, size = {1.0: 3.731, 3.0: 1.391, 10.0: 0.500}[true], 1e-5, 2**15
    assert epsilon_of_mu(1 / sigma, delta) == pytest.approx(true, rel=0.01)
    estimates = []
    for seed in range(4):
        directions = Directions((size,), 1000, seed)
        taking_part = np.flatnonzero(directions.included_N)
        total_P = sum(directions.update(number).astype(np.float64) for number in taking_part) / 1e4
        change_P = total_P + sigma * np.random.default_rng(seed).standard_normal(size)
        seen_N = cosines(change_P, directions.project(change_P))[directions.included_N]
        estimates.append(one_shot(seen_N, size, delta, seed))
    mean = np.mean([one.epsilon for one in estimates])
    # Biased upwards: a deviation estimated from 500 cosines is never quite the null's, and the worse side counts.
    assert 0.9 * true < mean < 1.3 * true + 0.8
    assert any(one.low <= true <= one.high for one in estimates)
    # Twice the noise is seen as such.
    assert estimates[0].epsilon > epsilon_of_mu(0.5 / sigma, delta) * 1.2


def test_a_function_of_the_seed_and_refusals() -> None:
    cosines_N = np.random.default_rng(0).standard_normal(100) / 100
    assert one_shot(cosines_N, 10_000, 1e-5, 3) == one_shot(cosines_N, 10_000, 1e-5, 3)
    with pytest.raises(ValueError, match="999 parameters"):
        one_shot(cosines_N, 999, 1e-5, 3)
    with pytest.raises(ArithmeticError, match="did not change"):
        cosines(np.zeros(5), np.zeros(2))
    with pytest.raises(ValueError, match="scores that differ"):
        one_shot(np.full(10, 0.01), 10_000, 1e-5, 3)
    with pytest.raises(ValueError, match="delta: got 0"):
        epsilon_between(1.0, 1.0, 0.0)
