"""Amplified epsilon against exact divergences, an independent formula, and published numbers."""

import math

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting import rdp
from scipy import integrate, optimize
from scipy.stats import norm

from federated.accounting import amplification as sampled
from federated.accounting.amplification import (
    amplified,
    epsilon_of_renyi,
    epsilon_of_renyi_2017,
    fixed_renyi,
    poisson_renyi,
)
from federated.accounting.gaussian import epsilon_of_rho

DELTAS = (1e-3, 1e-6, 1e-10)


def mixture(weights: dict[float, float], sigma: float):
    """Density of a Gaussian mixture: place -> weight."""
    return lambda x: sum(weight * norm.pdf(x, place, sigma) for place, weight in weights.items())


def hockey_stick(p, q, epsilon: float, sigma: float) -> float:
    """``int max(0, p - e^eps q)``, by quadrature over pieces so that thin tails are seen."""
    edges = np.linspace(-12 * sigma - 3, 12 * sigma + 3, 61)
    x, weights = np.polynomial.legendre.leggauss(30)
    middles, halves = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    points = middles[:, None] + halves[:, None] * x
    return float(np.sum(np.maximum(p(points) - math.exp(epsilon) * q(points), 0) * weights * halves[:, None]))


def exact_epsilon(p, q, delta: float, sigma: float) -> float:
    """Epsilon of one release, the worse of the two directions."""

    def one_way(a, b) -> float:
        if hockey_stick(a, b, 0.0, sigma) <= delta:
            return 0.0
        return optimize.brentq(lambda eps: hockey_stick(a, b, eps, sigma) - delta, 0.0, 60.0, xtol=1e-7)

    return max(one_way(p, q), one_way(q, p))


@pytest.mark.parametrize(("rate", "z"), [(0.01, 1.0), (0.1, 0.7), (0.5, 2.0), (1.0, 1.0)])
@pytest.mark.slow
def test_one_poisson_round_is_the_exact_divergence(rate: float, z: float) -> None:
    with_it, without = mixture({0.0: 1 - rate, 1.0: rate}, z), mixture({0.0: 1.0}, z)
    reached, noisier = (amplified("poisson", std, rate, 1000, 1, (1e-3, 1e-8)) for std in (z, 1.05 * z))
    for delta in (1e-3, 1e-8):
        exact = exact_epsilon(with_it, without, delta, z)
        assert reached.epsilon[delta] == pytest.approx(exact, abs=2e-3)
        assert reached.epsilon_second[delta] >= exact
        # The check sees 5% of noise that is not there.
        assert noisier.epsilon[delta] < exact - 2e-3


@pytest.mark.slow
def test_two_poisson_rounds_are_the_exact_divergence() -> None:
    rate, z, delta = 0.2, 1.0, 1e-6
    grid = np.linspace(-9, 11, 4001)
    step = grid[1] - grid[0]
    without, with_it = norm.pdf(grid, 0, z), (1 - rate) * norm.pdf(grid, 0, z) + rate * norm.pdf(grid, 1, z)
    epsilon = amplified("poisson", z, rate, 1000, 2, (delta,)).epsilon[delta]

    def delta_at(eps: float) -> float:
        pairs = ((with_it, without), (without, with_it))
        both = [np.maximum(np.outer(a, a) - math.exp(eps) * np.outer(b, b), 0).sum() * step**2 for a, b in pairs]
        return max(both)

    assert delta_at(epsilon - 0.005) > delta > delta_at(epsilon + 0.005)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 400])
def test_everybody_every_round_is_the_plain_gaussian(rounds: int) -> None:
    z = 3.0
    poisson = amplified("poisson", z, 1.0, 50, rounds, DELTAS)
    fixed = amplified("fixed", z, 1.0, 50, rounds, DELTAS)
    for delta in DELTAS:
        assert poisson.epsilon[delta] == pytest.approx(epsilon_of_rho(rounds / (2 * z**2), delta), rel=1e-3)
        # Replacing one device moves every sum by 2 C: four times the rho.
        assert fixed.epsilon[delta] == pytest.approx(epsilon_of_rho(4 * rounds / (2 * z**2), delta), rel=1e-6)


@pytest.mark.parametrize("rounds", [1, 2000])
@pytest.mark.slow
def test_the_accountants_are_in_order_and_sampling_helps(rounds: int) -> None:
    reached = amplified("poisson", 1.0, 0.02, 1000, rounds, DELTAS)
    for delta in DELTAS:
        assert reached.epsilon[delta] <= reached.epsilon_second[delta]
        assert reached.epsilon[delta] < reached.epsilon_unamplified[delta]
    assert reached.adjacency == "zero-out"


