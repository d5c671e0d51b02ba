"""Keyed noise: pure, never reused, Gaussian of the right scale, with tails."""

import math

import numpy as np
import pytest
from scipy import stats

from pretrain.randomness import noise

KEY = noise.seeded_key(11)


def test_same_arguments_same_numbers_and_a_prefix_of_longer_draws() -> None:
    long = noise.gaussian(KEY, "tree/0", 3, 1001)
    assert np.array_equal(long, noise.gaussian(KEY, "tree/0", 3, 1001))
    assert np.array_equal(long[:500], noise.gaussian(KEY, "tree/0", 3, 500))


def test_every_key_stream_and_index_has_numbers_of_its_own() -> None:
    draws = [
        noise.gaussian(key, stream, index, 64)
        for key in (KEY, noise.seeded_key(12))
        for stream in ("tree/0", "tree/1", "tree/01")
        for index in (0, 1, 10)
    ]
    assert len({value for draw in draws for value in draw}) == 64 * len(draws)


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = noise.gaussian(KEY, "s", 0, 999)
    monkeypatch.setattr(noise, "BLOCK", 7)
    assert np.array_equal(whole, noise.gaussian(KEY, "s", 0, 999))


def accepted(sample: np.ndarray) -> bool:
    """Whether a sample passes as standard normal: variance, mean and shape."""
    size = len(sample)
    variance_ok = abs(sample.var() - 1) < 5 * np.sqrt(2 / size)
    return bool(variance_ok and abs(sample.mean()) < 5 / np.sqrt(size) and stats.kstest(sample, "norm").pvalue > 1e-4)


@pytest.mark.statistical
@pytest.mark.parametrize("wrong", [2 / 3, 3 / 2, 1.05, 0.95])
def test_standard_normal_and_nothing_else(wrong: float) -> None:
    sample = noise.gaussian(KEY, "statistics", 0, 200_000)
    assert accepted(sample)
    assert not accepted(sample * wrong)


@pytest.mark.statistical
def test_numbers_of_different_nodes_are_uncorrelated() -> None:
    first, second = (noise.gaussian(KEY, "pairs", index, 100_000) for index in (0, 1))
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / np.sqrt(100_000)


def test_the_mapping_reaches_tails_that_single_precision_cuts() -> None:
    smallest = np.array([[0, 0]], dtype=np.uint64)
    largest = np.array([[2**64 - 1, 2**64 - 1]], dtype=np.uint64)
    assert noise.box_muller(smallest, np.zeros(1, np.uint64))[0, 0] == pytest.approx(np.sqrt(2 * 128 * np.log(2)))
    assert np.all(np.isfinite(noise.box_muller(largest, np.empty(0, np.uint64))))


@pytest.mark.parametrize("word", [0, 1, 2, 5, 1000, 2**40 + 1, 2**53 - 1, 2**53, 2**60 + 2**8])
def test_radii_have_all_digits_however_far_out(word: int) -> None:
    """Against whole numbers of any length: the next further bits that a float64 can tell apart give another radius."""
    small = word < 2**53
    for more in (0, 1, 2**40, 2**63, 2**64 - 2**11) if small else (2**64 - 1,):
        further = np.array([more] if small else [], dtype=np.uint64)
        (radius, _), *_ = noise.box_muller(np.array([[word, 0]], dtype=np.uint64), further).tolist()
        exact = math.sqrt(2 * (128 * math.log(2) - math.log(word * 2**64 + more + 1)))
        assert radius == pytest.approx(exact, rel=1e-14)


@pytest.mark.slow
def test_far_out_radii_do_not_show_that_words_are_whole() -> None:
    """Of four million pairs, those so far out that a float64 tells ``u 2^64`` from its neighbours."""
    squares = np.sum(noise.gaussian(KEY, "tails", 0, 8_000_000).reshape(-1, 2) ** 2, axis=1)
    places = np.exp(-squares[squares > 2 * math.log(2) * 19.5] / 2) * 2.0**64
    assert 3 <= len(places) <= 15
    assert np.count_nonzero(np.abs(places - np.rint(places)) > 0.15) >= len(places) / 2


@pytest.mark.parametrize("deviation", [1e-9, 0.3, 1.0, 3.16, 1e5])
def test_what_is_shown_are_multiples_of_a_millionth_of_the_noise(deviation: float) -> None:
    noisy = (noise.gaussian(KEY, "grid", 0, 1000) + 7) * deviation
    shown = noise.on_grid(noisy, deviation)
    step = 2.0 ** math.floor(math.log2(deviation) - 20)
    assert np.array_equal(shown / step, np.rint(shown / step))
    assert 0.45 < np.max(np.abs(shown - noisy)) / step <= 0.5
    assert deviation / 2**21 < step <= deviation / 2**20


def test_words_share_no_bits_with_the_noise_of_the_same_name() -> None:
    words = noise.uniform_words(KEY, "sampling", 2, 8)
    normals = noise.box_muller(words.reshape(-1, 2), np.empty(0, np.uint64)).reshape(-1)
    assert not np.array_equal(normals, noise.gaussian(KEY, "sampling", 2, 8))


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="key: 3 bytes"):
        noise.gaussian(b"abc", "s", 0, 1)
    with pytest.raises(ValueError, match="index, size"):
        noise.gaussian(KEY, "s", -1, 1)
