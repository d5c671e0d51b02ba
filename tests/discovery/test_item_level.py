"""Theorem 1 by enumeration: one changed occurrence changes the law of all C messages by e^epsilon0 at most.

The law of a device's messages is spelled out from the definition, over every pair of neighbouring
devices; broken devices fail the same check. That ``sample`` and ``randomise`` follow their parts of
this law is tested beside them.
"""

import itertools
import math
from collections import Counter

import pytest

from discovery.device.randomizer import of_size

ITEMS, NONE, C = 4, 4, 2


def choices(counts: dict[int, int], kind: str) -> list[tuple[int, ...]]:
    """Equally likely fillings of the C messages, before they are put in order."""
    if len(counts) <= C:
        return [(*sorted(counts), *[NONE] * (C - len(counts)))]
    if kind == "random":
        return list(itertools.combinations(sorted(counts), C))
    return [tuple(sorted(counts, key=lambda item: (-counts[item], item))[:C])]


def law(counts: dict[int, int], kind: str, size: int, epsilon0: float, order: str) -> Counter:
    """Probability of every sequence of C messages."""
    randomizer = of_size(epsilon0, ITEMS + 1, size)
    d, p = randomizer.domain, randomizer.inclusion
    subsets = list(itertools.combinations(range(d), size))
    inside, outside = p / math.comb(d - 1, size - 1), (1 - p) / math.comb(d - 1, size)
    rows = []
    for chosen in choices(counts, kind):
        if order == "random":
            rows += itertools.permutations(chosen)
        else:
            rows += [tuple(sorted(chosen))] * math.factorial(C)
    total: Counter = Counter()
    for row in rows:
        for sent in itertools.product(subsets, repeat=C):
            chance = math.prod(inside if item in subset else outside for item, subset in zip(row, sent, strict=True))
            total[sent] += chance / len(rows)
    return total


def neighbours():
    """Every device with up to 4 occurrences over 4 items or silence, and one of them changed."""
    for row in itertools.combinations_with_replacement(range(ITEMS + 1), 4):
        for new in range(ITEMS + 1):
            for place in range(4):
                after = sorted([*row[:place], new, *row[place + 1 :]])
                if after != list(row):
                    yield tuple(row), tuple(after)


def greatest_loss(kind: str, size: int, epsilon0: float, order: str) -> float:
    laws = {}

    def law_of(row: tuple[int, ...]) -> Counter:
        if row not in laws:
            laws[row] = law(dict(Counter(item for item in row if item != NONE)), kind, size, epsilon0, order)
        return laws[row]

    pairs = {frozenset(pair) for pair in neighbours()}
    ratios = (
        abs(math.log(one[sent] / law_of(right)[sent]))
        for left, right in map(tuple, pairs)
        for one in [law_of(left)]
        for sent in one
    )
    return max(ratios)


@pytest.mark.parametrize("kind", ["random", "greedy"])
@pytest.mark.parametrize(("size", "epsilon0"), [(1, 1.0), (2, 0.7), (1, 3.0)])
def test_one_occurrence_costs_epsilon0_and_no_more(kind, size, epsilon0):
    loss = greatest_loss(kind, size, epsilon0, "random")
    assert loss <= epsilon0 + 1e-9
    assert loss > 0.6 * epsilon0  # the bound is about something
    # In a sorted row one new item moves others to other messages.
    assert greatest_loss(kind, size, epsilon0, "sorted") > epsilon0 + 0.1


@pytest.mark.parametrize("size", [1, 2])
def test_a_whole_device_costs_c_times_as_much(size):
    epsilon0 = 1.0
    one, other = (law(counts, "random", size, epsilon0, "sorted") for counts in ({0: 1, 1: 1}, {2: 1, 3: 1}))
    worst = max(abs(math.log(one[sent] / other[sent])) for sent in one)
    assert worst == pytest.approx(C * epsilon0, abs=1e-9)