def fixed_size_round(population: int, drawn: int, z: float) -> tuple:
    """Densities of a round's noisy sum when one device gives +1, and when it gives -1 as all others do."""
    rate, nobody = drawn / population, -float(drawn)
    return mixture({nobody + 2: rate, nobody: 1 - rate}, z), mixture({nobody: 1.0}, z)


@pytest.mark.slow
@pytest.mark.parametrize(("population", "drawn"), [(2, 1), (4, 2), (10, 9), (3, 3)])
def test_a_fixed_size_round_is_bounded_only_at_half_the_multiplier(population: int, drawn: int) -> None:
    z, delta = 4.0, 1e-6
    p, q = fixed_size_round(population, drawn, z)
    exact = exact_epsilon(p, q, delta, z)
    assert amplified("fixed", z, drawn / population, population, 1, (delta,)).epsilon[delta] >= exact - 1e-4
    # Without the factor 2: the same code handed twice the multiplier promises less than is lost.
    assert amplified("fixed", 2 * z, drawn / population, population, 1, (delta,)).epsilon[delta] < exact


@pytest.mark.slow
@pytest.mark.parametrize(("population", "drawn", "rounds"), [(100, 99, 10), (1000, 500, 1000), (1000, 10, 100)])
def test_a_secret_sample_never_costs(population: int, drawn: int, rounds: int) -> None:
    reached = amplified("fixed", 5.0, drawn / population, population, rounds, DELTAS)
    assert all(reached.epsilon[delta] <= reached.epsilon_unamplified[delta] for delta in DELTAS)
    assert reached.epsilon_second is None
    assert reached.adjacency == "replace-one"


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "z"), [(0.01, 1.0), (0.3, 2.0), (1.0, 4.0)])
@pytest.mark.parametrize("order", [2, 5, 17])
def test_poisson_renyi_is_the_integral(rate: float, z: float, order: int) -> None:
    def moment(forward: bool) -> float:
        def term(x: float) -> float:
            plain, mixed = (
                norm.logpdf(x, 0, z),
                np.logaddexp(
                    math.log1p(-rate) + norm.logpdf(x, 0, z) if rate < 1 else -np.inf,
                    math.log(rate) + norm.logpdf(x, 1, z),
                ),
            )
            top, below = (mixed, plain) if forward else (plain, mixed)
            return math.exp(order * top - (order - 1) * below)

        return math.log(integrate.quad(term, -15 * z, 15 * z + order, limit=500, epsabs=0, epsrel=1e-10)[0])

    value = float(poisson_renyi(rate, z, (order,))[0]) * (order - 1)
    assert value == pytest.approx(moment(forward=True), rel=1e-7, abs=1e-12)
    assert value >= moment(forward=False) - 1e-12


@pytest.mark.slow
def test_poisson_renyi_agrees_with_the_library() -> None:
    for rate, z in ((1e-6, 1.0), (0.01, 0.5), (0.4, 6.0)):
        accountant = rdp.RdpAccountant(sampled.POISSON_ORDERS, dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
        accountant.compose(dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(z)))
        ours = poisson_renyi(rate, z, sampled.POISSON_ORDERS)
        # A moment of 1 + 1e-12 keeps its digits in neither.
        np.testing.assert_allclose(ours, accountant.rdp, rtol=1e-6, atol=1e-13)


