"""Next-word metrics on held-out devices, as numerators and denominators of every device.

Shape legend: N tokens of a stream, S sentences, B rows, T steps, P positions, V vocabulary, D devices.

Definitions (Ramaswamy et al. 2020 for recall, Xu et al. 2023 for in-vocabulary accuracy):
every typed word is a target, the end of a sentence is not; the context is the true sentence
so far; the candidates are all words of the vocabulary, never a special. A target outside the
vocabulary is a miss for recall and is left out of in-vocabulary accuracy and cross-entropy.
Numbers of single devices are private: only ``ab.compare`` turns them into something to show.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from evaluation.inference import NUM_SPECIALS, float64_copy
from pretrain.model import KeyboardLM
from pretrain.vocabulary import BOS, EOS, PAD, UNK, TokenStream

Ratio = tuple[np.ndarray, np.ndarray]
MISS = np.iinfo(np.int32).max
_LOGIT_ROWS = 256
# Two rows of the output matrix may be equal (new words start alike). Logits this close are a
# tie, decided by the word's id, so that rounding never decides it.
_TIE = 1e-9


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

    def __len__(self) -> int:
        return len(self.words_D)

    def ratios(self) -> dict[str, Ratio]:
        """Each metric's numerator and denominator by device; the metric is the ratio of their sums."""
        return {
            "top1_recall": (self.top1_D, self.words_D),
            "top3_recall": (self.top3_D, self.words_D),
            "invocab_accuracy": (self.invocab_top1_D, self.invocab_words_D),
            "cross_entropy": (self.loss_D, self.invocab_words_D),
        }


def recall(model: KeyboardLM, stream: TokenStream, *, batch_words: int = 8192) -> PerDevice:
    """Score every word of a stream with the model.

    Args:
      batch_words: padded positions that run at once; changes memory and speed, not the result.

    Raises:
      ValueError: the stream was encoded with a larger vocabulary, or a device ends inside a sentence.
      ArithmeticError: the model gives logits that are not finite.
    """
    if len(stream.tokens_N) and int(stream.tokens_N.max()) >= model.vocabulary_size:
        raise ValueError(
            f"stream: token {int(stream.tokens_N.max())} is outside the model's vocabulary of "
            f"{model.vocabulary_size}; encode it with the vocabulary the model was trained with"
        )
    model = float64_copy(model)
    starts_S, lengths_S = sentence_spans(stream)
    rank_N = np.full(len(stream.tokens_N), MISS, dtype=np.int32)
    loss_N = np.zeros(len(stream.tokens_N))
    for batch_B in _batches(lengths_S, batch_words):
        where_BT, inside_BT = _positions(starts_S[batch_B], lengths_S[batch_B])
        words_BT = np.where(inside_BT, stream.tokens_N[where_BT], PAD)
        inputs_BT = np.concatenate([np.full((len(batch_B), 1), BOS), words_BT[:, :-1]], axis=1)
        rank_N[where_BT[inside_BT]], loss_N[where_BT[inside_BT]] = _score(model, inputs_BT, words_BT, inside_BT)
    return tally(stream, rank_N, loss_N)


def sentence_spans(stream: TokenStream) -> tuple[np.ndarray, np.ndarray]:
    """Start in the stream and number of words of every sentence that has a word: int64 ``[S], [S]``."""
    last = stream.offsets_D1[1:][np.diff(stream.offsets_D1) > 0] - 1
    if np.any(stream.tokens_N[last] != EOS):
        raise ValueError("stream: a device does not end with <eos>; every sentence of a TokenStream must")
    ends = np.flatnonzero(stream.tokens_N == EOS)
    starts = np.concatenate([[0], ends[:-1] + 1])[: len(ends)]
    return starts[ends > starts], (ends - starts)[ends > starts]


