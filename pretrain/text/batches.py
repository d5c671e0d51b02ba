"""Rows of a token stream, and the order in which training sees them.

Shape legend: B rows of a batch, T steps, N tokens, R rows, P positions of a batch that are not padding.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pretrain.text.vocabulary import BOS, EOS, PAD

# Rows are sorted by length within this many batches: little padding, yet every batch mixes documents.
_BATCHES_SORTED_TOGETHER = 50


@dataclass(frozen=True)
class PackedRows:
    """Rows of a batch without their padding, step by step: position ``sum(alive[:t]) + row`` is step t of a row.

    Attributes:
      inputs_P, targets_P: int64 words.
      alive_T: rows that still go on at each step, never more than at the step before.
    """

    inputs_P: np.ndarray
    targets_P: np.ndarray
    alive_T: np.ndarray


@dataclass(frozen=True)
class Rows:
    """Places of the training rows in a stream; the rows of ``model.sentence_rows``, not yet cut out.

    Attributes:
      tokens_N: int32 token ids.
      start_R: int64, position of a row's first target.
      length_R: int64, words in the row, its sentence end included.
    """

    tokens_N: np.ndarray
    start_R: np.ndarray
    length_R: np.ndarray

    def __len__(self) -> int:
        return len(self.start_R)

    def batch(self, rows_B: np.ndarray) -> tuple[Tensor, Tensor]:
        """int64 inputs and targets ``[B, T]``, T the longest row, ``PAD`` at the tails."""
        inputs_BT, targets_BT = self.cut(rows_B, self.length_R[rows_B].max(initial=0))
        return torch.from_numpy(inputs_BT.astype(np.int64)), torch.from_numpy(targets_BT.astype(np.int64))

    def packed(self, rows_B: np.ndarray) -> PackedRows:
        """Inputs and targets of rows without padding; the rows may come in any order."""
        rows_B = rows_B[np.argsort(-self.length_R[rows_B], kind="stable")]
        length_B = self.length_R[rows_B]
        inputs_BT, targets_BT = self.cut(rows_B, int(length_B.max(initial=0)))
        inside_TB = np.arange(inputs_BT.shape[1])[:, None] < length_B
        inputs_P, targets_P = (part_BT.T[inside_TB].astype(np.int64) for part_BT in (inputs_BT, targets_BT))
        return PackedRows(inputs_P, targets_P, inside_TB.sum(axis=1))

    def cut(self, rows_B: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """int32 inputs and targets ``[B, steps]`` of rows of at most ``steps`` words, ``PAD`` at the tails."""
        length_B = self.length_R[rows_B]
        steps_T = np.arange(steps)
        inside_BT = steps_T < length_B[:, None]
        position_BT = np.where(inside_BT, self.start_R[rows_B][:, None] + steps_T, 0)
        previous_BT = self.tokens_N[position_BT - 1]
        previous_BT = np.where((position_BT == 0) | (previous_BT == EOS), BOS, previous_BT)
        inputs_BT = np.where(inside_BT, previous_BT, PAD).astype(np.int32, copy=False)
        targets_BT = np.where(inside_BT, self.tokens_N[position_BT], PAD).astype(np.int32, copy=False)
        return inputs_BT, targets_BT


def find_rows(tokens_N: np.ndarray, sequence_words: int) -> Rows:
    """The rows of one or more owners' tokens: sentences, each cut after every ``sequence_words`` targets."""
    ends = np.flatnonzero(tokens_N == EOS) + 1
    starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
    lengths = ends - starts
    pieces = -(-lengths // sequence_words)
    within = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    start_R = np.repeat(starts, pieces) + within * sequence_words
    length_R = np.minimum(np.repeat(ends, pieces) - start_R, sequence_words)
    return Rows(tokens_N, start_R, length_R)


def batches(rows: Rows, batch_sentences: int, seed: int, step: int) -> Iterator[np.ndarray]:
    """Row numbers of batch ``step`` and all after it, without end.

    A function of (seed, step). Every epoch takes each row once; its last batch may be smaller.
    """
    while True:
        epoch, first = divmod(step, -(-len(rows) // batch_sentences))
        for batch_B in _epoch(rows, batch_sentences, np.random.default_rng((seed, epoch)))[first:]:
            yield batch_B
            step += 1


def _epoch(rows: Rows, batch_sentences: int, generator: np.random.Generator) -> list[np.ndarray]:
    order_R = generator.permutation(len(rows))
    window = batch_sentences * _BATCHES_SORTED_TOGETHER
    for first in range(0, len(order_R), window):
        part = order_R[first : first + window]
        order_R[first : first + window] = part[np.argsort(rows.length_R[part], kind="stable")]
    shuffled = [order_R[first : first + batch_sentences] for first in range(0, len(order_R), batch_sentences)]
    return [shuffled[number] for number in generator.permutation(len(shuffled))]


def preceding(tokens_N: np.ndarray, place_M: np.ndarray, longest: int) -> np.ndarray:
    """The tokens before each position in its sentence, ``[M, K]``: ``<bos>`` at its start, -1 before that."""
    last_MK = np.full((len(place_M), longest), -1, dtype=np.int64)
    inside_M = np.ones(len(place_M), dtype=bool)
    for back in range(1, longest + 1):
        at_M = place_M - back
        token_M = np.where(at_M >= 0, tokens_N[at_M], EOS)
        begins_M = inside_M & (token_M == EOS)
        last_MK[inside_M, -back] = token_M[inside_M]
        last_MK[begins_M, -back] = BOS
        inside_M &= ~begins_M
    return last_MK
