"""The clones certificate: every outcome of few messages, sound at the edges of floats, its direction."""

import itertools
import math

import numpy as np
import pytest

from discovery.certificates.clones import clones, delta_given


def exact_delta(epsilon0: float, epsilon: float, messages: int) -> float:
    """Theorem 3.1 summed over every outcome, for few messages."""
    truth, chance = math.exp(epsilon0) / (1 + math.exp(epsilon0)), math.exp(-epsilon0)
    total = 0.0
    for count in range(messages):
        weight = math.comb(messages - 1, count) * chance**count * (1 - chance) ** (messages - 1 - count)
        half = [math.comb(count, number) / 2**count for number in range(count + 1)]
        for number in range(count + 2):
            above = half[number - 1] if number >= 1 else 0.0
            here = half[number] if number <= count else 0.0
            left, right = truth * above + (1 - truth) * here, (1 - truth) * above + truth * here
            total += weight * max(left - math.exp(epsilon) * right, 0.0)
    return total


@pytest.mark.parametrize(("epsilon0", "messages", "delta"), [(0.5, 30, 1e-2), (1.0, 40, 1e-3), (2.0, 60, 1e-2)])
def test_few_messages_against_every_outcome(epsilon0: float, messages: int, delta: float) -> None:
    bound = clones(epsilon0, messages, delta)
    assert exact_delta(epsilon0, bound, messages) <= delta
    if 0 < bound < epsilon0:
        assert exact_delta(epsilon0, bound * 0.98, messages) > delta * 0.98


@pytest.mark.parametrize(("epsilon0", "messages", "delta"), [(0.0, 10, 1e-6), (1.0, 0, 1e-6), (1.0, 10, 0.0)])
def test_bad_arguments_are_refused(epsilon0: float, messages: int, delta: float) -> None:
    with pytest.raises(ValueError, match="expected above 0"):
        clones(epsilon0, messages, delta)


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon0", "delta"), [(1.0, 1e-6), (4.0, 1e-10), (8.0, 1e-8)])
def test_more_messages_never_hurt(epsilon0, delta):
    bounds = [clones(epsilon0, 2**power, delta) for power in range(24)]
    # Blocks of the sum are worth 1e-4 of the bound.
    assert all(after <= before * (1 + 2e-4) for before, after in itertools.pairwise(bounds))
    assert bounds[0] > 2 * bounds[-1]


@pytest.mark.parametrize("epsilon0", [30.0, 37.0, 40.0, 49.0, 51.0, 800.0])
@pytest.mark.parametrize("messages", [1, 1000, 10**9])
def test_a_large_epsilon0_is_not_amplified_by_rounding(epsilon0, messages):
    assert clones(epsilon0, messages, 1e-6) == pytest.approx(epsilon0, abs=0.01)


@pytest.mark.parametrize("epsilon0", [0.5, 3.0, 12.0, 40.0])
def test_without_clones_delta_is_that_of_randomised_response(epsilon0):
    for epsilon in (0.0, epsilon0 / 2, epsilon0 * 0.9, epsilon0 - 1e-3):
        p = 1 / (1 + math.exp(-epsilon0))
        exact = p * -math.expm1(epsilon - epsilon0)
        assert delta_given(epsilon0, epsilon, np.array([0]))[0] == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("delta", [1e-14, 1e-20])
def test_a_tiny_delta_is_never_cheaper(delta):
    assert clones(4.0, 100_000, delta) > clones(4.0, 100_000, 1e-12)
