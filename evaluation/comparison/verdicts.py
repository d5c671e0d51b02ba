"""Second opinions on an interval, and what an interval decides.

Shape legend: D devices, R resamples.

The jackknife of ``evaluation.comparison.intervals`` is the interval that is reported. The delta method and a paired
Poisson bootstrap over devices estimate the same standard error in other ways; where they disagree,
few devices carry the result. Decisions follow the launch rule of the Gboard papers, improved or
neutral: the whole interval of the primary metric above the non-inferiority margin, and no guardrail
clearly worse than its own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from evaluation.arms.held_out import Ratio
from evaluation.comparison.intervals import AbResult
from evaluation.config import GUARDRAIL_MARGIN, MARGIN

# Every other metric is better when higher.
LOWER_IS_BETTER = frozenset({"cross_entropy", "words_modified", "errors_left"})
PRIMARY = {"NWP": "prate", "SC": "compose_trigger_rate", "OTF": "words_modified"}
# The rows of Xu et al. 2023, tables 1 and 2, by feature.
FEATURE_METRICS = {
    "NWP": ("strip_accuracy", "prate", "click_through_rate"),
    "SC": ("compose_prate", "compose_trigger_rate"),
    "OTF": ("words_modified", "words_per_minute", "errors_left"),
}
_WEIGHTS_AT_ONCE = 2_000_000
GUARDRAILS = ("words_modified", "words_per_minute", "top3_recall", "errors_left")


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

    ``clearly_worse`` if the whole interval is worse than the margin, whatever the role.
    """

    metric: str
    role: Literal["primary", "guardrail"]
    change: float
    bound: float
    margin: float
    passes: bool
    clearly_worse: bool


@dataclass(frozen=True)
class Verdict:
    """Non-inferiority of a candidate; ``missing`` names wanted metrics that could not be estimated."""

    candidate: str
    baseline: str
    checks: tuple[Check, ...]
    missing: tuple[str, ...]
    passes: bool


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
) -> Verdict:
    """Whether a candidate is not inferior.

    The primary metric passes if its whole interval is better than ``-MARGIN`` (relative). A guardrail
    fails only if its whole interval is worse than ``-GUARDRAIL_MARGIN``: it has to be shown to be hurt.
    """
    checks, missing = [], []
    wanted: list[tuple[str, Literal["primary", "guardrail"], float]] = [(primary, "primary", MARGIN)]
    wanted += [(metric, "guardrail", GUARDRAIL_MARGIN) for metric in guardrails if metric != primary]
    rows = {(row.candidate, row.baseline, row.metric): row.relative for row in result.differences}
    for metric, role, allowed in wanted:
        relative = rows.get((candidate, baseline, metric))
        if relative is None:
            missing.append(metric)
            continue
        worst, best = (
            (relative.low, relative.high) if metric not in LOWER_IS_BETTER else (-relative.high, -relative.low)
        )
        bound = worst if role == "primary" else best
        checks.append(
            Check(
                metric=metric,
                role=role,
                change=relative.value,
                bound=bound,
                margin=allowed,
                passes=bound >= -allowed,
                clearly_worse=best < -allowed,
            )
        )
    # Evidence that is not there is no evidence for the candidate.
    passes = primary not in missing and all(check.passes for check in checks)
    return Verdict(candidate=candidate, baseline=baseline, checks=tuple(checks), missing=tuple(missing), passes=passes)


def guardrails(baseline: str, *, typed: bool) -> tuple[str, ...]:
    """Metrics that must not be hurt; against the starting point top-3 recall has a gate and a margin of its own."""
    wanted = GUARDRAILS if typed else ("top3_recall",)
    return tuple(metric for metric in wanted if (baseline, metric) != ("start", "top3_recall"))


def sign_stable(values: Iterable[float]) -> bool:
    """Whether differences under several calibrations all point the same way; zeros agree with zeros only."""
    return len({float(np.sign(value)) for value in values}) == 1


def _influence(numerator_D: np.ndarray, denominator_D: np.ndarray) -> np.ndarray:
    total = denominator_D.sum()
    return (numerator_D - numerator_D.sum() / total * denominator_D) / total
