"""One device: which words it may speak about, exactly C messages, and an order that tells nothing."""

import functools
import itertools
from collections import Counter
from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from discovery.config import TrieConfig
from discovery.device.answer import END, Broadcast, Question, report, sample
from discovery.device.keystream import Keystream
from discovery.device.randomizer import of_size, subset_selection
from tests.helpers.text.tries import trie_config

KEY = bytes(range(32))
NONE = 99


def config(**changes) -> TrieConfig:
    usual = {"epsilon0": 4.0, "messages_per_device": 3, "layers": 5, "max_prefixes": 50}
    return trie_config(**usual | changes)


every_sampler = pytest.mark.parametrize("kind", ["random", "greedy"])


def items_of(candidates: Collection[int], contributions: int, name: str = "s", kind: str = "random") -> list[int]:
    return sample(Counter(candidates), contributions, kind, NONE, Keystream(KEY, name)).tolist()


@every_sampler
@pytest.mark.parametrize("candidates", [0, 1, 2, 3, 4, 20])
def test_exactly_c_items_distinct_and_none_for_the_rest(candidates, kind):
    chosen = items_of([item for item in range(candidates) for _ in range(1 + item % 3)], 3, kind=kind)
    real = [item for item in chosen if item != NONE]
    assert len(chosen) == 3
    assert len(set(real)) == len(real) == min(candidates, 3)
    assert set(real) <= set(range(candidates))


def test_how_often_and_in_which_order_a_candidate_was_typed_does_not_matter():
    once, often = [4, 6, 9, 2], [9, *[2] * 500, *[6] * 3, *[4] * 40]
    for trial in range(20):
        assert items_of(once, 2, str(trial)) == items_of(often, 2, str(trial))


def test_greedy_takes_the_most_frequent_and_breaks_ties_by_item_number_alone():
    typed = [*[7] * 2, *[3] * 2, *[5] * 9, *[1] * 2, 8]
    for order in (typed, typed[::-1], typed[4:] + typed[:4]):
        assert set(items_of(order, 3, kind="greedy")) == {5, 1, 3}


@pytest.mark.slow
@pytest.mark.statistical
def test_random_sampling_is_uniform_over_ordered_subsets():
    seen = dict.fromkeys(itertools.permutations(range(4), 2), 0)
    for trial in range(6000):
        seen[tuple(items_of(range(4), 2, str(trial)))] += 1
    assert stats.chisquare(list(seen.values())).pvalue > 1e-5


def selections(candidates: Collection[int], contributions: int) -> list[frozenset]:
    """All equally likely choices, as multisets, from the definition in the paper."""
    if len(candidates) <= contributions:
        return [frozenset(candidates)]
    return [frozenset(chosen) for chosen in itertools.combinations(candidates, contributions)]


@pytest.mark.slow
def test_one_changed_occurrence_moves_at_most_one_item():
    """Theorem 1 rests on this: all small cases, each by a coupling."""
    for contributions in (1, 2, 3):
        for row in itertools.product(range(3), repeat=4):
            counts = {item: times for item, times in enumerate(row) if times}
            for gone, new in itertools.permutations(range(5), 2):
                if gone not in counts:
                    continue
                after = counts | {new: counts.get(new, 0) + 1}
                after[gone] -= 1
                after = {item: times for item, times in after.items() if times}
                assert couples(tuple(selections(counts, contributions)), tuple(selections(after, contributions)))
                one, other = (
                    set(items_of(Counter(each).elements(), contributions, kind="greedy")) - {NONE}
                    for each in (counts, after)
                )
                assert max(len(one - other), len(other - one)) <= 1


@functools.cache
def couples(left: tuple[frozenset, ...], right: tuple[frozenset, ...]) -> bool:
    """Whether a coupling of two uniform choices has both within one item: a perfect matching of copies."""
    rows = left * len(right)
    columns = right * len(left)
    matched: dict[int, int] = {}

    def place(row: int, tried: set[int]) -> bool:
        for column, other in enumerate(columns):
            near = max(len(rows[row] - other), len(other - rows[row])) <= 1
            if near and column not in tried:
                tried.add(column)
                if column not in matched or place(matched[column], tried):
                    matched[column] = row
                    return True
        return False

    return all(place(row, set()) for row in range(len(rows)))


