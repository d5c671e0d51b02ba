"""Next-word metrics by their definition, word after word, and an n-gram model asked for one context."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from evaluation.arms.held_out import HeldOut, Ratio
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.ngrams.ngram import NGram
from pretrain.text.vocabulary import BOS, UNK

# Log-probabilities of every word after the words of a sentence so far.
Distribution = Callable[[list[int]], np.ndarray]


def after(ngram: NGram, context: Sequence[int]) -> np.ndarray:
    """Probabilities of every word after one context."""
    width = max(ngram.order - 1, 1)
    return ngram.dense(np.array([([-1] * width + [BOS, *context])[-width:]]))[0]


def of_ngram(ngram: NGram) -> Distribution:
    def log_probs(context: list[int]) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.log(after(ngram, context))

    return log_probs


def of_model(model: KeyboardLM) -> Distribution:
    model = model.double()

    @torch.no_grad()
    def log_probs(context: list[int]) -> np.ndarray:
        return torch.log_softmax(model(torch.tensor([[BOS, *context]]))[0][0, -1], 0).numpy()

    return log_probs


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


def one_by_one(distribution: Distribution, text: HeldOut, id_P: np.ndarray) -> PerDevice:
    """Counts of each device, without batches."""
    rows = np.zeros((text.devices, 6))
    for start, length, device in zip(text.starts_S, text.lengths_S, text.device_S, strict=True):
        sentence = id_P[start : start + length].tolist()
        for place, word in enumerate(sentence):
            log_probs_V = distribution(sentence[:place])
            best = (np.argsort(-log_probs_V[4:], kind="stable")[:3] + 4).tolist()
            loss = -log_probs_V[word] if word != UNK else 0.0
            rows[device] += [1, word == best[0], word in best, word != UNK, word == best[0], loss]
    return PerDevice(*rows.T)