def tally(stream: TokenStream, rank_N: np.ndarray, loss_N: np.ndarray) -> PerDevice:
    """Add up by device.

    Args:
      rank_N: position of each token among the candidates, from 0; ignored for ``<eos>`` and ``<unk>``.
      loss_N: nats of each token; ignored for ``<eos>`` and ``<unk>``.
    """
    owner_N = np.repeat(np.arange(len(stream)), np.diff(stream.offsets_D1))
    word_N = stream.tokens_N != EOS
    known_N = word_N & (stream.tokens_N != UNK)

    def count(chosen_N: np.ndarray) -> np.ndarray:
        return np.bincount(owner_N[chosen_N], minlength=len(stream))

    top1_D = count(known_N & (rank_N < 1))
    return PerDevice(
        words_D=count(word_N),
        top1_D=top1_D,
        top3_D=count(known_N & (rank_N < 3)),
        invocab_words_D=count(known_N),
        invocab_top1_D=top1_D,
        loss_D=np.bincount(owner_N[known_N], weights=loss_N[known_N], minlength=len(stream)),
    )


def _batches(lengths_S: np.ndarray, batch_words: int) -> list[np.ndarray]:
    """Sentences of like length together, at most ``batch_words`` padded positions in a batch."""
    order_S = np.argsort(lengths_S, kind="stable")
    batches, start = [], 0
    while start < len(order_S):
        stop = start + 1
        while stop < len(order_S) and (stop + 1 - start) * lengths_S[order_S[stop]] <= batch_words:
            stop += 1
        batches.append(order_S[start:stop])
        start = stop
    return batches


def _positions(starts_B: np.ndarray, lengths_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Stream position of every cell ``[B, T]``, and which cells hold a word of their sentence."""
    steps_T = np.arange(lengths_B.max())
    inside_BT = steps_T < lengths_B[:, None]
    return np.where(inside_BT, starts_B[:, None] + steps_T, 0), inside_BT


@torch.no_grad()
def _score(
    model: KeyboardLM, inputs_BT: np.ndarray, words_BT: np.ndarray, inside_BT: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Rank and loss ``[P], [P]`` of the words inside, in row-major order."""
    device = model.embedding.device
    features_BTE, _ = model.features(torch.as_tensor(inputs_BT, device=device))
    features_PE = features_BTE[torch.as_tensor(inside_BT, device=device)]
    targets_P = torch.as_tensor(words_BT[inside_BT].astype(np.int64), device=device)
    ranks, losses = [], []
    for features_QE, targets_Q in zip(features_PE.split(_LOGIT_ROWS), targets_P.split(_LOGIT_ROWS), strict=True):
        logits_QV = torch.addmm(model.output_bias, features_QE, model.output_VE.T)
        target_Q1 = logits_QV.gather(1, targets_Q[:, None])
        loss_Q = torch.logsumexp(logits_QV, dim=1) - target_Q1[:, 0]
        if not bool(torch.isfinite(loss_Q).all()):
            raise ArithmeticError("the model's logits are not finite, so nothing can be ranked")
        losses.append(loss_Q)
        ranks.append(_rank(logits_QV, target_Q1, targets_Q))
    return torch.cat(ranks).cpu().numpy(), torch.cat(losses).cpu().numpy()


def _rank(logits_QV: Tensor, target_Q1: Tensor, targets_Q: Tensor) -> Tensor:
    """Candidates before each target: a higher logit, or a tie and a lower id."""
    words_QV = logits_QV[:, NUM_SPECIALS:]
    before_Q = (words_QV > target_Q1 + _TIE).sum(dim=1)
    at_least_Q = (words_QV >= target_Q1 - _TIE).sum(dim=1)
    tied = torch.nonzero(at_least_Q - before_Q > 1)[:, 0]
    if len(tied):
        ids_V = torch.arange(NUM_SPECIALS, logits_QV.shape[1], device=logits_QV.device)
        near = (words_QV[tied] - target_Q1[tied]).abs() <= _TIE
        before_Q[tied] += (near & (ids_V < targets_Q[tied, None])).sum(dim=1)
    return before_Q
