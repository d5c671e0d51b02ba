"""Which of a device's candidates fill its C messages (Sun & Sun 2024, section 3)."""

from typing import Literal

import numpy as np

from discovery.device.keystream import Keystream


def sample(
    counts: dict[int, int], contributions: int, kind: Literal["random", "greedy"], none: int, bits: Keystream
) -> np.ndarray:
    """Exactly ``contributions`` items, int64: distinct candidates and copies of ``none``, in random order.

    Guarantee: changing one occurrence on a device changes at most one of the C items (random:
    as a coupling), which makes C messages of epsilon0 each item-level epsilon0-LDP. The number
    of messages and the order among equals must not depend on the data: every device sends
    exactly C, and equals are ordered by item number. The random order of the C items is what makes
    this hold for messages one by one: in a sorted row, one new item would move others too.

    Args:
      counts: candidate item -> how often the device has it.
    """
    candidates = np.array(sorted(counts), dtype=np.int64)
    if len(candidates) > contributions:
        if kind == "random":
            candidates = candidates[bits.subset(len(candidates), contributions)]
        else:
            often = np.array([counts[item] for item in candidates.tolist()])
            candidates = candidates[np.argsort(-often, kind="stable")[:contributions]]
    items = np.concatenate([candidates, np.full(contributions - len(candidates), none, dtype=np.int64)])
    return items[bits.permutation(contributions)]
