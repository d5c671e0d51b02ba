"""Public n-gram baseline: interpolated modified Kneser-Ney (Chen & Goodman 1998, section 3).

Shape legend: N tokens, G distinct k-grams of one length, V vocabulary, B contexts.

Events are all words, ``<unk>`` and ``<eos>``; ``<bos>`` is only ever a context and ``<pad>``
never occurs. Counts below the highest order are numbers of distinct left neighbours, except for
k-grams that begin with ``<bos>``, which have none and keep their own count (as in lmplz).

A k-gram is stored as ``(number of its first k-1 words among the (k-1)-grams) * V + last word``,
so each length is one sorted int64 array, looked up by bisection for many positions at once.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pretrain.ngrams import counting
from pretrain.ngrams.columns import Column
from pretrain.ngrams.counting import LevelCounts, pieces
from pretrain.text.vocabulary import BOS, PAD, TokenStream, Vocabulary

FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)
# K-grams that are smoothed together.
AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Level:
    """All k-grams of one length.

    Attributes:
      key_G: int64, sorted.
      prob_G: float64, interpolated probability of the last word after the others.
      backoff_G: float64, weight of the next shorter context after this k-gram; 1 if it is no context.
      discounts: D1, D2, D3+ of this length.
    """

    key_G: np.ndarray
    prob_G: np.ndarray
    backoff_G: np.ndarray
    discounts: tuple[float, float, float]


@dataclass(frozen=True)
class NGram:
    """A fitted model; ``levels[k - 1]`` holds the k-grams."""

    vocabulary_size: int
    levels: tuple[Level, ...]

    @classmethod
    def fit(cls, stream: TokenStream, vocabulary: Vocabulary, order: int, folder: Path | None = None) -> "NGram":
        """Count and smooth. Give it public text only: counts are exact, so nothing here is private.

        However much text there is, few of its k-grams are in memory at a time (``counting``), and a large model is
        mapped.

        Args:
          folder: of a disk with room for some 60 bytes a token, in files without a name; the system's for temporary
            files if None.

        Raises:
          ValueError: order below 1, or no text.
        """
        if order < 1:
            raise ValueError(f"order: {order} is below 1; use 1 to 5")
        if not len(stream.tokens_N):
            raise ValueError("stream: no sentence to count; give the n-gram public text")
        levels = counting.count(stream.tokens_N, len(vocabulary), order, folder)
        return cls(len(vocabulary), tuple(_smoothed(levels, len(vocabulary), folder)))

    @property
    def order(self) -> int:
        """Longest k-grams counted."""
        return len(self.levels)

    def dense(self, last_BK: np.ndarray) -> np.ndarray:
        """Probabilities ``[B, V]`` after each row's last tokens, ``<bos>`` included, -1 before it.

        A length's k-grams after one context are a run of its sorted keys, so only what was seen is
        written over the shorter one.
        """
        prob_BV = np.tile(self.levels[0].prob_G, (len(last_BK), 1))
        for k in range(2, self.order + 1):
            # The context of k - 1 tokens, built up from its first.
            context_B = last_BK[:, -(k - 1)]
            for place in range(k - 2, 0, -1):
                key_B = context_B * self.vocabulary_size + last_BK[:, -place]
                context_B = np.where(context_B >= 0, _find(self.levels[k - 1 - place].key_G, key_B), -1)
            seen_B = np.flatnonzero(context_B >= 0)
            prob_BV[seen_B] *= self.levels[k - 2].backoff_G[context_B[seen_B], None]
            key_G = self.levels[k - 1].key_G
            first, last = (np.searchsorted(key_G, (context_B[seen_B] + more) * self.vocabulary_size) for more in (0, 1))
            for row, low, high in zip(seen_B, first, last, strict=True):
                words = key_G[low:high] - context_B[row] * self.vocabulary_size
                prob_BV[row, words] = self.levels[k - 1].prob_G[low:high]
        return prob_BV


def _smoothed(levels: list[LevelCounts], vocabulary_size: int, folder: Path | None) -> Iterator[Level]:
    key_V, count_V = levels[0].key.array(), levels[0].count.closed()
    # Below the unigrams lies the uniform distribution over events.
    never_V = np.isin(key_V, (PAD, BOS))
    count_V, lower_V = np.where(never_V, 0, count_V), np.where(never_V, 0.0, 1 / (vocabulary_size - 2))
    discounts = _discounts(_counts_of_counts(count_V))
    prob_G, _ = _interpolated(count_V, np.zeros_like(key_V), discounts, lower_V)
    for shorter, level in itertools.pairwise(levels):
        of_shorter, discounts = discounts, _discounts_of(level.count)
        prob, backoff = Column(np.float64, folder), Column(np.float64, folder)
        for first, last in _whole_contexts(level.key.array(), vocabulary_size):
            context_G = level.key.read(first, last) // vocabulary_size
            backoff.append(np.ones(context_G[0] - len(backoff)))
            longer_G, backoff_C = _interpolated(
                level.count.read(first, last),
                context_G - context_G[0],
                discounts,
                prob_G[level.suffix.read(first, last)],
            )
            prob.append(longer_G)
            backoff.append(backoff_C)
        backoff.append(np.ones(len(shorter.key) - len(backoff)))
        level.count.closed()
        yield Level(_key(shorter), prob_G, backoff.closed(), of_shorter)
        prob_G = prob.closed()
    yield Level(_key(levels[-1]), prob_G, np.broadcast_to(1.0, len(prob_G)), discounts)


def _key(level: LevelCounts) -> np.ndarray:
    """The keys; nothing else of the level is needed any more."""
    level.suffix.closed()
    level.begins.closed()
    return level.key.closed()


def _interpolated(
    count_G: np.ndarray, context_G: np.ndarray, discounts: tuple[float, float, float], lower_G: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities ``[G]`` of some k-grams, all of each of their contexts, and the contexts' weights ``[C]``."""
    contexts = int(context_G[-1]) + 1
    taken_G = np.array([0.0, *discounts])[np.minimum(count_G, 3)]
    total_C = np.bincount(context_G, weights=count_G, minlength=contexts)
    held_C = np.bincount(context_G, weights=taken_G, minlength=contexts)
    backoff_C = np.divide(held_C, total_C, out=np.ones(contexts), where=total_C > 0)
    return (count_G - taken_G) / total_C[context_G] + backoff_C[context_G] * lower_G, backoff_C


