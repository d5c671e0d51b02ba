"""Importance resampling of public sentences, against weights that are known."""

import numpy as np
import pytest
import torch

from pretrain.model.keyboard_lm import build_model
from pretrain.ngrams.ngram import NGram
from pretrain.text.vocabulary import BOS, EOS, SPECIALS, Vocabulary, join_owners
from pretrain.training.selection import (
    MOST_WEIGHT,
    copies,
    effective_share,
    importance,
    log_probabilities,
    resampled,
    targets,
    unread,
)
from tests.helpers.text.pretrain_streams import TINY, WORDS, chain_stream

FIRST = len(SPECIALS)


def test_text_of_one_distribution_becomes_text_of_another() -> None:
    """Sentences of one word, drawn from q: the true weight of each is p / q, and after it the text is p."""
    private, public = np.array([0.5, 0.3, 0.15, 0.05]), np.array([0.1, 0.2, 0.3, 0.4])
    words_S = np.random.default_rng(3).permutation(np.repeat(range(4), [4_000, 8_000, 12_000, 16_000]))
    stream = join_owners([np.array([FIRST + word, EOS]) for word in words_S])
    weight_S = importance(np.log(private[words_S]), np.log(public[words_S]), np.ones(len(words_S)))
    np.testing.assert_allclose(weight_S, (private / public)[words_S], rtol=1e-12)
    chosen = resampled(stream, copies(weight_S, 5)).tokens_N
    np.testing.assert_allclose(np.bincount(chosen[chosen >= FIRST] - FIRST) / len(words_S), private, atol=1e-3)
    # With its certain end a sentence has two targets, so its ratio per target is the square root of p / q.
    per_word_S = importance(np.log(private[words_S]), np.log(public[words_S]), targets(stream))
    np.testing.assert_allclose(per_word_S, np.sqrt(private / public)[words_S], rtol=1e-12)


def test_weights_are_bounded() -> None:
    weight_S = importance(np.array([-2.0, -900.0, -5.0]), np.array([-900.0, -2.0, -5.0]), np.array([2, 2, 2]))
    np.testing.assert_allclose(weight_S, [MOST_WEIGHT, 1 / MOST_WEIGHT, 1.0], rtol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_each_sentence_is_taken_its_share_rounded_up_or_down(seed: int) -> None:
    weight_S = np.random.default_rng(seed).lognormal(size=997)
    share_S = weight_S * (len(weight_S) / weight_S.sum())
    taken_S = copies(weight_S, seed)
    assert taken_S.sum() == len(weight_S)
    assert np.all(taken_S >= np.floor(share_S - 1e-9))
    assert np.all(taken_S <= np.ceil(share_S + 1e-9))
    np.testing.assert_array_equal(taken_S, copies(weight_S, seed))
    assert not np.array_equal(taken_S, copies(weight_S, seed + 1))


def test_on_average_each_sentence_is_taken_its_share() -> None:
    weight_S = np.array([0.2, 3.0, 1.0, 0.5, 0.3])
    mean_S = np.mean([copies(weight_S, seed) for seed in range(4000)], axis=0)
    np.testing.assert_allclose(mean_S, weight_S, atol=0.04)


def test_equal_weights_change_nothing() -> None:
    stream = chain_stream(20, 1)
    sentences = len(targets(stream))
    assert effective_share(np.full(sentences, 0.7)) == pytest.approx(1.0)
    same = resampled(stream, copies(np.full(sentences, 0.7), 9))
    np.testing.assert_array_equal(same.tokens_N, stream.tokens_N)
    np.testing.assert_array_equal(same.offsets_D1, stream.offsets_D1)


def test_sentences_are_repeated_in_their_places_and_owners_stay() -> None:
    stream = join_owners([np.array([5, 6, EOS, 7, EOS]), np.array([8, EOS]), np.array([9, 9, EOS])])
    chosen = resampled(stream, np.array([0, 2, 0, 2]))
    assert [chosen.owner(number).tolist() for number in range(3)] == [
        [7, EOS, 7, EOS],
        [],
        [9, 9, EOS, 9, 9, EOS],
    ]


def test_scores_are_the_model_s_own() -> None:
    model, stream = build_model(TINY, WORDS, 4).eval(), chain_stream(6, 2)
    got = log_probabilities(model, stream, sequence_words=5)
    ends = np.flatnonzero(stream.tokens_N == EOS) + 1
    expected = []
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        total, sentence = 0.0, stream.tokens_N[start:end].tolist()
        for first in range(0, len(sentence), 5):
            piece = sentence[first : first + 5]
            before = [BOS, *sentence][first : first + len(piece)]
            with torch.no_grad():
                logits, _ = model(torch.tensor([before]))
            total += torch.log_softmax(logits[0], dim=-1)[torch.arange(len(piece)), torch.tensor(piece)].sum().item()
        expected.append(total)
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_a_sentence_is_scored_by_what_has_not_read_it() -> None:
    """Each half of the documents, by an n-gram of the other."""
    vocabulary = Vocabulary((*SPECIALS, *"abc"))
    rng = np.random.default_rng(1)
    documents = [np.append(rng.integers(4, len(vocabulary), size=size), EOS) for size in rng.integers(1, 9, size=40)]
    stream = join_owners([np.concatenate([document, document]) for document in documents])
    got = unread(stream, vocabulary).reshape(40, 2)
    for half in (0, 1):
        others = NGram.fit(stream.select(np.arange(1 - half, 40, 2)), vocabulary, 3)
        for number in range(half, 40, 2):
            expected = others.log_probabilities(join_owners([documents[number]])).sum()
            np.testing.assert_allclose(got[number], [expected, expected], rtol=1e-12)
