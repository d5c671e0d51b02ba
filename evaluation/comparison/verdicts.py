"""Second opinions on an interval, and what an interval decides.

Shape legend: D devices, R resamples.

The jackknife of ``evaluation.comparison.intervals`` is the interval that is reported. The delta method and a paired
Poisson bootstrap over devices estimate the same standard error in other ways; where they disagree,
few devices carry the result. Decisions follow the launch rule of the Gboard papers, improved or
neutral: the whole interval of the primary metric above the non-inferiority margin, and no guardrail
clearly worse than its own. Simulated typists differ by assumption, so what they say must hold for all of them.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from evaluation.arms.held_out import Ratio
from evaluation.comparison import intervals
from evaluation.comparison.intervals import AbResult, Difference, Estimate
from evaluation.config import CONFIDENCE, GUARDRAIL_MARGIN, PLANNED_ERROR, WIDEST_MARGIN

# Every other metric is better when higher.
LOWER_IS_BETTER = frozenset({"cross_entropy", "words_modified", "errors_left"})
_WEIGHTS_AT_ONCE = 2_000_000
_TYPING_ADDS = 1.25
_RECALLS = ("top1_recall", "top3_recall")
GUARDRAILS = ("words_modified", "words_per_minute", *_RECALLS, "errors_left")


@dataclass(frozen=True)
class SecondOpinion:
    """Standard errors of one difference by three methods; ``agree`` if within a factor of 1.5."""

    candidate: str
    baseline: str
    metric: str
    jackknife: float
    delta: float
    bootstrap: float
    agree: bool


@dataclass(frozen=True)
class Check:
    """One metric against its margin: the bound of the relative change that has to hold.

    Where the baseline makes no error at all there is nothing to be relative to: the change is absolute, and any that
    is shown is too much.

    Attributes:
      standard_error: of the change.
      power: chance that a candidate as good as the baseline passes; None for a guardrail.
      clearly_worse: the whole interval is worse than a guardrail's margin, whatever the role.
    """

    metric: str
    role: Literal["primary", "guardrail"]
    change: float
    bound: float
    margin: float
    standard_error: float
    power: float | None
    passes: bool
    clearly_worse: bool


@dataclass(frozen=True)
class Verdict:
    """Non-inferiority of a candidate for one feature; ``missing`` names wanted metrics that could not be estimated."""

    candidate: str
    baseline: str
    checks: tuple[Check, ...]
    missing: tuple[str, ...]
    passes: bool
    primary: str
    feature: str = ""


@dataclass(frozen=True)
class SignCheck:
    """A relative difference (absolute where the baseline has none) under each calibration.

    Attributes:
      stable: no two calibrations contradict each other.
      worse_under: calibrations beside the median under which it is clearly worse.
    """

    candidate: str
    baseline: str
    metric: str
    changes: dict[str, Estimate]
    stable: bool
    worse_under: tuple[str, ...]


def delta_error(candidate: Ratio, baseline: Ratio) -> float:
    """Standard error of the paired difference of two ratios of sums, by linearisation over devices."""
    influence_D = _influence(*candidate) - _influence(*baseline)
    return float(np.sqrt(np.sum((influence_D - influence_D.mean()) ** 2) * len(influence_D) / (len(influence_D) - 1)))


def bootstrap_error(candidate: Ratio, baseline: Ratio, seed: int, resamples: int = 2000) -> float:
    """Standard error of the same difference over Poisson resamples of devices, one set for both arms."""
    rng = np.random.default_rng(seed)
    devices = len(candidate[0])
    differences: list[np.ndarray] = []
    # A few resamples at a time: all of them for a million devices would not fit into memory.
    at_once = max(1, _WEIGHTS_AT_ONCE // devices)
    for start in range(0, resamples, at_once):
        weight_RD = rng.poisson(1.0, size=(min(at_once, resamples - start), devices))
        new, old = (
            (weight_RD @ numerator_D) / np.maximum(weight_RD @ denominator_D, 1e-300)
            for numerator_D, denominator_D in (candidate, baseline)
        )
        differences.append(new - old)
    return float(np.std(np.concatenate(differences), ddof=1))


def second_opinions(
    tables: Mapping[str, Mapping[str, Ratio]],
    result: AbResult,
    candidate: str,
    baseline: str,
    metrics: Iterable[str],
    seed: int,
) -> list[SecondOpinion]:
    """The three standard errors of each metric's difference.

    Args:
      tables: ``ratios()`` of each arm, what ``result`` was made from.
    """
    opinions = []
    for metric in metrics:
        new, old = tables[candidate][metric], tables[baseline][metric]
        jackknife = result.difference(candidate, baseline, metric).absolute.standard_error
        errors = jackknife, delta_error(new, old), bootstrap_error(new, old, seed)
        opinions.append(SecondOpinion(candidate, baseline, metric, *errors, agree=max(errors) <= 1.5 * min(errors)))
    return opinions


def verdict(
    result: AbResult,
    candidate: str,
    baseline: str,
    primary: str,
    guardrails: Iterable[str] = GUARDRAILS,
    feature: str = "",
) -> Verdict:
    """Judge whether a candidate is not inferior, for a feature.

    The primary metric passes if its whole interval is better than ``-margin`` (relative). A guardrail
    fails only if its whole interval is worse than ``-GUARDRAIL_MARGIN``: it has to be shown to be hurt.
    """
    rows = {row.metric: row for row in result.differences if (row.candidate, row.baseline) == (candidate, baseline)}
    wanted = [primary, *(metric for metric in guardrails if metric != primary)]
    missing = [metric for metric in wanted if metric not in rows or _change(rows[metric]) is None]
    checks = tuple(
        _check(rows[metric], "primary" if metric == primary else "guardrail", result.confidence)
        for metric in wanted
        if metric not in missing
    )
    # Evidence that is not there is no evidence for the candidate.
    passes = primary not in missing and all(check.passes for check in checks)
    return Verdict(candidate, baseline, checks, tuple(missing), passes, primary, feature)


def margin(relative: Estimate) -> float:
    """The relative loss that still counts as neutral: what sessions of this length can tell, up to ``WIDEST_MARGIN``.

    It is the whole width of a plain interval, so that a candidate as good as the baseline passes nineteen times in
    twenty also where the interval is that of a first attempt, and one worse by the margin once in forty at most. That
    width is never less than that of the standard error which sessions are planned for, and attempts do not widen it.
    """
    width = 2 * intervals.half_widths(CONFIDENCE, relative.degrees) * max(relative.standard_error, PLANNED_ERROR)
    return min(width, WIDEST_MARGIN)


def _change(row: Difference) -> Estimate | None:
    """Estimate by which a metric is judged; None where there is none: a baseline of no picks is no baseline."""
    return row.relative if row.relative is not None or row.metric not in LOWER_IS_BETTER else row.absolute


def _check(row: Difference, role: Literal["primary", "guardrail"], confidence: float = CONFIDENCE) -> Check:
    change = _change(row)
    assert change is not None, f"{row.metric}: nothing to judge"
    worst, best = (change.low, change.high) if row.metric not in LOWER_IS_BETTER else (-change.high, -change.low)
    relative = row.relative is not None
    tolerated = GUARDRAIL_MARGIN if relative else 0.0
    allowed = margin(change) if relative and role == "primary" else tolerated
    bound = worst if role == "primary" else best
    return Check(
        metric=row.metric,
        role=role,
        change=change.value,
        bound=bound,
        margin=allowed,
        standard_error=change.standard_error,
        power=_power(change, allowed, confidence) if role == "primary" else None,
        passes=bound >= -allowed,
        clearly_worse=best < -tolerated,
    )


def _power(change: Estimate, allowed: float, confidence: float) -> float:
    """Chance that a candidate as good as the baseline is shown to lose less than what is allowed."""
    if change.standard_error == 0:
        return 1.0
    room = allowed / change.standard_error - intervals.half_widths(confidence, change.degrees)
    return float(stats.t.cdf(room, change.degrees))


def planned_words(pilot: Estimate, words: int) -> int:
    """Words to type again for the planned standard error, by that of a recall over so many words.

    Typing adds what typists do to what a model knows: a pick needs a look. On the demo's devices that makes errors
    1.25 times as large (benchmarks/results/2026-11-22-non-inferiority.md). An error falls with the root of the words.
    """
    return math.ceil(words * (_TYPING_ADDS * pilot.standard_error / PLANNED_ERROR) ** 2)


def guardrails(baseline: str, *, typed: bool) -> tuple[str, ...]:
    """Metrics that must not be hurt; against the starting point both recalls have gates and margins of their own."""
    wanted = GUARDRAILS if typed else _RECALLS
    return tuple(metric for metric in wanted if baseline != "start" or metric not in _RECALLS)


def sign_check(by_calibration: Mapping[str, Difference]) -> SignCheck:
    """Compare the calibrations of one difference, the median first: whether they contradict, and where it is worse."""
    first = next(iter(by_calibration.values()))
    changes = {name: _change(row) or row.absolute for name, row in by_calibration.items()}
    worse = {name for name, row in by_calibration.items() if _change(row) and _check(row, "guardrail").clearly_worse}
    return SignCheck(
        candidate=first.candidate,
        baseline=first.baseline,
        metric=first.metric,
        changes=changes,
        stable=not (any(change.low > 0 for change in changes.values()) and any(c.high < 0 for c in changes.values())),
        worse_under=tuple(name for name in list(changes)[1:] if name in worse),
    )


def _influence(numerator_D: np.ndarray, denominator_D: np.ndarray) -> np.ndarray:
    total = denominator_D.sum()
    return (numerator_D - numerator_D.sum() / total * denominator_D) / total
