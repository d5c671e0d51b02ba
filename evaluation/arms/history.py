"""On-device history cache (Ramaswamy et al. 2020): the user's earlier words, mixed into any arm.

Shape legend: B sentences in step, N remembered tokens, V vocabulary.

The arm has a unigram and a bigram cache over the device's last words, with larger weights for recent
ones. The history is the intended text of earlier sentences on the same device; it never leaves the device, and
it belongs in both arms of a fair comparison. Words outside the vocabulary are not remembered.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evaluation.arms.arm import NextWord
from evaluation.inference import NUM_SPECIALS
from pretrain.text.vocabulary import BOS

_REMEMBERED = 2000
# Half-life of a word's weight, in words.
_HALF_LIFE = 500.0
# Words of history at which the cache has half of its weight; likewise for the evidence of a bigram.
_HALF_TRUSTED = 100.0
_BIGRAM_HALF_TRUSTED = 2.0


@dataclass(frozen=True)
class WithHistory:
    """An arm mixed with a cache of the user's earlier text.

    Attributes:
      weight: the cache's largest share of the mixture, from 0 to below 1.
    """

    arm: NextWord
    weight: float

    def __post_init__(self) -> None:
        if not 0 <= self.weight < 1:
            raise ValueError(f"weight: {self.weight} is not a share of a mixture; use 0 to below 1, such as 0.2")

    @property
    def vocabulary_size(self) -> int:
        """Words of the wrapped arm's vocabulary."""
        return self.arm.vocabulary_size

    def start(self, earlier_B: Sequence[np.ndarray]) -> tuple[np.ndarray, Any]:
        """See ``NextWord``."""
        log_probs_BV, inner = self.arm.start(earlier_B)
        remembered = [np.asarray(earlier[-_REMEMBERED:], dtype=np.int64) for earlier in earlier_B]
        longest = max((len(row) for row in remembered), default=0)
        # Right-aligned, so that a column corresponds to an age.
        history_BN = np.full((len(remembered), longest), -1, dtype=np.int64)
        for row, words in enumerate(remembered):
            history_BN[row, longest - len(words) :] = words
        state = (inner, history_BN, self._unigrams(history_BN))
        return self._mixed(log_probs_BV, state, np.full(len(remembered), BOS)), state

    def step(self, words_B: np.ndarray, state: Any) -> tuple[np.ndarray, Any]:
        """See ``NextWord``."""
        inner, history_BN, unigrams = state
        log_probs_BV, inner = self.arm.step(words_B, inner)
        state = (inner, history_BN, unigrams)
        return self._mixed(log_probs_BV, state, words_B), state

    def rows(self, state: Any, rows_B: np.ndarray) -> Any:
        """See ``NextWord``."""
        inner, history_BN, (counts_BV, mass_B) = state
        return self.arm.rows(inner, rows_B), history_BN[rows_B], (counts_BV[rows_B], mass_B[rows_B])

    def _unigrams(self, history_BN: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        counts_BV = np.zeros((len(history_BN), self.vocabulary_size))
        row, column = np.nonzero(history_BN >= NUM_SPECIALS)
        np.add.at(counts_BV, (row, history_BN[row, column]), _recency(history_BN)[column])
        return counts_BV, counts_BV.sum(axis=1)

    def _mixed(self, log_probs_BV: np.ndarray, state: Any, words_B: np.ndarray) -> np.ndarray:
        _, history_BN, (counts_BV, mass_B) = state
        trust_B = self.weight * mass_B / (mass_B + _HALF_TRUSTED)
        if not trust_B.any():
            return log_probs_BV
        cache_BV = counts_BV / np.maximum(mass_B, 1e-300)[:, None]
        follows_BN = (history_BN[:, :-1] == np.asarray(words_B)[:, None]) & (history_BN[:, 1:] >= NUM_SPECIALS)
        row, column = np.nonzero(follows_BN)
        recency = _recency(history_BN)[1:][column]
        seen_B = np.bincount(row, weights=recency, minlength=len(history_BN))
        bigram_B = seen_B / (seen_B + _BIGRAM_HALF_TRUSTED)
        cache_BV *= 1 - bigram_B[:, None]
        np.add.at(cache_BV, (row, history_BN[row, column + 1]), (bigram_B / np.maximum(seen_B, 1e-300))[row] * recency)
        mixed_BV = np.exp(log_probs_BV)
        mixed_BV *= 1 - trust_B[:, None]
        cache_BV *= trust_B[:, None]
        mixed_BV += cache_BV
        with np.errstate(divide="ignore"):
            return np.log(mixed_BV, out=mixed_BV)


def _recency(history_BN: np.ndarray) -> np.ndarray:
    age_N = history_BN.shape[1] - 1 - np.arange(history_BN.shape[1])
    return 0.5 ** (age_N / _HALF_LIFE)
