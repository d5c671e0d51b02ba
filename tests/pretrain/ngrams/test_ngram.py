"""Modified Kneser-Ney: by hand, against a dictionary implementation."""

from collections import Counter, defaultdict

import numpy as np
import pytest

from pretrain.ngrams import ngram
from pretrain.ngrams.ngram import NGram
from pretrain.text.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, TokenStream, Vocabulary, join_owners
from tests.helpers.text.next_words import after


def words(number: int) -> Vocabulary:
    return Vocabulary(SPECIALS + tuple(f"w{i}" for i in range(number)))


def zipf_stream(seed: int, sentences: int, vocabulary: Vocabulary) -> TokenStream:
    """A chain of words with habits, so that long contexts repeat."""
    rng = np.random.default_rng(seed)
    size = len(vocabulary) - UNK
    chance = 1 / np.arange(2, size + 2)
    chance /= chance.sum()
    tokens = []
    for _ in range(sentences):
        word = 0
        for _ in range(rng.integers(1, 12)):
            word = (word * 3 + 1) % size if rng.random() < 0.5 else rng.choice(size, p=chance)
            tokens.append(UNK + word)
        tokens.append(EOS)
    return join_owners([np.array(tokens)])


class Dictionaries:
    """The same model written the long way, from the definition, for comparison."""

    def __init__(self, stream: TokenStream, vocabulary_size: int, order: int) -> None:
        self.order, self.size = order, vocabulary_size
        raw: list[Counter] = [Counter() for _ in range(order + 1)]
        sentence = [BOS]
        for token in stream.tokens_N.tolist():
            sentence.append(token)
            if token == EOS:
                for k in range(1, order + 1):
                    raw[k].update(tuple(sentence[i : i + k]) for i in range(len(sentence) - k + 1))
                sentence = [BOS]
        self.counts: list[dict] = [{}]
        for k in range(1, order + 1):
            left: defaultdict = defaultdict(set)
            if k < order:
                for gram in raw[k + 1]:
                    left[gram[1:]].add(gram[0])
            own = {g: c if k == order or g[0] == BOS else len(left[g]) for g, c in raw[k].items()}
            own.pop((BOS,), None)
            self.counts.append(own)
        self.discounts = [self.discount(own) for own in self.counts]

    @staticmethod
    def discount(counts: dict) -> tuple[float, ...]:
        n = [sum(c == times for c in counts.values()) for times in range(5)]
        if 0 in n[1:]:
            return 0.0, 0.5, 1.0, 1.5
        y = n[1] / (n[1] + 2 * n[2])
        found = 1 - 2 * y * n[2] / n[1], 2 - 3 * y * n[3] / n[2], 3 - 4 * y * n[4] / n[3]
        return (0.0, *found) if min(found) >= 0 else (0.0, 0.5, 1.0, 1.5)

    def probability(self, context: tuple[int, ...], word: int) -> float:
        k = len(context) + 1
        children = {gram: count for gram, count in self.counts[k].items() if gram[:-1] == context}
        lower = self.probability(context[1:], word) if context else 1 / (self.size - 2)
        if not children:
            return lower
        held = sum(self.discounts[k][min(count, 3)] for count in children.values())
        count = children.get((*context, word), 0)
        return (count - self.discounts[k][min(count, 3)] + held * lower) / sum(children.values())


def test_by_hand() -> None:
    # "a b" and "a c": continuation counts a 1, b 1, c 1, <eos> 2; no count of three, so the fallback discounts.
    vocabulary = Vocabulary((*SPECIALS, "a", "b", "c"))
    model = NGram.fit(join_owners([np.array([4, 5, EOS]), np.array([4, 6, EOS])]), vocabulary, 2)
    assert [level.discounts for level in model.levels] == [(0.5, 1.0, 1.5)] * 2
    np.testing.assert_allclose(model.levels[0].prob_G, [0, 0, 0.3, 0.1, 0.2, 0.2, 0.2], rtol=1e-15)
    np.testing.assert_allclose(after(model, [4]), [0, 0, 0.15, 0.05, 0.1, 0.35, 0.35], rtol=1e-15)
    np.testing.assert_allclose(after(model, []), [0, 0, 0.15, 0.05, 0.6, 0.1, 0.1], rtol=1e-15)


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_equals_the_definition_and_sums_to_one(order: int) -> None:
    vocabulary = words(12)
    stream = zipf_stream(order, 300, vocabulary)
    model = NGram.fit(stream, vocabulary, order)
    slow = Dictionaries(stream, len(vocabulary), order)
    if order > 1:
        # Twelve words have too few counts of one for estimated discounts, pairs have enough.
        assert model.levels[0].discounts == ngram.FALLBACK_DISCOUNTS != model.levels[1].discounts
    rng = np.random.default_rng(0)
    seen = [sentence[:n] for sentence in sentences(stream)[:15] for n in range(len(sentence))]
    unseen = [rng.integers(UNK, 16, size=4).tolist() for _ in range(15)]
    for context in seen + unseen:
        got = after(model, context)
        assert got.sum() == pytest.approx(1, abs=1e-12)
        assert got[PAD] == got[BOS] == 0
        kept = (BOS, *context)[-(order - 1) :] if order > 1 else ()
        expected = [slow.probability(kept, word) for word in (2, 3, 7, 15)]
        np.testing.assert_allclose(got[[2, 3, 7, 15]], expected, rtol=1e-12)


def sentences(stream: TokenStream) -> list[list[int]]:
    ends = np.flatnonzero(stream.tokens_N == EOS) + 1
    return [part[:-1].tolist() for part in np.split(stream.tokens_N, ends)[:-1]]


def test_few_words_and_no_text() -> None:
    model = NGram.fit(join_owners([np.array([4, EOS])]), words(2), 3)
    assert np.argsort(-after(model, []))[0] == 4
    with pytest.raises(ValueError, match="no sentence to count"):
        NGram.fit(join_owners([]), words(2), 3)
    with pytest.raises(ValueError, match="0 is below 1"):
        NGram.fit(join_owners([np.array([4, EOS])]), words(2), 0)
