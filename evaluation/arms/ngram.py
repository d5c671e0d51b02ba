"""Public n-gram baseline: interpolated modified Kneser-Ney (Chen & Goodman 1998, section 3).

Shape legend: N tokens, P positions, G distinct k-grams of one length, K words of a list, V vocabulary.

Events are all words, ``<unk>`` and ``<eos>``; ``<bos>`` is only ever a context and ``<pad>``
never occurs. Counts below the highest order are numbers of distinct left neighbours, except for
k-grams that begin with ``<bos>``, which have none and keep their own count (as in lmplz).

A k-gram is stored as ``(number of its first k-1 words among the (k-1)-grams) * V + last word``,
so each length is one sorted int64 array, looked up by bisection for many positions at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evaluation.arms.metrics import MISS, PerDevice, tally
from evaluation.inference import NUM_SPECIALS
from pretrain.vocabulary import BOS, EOS, PAD, TokenStream, Vocabulary

FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)
_CHUNK = 20_000


@dataclass(frozen=True)
class Level:
    """All k-grams of one length.

    Attributes:
      key_G: int64, sorted.
      prob_G: float64, interpolated probability of the last word after the others.
      backoff_G: float64, weight of the next shorter context after this k-gram; 1 if it is no context.
      ranked_words: last words that are no specials, by context, then likelihood, then id.
      ranked_offsets: ``ranked_words[ranked_offsets[c]:ranked_offsets[c + 1]]`` follow context c.
      discounts: D1, D2, D3+ of this length.
    """

    key_G: np.ndarray
    prob_G: np.ndarray
    backoff_G: np.ndarray
    ranked_words: np.ndarray
    ranked_offsets: np.ndarray
    discounts: tuple[float, float, float]


@dataclass(frozen=True)
class NGram:
    """A fitted model; ``levels[k - 1]`` holds the k-grams."""

    vocabulary_size: int
    levels: tuple[Level, ...]

    @classmethod
    def fit(cls, streams: TokenStream | Sequence[TokenStream], vocabulary: Vocabulary, order: int) -> "NGram":
        """Count and smooth. Give it public text only: counts are exact, so nothing here is private.

        Raises:
          ValueError: order below 1, or no text.
        """
        if order < 1:
            raise ValueError(f"ngram_order: {order} is below 1; use 1 to 5")
        streams = [streams] if isinstance(streams, TokenStream) else list(streams)
        tokens_N, place_N = _with_starts(np.concatenate([stream.tokens_N for stream in streams] or [np.empty(0)]))
        if not len(tokens_N):
            raise ValueError("streams: no sentence to count; give the n-gram public text")
        return cls(len(vocabulary), tuple(_fit_levels(tokens_N, place_N, len(vocabulary), order)))

    @property
    def order(self) -> int:
        """Longest k-grams counted."""
        return len(self.levels)

    def distribution(self, context: Sequence[int]) -> np.ndarray:
        """Probabilities ``[V]`` of what follows ``<bos>`` and the words of a sentence so far."""
        ids = [np.full(self.vocabulary_size, id_1[0]) for id_1 in self._ends([context])]
        return self._probability(ids, np.arange(self.vocabulary_size))

    def dense(self, last_BK: np.ndarray) -> np.ndarray:
        """Probabilities ``[B, V]`` after each row's last tokens, ``<bos>`` included, -1 before it.

        The same numbers as ``distribution``, for many contexts at once: a length's k-grams after one
        context are a run of its sorted keys, so only what was seen is written over the shorter one.
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

    def top_k(self, contexts: Sequence[Sequence[int]], k: int) -> np.ndarray:
        """Word ids ``[len(contexts), k]``, likeliest first, ties by id, no specials; -1 if there are fewer words.

        Exact: a word left out of every list below is beaten by k words at the longest context
        that holds none of them, and longer contexts only add to the words they hold.
        """
        return self._top(self._ends(contexts), len(contexts), k)

    def _ends(self, contexts: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """Context numbers of the last 1 .. order-1 tokens of each context: ``[len(contexts)]`` each."""
        lengths = np.array([len(context) + 1 for context in contexts])
        flat = np.array([token for context in contexts for token in (BOS, *context)], dtype=np.int64)
        place = np.concatenate([np.arange(length) for length in lengths])
        return [ids[np.cumsum(lengths) - 1] for ids in self._contexts(flat, place)]

    def _contexts(self, tokens_N: np.ndarray, place_N: np.ndarray) -> list[np.ndarray]:
        """For k = 1 .. order-1: number of the k-gram that ends at each token, -1 if never seen."""
        ids = [tokens_N]
        for k in range(2, self.order):
            whole_N = (place_N >= k - 1) & (np.roll(ids[-1], 1) >= 0)
            key_N = np.roll(ids[-1], 1) * self.vocabulary_size + tokens_N
            ids.append(np.where(whole_N, _find(self.levels[k - 1].key_G, key_N), -1))
        return ids[: self.order - 1]

    def _probability(self, contexts: list[np.ndarray], words: np.ndarray) -> np.ndarray:
        """Probability of each word after its context; all arrays of one shape."""
        prob = self.levels[0].prob_G[words]
        for context, here, longer in zip(contexts, self.levels, self.levels[1:], strict=False):
            place = np.where(context >= 0, _find(longer.key_G, context * self.vocabulary_size + words), -1)
            backed_off = np.where(context >= 0, here.backoff_G[context], 1.0) * prob
            prob = np.where(place >= 0, longer.prob_G[place], backed_off)
        return prob

    def _top(self, contexts: list[np.ndarray], size: int, k: int) -> np.ndarray:
        """``top_k`` of ``size`` contexts; the candidates are the k best of each length."""
        unigrams = self.levels[0].ranked_words[:k]
        lists = [np.broadcast_to(unigrams, (size, len(unigrams)))]
        for context_P, level in zip(contexts, self.levels[1:], strict=True):
            lists.append(_heads(level, context_P, k))
        words_PK = np.sort(np.concatenate(lists, axis=1), axis=1)
        spread = [np.broadcast_to(context_P[:, None], words_PK.shape) for context_P in contexts]
        prob_PK = self._probability(spread, np.maximum(words_PK, 0))
        # Sorted by id, a word's second mention stands beside the first.
        again_PK = np.diff(words_PK, axis=1, prepend=-2) == 0
        prob_PK = np.where(again_PK | (words_PK < 0), -1.0, prob_PK)
        best_PK = np.argsort(-prob_PK, axis=1, kind="stable")[:, :k]
        words_Pk = np.where(np.take_along_axis(prob_PK, best_PK, 1) >= 0, np.take_along_axis(words_PK, best_PK, 1), -1)
        return np.pad(words_Pk, ((0, 0), (0, k - words_Pk.shape[1])), constant_values=-1)


def recall(ngram: NGram, stream: TokenStream) -> PerDevice:
    """Score every word of a stream: the same counts by device as ``metrics.recall``."""
    tokens_N, place_N = _with_starts(stream.tokens_N)
    contexts = ngram._contexts(tokens_N, place_N)
    target_P = np.flatnonzero(place_N > 0)
    words_P = tokens_N[target_P]
    rank_P, loss_P = np.full(len(target_P), MISS), np.zeros(len(target_P))
    for start in range(0, len(target_P), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        before = [context_N[target_P[chunk] - 1] for context_N in contexts]
        loss_P[chunk] = -np.log(ngram._probability(before, words_P[chunk]))
        # Positions whose longest known context is the same have the same candidates.
        _, first, inverse = np.unique(
            np.stack([*before, words_P[chunk] * 0]), axis=1, return_index=True, return_inverse=True
        )
        top_P3 = ngram._top([context_P[first] for context_P in before], len(first), 3)[inverse.ravel()]
        hit_P3 = top_P3 == words_P[chunk, None]
        rank_P[chunk] = np.where(hit_P3.any(axis=1), hit_P3.argmax(axis=1), MISS)
    return tally(stream, rank_P, loss_P)


def _with_starts(tokens_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tokens with ``<bos>`` before every sentence, and each one's place in its sentence (``<bos>`` is 0)."""
    tokens_N = np.asarray(tokens_N, dtype=np.int64)
    ends = np.flatnonzero(tokens_N == EOS) + 1
    starts = np.concatenate([[0], ends[:-1]])[: len(ends)]
    whole = np.insert(tokens_N, starts, BOS)
    begins = np.flatnonzero(whole == BOS)
    place = np.arange(len(whole)) - np.repeat(begins, np.diff(np.append(begins, len(whole))))
    return whole, place


def _fit_levels(tokens_N: np.ndarray, place_N: np.ndarray, vocabulary_size: int, order: int) -> list[Level]:
    number_N = tokens_N
    keys = [np.arange(vocabulary_size)]
    raw = [np.bincount(tokens_N, minlength=vocabulary_size)]
    suffixes, begins = [np.zeros(vocabulary_size, dtype=np.int64)], [np.arange(vocabulary_size) == BOS]
    for k in range(2, order + 1):
        last = np.flatnonzero(place_N >= k - 1)
        key_G, first, inverse, count_G = np.unique(
            number_N[last - 1] * vocabulary_size + tokens_N[last],
            return_index=True,
            return_inverse=True,
            return_counts=True,
        )
        keys.append(key_G)
        raw.append(count_G)
        suffixes.append(number_N[last[first]])
        begins.append(place_N[last[first]] == k - 1)
        number_N = np.full(len(tokens_N), -1)
        number_N[last] = inverse
    return _smooth(keys, raw, suffixes, begins, vocabulary_size)


def _smooth(
    keys: list[np.ndarray],
    raw: list[np.ndarray],
    suffixes: list[np.ndarray],
    begins: list[np.ndarray],
    vocabulary_size: int,
) -> list[Level]:
    order = len(keys)
    levels: list[Level] = []
    probs: list[np.ndarray] = []
    backoffs: list[np.ndarray] = []
    all_discounts = []
    for k in range(order):
        count_G = raw[k]
        if k < order - 1:
            neighbours_G = np.bincount(suffixes[k + 1], minlength=len(keys[k]))
            count_G = np.where(begins[k], raw[k], neighbours_G)
        if k == 0:
            count_G = np.where(np.isin(keys[0], (PAD, BOS)), 0, count_G)
        context_G = keys[k] // vocabulary_size
        contexts = len(keys[k - 1]) if k else 1
        discounts = _discounts(count_G)
        taken_G = np.array([0.0, *discounts])[np.minimum(count_G, 3)]
        total_C = np.bincount(context_G, weights=count_G, minlength=contexts)
        held_C = np.bincount(context_G, weights=taken_G, minlength=contexts)
        backoff_C = np.divide(held_C, total_C, out=np.ones(contexts), where=total_C > 0)
        if k == 0:
            # Below the unigrams lies the uniform distribution over events.
            lower_G = np.where(np.isin(keys[0], (PAD, BOS)), 0.0, 1 / (vocabulary_size - 2))
        else:
            lower_G = probs[k - 1][suffixes[k]]
            backoffs.append(backoff_C)
        probs.append((count_G - taken_G) / total_C[context_G] + backoff_C[context_G] * lower_G)
        all_discounts.append(discounts)
    backoffs.append(np.ones(len(keys[-1])))
    for k in range(order):
        context_G, word_G = np.divmod(keys[k], vocabulary_size)
        word = np.flatnonzero(word_G >= NUM_SPECIALS)
        ranked = word[np.lexsort((word_G[word], -probs[k][word], context_G[word]))]
        sizes = np.bincount(context_G[word], minlength=len(keys[k - 1]) if k else 1)
        levels.append(
            Level(
                keys[k],
                probs[k],
                backoffs[k],
                word_G[ranked],
                np.concatenate([[0], np.cumsum(sizes)]),
                all_discounts[k],
            )
        )
    return levels


def _discounts(count_G: np.ndarray) -> tuple[float, float, float]:
    """D1, D2, D3+ from counts of counts (Chen & Goodman 1998, equation 26).

    Small corpora may lack some count of counts, or give a discount below 0; then lmplz's
    fallback values are used.
    """
    n1, n2, n3, n4 = (int(np.count_nonzero(count_G == times)) for times in range(1, 5))
    if not (n1 and n2 and n3 and n4):
        return FALLBACK_DISCOUNTS
    y = n1 / (n1 + 2 * n2)
    discounts = 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3
    return discounts if min(discounts) >= 0 else FALLBACK_DISCOUNTS


def _find(key_G: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Place of each wanted key, -1 where there is none."""
    place = np.minimum(np.searchsorted(key_G, wanted), len(key_G) - 1)
    return np.where(key_G[place] == wanted, place, -1)


def _heads(level: Level, context_P: np.ndarray, k: int) -> np.ndarray:
    """The k likeliest words ``[P, k]`` this length holds after each context; -1 where it holds fewer."""
    safe_P = np.maximum(context_P, 0)
    at_Pk = level.ranked_offsets[safe_P, None] + np.arange(k)
    inside_Pk = (at_Pk < level.ranked_offsets[safe_P + 1, None]) & (context_P >= 0)[:, None]
    if not len(level.ranked_words):
        return np.full(at_Pk.shape, -1)
    return np.where(inside_Pk, level.ranked_words[np.where(inside_Pk, at_Pk, 0)], -1)
