"""Recall by person, by hand, and the error of a gain."""

import numpy as np
import pytest
import torch

from benchmarks.utility import recall
from benchmarks.utility.recall import Arm
from pretrain.config import ModelConfig
from pretrain.model.keyboard_lm import KeyboardLM, build_model
from pretrain.ngrams.counted import CountedNGram
from pretrain.text.vocabulary import BOS, EOS, SPECIALS, UNK, TokenStream, join_owners
from tests.helpers.text.counted_devices import VOCABULARY, moved, typed

SIZE = len(VOCABULARY)


def network() -> KeyboardLM:
    """Random and sure of itself, or counts would decide every mixture."""
    model = build_model(ModelConfig(embedding_dim=4, hidden_dim=6, tied=True), SIZE, seed=2)
    with torch.no_grad():
        model.output_bias.copy_(2 * torch.randn(SIZE, generator=torch.Generator().manual_seed(1)))
        model.embedding.mul_(6)
    return model


def counted_by_hand(people: TokenStream, model: KeyboardLM | None, table: CountedNGram | None) -> list[int]:
    """One word at a time, from all words before it in its sentence."""
    hits = []
    for person in range(len(people)):
        right, sentence = 0, []
        for token in people.owner(person).tolist():
            if token > UNK:
                chance_V = np.zeros(SIZE)
                if model is not None:
                    with torch.no_grad():
                        logits = model(torch.tensor([[BOS, *sentence]]))[0][0, -1]
                    chance_V += torch.softmax(logits, 0).numpy()
                if table is not None:
                    last = ([-1, -1, BOS, *sentence])[-2:]
                    chance_V += table.dense(np.array([last]))[0]
                right += int(chance_V[len(SPECIALS) :].argmax()) + len(SPECIALS) == token
            sentence = [] if token == EOS else [*sentence, token]
        hits.append(right)
    return hits


def test_hits_are_those_of_a_count_by_hand() -> None:
    people, model, table = typed(12, 3), network(), moved(typed(60, 1), VOCABULARY)
    arms = [Arm(model, None), Arm(None, table), Arm(model, table)]
    found_AD = recall.hits(people, arms, sequence_words=20)
    expected = [counted_by_hand(people, *pair) for pair in ((model, None), (None, table), (model, table))]
    assert found_AD.tolist() == expected
    assert found_AD.sum() > 0
    assert len({tuple(row) for row in expected}) == 3


def test_words_are_all_that_was_typed() -> None:
    people = join_owners([np.array([UNK, 5, EOS, 6, EOS]), np.array([EOS]), np.array([7, EOS])])
    assert recall.words_typed(people).tolist() == [3, 0, 1]


def test_the_paired_error_is_that_of_leaving_one_out() -> None:
    rng = np.random.default_rng(1)
    words_D = rng.integers(20, 400, 300)
    start_D = rng.binomial(words_D, 0.12)
    hits_D = start_D + rng.binomial(words_D, 0.02) - rng.binomial(words_D, 0.01)
    value, error = recall.gain(hits_D, start_D, words_D)
    assert value == pytest.approx((hits_D.sum() - start_D.sum()) / words_D.sum())
    rest_D = [
        (np.delete(hits_D, out).sum() - np.delete(start_D, out).sum()) / np.delete(words_D, out).sum()
        for out in range(300)
    ]
    jackknife = np.sqrt(299 / 300 * np.sum((rest_D - np.mean(rest_D)) ** 2))
    assert error == pytest.approx(jackknife, rel=0.01)
    # An arm against itself is exactly nothing.
    assert recall.gain(start_D, start_D, words_D) == (0.0, 0.0)


@pytest.mark.parametrize("words", [[5], [0, 0]])
def test_too_few_to_judge_on(words: list[int]) -> None:
    none = np.zeros(len(words), dtype=np.int64)
    with pytest.raises(ValueError, match="held-out text"):
        recall.gain(none, none, np.array(words))
