"""The privacy blanket against sums in 60 digits, and against itself: never below the truth, never rising."""

import functools
import itertools
import math

import mpmath
import numpy as np
import pytest

from discovery.certificates.blanket import blanket, blanket_delta
from discovery.certificates.clones import clones
from discovery.device.randomizer import SubsetSelection, subset_selection


def exact_delta(randomizer: SubsetSelection, messages: int, epsilon: float) -> mpmath.mpf:
    """Exact blanket bound (Balle et al. 2019, lemma 5.3), every composition of the messages in 60 digits."""
    with mpmath.workdps(60):
        d, k = randomizer.domain, randomizer.size
        ratio, growth = mpmath.exp(mpmath.mpf(randomizer.epsilon0)), mpmath.exp(mpmath.mpf(epsilon))
        gamma = d / (ratio * k + d - k)
        pairs = mpmath.mpf(d * (d - 1))
        single, both, neither = (gamma * ways / pairs for ways in (k * (d - k), k * (k - 1), (d - k) * (d - k - 1)))
        total = mpmath.mpf(0)
        for one, other, double, none in itertools.product(range(messages + 1), repeat=4):
            covers = one + other + double + none
            excess = (ratio - growth) * one - (growth * ratio - 1) * other - (growth - 1) * (ratio * double + none)
            if covers > messages or excess <= 0:
                continue
            ways = math.factorial(messages) // math.prod(
                math.factorial(count) for count in (one, other, double, none, messages - covers)
            )
            rest = 1 - 2 * single - both - neither
            chance = single ** (one + other) * both**double * neither**none * rest ** (messages - covers)
            total += ways * chance * excess
        return total / messages


@pytest.mark.parametrize("epsilon0", [0.5, 4.0, 20.0, 28.0, 36.0, 40.0, 49.0])
@pytest.mark.parametrize(("domain", "messages"), [(3, 1), (100, 1), (3, 3), (10, 4)])
def test_few_messages_in_60_digits(epsilon0, domain, messages):
    randomizer = subset_selection(epsilon0, domain)
    for epsilon in (epsilon0 * 0.05, epsilon0 / 2, epsilon0 - 0.2, epsilon0 * (1 - 1e-9)):
        exact = exact_delta(randomizer, messages, epsilon)
        assert abs(blanket_delta(randomizer, messages, epsilon, 1e-200) / exact - 1) < 1e-12


@pytest.mark.parametrize("epsilon0", [28.0, 40.0, 49.9])
def test_one_message_has_no_cover(epsilon0):
    """Alone, a message loses all but ``log(1 - delta)`` of its epsilon: what delta may cost a likelihood ratio."""
    for delta in (1e-10, 1e-3, 0.18):
        certified = blanket(subset_selection(epsilon0, 3), 1, delta)
        assert certified == pytest.approx(epsilon0 + math.log1p(-delta), rel=1e-4)
        assert exact_delta(subset_selection(epsilon0, 3), 1, certified) <= delta


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon0", "domain", "size"), [(1.0, 3, 1), (2.0, 20, 2), (6.0, 300, 1)])
@pytest.mark.parametrize("blocks", [1, 4, 10**6])
@pytest.mark.parametrize("tail", [1e-9, 0.02])
def test_a_hundred_messages_against_their_sum(epsilon0, domain, size, blocks, tail):
    randomizer = subset_selection(epsilon0, domain)
    assert randomizer.size == size
    for epsilon in (0.2 * epsilon0, 0.6 * epsilon0):
        assert blanket_delta(randomizer, 100, epsilon, tail, blocks) >= summed(randomizer, 100, epsilon) * (1 - 1e-9)


@functools.lru_cache
def summed(randomizer: SubsetSelection, messages: int, epsilon: float) -> float:
    """Blanket bound in floats, over each number of covers of either item, of both and of neither."""
    d, k = randomizer.domain, randomizer.size
    ratio, growth = math.exp(randomizer.epsilon0), math.exp(epsilon)
    gamma = d / (ratio * k + d - k) / (d * (d - 1))
    single, both, neither = gamma * k * (d - k), gamma * k * (k - 1), gamma * (d - k) * (d - k - 1)
    log = [math.lgamma(count + 1) for count in range(messages + 1)]
    log_N = np.array(log)
    total = 0.0
    for double in range(messages + 1 if both else 1):
        first = double * math.log(both) - log[double] if both else 0.0
        one, other, none = np.meshgrid(*3 * [np.arange(messages + 1 - double)], indexing="ij", sparse=True)
        excess = (ratio - growth) * one - (growth * ratio - 1) * other - (growth - 1) * (ratio * double + none)
        rest = messages - double - one - other - none
        inside = np.broadcast_to((excess > 0), rest.shape) & (rest >= 0)
        rest = np.where(inside, rest, 0)
        chance = (
            first
            + log[messages]
            + (one + other) * math.log(single)
            + none * math.log(neither)
            - log_N[one]
            - log_N[other]
            - log_N[none]
            + rest * math.log1p(-2 * single - both - neither)
            - log_N[rest]
        )
        total += float(np.sum(np.where(inside, np.exp(chance) * excess, 0.0)))
        if both and first + log[messages] - log[messages - double] < -60:
            break
    return total / messages


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon0", "domain"), [(2.0, 50), (4.0, 1000)])
def test_more_messages_never_cost(epsilon0, domain):
    randomizer = subset_selection(epsilon0, domain)
    certified = [
        blanket(randomizer, messages, 1e-4)
        for messages in (1, 8, 11, 15, 16, 25, 35, 46, 55, 64, 65, 66, 256, 257, 1000)
    ]
    assert all(after <= before * (1 + 1e-5) for before, after in itertools.pairwise(certified))


@pytest.mark.parametrize("delta", [5e-324, 1e-300, 1e-201])
def test_a_delta_that_floats_cannot_split_earns_nothing(delta):
    for messages in (1, 1000, 10**6):
        assert clones(4.0, messages, delta) == blanket(subset_selection(4.0, 100), messages, delta) == 4.0
    assert clones(4.0, 10**6, 1e-199) < 4.0


@pytest.mark.parametrize("tail", [1e-12, 1e-3])
def test_what_lies_outside_the_window_counts_in_full(tail):
    """At epsilon0 no cover is needed, and nothing is left but the tail that the window did not sum."""
    assert blanket_delta(subset_selection(2.0, 20), 100, 2.0, tail) >= tail
