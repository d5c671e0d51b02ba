"""Result of one gate: a number, or a list of problems, against its limit."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import TypeGuard

from pydantic import BaseModel, ConfigDict

from pipeline.ledger.budget import ROUNDING
from pipeline.publication.gates.words import words_of
from reports.disclosure.document import GateResult
from reports.losses import up


class Part(BaseModel):
    """Evidence for the gates on one subject, under the names of the stages' results.

    Any field may be missing; missing evidence fails its gate.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")


def at_most(
    name: str, title: str, value: float | None, threshold: float | None, what: str, *, places: int | None = None
) -> GateResult:
    """Gate on a ceiling; ``places`` if the value is a privacy loss, which every page rounds up to so many of them."""
    # Same tolerance as the ledger's, so that a sum that it accepted passes here.
    passed = finite(value) and finite(threshold) and value <= threshold * (1 + ROUNDING)
    said = up(value, places) if finite(value) and places is not None else rounded(value, threshold, passed=passed)
    text = f"{what} is {said}, at most {show(threshold)} allowed"
    return gate(name, title, value, threshold, passed, text, said)


def at_least(
    name: str, title: str, value: float | None, threshold: float | None, what: str, *, strictly: bool = False
) -> GateResult:
    passed = finite(value) and finite(threshold) and (value > threshold if strictly else value >= threshold)
    need = "must exceed" if strictly else "must be at least"
    said = rounded(value, threshold, passed=passed)
    return gate(name, title, value, threshold, passed, f"{what} is {said}, {need} {show(threshold)}", said)


def none_of(name: str, title: str, problems: tuple[str, ...] | None, otherwise: str) -> GateResult:
    """Gate that passes without problems; it fails if the check is missing."""
    text = "missing" if problems is None else "; ".join(problems) or otherwise
    return gate(name, title, None if problems is None else len(problems), 0, problems == (), text)


def gate(
    name: str, title: str, value: float | None, threshold: float | None, passed: bool, text: str, said: str = ""
) -> GateResult:
    """Result of a gate, with its value as every page shows it: ``said``, or rounded against the launch."""
    return GateResult(
        id=name,
        title=title,
        asks=words_of(name).asks,
        value=value if finite(value) else None,
        shown=said or rounded(value, threshold, passed=passed),
        threshold=threshold if finite(threshold) else None,
        passed=bool(passed),
        evidence=text,
    )


def finite(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def show(value: float | None) -> str:
    """A threshold, or a figure that no gate judges."""
    if not finite(value):
        return "missing" if value is None else "not a finite number"
    return f"{int(value):,}" if float(value).is_integer() else f"{value:.6g}"


def rounded(value: float | None, threshold: float | None, *, passed: bool) -> str:
    """A gate's value in four digits, rounded against the launch: a pass never looks safer than it was."""
    if not finite(value) or not finite(threshold) or float(value).is_integer():
        return show(value)
    exact = Decimal(repr(float(value)))
    towards_threshold = ROUND_CEILING if value < threshold else ROUND_FLOOR
    away = ROUND_FLOOR if value < threshold else ROUND_CEILING
    step = Decimal(1).scaleb(exact.adjusted() - 3)
    return f"{float(exact.quantize(step, rounding=towards_threshold if passed else away)):.4g}"