@pytest.mark.parametrize(("population", "drawn", "multiplier"), [(1000, 10, 1.0), (50, 20, 3.0), (10**6, 500, 0.6)])
def test_fixed_renyi_is_theorem_27(population: int, drawn: int, multiplier: float) -> None:
    """Wang, Balle and Kasiviswanathan 2019, in 60 digits. At replace-one, so the multiplier is per distance."""
    mpmath.mp.dps = 60
    rate, rho = mpmath.mpf(drawn) / population, 1 / (2 * mpmath.mpf(multiplier) ** 2)

    def difference(count: int) -> mpmath.mpf:
        """Forward difference of order ``count`` of ``exp((a - 1) eps(a))`` at 0, with ``eps(a) = a rho``."""
        terms = (
            (-1) ** i * mpmath.binomial(count, i) * mpmath.exp((count - i - 1) * (count - i) * rho)
            for i in range(count + 1)
        )
        return mpmath.fsum(terms)

    for order in (2, 3, 8, 20):
        pair = mpmath.exp(2 * rho)
        total = 1 + rate**2 * mpmath.binomial(order, 2) * min(4 * (pair - 1), 2 * pair)
        for j in range(3, order + 1):
            root = mpmath.sqrt(difference(2 * (j // 2)) * difference(2 * -(-j // 2)))
            # The cruder factor of their theorem 9 bounds the same term.
            total += rate**j * mpmath.binomial(order, j) * min(4 * root, 2 * mpmath.exp((j - 1) * j * rho))
        expected = float(mpmath.log(total) / (order - 1))
        assert fixed_renyi(population, drawn, multiplier, (order,))[0] == pytest.approx(expected, rel=1e-6)


def test_conversions() -> None:
    renyi = 3 * np.array(sampled.POISSON_ORDERS) / 2
    for delta in DELTAS:
        now = epsilon_of_renyi(sampled.POISSON_ORDERS, renyi, delta)
        assert now == pytest.approx(rdp.compute_epsilon(sampled.POISSON_ORDERS, renyi, delta)[0], rel=1e-12)
        # Mironov's is looser, and both are above the exact curve of these three Gaussians.
        assert epsilon_of_rho(1.5, delta) < now < epsilon_of_renyi_2017(sampled.POISSON_ORDERS, renyi, delta)


@pytest.mark.slow
def test_a_published_row_at_the_literal_distance() -> None:
    # Ramaswamy et al. 2020, table 5, prints 9.86; what it promises when one device may take another's place:
    assert amplified("fixed", 0.8, 0.01, 2_000_000, 2000, (2e6**-1.1,)).epsilon[2e6**-1.1] > 200


@pytest.mark.slow
def test_a_wrong_accountant_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = sampled.poisson_renyi
    monkeypatch.setattr(sampled, "poisson_renyi", lambda *row: 0.5 * right(*row))
    with pytest.raises(ArithmeticError, match="by Renyi orders, which cannot be"):
        amplified("poisson", 1.0, 0.02, 1000, 2000, (1e-6,))
    monkeypatch.setattr(sampled, "poisson_renyi", right)
    monkeypatch.setattr(dp_accounting, "get_epsilon_gaussian", lambda sigma, delta: 0.01)
    with pytest.raises(ArithmeticError, match="without, which cannot be"):
        amplified("poisson", 1.0, 0.02, 1000, 2000, (1e-6,))


@pytest.mark.parametrize("rounds", [900, 1100])
def test_losses_beyond_floating_point_are_no_contradiction(rounds: int) -> None:
    # exp(epsilon) overflows near epsilon 709, inside the second of these runs.
    reached = amplified("poisson", 1.0, 1.0, 100, rounds, (1e-9,))
    assert reached.epsilon[1e-9] == pytest.approx(epsilon_of_rho(rounds / 2, 1e-9), rel=1e-6)


@pytest.mark.slow
def test_a_delta_below_the_cut_tails_falls_back_to_the_other_bounds() -> None:
    # z = 0.05 puts so much loss into one round that a distribution on a grid cuts 1e-15 away.
    reached = amplified("poisson", 0.05, 0.5, 100, 10_000, (1e-5, 1e-15))
    assert reached.epsilon[1e-15] == min(reached.epsilon_second[1e-15], reached.epsilon_unamplified[1e-15])
    assert math.isfinite(reached.epsilon[1e-15])
    assert "silent at delta 1e-15" in reached.methods[0]
    assert "silent" not in amplified("poisson", 1.0, 0.5, 100, 10, (1e-5,)).methods[0]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"sampling": "shuffled"}, "sampling: got 'shuffled'"),
        ({"noise_multiplier": 0.0}, "noise_multiplier: got 0.0"),
        ({"noise_multiplier": math.inf}, "noise_multiplier"),
        ({"sampling_rate": 0.0}, "sampling_rate: got 0.0"),
        ({"sampling_rate": 1.01}, "sampling_rate: got 1.01"),
        ({"sampling_rate": 0.0105, "sampling": "fixed"}, "is 10.5 devices"),
        ({"sampling_rate": 1e-9, "sampling": "fixed"}, "at least 1"),
        ({"rounds": 0}, "rounds: got 0"),
        ({"deltas": (1.0,)}, "delta: got 1.0"),
    ],
)
def test_bad_arguments_are_named(change: dict, named: str) -> None:
    good = {"sampling": "poisson", "noise_multiplier": 1.0, "sampling_rate": 0.01, "population": 1000}
    with pytest.raises(ValueError, match=named):
        amplified(**{**good, "rounds": 10, "deltas": (1e-6,), **change})
