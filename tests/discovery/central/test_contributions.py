"""One device's contribution: bounded, chosen by key, the same however devices are sharded."""

from collections import Counter

import numpy as np
import pytest
from scipy import stats

from discovery.central.contributions import MOST_LETTERS, Contributions, contribute, shards_of
from discovery.device.typed import TypedWords

KEY = bytes(range(32))


def population(devices: int, seed: int = 0) -> TypedWords:
    rng = np.random.default_rng(seed)
    return TypedWords.gather([[f"w{n}" for n in rng.zipf(1.4, rng.integers(0, 40)).tolist()] for _ in range(devices)])


def by_device(contributed: Contributions) -> list[set[str]]:
    held: list[set[str]] = [set() for _ in contributed.degree_D]
    for device, word in zip(contributed.device_P.tolist(), contributed.word_P.tolist(), strict=True):
        assert contributed.words[word] not in held[device], "a pair twice"
        held[device].add(contributed.words[word])
    assert [len(words) for words in held] == contributed.degree_D.tolist()
    return held


@pytest.mark.parametrize("most", [1, 3, 1000])
def test_distinct_unknown_words_and_no_more_than_the_bound(most: int) -> None:
    typed, known = population(60), frozenset({"w1", "w5"})
    for device, contributed in enumerate(by_device(contribute(typed, known, most, KEY))):
        held = set(typed.of(device)) - known
        assert contributed <= held
        assert len(contributed) == min(len(held), most)


def test_a_contribution_depends_on_key_and_device_alone_and_not_on_shards_or_other_devices() -> None:
    typed = population(57)
    whole = by_device(contribute(typed, frozenset(), 4, KEY))
    for size in (1, 10, 56):
        parts = [
            words
            for shard in shards_of(typed, size)
            for words in by_device(contribute(shard.typed, frozenset(), 4, KEY, shard.first_device))
        ]
        assert parts == whole
    others = TypedWords.gather([["zebra", "w1"] * 9 if device != 20 else typed.of(20) for device in range(57)])
    assert by_device(contribute(others, frozenset(), 4, KEY))[20] == whole[20]
    assert by_device(contribute(typed, frozenset(), 4, bytes(32))) != whole


@pytest.mark.statistical
def test_every_word_of_a_crowded_device_has_the_same_chance() -> None:
    """Neither the alphabet nor the order of typing nor how often a word was typed decides."""
    words = ["zoo", "aha", "mmh", "why", "bye", "ok", "lol"]
    typed = TypedWords.gather([["zoo", "zoo", *words, "lol"]] * 7_000)
    counts = Counter(word for held in by_device(contribute(typed, frozenset(), 3, KEY)) for word in held)
    assert set(counts) == set(words)
    # Drawn without replacement, counts spread less than a multinomial's.
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_what_no_keyboard_suggests_is_left_out() -> None:
    typed = TypedWords.gather([["", "a" * MOST_LETTERS, "a" * (MOST_LETTERS + 1), "COVID-19", "naïve"], []])
    assert by_device(contribute(typed, frozenset(), 9, KEY)) == [{"a" * MOST_LETTERS, "COVID-19", "naïve"}, set()]
    nobody = contribute(TypedWords.gather([]), frozenset(), 9, KEY)
    assert len(nobody.word_P) == len(nobody.degree_D) == 0
