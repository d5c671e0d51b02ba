"""Second opinions on intervals, and the decisions that intervals give.

Shape legend: D devices, R resamples.

Reports use the jackknife interval of ``evaluation.comparison.intervals``. The delta method and a paired
Poisson bootstrap over devices estimate the same standard error in other ways; if they disagree, the
result depends on few devices. Decisions follow the launch rule of the Gboard papers, improved or
neutral: the whole interval of the primary metric above the non-inferiority margin, and no guardrail
clearly worse than its own. Of many metrics one looks worse by chance, so *clearly* is corrected for their number.
Simulated typists rest on assumptions, so a finding must hold for all of them.
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

    If the baseline makes no error, the change is absolute, and any significant one is too much.

    Attributes:
      standard_error: of the change.
      power: probability that a candidate as good as the baseline passes; None for a guardrail.
      clearly_worse: the whole interval, widened for the number of metrics, is worse than a guardrail's margin, in
        either role.
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
    """Non-inferiority of a candidate for one feature; ``missing`` names required metrics without an estimate."""

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
      worse_under: calibrations other than the median under which it is clearly worse.
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
    # In batches: all resamples of a million devices would not fit into memory.
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
      tables: ``ratios()`` of each arm, from which ``result`` was made.
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
    fails only if its whole interval is worse than ``-GUARDRAIL_MARGIN``: the harm must be significant.

    Guarantee: of a candidate as good as the baseline in every metric, some metric is clearly worse with probability at
    most ``(1 - confidence) / 2``, for any number of metrics and devices.
    """
    rows = {row.metric: row for row in result.differences if (row.candidate, row.baseline) == (candidate, baseline)}
    wanted = [primary, *(metric for metric in guardrails if metric != primary)]
    missing = [metric for metric in wanted if metric not in rows or _change(rows[metric]) is None]
    checks = tuple(
        _check(rows[metric], "primary" if metric == primary else "guardrail", result.confidence, len(wanted))
        for metric in wanted
        if metric not in missing
    )
    # Missing evidence does not count for the candidate.
    passes = primary not in missing and all(check.passes for check in checks)
    return Verdict(candidate, baseline, checks, tuple(missing), passes, primary, feature)


def margin(relative: Estimate) -> float:
    """Relative loss that still counts as neutral: the resolution of sessions of this length, up to ``WIDEST_MARGIN``.

    It is the whole width of a plain interval: a candidate as good as the baseline passes with probability at least 95%,
    also at a first attempt, and one worse by the margin with at most 2.5%. The width is at least that of the standard
    error for which sessions are planned, and further attempts do not widen it. Where few devices make the width larger
    than ``WIDEST_MARGIN``, an equal candidate passes less often: ``Check.power`` says how often.
    """
    width = 2 * intervals.half_widths(CONFIDENCE, relative.degrees) * max(relative.standard_error, PLANNED_ERROR)
    return min(width, WIDEST_MARGIN)


def _change(row: Difference) -> Estimate | None:
    """Estimate that judges a metric; None without one, such as for a baseline without picks.

    A gain whose interval is above zero is no loss beside any baseline, such as one that noise does not tell from zero.
    """
    absolute_judges = row.metric in LOWER_IS_BETTER or row.absolute.low > 0
    return row.absolute if row.relative is None and absolute_judges else row.relative


def _check(row: Difference, role: Literal["primary", "guardrail"], confidence: float, tests: int) -> Check:
    """Check one metric; ``tests`` is the number of metrics of which one may look worse by chance."""
    change = _change(row)
    assert change is not None, f"{row.metric}: nothing to judge"
    wide = intervals.simultaneous(change, confidence, tests)
    worst, best = (change.low, wide.high) if row.metric not in LOWER_IS_BETTER else (-change.high, -wide.low)
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
    """Probability that a candidate as good as the baseline is shown to lose less than ``allowed``."""
    if change.standard_error == 0:
        return 1.0
    room = allowed / change.standard_error - intervals.half_widths(confidence, change.degrees)
    return float(stats.t.cdf(room, change.degrees))


def planned_words(pilot: Estimate, words: int) -> int:
    """Words to type again for the planned standard error, from the error of a recall over ``words`` words.

    Typing adds the variance of typists to that of the model: a pick needs a look. On the demo's devices this makes
    errors 1.25 times as large (benchmarks/results/2026-11-22-non-inferiority.md). The error falls with the square root
    of the words.
    """
    return math.ceil(words * (_TYPING_ADDS * pilot.standard_error / PLANNED_ERROR) ** 2)


def guardrails(baseline: str, *, typed: bool) -> tuple[str, ...]:
    """Guardrail metrics; against the starting point both recalls have gates and margins of their own."""
    wanted = GUARDRAILS if typed else _RECALLS
    return tuple(metric for metric in wanted if baseline != "start" or metric not in _RECALLS)


def sign_check(by_calibration: Mapping[str, Difference], confidence: float, tests: int) -> SignCheck:
    """Compare one difference across calibrations, the median first: contradictions, and clearly worse ones.

    Args:
      confidence: of the intervals.
      tests: metrics times calibrations other than the median, of which one may look worse by chance.
    """
    first = next(iter(by_calibration.values()))
    changes = {name: _change(row) or row.absolute for name, row in by_calibration.items()}
    worse = {
        name
        for name, row in by_calibration.items()
        if _change(row) and _check(row, "guardrail", confidence, tests).clearly_worse
    }
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
