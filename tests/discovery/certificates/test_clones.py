"""The shuffle certificate against computed figures, its limits and its direction."""

import itertools
import math

import pytest

from discovery.certificates.clones import clones

# epsilon0, messages, delta -> theorem 3.1 of Feldman et al. 2021, computed independently to 1e-5.
FIGURES = [
    (1.0, 10_000, 1e-6, 0.0530053),
    (1.0, 10_000, 1e-8, 0.0688804),
    (1.0, 1_000_000, 1e-10, 0.00756),
    (2.0, 100_000, 1e-10, 0.07019),
    (4.0, 10_000, 1e-10, 0.89391),
    (4.0, 1_000_000, 1e-10, 0.07660),
    (6.0, 1_000_000, 1e-10, 0.22349),
    (8.0, 1_000_000, 1e-10, 0.65538),
    (8.0, 10_000_000, 1e-10, 0.19173),
    (10.0, 10_000_000, 1e-10, 0.55417),
    # 500,000 devices of 60 messages at epsilon0 10, which the paper prints as 0.315 with a coarser sum.
    (10.0, 30_000_000, 1e-10, 0.30747),
]


@pytest.mark.parametrize(("epsilon0", "messages", "delta", "wanted"), FIGURES)
def test_figures(epsilon0: float, messages: int, delta: float, wanted: float) -> None:
    bound = clones(epsilon0, messages, delta)
    assert bound == pytest.approx(wanted, rel=1e-3)
    # An upper bound may be a little loose, never below the figure beyond its last digit.
    assert bound > wanted - 1e-5


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


def test_never_above_local_and_falls_with_messages() -> None:
    bounds = [clones(8.0, messages, 1e-6) for messages in (1, 100, 1150, 20_000, 1_000_000)]
    assert bounds[0] == pytest.approx(8.0, abs=1e-5)
    assert bounds[2] == pytest.approx(8.0, abs=1e-5)
    assert all(a >= b for a, b in itertools.pairwise(bounds))
    assert clones(1.0, 100_000, 1e-6) < clones(1.0, 100_000, 1e-9)


@pytest.mark.parametrize(("epsilon0", "messages", "delta"), [(0.0, 10, 1e-6), (1.0, 0, 1e-6), (1.0, 10, 0.0)])
def test_bad_arguments_are_refused(epsilon0: float, messages: int, delta: float) -> None:
    with pytest.raises(ValueError, match="expected above 0"):
        clones(epsilon0, messages, delta)
