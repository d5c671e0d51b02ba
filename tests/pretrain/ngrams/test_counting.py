"""Counting on the disk, against counting everything at once in memory."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pretrain.ngrams import columns, counting, ngram
from pretrain.ngrams.ngram import NGram
from pretrain.text.vocabulary import BOS, EOS, SPECIALS, UNK, TokenStream, Vocabulary, join_owners


def stream(words: int, sentences: int, seed: int) -> TokenStream:
    rng = np.random.default_rng(seed)
    chance = 1 / np.arange(2, words + 2)
    tokens: list[int] = []
    for _ in range(sentences):
        tokens += (UNK + rng.choice(words, size=rng.integers(0, 9), p=chance / chance.sum())).tolist()
        tokens.append(EOS)
    return join_owners([np.array(tokens)])


def vocabulary(words: int) -> Vocabulary:
    return Vocabulary(SPECIALS + tuple(f"w{number}" for number in range(words - 1)))


def at_once(text: TokenStream, size: int, order: int) -> list[dict[str, np.ndarray]]:
    """All of the model's whole numbers, the long way: k-grams as tuples, by a dictionary."""
    sentences, sentence = [], [BOS]
    for token in text.tokens_N.tolist():
        sentence.append(token)
        if token == EOS:
            sentences.append(sentence)
            sentence = [BOS]
    raw = [Counter({(word,): 0 for word in range(size)})]
    raw += [Counter() for _ in range(order - 1)]
    for sentence in sentences:
        for k, counts in enumerate(raw, start=1):
            counts.update(tuple(sentence[first : first + k]) for first in range(len(sentence) - k + 1))
    made, number_of = [], {(): 0}
    for k, counts in enumerate(raw, start=1):
        grams = sorted(counts)
        before = number_of
        number_of = {gram: number for number, gram in enumerate(grams)}
        left = Counter(gram[1:] for gram in raw[k]) if k < order else None
        made.append(
            {
                "key_G": np.array([before[gram[:-1]] * size + gram[-1] for gram in grams], dtype=np.int64),
                "suffix_G": np.array([before[gram[1:]] for gram in grams], dtype=np.int64),
                "count": np.array([counts[gram] if left is None or gram[0] == BOS else left[gram] for gram in grams]),
            }
        )
    return made


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("words", [12, 9_000])
def test_runs_on_the_disk_count_what_memory_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, order: int, small: bool, words: int
):
    """Of nine thousand words five do not fit into an int64, so that the last levels are numbered."""
    if small:
        for name, value in {"BLOCK_TOKENS": 7, "RUN_GRAMS": 20, "MERGED_GRAMS": 6, "SAMPLED": 2}.items():
            monkeypatch.setattr(counting, name, value)
        monkeypatch.setattr(columns, "HELD_BYTES", 64)
    text, size = stream(words, 60, seed=order), len(vocabulary(words))
    levels = counting.count(text.tokens_N, size, order, tmp_path)
    assert not list(tmp_path.iterdir()), "files have no names: a crash leaves none"
    for level, expected in zip(levels, at_once(text, size, order), strict=True):
        np.testing.assert_array_equal(level.key.closed(), expected["key_G"])
        np.testing.assert_array_equal(level.suffix.closed(), expected["suffix_G"])
        level.begins.closed()
        np.testing.assert_array_equal(level.count.closed(), expected["count"])


def test_the_size_of_parts_changes_no_bit_of_a_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Sums of a context are never made of two parts."""
    text, words = stream(40, 300, seed=9), vocabulary(40)
    whole = NGram.fit(text, words, 4, tmp_path)
    for name, value in {"BLOCK_TOKENS": 30, "RUN_GRAMS": 100, "MERGED_GRAMS": 40, "SAMPLED": 8}.items():
        monkeypatch.setattr(counting, name, value)
    monkeypatch.setattr(ngram, "AT_ONCE", 1)
    monkeypatch.setattr(columns, "HELD_BYTES", 100)
    for ours, theirs in zip(NGram.fit(text, words, 4, tmp_path).levels, whole.levels, strict=True):
        for name in ("key_G", "prob_G", "backoff_G"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
        assert ours.discounts == theirs.discounts


def test_a_sentence_longer_than_a_block_is_not_cut(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(counting, "BLOCK_TOKENS", 4)
    tokens = np.array([5, 6, EOS, *range(5, 25), EOS, EOS, *[7, EOS] * 8])
    blocks = [block.tolist() for block in counting.blocks(tokens)]
    assert [token for block in blocks for token in block] == tokens.tolist()
    assert all(block[-1] == EOS for block in blocks)
    assert len(blocks) > 2
