"""Result of one gate: a number, or a list of problems, against its limit."""

import math
from typing import TypeGuard

from pydantic import BaseModel, ConfigDict

from pipeline.ledger.budget import ROUNDING
from pipeline.publication.gates.words import words_of
from reports.disclosure.document import GateResult


class Part(BaseModel):
    """Evidence for the gates on one subject, under the names of the stages' results.

    Any field may be missing; missing evidence fails its gate.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")


def at_most(name: str, title: str, value: float | None, threshold: float | None, what: str) -> GateResult:
    # Same tolerance as the ledger's, so that a sum that it accepted passes here.
    passed = finite(value) and finite(threshold) and value <= threshold * (1 + ROUNDING)
    return gate(name, title, value, threshold, passed, f"{what} is {show(value)}, at most {show(threshold)} allowed")


def at_least(
    name: str, title: str, value: float | None, threshold: float | None, what: str, *, strictly: bool = False
) -> GateResult:
    passed = finite(value) and finite(threshold) and (value > threshold if strictly else value >= threshold)
    need = "must exceed" if strictly else "must be at least"
    return gate(name, title, value, threshold, passed, f"{what} is {show(value)}, {need} {show(threshold)}")


def none_of(name: str, title: str, problems: tuple[str, ...] | None, otherwise: str) -> GateResult:
    """Gate that passes without problems; it fails if the check is missing."""
    text = "missing" if problems is None else "; ".join(problems) or otherwise
    return gate(name, title, None if problems is None else len(problems), 0, problems == (), text)


def gate(name: str, title: str, value: float | None, threshold: float | None, passed: bool, text: str) -> GateResult:
    return GateResult(
        id=name,
        title=title,
        asks=words_of(name).asks,
        value=value if finite(value) else None,
        threshold=threshold if finite(threshold) else None,
        passed=bool(passed),
        evidence=text,
    )


def finite(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def show(value: float | None) -> str:
    if not finite(value):
        return "missing" if value is None else "not a finite number"
    return f"{value:.6g}" if isinstance(value, float) else f"{value}"
