"""Next-word metrics on held-out devices, as numerators and denominators of every device.

Shape legend: P words, D devices.

Definitions (Ramaswamy et al. 2020 for recall, Xu et al. 2023 for in-vocabulary accuracy):
every typed word is a target, the end of a sentence is not; the context is the true sentence
so far; the candidates are all words of the vocabulary, never a special. A target outside the
vocabulary is a miss for recall and is left out of in-vocabulary accuracy and cross-entropy.
Numbers of single devices are private: only ``intervals.compare`` turns them into something to show.
"""

from dataclasses import dataclass

import numpy as np

Ratio = tuple[np.ndarray, np.ndarray]
MISS = np.iinfo(np.int32).max


@dataclass(frozen=True)
class PerDevice:
    """Counts of each device; private.

    Attributes:
      words_D: int64, typed words.
      top1_D, top3_D: int64, words that were the first, or among the first three candidates.
      invocab_words_D: int64, words that the vocabulary holds.
      invocab_top1_D: int64, of these, the ones that were the first candidate.
      loss_D: float64, nats summed over the words that the vocabulary holds.
    """

    words_D: np.ndarray
    top1_D: np.ndarray
    top3_D: np.ndarray
    invocab_words_D: np.ndarray
    invocab_top1_D: np.ndarray
    loss_D: np.ndarray

    def ratios(self) -> dict[str, Ratio]:
        """Each metric's numerator and denominator by device; the metric is the ratio of their sums."""
        return {
            "top1_recall": (self.top1_D, self.words_D),
            "top3_recall": (self.top3_D, self.words_D),
            "invocab_accuracy": (self.invocab_top1_D, self.invocab_words_D),
            "cross_entropy": (self.loss_D, self.invocab_words_D),
        }
