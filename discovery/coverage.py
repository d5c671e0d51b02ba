"""Coverage of word lists, measured on held-out devices."""

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from scipy import stats


def coverage(
    listed: Collection[str], unknown_counts_D: Sequence[Mapping[str, int]], confidence: float
) -> tuple[float, float, float]:
    """Share of held-out devices' out-of-vocabulary tokens that the listed words would cover, with its interval.

    The interval is the normal one of a ratio of sums over devices, since words of one device are correlated. It
    carries no noise: held-out devices are not protected. A single device gives no variance, so the interval is
    [0, 1].

    Args:
      unknown_counts_D: for each device, occurrences of each word outside the base vocabulary.

    Returns:
      The share and both ends; zeros where devices typed no such token.

    Raises:
      ValueError: a confidence outside (0, 1).
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: got {confidence}, expected within (0, 1)")
    words = set(listed)
    covered_D = np.array([sum(counts.get(word, 0) for word in words) for counts in unknown_counts_D])
    total_D = np.array([sum(counts.values()) for counts in unknown_counts_D])
    total, devices = int(total_D.sum()), len(total_D)
    share = float(covered_D.sum()) / total if total else 0.0
    if devices < 2:
        return share, 0.0, 1.0
    if not total:
        return 0.0, 0.0, 0.0
    residual_D = covered_D - share * total_D
    deviation = math.sqrt(devices / (devices - 1) * float(residual_D @ residual_D)) / total
    reach = float(stats.norm.ppf((1 + confidence) / 2)) * deviation
    return share, max(share - reach, 0.0), min(share + reach, 1.0)
