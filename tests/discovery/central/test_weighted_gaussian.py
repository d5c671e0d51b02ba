"""Weighted Gaussian selection: sensitivity by brute force, the guarantee by enumeration, the threshold by attack."""

import itertools
import math
from collections.abc import Sequence

import mpmath
import numpy as np
import pytest
from scipy import stats

from discovery.central.contributions import contribute
from discovery.central.weighted_gaussian import (
    GRID,
    MOST_DEVICES,
    STREAM,
    drawn,
    make,
    passing,
    threshold,
    unit_of,
    weights,
)
from discovery.config import MOST_NOISE
from discovery.device.typed import TypedWords
from federated.accounting.gaussian import delta_of_epsilon

KEY = bytes(range(32))
SIGMA, MOST, FAILURE = 1.3, 2, 0.05


def summed(devices: Sequence[Sequence[str]], most: int = MOST) -> dict[str, int]:
    contributed = contribute(TypedWords.gather(devices), frozenset(), most, KEY)
    return {word: units for word, units in zip(contributed.words, weights(contributed).tolist(), strict=True) if units}


def release(sums: dict[str, int], sigma: float, least: float, key: bytes) -> dict[str, float]:
    """Words released from sums that are there."""
    held = np.array(list(sums.values()), dtype=np.int64)
    return make([list(sums)], drawn(key, STREAM, sigma), lambda words: (words, held), passing(sigma, least))


def test_no_device_moves_the_sums_by_more_than_one() -> None:
    """Over pairs of populations of up to three devices that differ in one, and a crowded one."""
    kinds = [list(held) for size in range(5) for held in itertools.combinations("abcd", size)]
    crowded, longest = [f"w{number}" for number in range(50)], 0
    for others in itertools.combinations_with_replacement(kinds[::3], 2):
        for device in (*kinds, crowded):
            with_it, without = summed([*others, device], 3), summed([*others, []], 3)
            moved = sum((with_it.get(word, 0) - without.get(word, 0)) ** 2 for word in {*with_it, *without})
            assert moved <= GRID**2
            longest = max(longest, moved)
    assert longest > (1 - 1e-8) * GRID**2  # the bound is reached, so that it is not some other bound that holds


def test_weights_are_inverse_roots_cut_towards_zero() -> None:
    unit_T = unit_of(2_000)
    for t in range(1, 2_001):
        assert t * int(unit_T[t]) ** 2 <= GRID**2 < t * (int(unit_T[t]) + 1) ** 2
    assert unit_T[0] == 0
    assert MOST_DEVICES >= 1_000_000_000


@pytest.mark.parametrize(
    ("sigma", "most", "failure"), [(1.0, 1, 1e-9), (0.05, 30, 1e-7), (3.0, 50, 1e-7), (0.4, 9, 0.2)]
)
def test_the_threshold_in_forty_digits(sigma: float, most: int, failure: float) -> None:
    least = threshold(sigma, most, failure)
    chances = []
    with mpmath.workdps(40):
        for t in range(1, most + 1):
            below = mpmath.ncdf((mpmath.mpf(least) - 1 / mpmath.sqrt(t)) / sigma)
            chances.append(float(1 - below**t))
    assert max(chances) == pytest.approx(failure, rel=1e-6)


def released_sets(devices: Sequence[Sequence[str]], least: float) -> dict[frozenset[str], float]:
    """Exact probability of every set of released words."""
    mean = {word: units / GRID for word, units in summed(devices).items()}
    chance = {word: float(stats.norm.sf((least - value) / SIGMA)) for word, value in mean.items()}
    return {
        frozenset(inside): math.prod(chance[word] if word in inside else 1 - chance[word] for word in chance)
        for size in range(len(chance) + 1)
        for inside in itertools.combinations(chance, size)
    }


def hockey_stick(one: dict[frozenset[str], float], other: dict[frozenset[str], float], epsilon: float) -> float:
    return sum(max(chance - math.exp(epsilon) * other.get(output, 0.0), 0.0) for output, chance in one.items())


def worst(least: float) -> tuple[float, float]:
    """Largest excess of the hockey-stick divergence over the claim, and largest share of it, over all neighbours."""
    kinds = [list(held) for size in range(3) for held in itertools.combinations("abc", size)]
    excess, share = -1.0, 0.0
    for others in [(), *((kind,) for kind in kinds), (["a"], ["a", "b"])]:
        for device in kinds:
            with_it, without = released_sets([*others, device], least), released_sets([*others, []], least)
            for epsilon in (0.0, 0.1, 0.5, 1.0):
                claimed = delta_of_epsilon(1 / SIGMA, epsilon) + FAILURE
                real = max(hockey_stick(with_it, without, epsilon), hockey_stick(without, with_it, epsilon))
                excess, share = max(excess, real - claimed), max(share, real / claimed)
    return excess, share


