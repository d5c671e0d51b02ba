"""Audits by direction canaries, as the rows of a disclosure.

Shape legend: T rounds, N canaries, P parameters.
"""

from dataclasses import dataclass, replace

import numpy as np

from evaluation.audit.directions import Directions
from evaluation.audit.matched_filter import Claim, Estimate, MatchedFilter, matched_filter
from evaluation.audit.released.replay import Models, Optimiser, RoundRecords, noise_added, sequence
from evaluation.audit.released.rows import AuditRow, Kind
from evaluation.audit.released.updates import canary_lengths, update_lengths
from evaluation.config import ALPHA

# Share of the audit's false alarm rate that its tests use; the rest is a margin.
_USED = 0.5


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
    return NoiseAudit(
        rows=rows, passed=all(row.passed is not False for row in rows), seed_commitment=directions.commitment
    )


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
    return tuple(_matched_rows(filtered))


def _matched_rows(filtered: MatchedFilter) -> list[AuditRow]:
    reasons = dict(failure.split(": ", 1) for failure in filtered.failures)
    everyone = filtered.canaries_in + filtered.canaries_out

    def row(kind: Kind, quantity: str, name: str, estimate: Estimate, count: int) -> AuditRow:
        return AuditRow(
            type=kind,
            quantity=quantity,
            estimate=estimate.value,
            low=estimate.low,
            high=estimate.high,
            claim=estimate.claim,
            confidence=1 - filtered.alpha,
            p_value=estimate.p_value,
            n=count,
            passed=name not in reasons,
            reason=reasons.get(name, ""),
            least_noise={"noise": estimate.least, "separation": estimate.least and 1 / estimate.least}.get(name),
            least_clip=estimate.least if name in ("signal", "separation") else None,
        )

    recorded = Estimate(filtered.recorded_mu, filtered.recorded_mu, filtered.recorded_mu, filtered.mu.claim, 1.0)
    likeness = abs(filtered.reuse.correlation)
    reuse = Estimate(likeness, likeness, likeness, 0.0, filtered.reuse.p_value)
    rows = [
        row(
            "matched_filter",
            f"epsilon at delta {filtered.delta:g}, whole run",
            "separation",
            filtered.epsilon,
            everyone,
        ),
        row("noise_scale", "noise in clip norms", "noise", filtered.noise, filtered.canaries_out),
        row("clip_norm", "length of an update in clip norms", "signal", filtered.signal, filtered.canaries_in),
        row("noise_whiteness", "largest correlation of two rounds' noise", "reuse", reuse, filtered.canaries_out),
        row("records", "mu of the rounds that a canary joined", "records", recorded, everyone),
    ]
    # Correlations have no claim to compare with, and arithmetic has no error probability.
    rows[3] = replace(rows[3], claim=None)
    rows[4] = replace(rows[4], p_value=None)
    return rows
