"""The audit of noisy counts: recomputed from the devices' words, with bound, sum and noise.

Shape legend: V vocabulary, K contexts, U cells, N tokens of one device.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from evaluation.audit.released.bounded import sum_audit
from evaluation.audit.verdict import Verdict
from pretrain.text.vocabulary import BOS, EOS

STREAM = "counts"
_ROUNDING = 1e-9


@dataclass(frozen=True)
class CountCells:
    """The counted cells; public.

    Attributes:
      context_K: words whose next word is counted, ``<bos>`` for the start of a sentence.
      weight_U: weight of one occurrence: first for each word of the vocabulary, then for each word after each context.
      vocabulary_size: V.
    """

    context_K: np.ndarray
    weight_U: np.ndarray
    vocabulary_size: int


def counts_audit(
    released_U: np.ndarray,
    devices: Iterable[np.ndarray],
    asked: CountCells,
    noise_multiplier: float,
    clip_norm: float,
    key: bytes,
    model: Sequence[np.ndarray],
    follows: Sequence[np.ndarray],
) -> tuple[Verdict, ...]:
    """Verdicts ``sum`` and ``digits`` (``bounded.sum_audit``), and ``model``.

    Guarantee: ``model`` fails unless the published model is a function of released sums and public text, so that it
    holds nothing else about the devices.

    Args:
      devices: token ids of each device of the split, in its order of typing, ``<eos>`` after each sentence. Private.
      model: arrays of the published model of counts.
      follows: the same arrays, computed from ``released_U`` and public text.
    """
    contributions, size = _counted(devices, asked), len(asked.weight_U)
    same = len(model) == len(follows) and all(
        one.shape == other.shape and np.allclose(one, other, rtol=_ROUNDING, atol=0.0)
        for one, other in zip(model, follows, strict=True)
    )
    return (
        *sum_audit(released_U, contributions, size, noise_multiplier, clip_norm, key, STREAM),
        Verdict(
            "model",
            "the published counts are what the released sums and public text make",
            "one part in 10^9",
            same,
            "" if same else "the published counts do not follow from the released sums",
        ),
    )


def _counted(devices: Iterable[np.ndarray], asked: CountCells) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Each device's cells and weighted counts."""
    size = asked.vocabulary_size
    first_cell_V = np.zeros(size, dtype=np.int64)  # first cell of each context; 0 for other words
    first_cell_V[asked.context_K] = size * np.arange(1, 1 + len(asked.context_K))
    first_cell_V[EOS] = first_cell_V[BOS]  # what follows an end is at a start
    for tokens_N in devices:
        after_N = first_cell_V[np.concatenate([[BOS], tokens_N[:-1]])] if len(tokens_N) else tokens_N
        pairs = (after_N + tokens_N)[after_N > 0]
        cells, times = np.unique(np.concatenate([tokens_N, pairs]).astype(np.int64), return_counts=True)
        yield cells, times * asked.weight_U[cells]
