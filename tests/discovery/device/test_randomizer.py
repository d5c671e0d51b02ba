"""Subset Selection is exactly what its guarantee says, also where it is rounded, and wrong versions are noticed."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from discovery.device.keystream import Keystream
from discovery.device.randomizer import (
    SubsetSelection,
    estimate,
    estimate_deviation,
    noise_variance,
    of_size,
    randomise,
    subset_selection,
)
from discovery.selection import significant_votes

KEY = bytes(range(32))
SMALL = [(2, 1), (3, 1), (3, 2), (5, 2), (6, 5), (7, 3)]


def law(randomizer: SubsetSelection, value: int) -> dict[tuple[int, ...], float]:
    """Probability of every message, from p and the two uniform draws alone."""
    d, k = randomizer.domain, randomizer.size
    with_value, without = math.comb(d - 1, k - 1), math.comb(d - 1, k)
    return {
        subset: randomizer.inclusion / with_value if value in subset else (1 - randomizer.inclusion) / without
        for subset in itertools.combinations(range(d), k)
    }


def greatest_loss(randomizer: SubsetSelection) -> float:
    """Largest log ratio over all messages and pairs of values."""
    laws = [law(randomizer, value) for value in range(randomizer.domain)]
    return max(math.log(a[subset] / b[subset]) for a, b in itertools.permutations(laws, 2) for subset in a)


def messages(randomizer: SubsetSelection, value: int, count: int) -> np.ndarray:
    bits = Keystream(KEY, f"{randomizer} {value}")
    return np.stack([randomise(randomizer, value, bits) for _ in range(count)])


@pytest.mark.parametrize("epsilon0", [0.1, 1.0, 4.0, 10.0])
@pytest.mark.parametrize("domain", [2, 3, 5, 7])
def test_every_subset_size_loses_exactly_epsilon0(epsilon0, domain):
    for size in range(1, domain):
        randomizer = of_size(epsilon0, domain, size)
        assert sum(law(randomizer, 0).values()) == pytest.approx(1, abs=1e-12)
        assert greatest_loss(randomizer) == pytest.approx(epsilon0, abs=1e-9)
        broken = replace(randomizer, inclusion=randomizer.inclusion + 0.3 * (1 - randomizer.inclusion))
        assert greatest_loss(broken) > epsilon0 + 0.01


@pytest.mark.parametrize("epsilon0", [1e-6, 0.7, 20.0, 34.0, 40.0, 700.0, 1e6])
@pytest.mark.parametrize(("domain", "size"), [(2, 1), (3, 2), (1001, 1), (1001, 7)])
def test_rounding_never_raises_the_loss_and_never_sends_the_truth_for_sure(epsilon0, domain, size):
    randomizer = of_size(epsilon0, domain, size)
    p = Fraction(randomizer.inclusion)
    assert p < 1
    assert (p * 2**53).denominator == 1  # uniform() < p has exactly this probability
    odds = p / (1 - p) * (domain - size) / size
    assert math.log(odds.numerator) - math.log(odds.denominator) <= epsilon0
    if epsilon0 < 25:
        assert float(odds) == pytest.approx(math.exp(epsilon0), rel=1e-3)


def accepted(sent: np.ndarray, claimed: SubsetSelection, value: int) -> bool:
    """Chi-square of the sent subsets against a claimed law, at level 1e-6."""
    expected = law(claimed, value)
    if sent.shape[1] != claimed.size:
        return False
    seen = {tuple(row): int(times) for row, times in zip(*np.unique(sent, axis=0, return_counts=True), strict=True)}
    observed = [seen.get(subset, 0) for subset in expected]
    return stats.chisquare(observed, np.array(list(expected.values())) * len(sent)).pvalue > 1e-6


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize(
    ("domain", "size"),
    [case if case in ((2, 1), (3, 2)) else pytest.param(*case, marks=pytest.mark.slow) for case in SMALL],
)
def test_what_is_sent_follows_the_law_and_no_neighbouring_one(domain, size):
    randomizer, value = of_size(1.0, domain, size), domain - 2
    sent = messages(randomizer, value, 20_000)
    assert accepted(sent, randomizer, value)
    assert not accepted(sent, replace(randomizer, inclusion=randomizer.inclusion + 0.03), value)
    assert not accepted(sent, replace(randomizer, inclusion=randomizer.inclusion - 0.03), value)
    assert not accepted(sent, replace(randomizer, inclusion=randomizer.inclusion * 2 / 3), value)
    assert not accepted(sent, randomizer, value + 1)
    if size + 1 < domain:
        assert not accepted(messages(of_size(1.0, domain, size + 1), value, 100), randomizer, value)


@pytest.mark.parametrize(("domain", "size"), SMALL)
def test_the_estimate_is_exactly_unbiased_and_its_deviation_that_of_the_law(domain, size):
    randomizer = of_size(1.2, domain, size)
    held = np.arange(domain) * 3 + 1
    expected_votes, variance = np.zeros(domain), np.zeros(domain)
    for value, times in enumerate(held):
        rates = np.zeros(domain)
        for subset, chance in law(randomizer, value).items():
            rates[list(subset)] += chance
        expected_votes += times * rates
        variance += times * rates * (1 - rates)
    count = int(held.sum())
    np.testing.assert_allclose(estimate(randomizer, expected_votes, count), held, atol=1e-9)
    gain = randomizer.inclusion - randomizer.background
    np.testing.assert_allclose(estimate_deviation(randomizer, held, count), np.sqrt(variance) / gain)
    wrong = replace(randomizer, background=randomizer.background * 0.9)
    assert not np.allclose(estimate(wrong, expected_votes, count), held, atol=1e-2)


def upper_tail(count: int, chance: float, votes: int) -> float:
    return math.fsum(math.comb(count, v) * chance**v * (1 - chance) ** (count - v) for v in range(votes, count + 1))


@pytest.mark.parametrize("z", [0.0, 1.0, 3.0, 4.0])
@pytest.mark.parametrize("count", [1, 7, 60, 300])
@pytest.mark.parametrize(("epsilon0", "domain"), [(0.5, 4), (2.0, 30), (8.0, 5000)])
def test_significant_votes_is_the_least_number_within_the_tail(epsilon0, domain, count, z):
    randomizer = subset_selection(epsilon0, domain)
    tail = 0.5 * math.erfc(z / math.sqrt(2))
    votes = significant_votes(randomizer, count, tail)
    assert upper_tail(count, randomizer.background, votes) <= tail * (1 + 1e-9)
    assert upper_tail(count, randomizer.background, votes - 1) > tail * (1 - 1e-9)


def test_the_normal_threshold_would_let_stray_votes_pass():
    randomizer, count, z = subset_selection(10.0, 5000), 200, 4.0
    mean = count * randomizer.background
    normal = math.ceil(mean + z * math.sqrt(mean))
    assert upper_tail(count, randomizer.background, normal) > stats.norm.sf(z)
    assert significant_votes(randomizer, count, float(stats.norm.sf(z))) > normal


@pytest.mark.parametrize(("epsilon0", "domain"), [(1.0, 50), (3.0, 200), (8.0, 100_000), (10.0, 1_000_001), (8.0, 30)])
def test_size_is_the_better_of_its_neighbours(epsilon0: float, domain: int) -> None:
    chosen = subset_selection(epsilon0, domain)
    neighbours = [of_size(epsilon0, domain, size) for size in (chosen.size - 1, chosen.size + 1) if size >= 1]
    assert all(noise_variance(chosen) <= noise_variance(other) * (1 + 1e-12) for other in neighbours)
    assert 0 < chosen.background < chosen.inclusion < 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: subset_selection(1.0, 1), "domain: 1"),
        (lambda: subset_selection(0.0, 5), "epsilon0"),
        (lambda: subset_selection(float("inf"), 5), "epsilon0"),
        (lambda: randomise(of_size(1.0, 4, 1), 4, Keystream(KEY, "x")), "value: 4"),
    ],
)
def test_bad_arguments_are_named(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
