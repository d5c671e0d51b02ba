"""All audits that direction canaries allow, as the rows of a disclosure.

Shape legend: T rounds, N canaries, P parameters.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from evaluation.audit.directions import Directions
from evaluation.audit.matched_filter import Claim, Estimate, MatchedFilter, matched_filter
from evaluation.audit.one_run import one_run
from evaluation.audit.one_shot import cosines, one_shot


@dataclass(frozen=True)
class Trace:
    """What training kept for the audits. Secret: with the public model it tells sums of real devices.

    Attributes:
      projections_TN: of every round's released sum minus what the other devices sent, in that round's clip norms.
      joined_TN: bool, the rounds in which each canary's timer let it in, included or not.
    """

    projections_TN: np.ndarray
    joined_TN: np.ndarray


class AuditRow(BaseModel):
    """One audit; public.

    Attributes:
      type: ``lower_bound`` never stands beside an epsilon as if it were an estimate of one.
      quantity: what was estimated.
      estimate, low, high: with an interval at ``confidence``; equal where there is none.
      claim: what the accountant says, in the same unit; None where the audit compares nothing.
      p_value: chance of such an estimate if the claim is true; None for bounds and for the final model.
      n: canaries that it rests on.
      passed: nothing speaks against the claim; None for a row that decides nothing.
      reason: in words, if something does.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Literal["matched_filter", "noise_scale", "clip_norm", "noise_whiteness", "records", "one_shot", "lower_bound"]
    quantity: str
    estimate: float
    low: float
    high: float
    claim: float | None
    confidence: float
    p_value: float | None
    n: int
    passed: bool | None
    reason: str = ""


class NoiseAudit(BaseModel):
    """Every row, and what was committed to before training."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: tuple[AuditRow, ...]
    passed: bool
    delta: float
    alpha: float
    seed_commitment: str


def noise_audit(
    trace: Trace, directions: Directions, change_P: np.ndarray, claim: Claim, alpha: float = 0.05
) -> NoiseAudit:
    """Matched filter with its parts, the estimate on the final model and the one-run bound.

    Guarantee: if the claim is true, ``passed`` is True with probability at least ``1 - 2 alpha``: the matched filter
    and the one-run bound have ``alpha`` each, and the bound is far too loose to use its own. The one-shot
    estimate decides nothing, as it is biased upwards and has no error rate.

    Args:
      change_P: final minus initial weights.
      claim: for the limits that were *enforced*: canaries take part as often as the timer allows, which no real
        device may have done.

    Raises:
      ValueError: shapes that do not fit; see ``matched_filter`` and ``one_shot``.
    """
    # Where cohorts are sampled some canaries may never have had a round; they tell nothing.
    joined_N = trace.joined_TN.any(axis=0)
    included_N = directions.included_N[joined_N]
    found = matched_filter(trace.projections_TN[:, joined_N], trace.joined_TN[:, joined_N], included_N, claim, alpha)
    rows = _matched_rows(found)
    projected_N = cosines(change_P, directions.project(change_P)[joined_N])
    final = one_shot(projected_N[included_N], len(change_P), claim.delta, directions.seed, confidence=1 - alpha)
    rows.append(
        AuditRow(
            type="one_shot",
            quantity="epsilon of the final model alone",
            estimate=final.epsilon,
            low=final.low,
            high=final.high,
            claim=found.epsilon.claim,
            confidence=final.confidence,
            p_value=None,
            n=final.canaries,
            passed=None,
        )
    )
    bound = one_run(found.scores_N, included_N, claim.delta, alpha)
    refuted = bound.epsilon_at_least > found.epsilon.claim
    rows.append(
        AuditRow(
            type="lower_bound",
            quantity=f"epsilon is at least ({bound.correct} of {bound.guesses} guesses right); a low bound is no proof",
            estimate=bound.epsilon_at_least,
            low=bound.epsilon_at_least,
            high=bound.epsilon_at_least,
            claim=None,
            confidence=bound.confidence,
            p_value=None,
            n=bound.canaries,
            passed=not refuted,
            reason=f"epsilon {found.epsilon.claim:.3g} is refuted" if refuted else "",
        )
    )
    return NoiseAudit(
        rows=tuple(rows),
        passed=all(row.passed is not False for row in rows),
        delta=claim.delta,
        alpha=alpha,
        seed_commitment=directions.commitment,
    )


def _matched_rows(found: MatchedFilter) -> list[AuditRow]:
    reasons = dict(failure.split(": ", 1) for failure in found.failures)
    everyone = found.canaries_in + found.canaries_out

    def row(kind: str, quantity: str, name: str, estimate: Estimate, count: int) -> AuditRow:
        return AuditRow(
            type=kind,
            quantity=quantity,
            estimate=estimate.value,
            low=estimate.low,
            high=estimate.high,
            claim=estimate.claim,
            confidence=1 - found.alpha,
            p_value=estimate.p_value,
            n=count,
            passed=name not in reasons,
            reason=reasons.get(name, ""),
        )

    recorded = Estimate(found.recorded_mu, found.recorded_mu, found.recorded_mu, found.mu.claim, 1.0)
    likeness = abs(found.reuse.correlation)
    reuse = Estimate(likeness, likeness, likeness, 0.0, found.reuse.p_value)
    rows = [
        row("matched_filter", f"epsilon at delta {found.delta:g}, whole run", "separation", found.epsilon, everyone),
        row("noise_scale", "noise in clip norms", "noise", found.noise, found.canaries_out),
        row("clip_norm", "length of an update in clip norms", "signal", found.signal, found.canaries_in),
        row("noise_whiteness", "largest correlation of two rounds' noise", "reuse", reuse, found.canaries_out),
        row("records", "mu of the rounds that a canary joined", "records", recorded, everyone),
    ]
    # Correlations have no claim to be drawn against, and arithmetic has no chance of error.
    rows[3] = rows[3].model_copy(update={"claim": None})
    rows[4] = rows[4].model_copy(update={"p_value": None})
    return rows
