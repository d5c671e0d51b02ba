"""Frequencies of a model's words against exact expectations, and from nothing but the model."""

import numpy as np
import pytest
import torch

from pretrain.dictionary.content import frequency
from pretrain.dictionary.from_model import words_of_counts, words_of_model
from pretrain.model import KeyboardLM
from pretrain.ngrams.counted import CountedNGram
from pretrain.ngrams.ngram import NGram
from pretrain.vocabulary import BOS, EOS, PAD, SPECIALS, Vocabulary
from tests.helpers.text.counted_devices import VOCABULARY, typed

FIRST = len(SPECIALS)


@pytest.fixture
def markov_model(tiny_model: KeyboardLM) -> KeyboardLM:
    """A model whose next word depends on the last one alone: it forgets its cell and does not feed its output back."""
    with torch.no_grad():
        tiny_model.gates_b[: tiny_model.hidden_dim] = -100.0
        tiny_model.gates_x[:, : tiny_model.hidden_dim] = 0.0
        tiny_model.gates_r.zero_()
        tiny_model.projection *= 8.0
        tiny_model.output_bias.copy_(torch.linspace(1.0, -2.0, tiny_model.vocabulary_size))
    return tiny_model


def transitions(model: KeyboardLM) -> np.ndarray:
    """``[V, V]``: next-word probabilities after each token; neither padding nor a beginning comes next."""
    with torch.no_grad():
        logits_VV = model(torch.arange(model.vocabulary_size)[:, None])[0][:, 0].double().numpy()
    logits_VV[:, [PAD, BOS]] = -np.inf
    weights_VV = np.exp(logits_VV - logits_VV.max(1, keepdims=True))
    return weights_VV / weights_VV.sum(1, keepdims=True)


def among_words(weights_V: np.ndarray) -> np.ndarray:
    return weights_V[FIRST:] / weights_V[FIRST:].sum()


def test_frequencies_are_the_expected_shares_of_what_the_model_types(
    markov_model: KeyboardLM, tiny_vocabulary: Vocabulary
):
    next_VV = transitions(markov_model)
    at_V, expected_V = np.eye(len(next_VV))[BOS], np.zeros(len(next_VV))
    for _ in range(64):
        following_V = at_V @ next_VV
        expected_V += following_V
        at_V = following_V.copy()
        at_V[BOS], at_V[EOS] = at_V[EOS], 0.0  # a sentence that ends begins anew
    words = words_of_model(markov_model, tiny_vocabulary)
    assert list(words) == list(tiny_vocabulary.words[FIRST:]), "every word once, no special token"
    found = [word.frequency for word in words.values()]
    exact = [frequency(share) for share in among_words(expected_V)]
    assert max(exact) - min(exact) > 15, "the model prefers some words"
    assert next_VV[FIRST:, FIRST:].std(0).max() > 0.01, "and others after others"
    assert np.abs(np.subtract(found, exact)).max() <= 1


def test_followers_are_the_likeliest_next_words(markov_model: KeyboardLM, tiny_vocabulary: Vocabulary):
    next_VV, words = transitions(markov_model), words_of_model(markov_model, tiny_vocabulary)
    for number, word in enumerate(tiny_vocabulary.words[FIRST:], start=FIRST):
        shares = among_words(next_VV[number])
        best = np.argsort(-shares)[:10]
        assert list(words[word].bigrams) == [tiny_vocabulary.words[FIRST + place] for place in best]
        for place, lifted in zip(best, words[word].bigrams.values(), strict=True):
            alone = words[tiny_vocabulary.words[FIRST + place]].frequency
            assert abs(lifted - max(frequency(shares[place]), alone)) <= 1
            assert lifted >= alone, "the binary form cannot lower a word"


