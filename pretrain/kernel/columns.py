"""Columns of the output layer in a training step: all words, or a sample that represents all.

Public text only: which words are sampled depends on the batch.

Shape legend: V vocabulary, K columns, P positions, N tokens.
"""

from dataclasses import dataclass

import numpy as np

# The most frequent words hold most of the probability and are never sampled; this is the average number of the others.
HEAD, SAMPLED = 256, 256
# A logit by which a column counts as nothing.
_NOTHING = np.float32(-60.0)


@dataclass(frozen=True)
class Columns:
    """Words that the softmax runs over.

    Attributes:
      words_K: int64, word of each column.
      correction_K: float32, added to a column's logits where it is not the target.
      column_V: int64, column of each word; -1 for words without one.
    """

    words_K: np.ndarray
    correction_K: np.ndarray
    column_V: np.ndarray


def chances(tokens_N: np.ndarray, vocabulary_size: int) -> np.ndarray | None:
    """Chance of each word ``[V]`` to be a column: 1 for frequent words, else by the root of the count.

    None where a sample would save little.
    """
    if vocabulary_size < 2 * (HEAD + SAMPLED):
        return None
    count_V = np.bincount(tokens_N, minlength=vocabulary_size).astype(np.float64)
    order_V = np.argsort(-count_V, kind="stable")
    chance_V = np.ones(vocabulary_size)
    rest = order_V[HEAD:]
    weight = np.sqrt(count_V[rest] + 1)
    chance_V[rest] = np.minimum(1.0, SAMPLED * weight / weight.sum())
    return chance_V


def draw(chance_V: np.ndarray, targets_P: np.ndarray, generator: np.random.Generator) -> Columns:
    """A sample of columns for one batch.

    A column drawn with chance c counts 1 / c times in the softmax's sum, so the sum is unbiased at every position;
    the position's own target counts once, whether it was drawn or not (importance sampling of the partition
    function: Bengio and Senecal 2003).
    """
    drawn_V = generator.random(len(chance_V)) < chance_V
    needed_V = drawn_V.copy()
    needed_V[targets_P] = True
    words_K = np.flatnonzero(needed_V)
    correction_K = np.where(drawn_V[words_K], -np.log(chance_V[words_K]), _NOTHING).astype(np.float32)
    column_V = np.full(len(chance_V), -1)
    column_V[words_K] = np.arange(len(words_K))
    return Columns(words_K, correction_K, column_V)
