"""The answer of one gate: how a number, or a list of problems, is held against what the policy allows."""

import math
from typing import TypeGuard

from pipeline.ledger.room import ROUNDING
from reports.disclosure.document import GateResult


def at_most(name: str, title: str, value: float | None, threshold: float | None, what: str) -> GateResult:
    # A sum that the ledger let through is no more here.
    passed = finite(value) and finite(threshold) and value <= threshold * (1 + ROUNDING)
    return gate(name, title, value, threshold, passed, f"{what} is {show(value)}, at most {show(threshold)} allowed")


def at_least(
    name: str, title: str, value: float | None, threshold: float | None, what: str, *, strictly: bool = False
) -> GateResult:
    passed = finite(value) and finite(threshold) and (value > threshold if strictly else value >= threshold)
    need = "must exceed" if strictly else "must be at least"
    return gate(name, title, value, threshold, passed, f"{what} is {show(value)}, {need} {show(threshold)}")


def none_of(name: str, title: str, problems: tuple[str, ...] | None, otherwise: str) -> GateResult:
    """Nobody found a problem; where nobody looked, the gate fails."""
    text = "missing" if problems is None else "; ".join(problems) or otherwise
    return gate(name, title, None if problems is None else len(problems), 0, problems == (), text)


def gate(name: str, title: str, value: float | None, threshold: float | None, passed: bool, text: str) -> GateResult:
    return GateResult(
        id=name,
        title=title,
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