@every_sampler
@pytest.mark.statistical
def test_the_place_of_a_message_says_nothing_about_its_item(kind):
    places = [items_of([1, 2, 2, 2, 3], 4, str(trial), kind).index(2) for trial in range(3000)]
    assert stats.chisquare(np.bincount(places, minlength=4)).pvalue > 1e-5


def heard(words: list[str], broadcast: Broadcast, known: frozenset[str] = frozenset(), **changes) -> list[str | None]:
    """Candidates in the device's messages with randomisation as good as off (p within 1e-14 of 1, k = 1)."""
    sure = of_size(40.0, broadcast.domain, 1)
    sent = report(words, known, broadcast, sure, config(**changes), Keystream(KEY, "t"))
    assert sent.shape == (changes.get("messages_per_device", 3), 1)
    candidates = [None if item == broadcast.none else broadcast.candidate(int(item)) for item in sent[:, 0]]
    return sorted(candidates, key=lambda candidate: (candidate is None, candidate or ""))


FIRST = Broadcast(1, ("",), "abc" + END)


def test_a_device_speaks_of_its_own_prefixes():
    assert heard(["ab", "cb", "ab"], FIRST) == ["a", "c", None]
    third = Broadcast(3, ("ab", "ca"), "abc" + END)
    assert heard(["abb", "ca", "bcb"], third) == ["abb", "ca" + END, None]


@pytest.mark.parametrize(
    "silent",
    ["ab", "abcab", "", "aé", "éa", "ab" + END + "c", END, "a b"],
    ids=["known", "too long", "empty", "foreign last", "foreign first", "end inside", "end", "space"],
)
@pytest.mark.parametrize("layer", [1, 2, 3])
def test_words_that_must_not_count_never_do(silent, layer):
    prefixes = tuple("".join(p) for p in itertools.product("abc", repeat=layer - 1))
    broadcast = Broadcast(layer, prefixes, "abc" + END)
    assert heard([silent] * 5, broadcast, frozenset({"ab"})) == [None, None, None]
    assert heard([silent] * 5 + ["cccc"], broadcast, frozenset({"ab"})) == ["cccc"[:layer], None, None]


def test_finished_words_and_dropped_prefixes_become_none():
    assert heard(["a", "bb"], Broadcast(3, ("bb", "ab"), "ab" + END)) == ["bb" + END, None, None]
    assert heard(["abb"], Broadcast(3, ("bb",), "ab" + END)) == [None, None, None]


def test_numbers_and_candidates_are_one_to_one():
    broadcast = Broadcast(2, ("a", "c"), "abc" + END)
    candidates = [broadcast.candidate(item) for item in range(broadcast.none)]
    assert len(set(candidates)) == broadcast.domain - 1 == 8
    assert [broadcast.item(candidate) for candidate in candidates] == list(range(8))
    assert broadcast.item("bb") is None
    assert broadcast.item("az") is None


def test_a_retry_sends_the_same_bits_and_every_device_sends_as_much():
    randomizer = subset_selection(4.0, FIRST.domain)
    sent = [report(["ab"], frozenset(), FIRST, randomizer, config(), Keystream(KEY, "d")) for _ in range(2)]
    assert np.array_equal(*sent)
    for words in ([], ["ab"], ["a", "b", "c", "ab", "bc"] * 9):
        assert report(words, frozenset(), FIRST, randomizer, config(), Keystream(KEY, "d")).shape == sent[0].shape


def test_other_questions_are_answered_with_other_bits():
    base = Question(FIRST, subset_selection(4.0, FIRST.domain), frozenset({"the"}), config())
    assert base.stream == replace(base, broadcast=Broadcast(1, ("",), "abc" + END)).stream
    others = [
        replace(base, broadcast=Broadcast(2, ("",), "abc" + END)),
        replace(base, broadcast=Broadcast(1, ("a",), "abc" + END)),
        replace(base, broadcast=Broadcast(1, ("",), "ab" + END)),
        replace(base, randomizer=subset_selection(3.0, FIRST.domain)),
        replace(base, randomizer=of_size(4.0, FIRST.domain, 2)),
        replace(base, known_words=frozenset({"the", "ab"})),
        replace(base, config=config(messages_per_device=4)),
        replace(base, config=config(layers=4)),
    ]
    assert len({base.stream, *(other.stream for other in others)}) == 9
    sent = [np.concatenate([base.answer(["ab"], device, KEY) for device in group]) for group in [range(9)] * 2]
    assert np.array_equal(*sent)
    assert not np.array_equal(sent[0][:12], sent[0][12:24])
