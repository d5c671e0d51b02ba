"""The noise of a release of counts, found as what is left of it when the sum, made again, is taken away.

Shape legend: U cells.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from evaluation.audit.released.rows import AuditRow
from evaluation.audit.released.values import noise_values, places

# A release shows multiples of up to 2^-20 of the noise, so that noise used twice is the same but for that.
_RESOLUTION = 2.0**-18


def counts_audit(
    released_U: np.ndarray,
    vectors: Iterable[tuple[np.ndarray, np.ndarray]],
    shapes: Sequence[Sequence[int]],
    noise_multiplier: float,
    clip_norm: float,
    alpha: float,
) -> list[AuditRow]:
    """Two rows: whether there is as much noise as claimed in every part, and whether it is normal and independent.

    The sum is made by another program than the release's, in floating point: a device that moved the release by more
    than the clip norm, or noise that is not there, is in what is left.

    Guarantee: if every vector was clipped and all the noise was added, both pass with probability at least
    ``1 - alpha``, whatever devices typed; that of ``noise_values``.

    Args:
      released_U: the noisy sums.
      vectors: of each device the cells that it fills and what it adds before clipping; private.
      shapes: of the tables that the cells make up, in their order.
    """
    left_U = released_U.copy()
    for filled, counted in vectors:
        length = float(np.sqrt(counted @ counted))
        left_U[filled] -= counted * min(1.0, clip_norm / length) if length else 0.0
    looked_at = places(shapes, 1)
    noise_1K = left_U[None, looked_at.numbers_K] / clip_norm
    rows = noise_values(noise_1K, looked_at, np.ones((1, 1)), noise_multiplier, alpha, _RESOLUTION)
    variance, values = rows
    what = f"noise in clip norms, of {len(looked_at.starts_R)} rows of counts, less their sum made again"
    return [replace(variance, quantity=what), values]
