"""Cells of the released counts and their weights, from public text, the vocabulary and discovery's release.

Shape legend: V vocabulary, K contexts, N tokens, U distinct cells of a device.

Cells are numbered: ``w`` counts word w, ``V + k V + w`` counts word w after the k-th context. Every word of
the vocabulary stands behind every context, so that nothing about which cells somebody filled shows.
"""

from dataclasses import dataclass

import numpy as np

from federated.config.counts import CONTEXTS, START_WEIGHT
from pretrain.ngrams.ngram import NGram
from pretrain.text.vocabulary import BOS, EOS, PAD, UNK, TokenStream, Vocabulary

# Chosen on public text (benchmarks/results/2026-11-22-counts.md), as the weight below.
# A cell that public text fills once in this many words counts 1 / sqrt(2) each time.
TYPICAL_WORDS = 1000.0
# Weight of an occurrence in a cell of pairs, relative to one in a cell of words.
PAIR_WEIGHT = 1.0


@dataclass(frozen=True)
class Cells:
    """The cells that every device counts. Public.

    Attributes:
      context_K: int64, words whose next word is counted; ``<bos>`` first.
      row_V: int64, place of each word in ``context_K``, -1 if it is none.
      share_V: float64, share of each word in public text, of new words as discovery has it; ``<eos>`` and ``<unk>``
        are words, no share is 0 but those of ``<pad>`` and ``<bos>``.
      next_KV: float64, probability of each word after each context, by the same.
      prior_V: float64, estimated ratio of each word's frequency to public text, from discovery; 1 for the others.
      weight_U: float64 ``[V + K V]``, weight of one occurrence in its cell.
      start_weight: weight of a pair at the start of a sentence, relative to a pair after a word.
    """

    context_K: np.ndarray
    row_V: np.ndarray
    share_V: np.ndarray
    next_KV: np.ndarray
    prior_V: np.ndarray
    weight_U: np.ndarray
    start_weight: float

    @property
    def vocabulary_size(self) -> int:
        """V."""
        return len(self.row_V)

    def __len__(self) -> int:
        return len(self.weight_U)

    def counts(self, tokens_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Cells of one device with their counts, both ``[U]``."""
        tokens_N = np.asarray(tokens_N, dtype=np.int64)
        before_N = np.concatenate([[EOS], tokens_N])[:-1]
        row_N = self.row_V[np.where(before_N == EOS, BOS, before_N)]
        pairs = (row_N[row_N >= 0] + 1) * self.vocabulary_size + tokens_N[row_N >= 0]
        return np.unique(np.concatenate([tokens_N, pairs]), return_counts=True)


def choose(
    public: TokenStream,
    vocabulary: Vocabulary,
    contexts: int = CONTEXTS,
    typical_words: float = TYPICAL_WORDS,
    pair_weight: float = PAIR_WEIGHT,
    frequency_N: np.ndarray | None = None,
    start_weight: float = START_WEIGHT,
) -> Cells:
    """The cells for a vocabulary.

    Contexts are the start of a sentence and the most frequent words. A frequent cell is weighted down, as
    ``(1 + expected count)^-1/2``: its large count bears more noise, and leaves room under the clip norm for the
    rare ones. Pairs at the start of a sentence weigh ``start_weight`` times as much.

    Args:
      public: public text, in the vocabulary's ids.
      contexts: K; at most the number of words.
      typical_words, pair_weight: see the constants.
      frequency_N: float64, share of each of the last words of the vocabulary among all typed words, where
        discovery says it (``discovery.frequencies``): public text hardly holds them.
      start_weight: another one for a release that was begun with it.

    Raises:
      ValueError: no public text.
    """
    if not len(public.tokens_N):
        raise ValueError("public: no text to choose contexts from; give the launch's public text")
    count_V = np.bincount(public.tokens_N, minlength=len(vocabulary)).astype(np.float64)
    words = np.argsort(-count_V[UNK + 1 :], kind="stable")[: contexts - 1] + UNK + 1
    context_K = np.concatenate([[BOS], words]).astype(np.int64)
    row_V = np.full(len(vocabulary), -1, dtype=np.int64)
    row_V[context_K] = np.arange(len(context_K))
    next_KV = NGram.fit(public, vocabulary, 2).dense(context_K[:, None])
    # A sentence has one start and one end.
    before_K = count_V[np.where(context_K == BOS, EOS, context_K)]
    # Words that public text lacks, those that were discovered, have what its model gives them.
    count_V = np.where(count_V > 0, count_V, before_K @ next_KV)
    count_V[[PAD, BOS]] = 0.0
    prior_V = np.ones(len(vocabulary))
    if frequency_N is not None and len(frequency_N):
        new = slice(len(vocabulary) - len(frequency_N), None)
        prior_V[new] = frequency_N * (count_V.sum() - count_V[EOS]) / count_V[new]
        count_V *= prior_V
        next_KV *= prior_V
        next_KV /= next_KV.sum(axis=1, keepdims=True)
    share_V, before_K = count_V / count_V.sum(), before_K / count_V.sum()
    word_V = 1 / np.sqrt(1 + typical_words * share_V)
    pair_KV = pair_weight / np.sqrt(1 + typical_words * before_K[:, None] * next_KV)
    pair_KV[context_K == BOS] *= start_weight
    return Cells(context_K, row_V, share_V, next_KV, prior_V, np.concatenate([word_V, pair_KV.ravel()]), start_weight)
