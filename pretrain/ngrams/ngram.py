"""Public n-gram baseline: interpolated modified Kneser-Ney (Chen & Goodman 1998, section 3).

Shape legend: N tokens, G distinct k-grams of one length, V vocabulary, B contexts.

Events are all words, ``<unk>`` and ``<eos>``; ``<bos>`` is only ever a context and ``<pad>``
never occurs. Counts below the highest order are numbers of distinct left neighbours, except for
k-grams that begin with ``<bos>``, which have none and keep their own count (as in lmplz).

A k-gram is stored as ``(number of its first k-1 words among the (k-1)-grams) * V + last word``,
so each length is one sorted int64 array, looked up by bisection for many positions at once.
"""

from dataclasses import dataclass

import numpy as np

from pretrain.vocabulary import BOS, EOS, PAD, TokenStream, Vocabulary

FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)


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
    def fit(cls, stream: TokenStream, vocabulary: Vocabulary, order: int) -> "NGram":
        """Count and smooth. Give it public text only: counts are exact, so nothing here is private.

        Raises:
          ValueError: order below 1, or no text.
        """
        if order < 1:
            raise ValueError(f"order: {order} is below 1; use 1 to 5")
        tokens_N, place_N = _with_starts(stream.tokens_N)
        if not len(tokens_N):
            raise ValueError("stream: no sentence to count; give the n-gram public text")
        return cls(len(vocabulary), tuple(_fit_levels(tokens_N, place_N, len(vocabulary), order)))

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

    def log_probabilities(self, stream: TokenStream) -> np.ndarray:
        """float64 ``[N]``: log-probability of every token after those before it in its sentence, in nats."""
        tokens_N, place_N = _with_starts(stream.tokens_N)
        number_N, prob_N = tokens_N, self.levels[0].prob_G[tokens_N]
        for k in range(2, self.order + 1):
            context_N = np.where(place_N >= k - 1, np.roll(number_N, 1), -1)
            gram_N = np.where(
                context_N >= 0, _find(self.levels[k - 1].key_G, context_N * self.vocabulary_size + tokens_N), -1
            )
            shorter_N = prob_N * np.where(context_N >= 0, self.levels[k - 2].backoff_G[context_N], 1.0)
            prob_N = np.where(gram_N >= 0, self.levels[k - 1].prob_G[gram_N], shorter_N)
            number_N = gram_N
        return np.log(prob_N[place_N > 0])


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
    return [Level(*level) for level in zip(keys, probs, backoffs, all_discounts, strict=True)]


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
