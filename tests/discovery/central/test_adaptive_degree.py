"""Adaptive weights: sensitivity by brute force over neighbours, words of one device alone, and what they gain."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest

from discovery.central import adaptive_degree, weighted_gaussian
from discovery.central.adaptive_degree import DISCOUNT, LEAST_WORDS, first_weights, later_weights, together
from discovery.central.contributions import contribute
from discovery.central.weighted_gaussian import GRID, unit_of
from discovery.device.typed import TypedWords

KEY = bytes(range(32))


def weights(devices: Sequence[Sequence[str]], limit: float, most: int) -> dict[str, int]:
    """Weights of words where first weights above the limit are given back."""
    contributed = contribute(TypedWords.gather(devices), frozenset(), most, KEY)
    first = dict(zip(contributed.words, first_weights(contributed).tolist(), strict=True))
    cut = math.ceil(limit * GRID)
    later = dict(zip(contributed.words, later_weights(contributed, first, cut, most).tolist(), strict=True))
    return together(first, later, cut)


def moved(others: list[list[str]], device: list[str], limit: float, most: int) -> tuple[float, float]:
    """Length by which one device moves the weights, and the most that a word of its own gets times its root."""
    with_it, without = weights([*others, device], limit, most), weights([*others, []], limit, most)
    length = sum((with_it.get(word, 0) - without.get(word, 0)) ** 2 for word in {*with_it, *without})
    own = set(device) - set(itertools.chain(*others))
    largest = max((with_it[word] for word in own), default=0) * math.sqrt(len(own))
    return math.sqrt(length) / GRID, largest / GRID


def populations(rng: np.random.Generator) -> tuple[list[list[str]], list[str], float, int]:
    """Others, a device and a limit in which many words are given back, or just begin to be."""
    words = [f"w{number}" for number in range(int(rng.integers(18, 40)))]
    sizes = rng.integers(10, len(words) + 1, int(rng.integers(1, 12)))
    same = list(rng.choice(words, int(rng.integers(LEAST_WORDS, len(words) + 1)), replace=False))
    others = [same if rng.random() < 0.5 else list(rng.choice(words, size, replace=False)) for size in sizes]
    device = same if rng.random() < 0.5 else list(rng.choice(words, int(rng.integers(1, len(words))), replace=False))
    device = [*device, *(f"own{number}" for number in range(int(rng.integers(0, 20))))]
    return others, device, float(rng.uniform(0.02, 0.6)), len(words) + 20


def test_no_device_moves_the_weights_by_more_than_one() -> None:
    rng, longest, alone = np.random.default_rng(0), 0.0, 0.0
    for _ in range(120):
        length, own = moved(*populations(rng))
        assert length <= 1
        assert own <= 1
        longest, alone = max(longest, length), max(alone, own)
    assert longest > 0.99
    assert alone > 0.9


def test_the_worst_case_of_the_argument_needs_the_discount(monkeypatch: pytest.MonkeyPatch) -> None:
    """All have the same words, one of which others give back for them: what is given back falls on the same words."""
    same = [f"w{number}" for number in range(LEAST_WORDS)]
    others = [[*same] for _ in range(40)] + [["w0", *(f"x{n}.{m}" for m in range(LEAST_WORDS - 1))] for n in range(4)]
    length, _ = moved(others, same, 41 / LEAST_WORDS, LEAST_WORDS)
    assert length <= 1
    monkeypatch.setattr(adaptive_degree, "DISCOUNT", 1.0)
    assert moved(others, same, 41 / LEAST_WORDS, LEAST_WORDS)[0] > 1


def test_the_discount_is_the_root_of_its_equation() -> None:
    assert (1 + DISCOUNT**2) / math.sqrt(LEAST_WORDS) == pytest.approx(2 * (1 - DISCOUNT))
    assert 0 < DISCOUNT < 1


def test_without_a_limit_they_are_the_plain_weights() -> None:
    people = [[f"w{number}" for number in range(size)] for size in (1, 3, 15, 16, 17, 30)]
    plain = contribute(TypedWords.gather(people), frozenset(), 20, KEY)
    expected = dict(zip(plain.words, weighted_gaussian.weights(plain).tolist(), strict=True))
    for word, units in weights(people, 1e6, 20).items():
        assert units == pytest.approx(expected[word], rel=2e-6)
        assert units <= expected[word]


def test_what_passes_anyway_gives_to_a_device_s_other_words() -> None:
    people = [[*(f"all{n}" for n in range(10)), *(f"few{device // 5}.{n}" for n in range(10))] for device in range(200)]
    plain, given = weights(people, 1e6, 20), weights(people, 1.0, 20)
    assert all(given[f"few0.{n}"] > 1.05 * plain[f"few0.{n}"] for n in range(10))
    assert all(given[f"all{n}"] < plain[f"all{n}"] for n in range(10))


def test_devices_of_few_words_give_and_get_nothing() -> None:
    people = [[f"w{number}" for number in range(LEAST_WORDS - 1)]] * 50
    assert set(weights(people, 0.01, 20).values()) == {50 * int(int(unit_of(20)[LEAST_WORDS - 1]) * (1 - 2.0**-20))}
