"""Total contribution of devices: each one's bound, and a noisy sum of what they typed."""

import itertools
import math

import numpy as np
import pytest

from discovery.central.contributions import contribute, shards_of
from discovery.central.total import TotalWeight, estimate, noisy_total, units
from discovery.central.weighted_gaussian import GRID
from discovery.device.typed import TypedWords

KEY = bytes(range(32))


def told(shards: list, most: int, devices: int, noise_multiplier: float, least: float, key: bytes) -> TotalWeight:
    noisy = noisy_total(shards, most, noise_multiplier, key)
    return estimate(noisy, most, devices, noise_multiplier, least)


def contributed(devices: list[list[str]], most: int, size: int = 100) -> list:
    return [
        contribute(shard.typed, frozenset(), most, KEY, shard.first_device)
        for shard in shards_of(TypedWords.gather(devices), size)
    ]


@pytest.mark.parametrize("most", [1, 2, 3, 50])
def test_a_device_adds_the_root_of_its_filled_places_and_at_most_one(most: int) -> None:
    words = ["a", "b", "c", "d"]
    others = [["a", "b"], [], ["c"]]
    before = sum(units(shard, most) for shard in contributed([*others, []], most))
    for size in range(len(words) + 1):
        for typed in itertools.permutations(words, size):
            after = sum(units(shard, most) for shard in contributed([*others, [*typed, *typed]], most))
            assert after - before == pytest.approx(GRID * math.sqrt(min(size, most) / most), abs=1)
            assert 0 <= after - before <= GRID


def test_without_noise_it_is_the_weight_of_all_words_whatever_the_shards() -> None:
    rng = np.random.default_rng(1)
    devices = [[f"w{number}" for number in rng.choice(90, rng.integers(0, 20), replace=False)] for _ in range(200)]
    expected = sum(math.sqrt(min(len(words), 7)) for words in devices)
    for size in (1, 33, 200):
        everything = told(contributed(devices, 7, size), 7, 200, 0.0, 0.0, KEY)
        assert everything.weight == pytest.approx(expected, rel=1e-6)
        assert everything.low == everything.weight == everything.high


def test_its_interval_holds_the_sum_as_often_as_it_says() -> None:
    devices = [["a", "b"], ["c"]] * 200
    expected, shards = 200 * (math.sqrt(2) + 1), contributed([["a", "b"], ["c"]] * 200, 9)
    keys = [number.to_bytes(32, "big") for number in range(1_000)]
    drawn = [told(shards, 9, len(devices), 12.0, 0.0, key) for key in keys]
    held = sum(one.low <= expected <= one.high for one in drawn)
    assert 930 <= held <= 968  # 950, and three deviations
    assert np.mean([one.weight for one in drawn]) == pytest.approx(expected, abs=3 * 12 * 3 / 1_000**0.5)
    assert np.std([one.weight for one in drawn]) == pytest.approx(12 * 3, rel=0.08)


def test_noise_never_takes_it_out_of_what_is_possible() -> None:
    """Not below what the released words weigh, nor above what full devices would."""
    devices = [["a"]] * 20
    for number in range(50):
        one = told(contributed(devices, 4), 4, 20, 1_000.0, 12.5, number.to_bytes(32, "big"))
        assert 12.5 <= one.low <= one.weight <= one.high <= 40
