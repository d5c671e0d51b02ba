"""Sampled columns: frequent words always, the sum over words without bias, every target with a column."""

import numpy as np
import pytest

from pretrain.kernel import columns

V = 4000


def tokens() -> np.ndarray:
    weights = 1 / np.arange(1, V + 1)
    return np.random.default_rng(0).permutation(V)[
        np.random.default_rng(1).choice(V, size=50_000, p=weights / weights.sum())
    ]


def test_frequent_words_are_always_there_and_the_rest_as_often_as_said() -> None:
    chance_V = columns.chances(tokens(), V)
    count_V = np.bincount(tokens(), minlength=V)
    frequent = np.argsort(-count_V, kind="stable")[: columns.HEAD]
    assert np.all(chance_V[frequent] == 1)
    rest = np.setdiff1d(np.arange(V), frequent)
    assert chance_V[rest].sum() == pytest.approx(columns.SAMPLED)
    assert np.all(chance_V > 0), "a word that is never drawn would never lose probability"


def test_small_vocabularies_are_not_sampled() -> None:
    assert columns.chances(np.arange(100), 2 * (columns.HEAD + columns.SAMPLED) - 1) is None


def test_every_target_has_a_column_and_a_column_that_was_not_drawn_counts_as_nothing() -> None:
    chance_V = columns.chances(tokens(), V)
    targets_P = np.random.default_rng(2).integers(0, V, size=300)
    chosen = columns.draw(chance_V, targets_P, np.random.default_rng(3))
    assert chosen.words_K[chosen.column_V[targets_P]].tolist() == targets_P.tolist()
    generator = np.random.default_rng(3)
    drawn_V = generator.random(V) < chance_V
    for word, correction in zip(chosen.words_K, chosen.correction_K, strict=True):
        assert correction == pytest.approx(-np.log(chance_V[word]) if drawn_V[word] else -60.0, rel=1e-6, abs=1e-7)


@pytest.mark.statistical
def test_the_sum_over_words_is_unbiased() -> None:
    chance_V = columns.chances(tokens(), V)
    weight_V = np.exp(np.random.default_rng(4).normal(size=V))
    none = np.empty(0, dtype=np.int64)
    sums = []
    for seed in range(400):
        chosen = columns.draw(chance_V, none, np.random.default_rng(seed))
        sums.append((weight_V[chosen.words_K] * np.exp(chosen.correction_K)).sum())
    error = np.std(sums) / np.sqrt(len(sums))
    assert abs(np.mean(sums) - weight_V.sum()) < 4 * error
    assert abs(np.mean(sums) * 1.1 - weight_V.sum()) > 4 * error
