"""Random bits of devices: uniform, repeatable, and different wherever they must be."""

import itertools

import numpy as np
import pytest
from scipy import stats

from discovery.device.keystream import Keystream

KEY = bytes(range(32))


def test_same_key_and_name_same_bits_else_different():
    same = [Keystream(KEY, "device 1").words(20) for _ in range(2)]
    assert np.array_equal(*same)
    assert not np.array_equal(same[0], Keystream(KEY, "device 2").words(20))
    assert not np.array_equal(same[0], Keystream(KEY[::-1], "device 1").words(20))


def test_the_stream_does_not_depend_on_how_it_is_read():
    pieces, whole = Keystream(KEY, "x"), Keystream(KEY, "x")
    read = np.concatenate([pieces.words(count) for count in (1, 0, 255, 1, 700)])
    assert np.array_equal(read, whole.words(957))
    assert len(np.unique(read)) == len(read)


@pytest.mark.parametrize("key", [b"", b"short", bytes(33)])
def test_a_key_of_another_length_is_refused(key):
    with pytest.raises(ValueError, match="key"):
        Keystream(key, "x")


@pytest.mark.statistical
def test_uniform_numbers():
    bits = Keystream(KEY, "uniform")
    numbers = np.array([bits.uniform() for _ in range(20_000)])
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert stats.kstest(numbers, "uniform").pvalue > 1e-4
    assert np.array_equal(numbers * 2.0**53, np.floor(numbers * 2.0**53))
    assert not np.array_equal(numbers * 2.0**32, np.floor(numbers * 2.0**32))


@pytest.mark.parametrize(("population", "count"), [(1, 0), (1, 1), (5, 0), (5, 5), (9, 4), (9, 5), (1000, 999)])
def test_subsets_are_distinct_and_inside(population, count):
    subset = Keystream(KEY, "s").subset(population, count)
    assert len(set(subset.tolist())) == len(subset) == count
    assert set(subset.tolist()) <= set(range(population))


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize(
    ("population", "count"),
    [(6, 2), (5, 4), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((6, 3), (6, 4), (7, 5), (5, 1)))],
)
def test_every_subset_is_equally_likely(population, count):
    bits, draws = Keystream(KEY, "subsets"), 12_000
    numbers = {subset: i for i, subset in enumerate(itertools.combinations(range(population), count))}
    seen = np.zeros(len(numbers))
    for _ in range(draws):
        seen[numbers[tuple(sorted(bits.subset(population, count).tolist()))]] += 1
    assert stats.chisquare(seen).pvalue > 1e-5
    # The same test sees one subset that is a tenth too frequent.
    seen[0] += 0.1 * draws
    assert stats.chisquare(seen * draws / seen.sum()).pvalue < 1e-5


class _Chosen(Keystream):
    """Words chosen by the test, in place of the cipher's."""

    def __init__(self, words: list[int]) -> None:
        self._buffer = np.array(words, dtype=np.uint32)


def test_words_that_would_favour_a_number_are_drawn_again():
    # 2^32 = 1 mod 3: the first third has one word too many, which is 0.
    thirds = [0, 2**32 // 3 + 1, 2 * 2**32 // 3 + 1, 2**32]
    for number in range(3):
        for word in (max(thirds[number], 1), thirds[number + 1] - 1):
            assert _Chosen([0, word]).subset(3, 1).tolist() == [number]
    assert _Chosen([0]).subset(4, 1).tolist() == [0]


def test_a_population_that_no_word_reaches_is_refused():
    with pytest.raises(ValueError, match="population"):
        Keystream(KEY, "x").subset(2**31 + 1, 1)


@pytest.mark.statistical
def test_every_order_is_equally_likely():
    bits = Keystream(KEY, "orders")
    numbers = {order: i for i, order in enumerate(itertools.permutations(range(4)))}
    seen = np.zeros(len(numbers))
    for _ in range(6000):
        seen[numbers[tuple(bits.permutation(4).tolist())]] += 1
    assert stats.chisquare(seen).pvalue > 1e-5
