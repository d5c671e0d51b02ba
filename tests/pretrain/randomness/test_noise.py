"""Keyed noise: pure, never reused, Gaussian of the right scale, with tails."""

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
    assert noise.box_muller(smallest)[0, 0] == pytest.approx(np.sqrt(2 * 53 * np.log(2)))
    assert noise.box_muller(smallest)[0, 0] > 8
    assert np.all(np.isfinite(noise.box_muller(largest)))


def test_words_share_no_bits_with_the_noise_of_the_same_name() -> None:
    words = noise.uniform_words(KEY, "sampling", 2, 8)
    assert not np.array_equal(noise.box_muller(words.reshape(-1, 2)).reshape(-1), noise.gaussian(KEY, "sampling", 2, 8))


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="key: 3 bytes"):
        noise.gaussian(b"abc", "s", 0, 1)
    with pytest.raises(ValueError, match="index, size"):
        noise.gaussian(KEY, "s", -1, 1)
