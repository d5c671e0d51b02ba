"""The audit of an evaluation under a budget: its vectors against the devices' text, with recomputed sum and noise.

Scores are not recomputed: other hardware gives other last digits, and the bound holds for any scores. Every device's
scored vector is kept beside the noise's key.

Shape legend: D devices, M cells.
"""

import numpy as np

from evaluation.audit.released.bounded import sum_audit
from evaluation.audit.verdict import Verdict

STREAM = "evaluation"
# Tolerance of a cell's value; a device's words are divided by a constant.
_ROUNDING = 1e-12


def evaluation_audit(
    released_M: np.ndarray,
    vectors_DM: np.ndarray,
    words_D: np.ndarray,
    size: int,
    words_weight: float,
    most_words: float,
    noise_multiplier: float,
    clip_norm: float,
    key: bytes,
) -> tuple[Verdict, ...]:
    """Verdicts ``devices``, ``sum`` and ``digits`` (``bounded.sum_audit``).

    Guarantee: ``devices`` fails unless there is one vector for each held-out device, in their order, whose first cell
    is the number of words that the device typed. Exact: an honest release passes.

    Args:
      vectors_DM: each device's vector before it is bounded, as kept. Private.
      words_D: words that each held-out device typed, from the private store. Private.
      size: M.
      words_weight: weight of the first cell.
      most_words: largest number of words as which a device counts.
    """
    cells = np.arange(size)
    expected_D = words_weight * np.minimum(words_D / most_words, 1.0)
    each = vectors_DM.shape == (len(words_D), size) and bool(np.all(np.abs(vectors_DM[:, 0] - expected_D) <= _ROUNDING))
    devices = Verdict(
        "devices",
        "every held-out device is in the evaluation once, with the words that it typed",
        "one word of one device",
        each,
        "" if each else "the vectors are not those of the held-out devices, each once",
    )
    contributions = ((cells, vector_M) for vector_M in vectors_DM if each)
    return (devices, *sum_audit(released_M, contributions, size, noise_multiplier, clip_norm, key, STREAM))
