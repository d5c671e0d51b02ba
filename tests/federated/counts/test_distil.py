"""A start that counts moved predicts as the start mixed with them, and is a function of public values and release."""

import numpy as np
import pytest
import torch

from benchmarks.utility.recall import Arm, predictions
from federated.counts import cells as counted
from federated.counts import distil as distilling
from federated.counts.distil import distil
from federated.counts.posterior import counted_ngram
from federated.counts.release import released_counts
from pretrain.config import ModelConfig
from pretrain.model.keyboard_lm import KeyboardLM, build_model
from pretrain.ngrams.counted import CountedNGram
from pretrain.ngrams.ngram import NGram
from pretrain.randomness.noise import seeded_key
from pretrain.text.vocabulary import TokenStream
from tests.helpers.text.counted_devices import VOCABULARY, typed

PUBLIC = typed(150, 1, habit=0.0)
SEQUENCE_WORDS = 12


@pytest.fixture(scope="module")
def start() -> KeyboardLM:
    return build_model(ModelConfig(embedding_dim=16, hidden_dim=32, tied=True), len(VOCABULARY), 4)


@pytest.fixture(scope="module")
def counts() -> CountedNGram:
    cells, z = counted.choose(PUBLIC, VOCABULARY, contexts=12), 0.1
    public = NGram.fit(PUBLIC, VOCABULARY, 3)
    return counted_ngram(released_counts(typed(300, 3), cells, z, seeded_key(2)), cells, public, len(VOCABULARY), z)


def loss(model: KeyboardLM, teacher: Arm, text: TokenStream) -> float:
    """Cross-entropy of a network's chances beside the teacher's, in nats a word."""
    total, words = 0.0, 0
    with torch.no_grad():
        for _, meant_M, (said_MV, wanted_MV) in predictions(text, [Arm(model, None), teacher], SEQUENCE_WORDS):
            total -= float((wanted_MV * np.log(said_MV)).sum())
            words += len(meant_M)
    return total / words


@pytest.mark.slow
def test_it_predicts_as_the_mixture_does_on_text_it_was_not_taught_on(start: KeyboardLM, counts: CountedNGram) -> None:
    text, teacher = typed(40, 9, habit=0.0), Arm(start, counts)
    moved = distil(start, counts, PUBLIC, SEQUENCE_WORDS, 1)
    least = loss_of_the_teacher(teacher, text)
    assert loss(moved, teacher, text) - least < 0.5 * (loss(start, teacher, text) - least)


def loss_of_the_teacher(teacher: Arm, text: TokenStream) -> float:
    """Entropy of the teacher's own chances: nothing predicts it better."""
    total, words = 0.0, 0
    with torch.no_grad():
        for _, meant_M, (wanted_MV,) in predictions(text, [teacher], SEQUENCE_WORDS):
            known_MV = np.where(wanted_MV > 0, wanted_MV, 1.0)
            total -= float((wanted_MV * np.log(known_MV)).sum())
            words += len(meant_M)
    return total / words


def test_it_leaves_the_start_as_it_was_and_gives_the_same_again(
    start: KeyboardLM, counts: CountedNGram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distilling, "STEPS", 6)
    before = [parameter.clone() for parameter in start.parameters()]
    first, second = (distil(start, counts, PUBLIC, SEQUENCE_WORDS, 1) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(before, start.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_text_without_a_sentence_is_refused(start: KeyboardLM, counts: CountedNGram) -> None:
    nothing = TokenStream(np.empty(0, dtype=np.int32), np.zeros(1, dtype=np.int64))
    with pytest.raises(ValueError, match=r"public_text: no sentence to distil counts on; give more text"):
        distil(start, counts, nothing, SEQUENCE_WORDS, 1)
