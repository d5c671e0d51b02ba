"""Is what enters a round's sum as short as it must be: a device's update by its own numbers, a canary's by its length?

Shape legend: T rounds, N canaries.
"""

import numpy as np

from evaluation.audit.released.replay import Seen
from evaluation.audit.released.rows import AuditRow, exact

# Float32 and the grid move a canary's length by less.
_ROUNDING = 1e-4
# Clipping by layer may take so much of a canary, whose layers are not all alike.
_SHORTEST = 0.75
# What a change of all lengths by one part in so many would be noticed: the ball ends 2^-20 inside the norm.
LEAST_CLIP = 1.0 + 2.0**-19


def update_lengths(seen: Seen) -> AuditRow:
    """The row about the devices' updates: none longer than a clip norm, and nothing else in the sum.

    Guarantee: fails if the whole numbers that any device added have an L2 norm above the clip norm, or if they do not
    come to the sum of the round. Exact: an honest run passes.
    """
    longer, unexplained = int(seen.longer_T.sum()), np.flatnonzero(seen.missing_T)
    reason = f"{longer} updates were longer than the clip norm" if longer else ""
    if len(unexplained):
        reason = f"the sum of round {unexplained[0]} is not that of the devices' updates"
    updates = int(seen.updates_T.sum())
    return exact("update_lengths", "updates of devices above one clip norm", longer, updates, reason, LEAST_CLIP)


def canary_lengths(seen: Seen, joined_TN: np.ndarray, included_N: np.ndarray, rounding: float) -> AuditRow:
    """The row about the canaries' updates, which are clipped, encoded and added with the devices': each one clip norm.

    Guarantee: fails if what a canary added along its direction is longer than one clip norm, or is sent by one that
    was left out, by more than rounding. Exact, as directions are orthonormal: an honest run passes.

    Args:
      rounding: standard deviation along a direction that an encoding adds, in clip norms; 0 without.
    """
    sent_TN = joined_TN & included_N
    slack = _ROUNDING + 12 * rounding
    lengths = seen.planted_TN[sent_TN]
    largest = float(lengths.max(initial=0.0))
    stray = float(np.abs(seen.planted_TN[~sent_TN]).max(initial=0.0))
    reason = ""
    if not largest <= 1 + slack:
        reason = f"a canary's update is {largest:.3g} clip norms long, at most 1 allowed"
    elif not float(lengths.min(initial=1.0)) >= _SHORTEST - slack:
        reason = f"a canary's update is {lengths.min():.3g} clip norms long, so no audit says what a longer one does"
    elif not stray <= 0.2 + slack:
        reason = f"{stray:.3g} clip norms along the direction of a canary that sent nothing"
    quantity = "longest update of a canary, in clip norms, before noise"
    return exact("canary_lengths", quantity, largest, int(sent_TN.sum()), reason, 1 + slack)
