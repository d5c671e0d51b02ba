"""Subset Selection is exactly what its guarantee says, and wrong versions are noticed."""

import itertools
import math
from collections import Counter

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


def law(randomizer: SubsetSelection, value: int) -> dict[tuple[int, ...], float]:
    """Probability of every message of one value, from the mechanism's definition."""
    d, k, p = randomizer.domain, randomizer.size, randomizer.inclusion
    inside, outside = math.comb(d - 1, k - 1), math.comb(d - 1, k)
    return {
        subset: (p / inside if value in subset else (1 - p) / outside) for subset in itertools.combinations(range(d), k)
    }


def worst_ratio(randomizer: SubsetSelection) -> float:
    laws = [law(randomizer, value) for value in range(randomizer.domain)]
    return max(one[subset] / other[subset] for one in laws for other in laws for subset in one)


@pytest.mark.parametrize("epsilon0", [0.1, 1.0, 3.0])
@pytest.mark.parametrize(("domain", "size"), [(2, 1), (4, 1), (4, 2), (6, 2), (6, 3), (7, 6)])
def test_exactly_epsilon_for_every_size(epsilon0: float, domain: int, size: int) -> None:
    randomizer = of_size(epsilon0, domain, size)
    assert sum(law(randomizer, 0).values()) == pytest.approx(1)
    assert worst_ratio(randomizer) == pytest.approx(math.exp(epsilon0))
    broken = SubsetSelection(epsilon0, domain, size, min(randomizer.inclusion + 0.03, 0.999), randomizer.background)
    assert worst_ratio(broken) > math.exp(epsilon0) * 1.01


def test_background_is_the_law_s_own() -> None:
    randomizer = of_size(1.5, 7, 3)
    others = sum(chance for subset, chance in law(randomizer, 0).items() if 4 in subset)
    assert others == pytest.approx(randomizer.background)


@pytest.mark.parametrize(("epsilon0", "domain"), [(1.0, 50), (3.0, 200), (8.0, 100_000), (10.0, 1_000_001), (8.0, 30)])
def test_size_is_the_better_of_its_neighbours(epsilon0: float, domain: int) -> None:
    chosen = subset_selection(epsilon0, domain)
    neighbours = [of_size(epsilon0, domain, size) for size in (chosen.size - 1, chosen.size + 1) if size >= 1]
    assert all(noise_variance(chosen) <= noise_variance(other) * (1 + 1e-12) for other in neighbours)
    assert 0 < chosen.background < chosen.inclusion < 1


def test_huge_epsilon_does_not_overflow() -> None:
    assert subset_selection(800.0, 1000).inclusion == pytest.approx(1.0)


def messages(randomizer: SubsetSelection, value: int, count: int) -> np.ndarray:
    bits = Keystream(KEY, "statistics")
    return np.array([randomise(randomizer, value, bits) for _ in range(count)])


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize(("epsilon0", "domain", "size"), [(1.0, 12, 3), (2.0, 9, 1), (0.5, 8, 6)])
def test_messages_follow_their_law(epsilon0: float, domain: int, size: int) -> None:
    randomizer, count, value = of_size(epsilon0, domain, size), 20_000, 2
    sent = messages(randomizer, value, count)
    assert all(len(set(message)) == size for message in sent.tolist())
    votes = np.bincount(sent.ravel(), minlength=domain)
    assert votes.sum() == count * size

    def accepted(true_rate: float, other_rate: float) -> bool:
        rates = np.full(domain, other_rate)
        rates[value] = true_rate
        spread = np.sqrt(count * rates * (1 - rates))
        return bool(np.all(np.abs(votes - count * rates) < 5 * spread))

    p, q = randomizer.inclusion, randomizer.background
    assert accepted(p, q)
    assert not accepted(p + 0.03, q)
    assert not accepted(p, q + 0.03)
    assert not accepted(p - 0.03, q)


@pytest.mark.slow
@pytest.mark.statistical
def test_estimates_are_unbiased_with_the_stated_spread() -> None:
    randomizer, per_value = of_size(2.0, 10, 2), np.array([400, 100] + [0] * 8)
    bits, runs = Keystream(KEY, "estimates"), []
    for _ in range(60):
        votes = np.zeros(10, dtype=np.int64)
        for value, held in enumerate(per_value):
            for _ in range(held):
                np.add.at(votes, randomise(randomizer, value, bits), 1)
        runs.append(estimate(randomizer, votes, 500))
    spread = estimate_deviation(randomizer, per_value, 500)
    errors = (np.mean(runs, axis=0) - per_value) / (spread / math.sqrt(60))
    assert np.all(np.abs(errors) < 4.5)
    assert np.all(np.abs(np.std(runs, axis=0) / spread - 1) < 0.4)


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize(("population", "count"), [(6, 2), (6, 3), (6, 5), (6, 6), (6, 0)])
def test_subsets_are_uniform(population: int, count: int) -> None:
    bits = Keystream(KEY, f"subsets {count}")
    drawn = Counter(tuple(sorted(bits.subset(population, count).tolist())) for _ in range(6000))
    everything = list(itertools.combinations(range(population), count))
    assert set(drawn) == set(everything)
    if len(everything) > 1:
        assert stats.chisquare([drawn[subset] for subset in everything]).pvalue > 1e-4


def test_same_key_and_name_same_bits() -> None:
    first, again, other = Keystream(KEY, "a"), Keystream(KEY, "a"), Keystream(KEY, "b")
    words = first.words(700)
    assert np.array_equal(words, np.concatenate([again.words(1), again.words(699)]))
    assert not np.array_equal(words, other.words(700))
    assert not np.array_equal(words, Keystream(KEY[::-1], "a").words(700))


@pytest.mark.parametrize(("messages_sent", "z"), [(1150, 4.0), (50, 3.0), (20_000, 4.0)])
def test_threshold_is_the_exact_binomial_tail(messages_sent: int, z: float) -> None:
    randomizer = subset_selection(8.0, 2901)
    needed = significant_votes(randomizer, messages_sent, float(stats.norm.sf(z)))
    q = randomizer.background

    def tail(votes: int) -> float:
        below = math.fsum(
            math.exp(
                math.lgamma(messages_sent + 1) - math.lgamma(count + 1) - math.lgamma(messages_sent - count + 1)
                + count * math.log(q) + (messages_sent - count) * math.log1p(-q)
            )
            for count in range(votes)
        )  # fmt: skip
        return 1 - below

    assert tail(needed) <= stats.norm.sf(z) < tail(needed - 1)


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