def test_the_guarantee_holds_between_all_neighbours_of_tiny_populations() -> None:
    excess, share = worst(threshold(SIGMA, MOST, FAILURE))
    assert excess <= 0
    assert share > 0.15
    # The enumeration would notice a threshold that is a deviation too low.
    assert worst(threshold(SIGMA, MOST, FAILURE) - SIGMA)[0] > 0


def told_by_one_weight(mean: float, least: float, shift: float, epsilon: float) -> float:
    """Hockey-stick divergence of one released noisy weight, or its absence, between two means."""
    grid = np.linspace(least, least + 14 * SIGMA, 20_001)
    one, other = stats.norm.pdf(grid, mean + shift, SIGMA), stats.norm.pdf(grid, mean, SIGMA)
    gone = stats.norm.cdf(least, mean + shift, SIGMA) - math.exp(epsilon) * stats.norm.cdf(least, mean, SIGMA)
    seen = np.maximum(one - math.exp(epsilon) * other, 0)
    return max(gone, 0.0) + float(np.sum((seen[1:] + seen[:-1]) / 2) * (grid[1] - grid[0]))


@pytest.mark.parametrize("shift", [1.0, -1.0])
def test_noisy_weights_tell_no_more_than_a_gaussian(shift: float) -> None:
    least = threshold(SIGMA, MOST, FAILURE)
    for mean, epsilon in itertools.product((2.0, least, least + 2), (0.0, 0.5, 1.5)):
        assert told_by_one_weight(mean, least, shift, epsilon) <= delta_of_epsilon(1 / SIGMA, epsilon) + 1e-7


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize(("sigma", "planted"), [(3.0, 1), (3.0, 12), (0.05, 1)])
def test_words_of_one_device_are_released_as_rarely_as_claimed(sigma: float, planted: int) -> None:
    """A million draws: as many devices, none of which shares a word, each with so many of its own."""
    failure, draws = 1e-4, 1_000_000 // planted
    least = threshold(sigma, 12, failure)
    unit = int(unit_of(12)[planted])
    own = {f"{device}.{word}": unit for device in range(draws) for word in range(planted)}
    passed = {word.partition(".")[0] for word in release(own, sigma, least, KEY)}
    worst_t = max(range(1, 13), key=lambda t: 1 - stats.norm.cdf((least - t**-0.5) / sigma) ** t)
    assert stats.binom.sf(len(passed) - 1, draws, failure) > 1e-4
    if planted == worst_t:  # no rarer than it must be: a stricter threshold would find fewer words
        assert stats.binom.cdf(len(passed), draws, failure) > 1e-4


def test_released_is_exact_sum_plus_noise_of_the_stated_scale() -> None:
    sums = {f"w{number:05d}": number * GRID // 100 for number in range(1, 20_001)}
    noisy = release(sums, 1.5, -1e6, KEY)
    assert list(noisy) == sorted(sums)
    noise = np.array([noisy[word] - units / GRID for word, units in sums.items()]) / 1.5
    assert stats.kstest(noise, "norm").pvalue > 1e-3
    assert 1e-3 < stats.chi2.cdf(float(noise @ noise), len(noise)) < 1 - 1e-3
    assert release(dict(reversed(sums.items())), 1.5, -1e6, KEY) == noisy  # a retry is the same release
    other = release(sums, 1.5, -1e6, bytes(32))
    assert all(noisy[word] != other[word] for word in sums)
    assert release(sums, 1.5, 100.0, KEY) == {word: value for word, value in noisy.items() if value >= 100.0}
    assert release({}, 1.5, 0.0, KEY) == {}


@pytest.mark.parametrize("noise_multiplier", [0.8, 5.0, MOST_NOISE])
def test_a_weight_is_shown_to_a_millionth_of_its_noise(noise_multiplier: float) -> None:
    """Whether a sum is odd, or which numbers the noise can have been, is in none of its digits."""
    step = 2.0 ** math.floor(math.log2(noise_multiplier) - 20)
    for weight in (GRID, GRID + 1):
        shown = release({f"w{number}": weight for number in range(2_000)}, noise_multiplier, -1e9, KEY)
        assert all((value / step).is_integer() for value in shown.values())


def test_noise_beyond_what_floats_write_exactly_is_refused() -> None:
    noisy = release({f"w{number}": 1 for number in range(2_000)}, MOST_NOISE, -1e9, KEY)
    assert len(noisy) == 2_000
    with pytest.raises(ArithmeticError, match="noise_multiplier"):
        release({f"w{number}": 1 for number in range(50)}, 1e7, 0.0, KEY)