def test_contexts_count_and_not_the_word_alone(tiny_model: KeyboardLM, tiny_vocabulary: Vocabulary):
    # The cell remembers: what follows a word in the middle of a sentence is not what follows it at the start.
    with torch.no_grad():
        tiny_model.gates_b[: tiny_model.hidden_dim] = 2.0
        tiny_model.embedding *= 12.0
    words = words_of_model(tiny_model, tiny_vocabulary)
    differ = 0
    for number, word in enumerate(tiny_vocabulary.words[FIRST:], start=FIRST):
        with torch.no_grad():
            alone_V = tiny_model(torch.tensor([[BOS, number]]))[0][0, -1].softmax(-1).double().numpy()
        differ += next(iter(words[word].bigrams)) != tiny_vocabulary.words[FIRST + int(alone_V[FIRST:].argmax())]
    assert differ


def test_words_that_no_dictionary_holds_are_left_out_and_the_others_share(markov_model: KeyboardLM):
    texts = [f"w{number}" for number in range(20)]
    texts[3] = ":,("
    words = words_of_model(markov_model, Vocabulary((*SPECIALS, *texts)))
    assert set(words) == set(texts) - {":,("}
    assert all(":,(" not in word.bigrams for word in words.values())
    full = words_of_model(markov_model, Vocabulary((*SPECIALS, *(f"w{number}" for number in range(20)))))
    assert all(words[text].frequency >= full[text].frequency for text in words)
    assert any(words[text].frequency > full[text].frequency for text in words)


def test_the_model_alone_decides(tiny_model: KeyboardLM, tiny_vocabulary: Vocabulary):
    # Post-processing: the same weights and words give the same dictionary, whatever else was drawn before.
    first = words_of_model(tiny_model, tiny_vocabulary)
    torch.manual_seed(99)
    torch.rand(7)
    before = torch.get_rng_state()
    assert words_of_model(tiny_model, tiny_vocabulary) == first
    assert torch.equal(torch.get_rng_state(), before)
    with torch.no_grad():
        tiny_model.output_bias[FIRST] += 1.0
    assert words_of_model(tiny_model, tiny_vocabulary) != first


def test_a_broken_model_makes_no_dictionary(tiny_model: KeyboardLM, tiny_vocabulary: Vocabulary):
    with torch.no_grad():
        tiny_model.output_bias[FIRST] = float("nan")
    with pytest.raises(ArithmeticError, match="not finite"):
        words_of_model(tiny_model, tiny_vocabulary)


def test_counts_alone_have_the_frequencies_of_their_own_predictions() -> None:
    """Word by word, from what a keyboard would be told after it and after nothing."""
    size = len(VOCABULARY)
    row_V = np.full(size, -1)
    row_V[[BOS, FIRST + 1]] = [0, 1]
    factor_V = np.exp(np.random.default_rng(3).standard_normal(size))
    key_G = np.array([size + FIRST + 5, size + FIRST + 30])
    public = NGram.fit(typed(60, 1), VOCABULARY, 3)
    model = CountedNGram(public, factor_V, row_V, key_G, np.array([0.3, 0.2]), np.array([0.5, 0.9]))
    words = words_of_counts(model, VOCABULARY)
    assert list(words) == list(VOCABULARY.words[FIRST:])
    anywhere_V = among_words(public.levels[0].prob_G * factor_V)
    assert [word.frequency for word in words.values()] == [frequency(float(share)) for share in anywhere_V]
    after_V = among_words(model.dense(np.array([[-1, FIRST + 1]]))[0])
    bigrams = words[VOCABULARY.words[FIRST + 1]].bigrams
    best = np.argsort(-after_V, kind="stable")[:10]
    assert set(bigrams) == {VOCABULARY.words[FIRST + place] for place in best}
    assert {VOCABULARY.words[FIRST + 5], VOCABULARY.words[FIRST + 30]} <= set(bigrams)
    for place in best:
        expected = max(frequency(float(after_V[place])), frequency(float(anywhere_V[place])))
        assert bigrams[VOCABULARY.words[FIRST + place]] == expected
