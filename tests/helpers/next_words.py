"""Next-word metrics by their definition, word after word, and an n-gram model asked for one context."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from evaluation.arms.held_out import HeldOut
from evaluation.arms.metrics import PerDevice
from evaluation.arms.ngram import NGram
from pretrain.model import KeyboardLM
from pretrain.vocabulary import BOS, UNK

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
