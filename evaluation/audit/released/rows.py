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


def exact(kind: Kind, quantity: str, estimate: float, n: int, reason: str) -> AuditRow:
    """A row of arithmetic, which has no chance of error: it passes unless there is a reason."""
    return AuditRow(kind, quantity, estimate, estimate, estimate, None, 1.0, None, n, not reason, reason)
