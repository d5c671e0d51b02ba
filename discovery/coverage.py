"""How much of what people type a list of words covers."""

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from scipy import stats


def coverage(listed: Collection[str], unknown_counts: Mapping[str, int]) -> float:
    """Share of out-of-vocabulary tokens that the listed words would cover; 0 if there are none.

    Args:
      unknown_counts: occurrences of each word outside the base vocabulary.
    """
    total = sum(unknown_counts.values())
    return sum(unknown_counts.get(word, 0) for word in set(listed)) / total if total else 0.0


def coverage_interval(
    listed: Collection[str], unknown_counts_D: Sequence[Mapping[str, int]], confidence: float
) -> tuple[float, float]:
    """Interval of ``coverage`` over held-out devices, which type alike within and not between each other.

    The normal interval of a ratio of sums over devices. It carries no noise: held-out devices are not protected.

    Raises:
      ValueError: fewer than two devices, or a confidence outside (0, 1).
    """
    if len(unknown_counts_D) < 2 or not 0 < confidence < 1:
        raise ValueError(
            f"devices, confidence: got {len(unknown_counts_D)}, {confidence}; expected at least 2, within (0, 1)"
        )
    words = set(listed)
    covered_D = np.array([sum(counts.get(word, 0) for word in words) for counts in unknown_counts_D])
    total_D = np.array([sum(counts.values()) for counts in unknown_counts_D])
    total = int(total_D.sum())
    if not total:
        return 0.0, 0.0
    share = float(covered_D.sum()) / total
    residual_D = covered_D - share * total_D
    devices = len(total_D)
    deviation = math.sqrt(devices / (devices - 1) * float(residual_D @ residual_D)) / total
    reach = float(stats.norm.ppf((1 + confidence) / 2)) * deviation
    return max(share - reach, 0.0), min(share + reach, 1.0)