def _whole_contexts(key_G: np.ndarray, vocabulary_size: int) -> Iterator[tuple[int, int]]:
    """Ends of parts of sorted keys; no context is in two of them, as its sum would be another in two parts."""
    first = 0
    while first < len(key_G):
        last = first + max(AT_ONCE, vocabulary_size)
        if last < len(key_G):
            last = int(np.searchsorted(key_G, key_G[last] // vocabulary_size * vocabulary_size))
        yield first, min(last, len(key_G))
        first = last


def _discounts_of(count: Column) -> tuple[float, float, float]:
    parts = (_counts_of_counts(count.read(first, last)) for first, last in pieces(len(count), AT_ONCE))
    return _discounts(sum(parts, start=np.zeros(4, dtype=np.int64)))


def _counts_of_counts(count_G: np.ndarray) -> np.ndarray:
    """Numbers of k-grams that occur once, twice, three and four times."""
    return np.array([np.count_nonzero(count_G == times) for times in range(1, 5)])


def _discounts(counts_4: np.ndarray) -> tuple[float, float, float]:
    """D1, D2, D3+ from counts of counts (Chen & Goodman 1998, equation 26).

    Small corpora may lack some count of counts, or give a discount below 0; then lmplz's
    fallback values are used.
    """
    n1, n2, n3, n4 = counts_4.tolist()
    if not (n1 and n2 and n3 and n4):
        return FALLBACK_DISCOUNTS
    y = n1 / (n1 + 2 * n2)
    discounts = 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3
    return discounts if min(discounts) >= 0 else FALLBACK_DISCOUNTS


def _find(key_G: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Place of each wanted key, -1 where there is none."""
    place = np.minimum(np.searchsorted(key_G, wanted), len(key_G) - 1)
    return np.where(key_G[place] == wanted, place, -1)
