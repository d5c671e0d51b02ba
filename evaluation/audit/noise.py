"""Audits by direction canaries, as the rows of a disclosure.

Shape legend: T rounds, N canaries, P parameters.
"""

import math
from dataclasses import dataclass

import numpy as np

from evaluation.audit.directions import Directions
from evaluation.audit.matched_filter import Claim, MatchedFilter, matched_filter
from evaluation.audit.released.replay import Models, Optimiser, RoundRecords, noise_added, sequence
from evaluation.audit.released.rows import AuditRow
from evaluation.config import ALPHA

# Share of the audit's false alarm rate that its tests use; the rest is a margin.
_USED = 0.5
# Tolerance of a canary's length: float32 and the grid move it by less.
_ROUNDING = 1e-4
# Relative change of all lengths that is noticed: the ball ends 2^-20 inside the norm.
LEAST_CLIP = 1.0 + 2.0**-19


@dataclass(frozen=True)
class Trace:
    """Trace of training for the audits. Secret: with the public model it reveals sums of real devices.

    Attributes:
      projections_TN: of every round's released sum minus the other devices' contributions, in that round's clip norms.
      joined_TN: bool, the rounds in which each canary's timer admitted it, included or not.
      seen: the other records of the rounds.
    """

    projections_TN: np.ndarray
    joined_TN: np.ndarray
    seen: RoundRecords


@dataclass(frozen=True)
class Recomputation:
    """Models, noise and rows, recomputed independently of the trainer, with which audits compare the trace.

    Attributes:
      models: from the files, not from the trainer.
      optimiser: from the launch file.
      noise_TN: inner products of every round's noise with the directions, by the audit's own generator; secret.
      rounding: standard deviation that the devices' encoding adds along a direction, in clip norms.
      per_layer: True if updates are clipped by layer.
      rows: rows about the records.
    """

    models: Models
    optimiser: Optimiser
    noise_TN: np.ndarray
    rounding: float = 0.0
    per_layer: bool = False
    rows: tuple[AuditRow, ...] = ()


@dataclass(frozen=True)
class NoiseAudit:
    """Every row, and the commitment from before training."""

    rows: tuple[AuditRow, ...]
    passed: bool
    seed_commitment: str


def noise_audit(
    trace: Trace,
    directions: Directions,
    claim: Claim,
    again: Recomputation,
    alpha: float = ALPHA,
) -> NoiseAudit:
    """Audit the noise: released sums, and the matched filter with its parts.

    Guarantee: if the claim is true, ``passed`` is True with probability at least ``1 - alpha``. Rows of arithmetic have
    no error probability.

    Args:
      claim: for the *enforced* limits: canaries take part as often as the timer allows, which real devices may not
        have done.
      again: recomputed without the trainer.

    Raises:
      ValueError: mismatched shapes; see ``matched_filter``.
    """
    rows = (
        sequence(trace.seen, again.models, again.optimiser),
        noise_added(trace.seen, again.noise_TN, claim.noise_multiplier),
        update_lengths(trace.seen),
        canary_lengths(trace.seen, trace.joined_TN, directions, again.rounding, again.per_layer),
        *again.rows,
        *projection_rows(trace.projections_TN, trace.joined_TN, directions, claim, alpha),
    )
    return NoiseAudit(rows=rows, passed=all(row.passed for row in rows), seed_commitment=directions.commitment)


def projection_rows(
    projections_TN: np.ndarray,
    joined_TN: np.ndarray,
    directions: Directions,
    claim: Claim,
    alpha: float = ALPHA,
) -> tuple[AuditRow, ...]:
    """Rows that follow from projections onto the directions alone; the arguments are those of ``noise_audit``."""
    # With sampled cohorts some canaries may never have had a round; they carry no information.
    joined_N = joined_TN.any(axis=0)
    included_N = directions.included_N[joined_N]
    filtered = matched_filter(projections_TN[:, joined_N], joined_TN[:, joined_N], included_N, claim, alpha * _USED)
    return _matched_rows(filtered)


def _matched_rows(filtered: MatchedFilter) -> tuple[AuditRow, ...]:
    reasons = dict(failure.split(": ", 1) for failure in filtered.failures)
    least = filtered.mu.least
    return (
        AuditRow("matched_filter", reasons.get("separation", ""), least and 1 / least, least),
        AuditRow("noise_scale", reasons.get("noise", ""), least_noise=filtered.noise.least),
        AuditRow("clip_norm", reasons.get("signal", ""), least_clip=filtered.signal.least),
        AuditRow("noise_whiteness", reasons.get("reuse", "")),
        AuditRow("records", reasons.get("records", "")),
    )


def update_lengths(seen: RoundRecords) -> AuditRow:
    """The row about the devices' updates: none longer than a clip norm, and nothing else in the sum.

    Guarantee: fails if the whole numbers of any device have an L2 norm above the clip norm, or if they do not add up to
    the sum of the round. Exact: an honest run passes.
    """
    longer, unexplained = int(seen.longer_T.sum()), np.flatnonzero(seen.missing_T)
    reason = f"{longer} updates were longer than the clip norm" if longer else ""
    if len(unexplained):
        reason = f"the sum of round {unexplained[0]} is not that of the devices' updates"
    return AuditRow("update_lengths", reason, least_clip=LEAST_CLIP)


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
    return AuditRow("canary_lengths", reason, least_clip=1 + slack)


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
