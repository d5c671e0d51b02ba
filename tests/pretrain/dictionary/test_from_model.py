"""Frequencies of an arm's words against exact expectations, and from nothing but the arm."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from evaluation.arms.arm import Mixture, PublicNGram, neural
from pretrain.dictionary.content import frequency
from pretrain.dictionary.from_model import Arm, words_of
from pretrain.model.keyboard_lm import KeyboardLM, build_model
from pretrain.ngrams.counted import CountedNGram
from pretrain.ngrams.ngram import NGram
from pretrain.text.vocabulary import BOS, EOS, PAD, SPECIALS, Vocabulary
from tests.helpers.text.counted_devices import VOCABULARY, typed
from tests.helpers.text.pretrain_streams import TINY

FIRST = len(SPECIALS)


@pytest.fixture
def markov_model(tiny_model: KeyboardLM) -> KeyboardLM:
    return forgetful(tiny_model)


def forgetful(model: KeyboardLM) -> KeyboardLM:
    """A model whose next word depends on the last one alone: it forgets its cell and does not feed its output back."""
    with torch.no_grad():
        model.gates_b[: model.hidden_dim] = -100.0
        model.gates_x[:, : model.hidden_dim] = 0.0
        model.gates_r.zero_()
        model.projection *= 8.0
        model.output_bias.copy_(torch.linspace(1.0, -2.0, model.vocabulary_size))
    return model


def transitions(model: KeyboardLM) -> np.ndarray:
    """``[V, V]``: next-word probabilities after each token; neither padding nor a beginning comes next."""
    with torch.no_grad():
        logits_VV = model(torch.arange(model.vocabulary_size)[:, None])[0][:, 0].double().numpy()
    logits_VV[:, [PAD, BOS]] = -np.inf
    weights_VV = np.exp(logits_VV - logits_VV.max(1, keepdims=True))
    return weights_VV / weights_VV.sum(1, keepdims=True)


def typed_shares(next_VV: np.ndarray) -> np.ndarray:
    """Expected share of each word over the steps of sentences that follow these transitions."""
    at_V, expected_V = np.eye(len(next_VV))[BOS], np.zeros(len(next_VV))
    for _ in range(64):
        following_V = at_V @ next_VV
        expected_V += following_V
        at_V = following_V.copy()
        at_V[BOS], at_V[EOS] = at_V[EOS], 0.0  # a sentence that ends begins anew
    return among_words(expected_V)


def among_words(weights_V: np.ndarray) -> np.ndarray:
    return weights_V[FIRST:] / weights_V[FIRST:].sum()


def test_frequencies_are_the_expected_shares_of_what_the_model_types(
    markov_model: KeyboardLM, tiny_vocabulary: Vocabulary
):
    next_VV = transitions(markov_model)
    words = words_of(Arm(markov_model, None), tiny_vocabulary)
    assert list(words) == list(tiny_vocabulary.words[FIRST:]), "every word once, no special token"
    found = [word.frequency for word in words.values()]
    exact = [frequency(share) for share in typed_shares(next_VV)]
    assert max(exact) - min(exact) > 15, "the model prefers some words"
    assert next_VV[FIRST:, FIRST:].std(0).max() > 0.01, "and others after others"
    assert np.abs(np.subtract(found, exact)).max() <= 1


def test_followers_are_the_likeliest_next_words(markov_model: KeyboardLM, tiny_vocabulary: Vocabulary):
    next_VV, words = transitions(markov_model), words_of(Arm(markov_model, None), tiny_vocabulary)
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
    words = words_of(Arm(tiny_model, None), tiny_vocabulary)
    differ = 0
    for number, word in enumerate(tiny_vocabulary.words[FIRST:], start=FIRST):
        with torch.no_grad():
            alone_V = tiny_model(torch.tensor([[BOS, number]]))[0][0, -1].softmax(-1).double().numpy()
        differ += next(iter(words[word].bigrams)) != tiny_vocabulary.words[FIRST + int(alone_V[FIRST:].argmax())]
    assert differ


def test_words_that_no_dictionary_holds_are_left_out_and_the_others_share(markov_model: KeyboardLM):
    texts = [f"w{number}" for number in range(20)]
    texts[3] = ":,("
    words = words_of(Arm(markov_model, None), Vocabulary((*SPECIALS, *texts)))
    assert set(words) == set(texts) - {":,("}
    assert all(":,(" not in word.bigrams for word in words.values())
    full = words_of(Arm(markov_model, None), Vocabulary((*SPECIALS, *(f"w{number}" for number in range(20)))))
    assert all(words[text].frequency >= full[text].frequency for text in words)
    assert any(words[text].frequency > full[text].frequency for text in words)


def test_the_model_alone_decides(tiny_model: KeyboardLM, tiny_vocabulary: Vocabulary):
    # Post-processing: the same weights and words give the same dictionary, whatever else was drawn before.
    first = words_of(Arm(tiny_model, None), tiny_vocabulary)
    torch.manual_seed(99)
    torch.rand(7)
    before = torch.get_rng_state()
    assert words_of(Arm(tiny_model, None), tiny_vocabulary) == first
    assert torch.equal(torch.get_rng_state(), before)
    with torch.no_grad():
        tiny_model.output_bias[FIRST] += 1.0
    assert words_of(Arm(tiny_model, None), tiny_vocabulary) != first


def test_a_broken_model_makes_no_dictionary(tiny_model: KeyboardLM, tiny_vocabulary: Vocabulary):
    with torch.no_grad():
        tiny_model.output_bias[FIRST] = float("nan")
    with pytest.raises(ArithmeticError, match="not finite"):
        words_of(Arm(tiny_model, None), tiny_vocabulary)


FAVOURED, PAIRED = (FIRST + 7, FIRST + 20), (FIRST + 5, FIRST + 30)
LEADING = FIRST + 1


@pytest.fixture(scope="module")
def network() -> KeyboardLM:
    torch.set_num_threads(1)
    return forgetful(build_model(TINY, len(VOCABULARY), seed=3))


@pytest.fixture(scope="module")
def counts() -> CountedNGram:
    """Counts that look at the last word alone, with factors and with pairs after a start and one word."""
    size = len(VOCABULARY)
    row_V = np.full(size, -1)
    row_V[[BOS, LEADING]] = [0, 1]
    factor_V = np.exp(np.random.default_rng(3).standard_normal(size))
    key_G = np.array([FAVOURED[0], size + PAIRED[0], size + PAIRED[1]])
    public = NGram.fit(typed(60, 1), VOCABULARY, 2)
    return CountedNGram(public, factor_V, row_V, key_G, np.array([0.4, 0.3, 0.2]), np.array([0.7, 0.9]))


def brute_force(network: KeyboardLM | None, counts: CountedNGram) -> np.ndarray:
    """``[V, V]``: next-word probabilities after each token, one context at a time."""
    rows = []
    for token in range(len(VOCABULARY)):
        next_V = counts.dense(np.array([[token]]))[0]
        if network is not None:
            with torch.no_grad():
                network_V = network(torch.tensor([[token]]))[0][0, 0].double().softmax(0).numpy()
            next_V = (next_V + network_V) / 2
        next_V[[PAD, BOS]] = 0.0
        rows.append(next_V / next_V.sum())
    return np.array(rows)


@pytest.mark.slow
@pytest.mark.parametrize("mixes", [False, True])
def test_counts_alone_and_mixed_have_the_frequencies_of_what_they_type(
    network: KeyboardLM, counts: CountedNGram, mixes: bool
) -> None:
    part = network if mixes else None
    words, next_VV = words_of(Arm(part, counts), VOCABULARY), brute_force(part, counts)
    assert list(words) == list(VOCABULARY.words[FIRST:])
    exact = [frequency(float(share)) for share in typed_shares(next_VV)]
    assert np.abs(np.subtract([word.frequency for word in words.values()], exact)).max() <= 1
    alone = words_of(Arm(network, None), VOCABULARY)
    of_network = [word.frequency for word in alone.values()]
    assert np.abs(np.subtract(of_network, exact)).max() > 10, "the network says otherwise"
    for number, word in enumerate(VOCABULARY.words[FIRST:], start=FIRST):
        shares = among_words(next_VV[number])
        best = np.argsort(-shares)[:10]
        assert set(words[word].bigrams) == {VOCABULARY.words[FIRST + place] for place in best}
        for place in best:
            follower = VOCABULARY.words[FIRST + place]
            lifted = max(frequency(float(shares[place])), words[follower].frequency)
            assert abs(words[word].bigrams[follower] - lifted) <= 1
    assert {VOCABULARY.words[place] for place in PAIRED} <= set(words[VOCABULARY.words[LEADING]].bigrams)
    assert not {VOCABULARY.words[place] for place in PAIRED} <= set(alone[VOCABULARY.words[LEADING]].bigrams)


def test_an_arm_predicts_what_the_comparison_scores(network: KeyboardLM, counts: CountedNGram) -> None:
    """Over whole sentences, by the arms of ``ab_test``: counts of order 3, a network that remembers."""
    remembers, longer = build_model(TINY, len(VOCABULARY), seed=4), NGram.fit(typed(60, 1), VOCABULARY, 3)
    counted_longer = replace(counts, public=longer)
    of_comparison = neural(remembers), PublicNGram(counted_longer)
    for arm, scored in (
        (Arm(remembers, None), of_comparison[0]),
        (Arm(None, counted_longer), of_comparison[1]),
        (Arm(remembers, counted_longer), Mixture(*of_comparison)),
    ):
        log_BV, theirs = scored.start([np.empty(0, np.int64)] * 3)
        next_BV, ours = arm.step(torch.full((3,), BOS), arm.start(3))
        for token_B in np.random.default_rng(1).integers(FIRST, len(VOCABULARY), (5, 3)):
            np.testing.assert_allclose(next_BV.numpy(), np.exp(log_BV), atol=1e-6)
            log_BV, theirs = scored.step(token_B, theirs)
            next_BV, ours = arm.step(torch.as_tensor(token_B), ours)


def test_an_arm_has_parts_of_one_vocabulary(tiny_model: KeyboardLM, counts: CountedNGram) -> None:
    for parts in ((None, None), (tiny_model, counts)):
        with pytest.raises(ValueError, match="arm: its parts have"):
            Arm(*parts)
