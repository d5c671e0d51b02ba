"""Audit of the lengths of updates in a round's sum: of devices by their whole numbers, of canaries along directions.

Shape legend: T rounds, N canaries, P parameters.
"""

import math

import numpy as np

from evaluation.audit.directions import Directions
from evaluation.audit.released.replay import RoundRecords
from evaluation.audit.released.rows import AuditRow, exact

# Tolerance of a canary's length: float32 and the grid move it by less.
_ROUNDING = 1e-4
# Relative change of all lengths that is noticed: the ball ends 2^-20 inside the norm.
LEAST_CLIP = 1.0 + 2.0**-19


def update_lengths(seen: RoundRecords) -> AuditRow:
    """The row about the devices' updates: none longer than a clip norm, and nothing else in the sum.

    Guarantee: fails if the whole numbers of any device have an L2 norm above the clip norm, or if they do not add up to
    the sum of the round. Exact: an honest run passes.
    """
    longer, unexplained = int(seen.longer_T.sum()), np.flatnonzero(seen.missing_T)
    reason = f"{longer} updates were longer than the clip norm" if longer else ""
    if len(unexplained):
        reason = f"the sum of round {unexplained[0]} is not that of the devices' updates"
    updates = int(seen.updates_T.sum())
    return exact("update_lengths", "updates of devices above one clip norm", longer, updates, reason, LEAST_CLIP)


def canary_lengths(
    seen: RoundRecords, joined_TN: np.ndarray, directions: Directions, rounding: float, per_layer: bool
) -> AuditRow:
    """The row about the canaries' updates, which are clipped, encoded and added with the devices': each one clip norm.

    Guarantee: fails if the canaries' contribution along any direction differs, by more than rounding, from the sum of
    the included canaries' updates, each clipped to one clip norm. Exact: an honest run passes.

    Args:
      rounding: standard deviation along a direction that an encoding adds, in clip norms; 0 without.
      per_layer: True if each layer is clipped to its share first, which turns an update towards other directions.
    """
    sent_TN = joined_TN & directions.included_N
    expected_NN = _clipped_by_layer(directions) if per_layer else np.eye(directions.count)
    excess_TN = seen.planted_TN - sent_TN @ expected_NN
    slack = least_canary_clip(rounding) - 1
    lengths = 1 + excess_TN[sent_TN]
    largest, stray = float(lengths.max(initial=0.0)), float(np.abs(excess_TN[~sent_TN]).max(initial=0.0))
    reason = "" if sent_TN.any() else "no canary sent its update in any round"
    if not largest <= 1 + slack:
        reason = f"a canary's update is {largest:.3g} clip norms long, at most 1 allowed"
    elif not float(lengths.min(initial=1.0)) >= 1 - slack:
        reason = f"a canary's update is {lengths.min():.3g} clip norms long, so no audit says what a longer one does"
    elif not stray <= slack:
        reason = f"{stray:.3g} clip norms along the direction of a canary that sent nothing"
    quantity = "longest update of a canary, in clip norms, before noise"
    return exact("canary_lengths", quantity, largest, int(sent_TN.sum()), reason, 1 + slack)


def least_canary_clip(rounding: float) -> float:
    """Smallest multiple of the clip norm that ``canary_lengths`` rejects; a function of the encoding."""
    return 1 + _ROUNDING + 12 * rounding


def _clipped_by_layer(directions: Directions) -> np.ndarray:
    """Inner products of each included canary's update, clipped by layer, with all directions: ``[N, N]``.

    Updates are far longer than a clip norm, so every layer is clipped to its share. Independent of the trainer's code.
    """
    expected_NN, ends = np.zeros((directions.count, directions.count)), np.cumsum(directions.layers)[:-1]
    for number in np.flatnonzero(directions.included_N).tolist():
        layers = np.split(directions.update(number).astype(np.float64), ends)
        clipped_P = np.concatenate([layer / (math.sqrt(len(layers)) * np.linalg.norm(layer)) for layer in layers])
        expected_NN[number] = directions.project(clipped_P)
    return expected_NN
