"""Network and counts mixed: by hand, in step, and from a bundle alone."""

from pathlib import Path

import numpy as np
import pytest

from evaluation.arms.arm import Mixture, PublicNGram, neural
from evaluation.arms.held_out import held_out
from evaluation.comparison import scoring
from pretrain.config import ModelConfig
from pretrain.model import export
from pretrain.model.keyboard_lm import build_model
from pretrain.model.predictor import KeyboardPredictor
from pretrain.ngrams import counted
from pretrain.ngrams.counted import CountedNGram
from pretrain.ngrams.ngram import NGram
from pretrain.text import vocabulary
from pretrain.text.vocabulary import BOS, UNK
from pretrain.text.words import write_words
from pretrain.writing import truecasing
from tests.helpers.launches.published import list_files
from tests.helpers.text.counted_devices import VOCABULARY, typed

SIZE = len(VOCABULARY)
SENTENCES = ([], ["w0"], ["w3", "w1"], ["w5", "nobody", "w2", "w2"], ["w9"] * 6)


@pytest.fixture(scope="module")
def mixture() -> Mixture:
    rng = np.random.default_rng(3)
    row_V = np.full(SIZE, -1)
    row_V[[BOS, 4, 9]] = [0, 1, 2]
    key_G = np.sort(rng.choice(np.arange(2, 3 * SIZE), 40, replace=False))
    key_G = key_G[key_G % SIZE > BOS]
    counts = CountedNGram(
        NGram.fit(typed(60, 1), VOCABULARY, 3),
        np.exp(rng.standard_normal(SIZE)),
        row_V,
        key_G,
        np.full(len(key_G), 0.01),
        np.array([0.9, 0.5, 0.2]),
    )
    model = build_model(ModelConfig(embedding_dim=8, hidden_dim=12, tied=True), SIZE, 2)
    return Mixture(neural(model), PublicNGram(counts))


def after(arm: Mixture | PublicNGram, words: list[str]) -> np.ndarray:
    log_probs_BV, state = arm.start([np.array([], dtype=np.int64)])
    for word in VOCABULARY.ids(words):
        log_probs_BV, state = arm.step(np.array([word]), state)
    return np.exp(log_probs_BV[0])


def test_it_is_half_of_each(mixture: Mixture) -> None:
    for words in SENTENCES:
        expected = (after(mixture.network, words) + after(mixture.counts, words)) / 2
        np.testing.assert_allclose(after(mixture, words), expected, rtol=1e-12)
        assert after(mixture, words).sum() == pytest.approx(1)


def test_sentences_in_step_are_scored_as_one_by_one(mixture: Mixture, tmp_path: Path) -> None:
    owners = [[["w1", "w2"], ["w7"]], [["w3", "w0", "w4", "w5"]]]
    text = held_out(write_words(tmp_path / "words", owners), np.arange(2))
    together, alone = (
        scoring.score(mixture, text, text.ids(VOCABULARY), batch_sentences=number) for number in (256, 1)
    )
    np.testing.assert_allclose(together.loss_P, alone.loss_P)
    np.testing.assert_array_equal(together.rank_P, alone.rank_P)


@pytest.mark.parametrize("ships", ["mixture", "network", "counts"])
def test_a_bundle_alone_predicts_what_the_arm_predicts(mixture: Mixture, tmp_path: Path, ships: str) -> None:
    vocabulary.save(VOCABULARY, tmp_path / "vocabulary.json")
    if ships != "counts":
        model = build_model(ModelConfig(embedding_dim=8, hidden_dim=12, tied=True), SIZE, 2)
        export.export_onnx(model, tmp_path / "model.onnx")
    truecasing.save({}, tmp_path / "truecase.json")
    if ships != "network":
        counted.save(mixture.counts.ngram, tmp_path / "counts.npz")
    list_files(tmp_path, locale="en-US", ships=ships)
    arm = {"mixture": mixture, "network": mixture.network, "counts": mixture.counts}[ships]
    predictor = KeyboardPredictor(tmp_path)
    for words in SENTENCES:
        expected_V = after(arm, words)
        np.testing.assert_allclose(predictor.probabilities(words), expected_V, atol=1e-5)
        best = np.argsort(-expected_V[UNK + 1 :], kind="stable")[:3] + UNK + 1
        if "nobody" not in words:
            # A word that begins a sentence is shown with a capital.
            suggested = [word.lower() for word in predictor.suggest(" ".join(words))]
            assert suggested == [VOCABULARY.words[word] for word in best]
