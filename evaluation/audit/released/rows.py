"""One row of the audits of the noise, as the disclosure shows it."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "matched_filter",
    "noise_scale",
    "clip_norm",
    "noise_whiteness",
    "records",
    "one_shot",
    "lower_bound",
    "sequence",
    "noise_added",
    "update_lengths",
    "canary_lengths",
    "cohorts",
    "trained_rows",
    "noise_variance",
    "noise_values",
]


@dataclass(frozen=True)
class AuditRow:
    """What one audit of the noise estimated, and whether it speaks against the claim; public.

    Attributes:
      type: ``lower_bound`` never stands beside an epsilon as if it were an estimate of one.
      quantity: what was estimated.
      estimate, low, high: with an interval at ``confidence``; equal where there is none.
      claim: what the accountant says, in the same unit; None where the audit compares nothing.
      p_value: chance of such an estimate if the claim is true; None for bounds and for the final model.
      n: canaries that it rests on.
      passed: nothing speaks against the claim; None for a row that decides nothing.
      reason: in words, if something does.
      least_noise: largest share of the claimed noise that it would speak against with 90% power; None if none.
      least_clip: smallest multiple of the clip norm that it would speak against with 90% power; None if none.
    """

    type: Kind
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
    least_noise: float | None = None
    least_clip: float | None = None


def exact(kind: Kind, quantity: str, estimate: float, n: int, reason: str, least_clip: float | None = None) -> AuditRow:
    """A row of arithmetic, which has no chance of error: it passes unless there is a reason."""
    return AuditRow(
        type=kind,
        quantity=quantity,
        estimate=estimate,
        low=estimate,
        high=estimate,
        claim=None,
        confidence=1.0,
        p_value=None,
        n=n,
        passed=not reason,
        reason=reason,
        least_clip=least_clip,
    )
