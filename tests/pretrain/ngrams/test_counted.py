"""Public n-grams moved by pairs: the formula by hand, a file that predicts the same."""

from pathlib import Path

import numpy as np
import pytest

from pretrain.ngrams import counted
from pretrain.ngrams.counted import CountedNGram
from pretrain.ngrams.ngram import NGram
from pretrain.text.vocabulary import BOS
from tests.helpers.text.counted_devices import VOCABULARY, typed

SIZE = len(VOCABULARY)


@pytest.fixture(scope="module")
def model() -> CountedNGram:
    row_V = np.full(SIZE, -1)
    row_V[[BOS, 7]] = [0, 1]
    key_G = np.array([5, 9, SIZE + 4, SIZE + 5, SIZE + 8])
    pair_G = np.array([0.3, 0.2, 0.1, 0.4, 0.25])
    factor_V = np.exp(np.random.default_rng(0).standard_normal(SIZE))
    return CountedNGram(NGram.fit(typed(60, 1), VOCABULARY, 3), factor_V, row_V, key_G, pair_G, np.array([0.5, 0.9]))


def by_hand(model: CountedNGram, last: list[int]) -> np.ndarray:
    public = model.public.dense(np.array([last]))[0] * model.factor_V
    public = public / public.sum()
    row = model.row_V[last[-1]]
    if row < 0:
        return public
    pairs = {
        int(key) - row * SIZE: pair
        for key, pair in zip(model.key_G, model.pair_G, strict=True)
        if row * SIZE <= key < (row + 1) * SIZE
    }
    others = sum(public[word] for word in range(SIZE) if word not in pairs)
    side = [pairs.get(word, (1 - sum(pairs.values())) * public[word] / others) for word in range(SIZE)]
    return (1 - model.trust_K[row]) * public + model.trust_K[row] * np.array(side)


def test_predictions_follow_the_formula(model: CountedNGram) -> None:
    rows = [[-1, BOS], [BOS, 7], [BOS, 6], [7, 7], [9, 12], [7, BOS + 2]]
    together = model.dense(np.array(rows))
    for last, prob_V in zip(rows, together, strict=True):
        np.testing.assert_allclose(prob_V, by_hand(model, last), rtol=1e-12)
        assert prob_V.sum() == pytest.approx(1)
    assert model.order == 3
    assert model.vocabulary_size == SIZE


def test_what_is_loaded_predicts_exactly_what_was_saved(model: CountedNGram, tmp_path: Path) -> None:
    counted.save(model, tmp_path / "counts.npz")
    again = counted.load(tmp_path / "counts.npz")
    rows = np.random.default_rng(1).integers(4, SIZE, (50, 2))
    np.testing.assert_array_equal(again.dense(rows), model.dense(rows))
    assert again.public.levels[1].discounts == model.public.levels[1].discounts


def test_another_file_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", format=np.array("something else"))
    with pytest.raises(ValueError, match="not a table of counts"):
        counted.load(tmp_path / "other.npz")


def test_a_context_whose_pairs_cover_every_word(model: CountedNGram) -> None:
    row_V = np.full(SIZE, -1)
    row_V[7] = 0
    whole = CountedNGram(model.public, model.factor_V, row_V, np.arange(SIZE), np.full(SIZE, 1 / SIZE), np.array([1.0]))
    np.testing.assert_allclose(whole.dense(np.array([[BOS, 7]]))[0], 1 / SIZE)


def test_what_could_not_be_loaded_is_refused_before_it_is_made(model: CountedNGram, tmp_path: Path) -> None:
    counted.require_loadable(model.public, len(model.key_G))
    counted.save(model, tmp_path / "counts.npz")
    counted.load(tmp_path / "counts.npz")
    with pytest.raises(ValueError, match=r"public_text\.max_tokens.*268,435,456; lower it"):
        counted.require_loadable(model.public, 1 << 24)
