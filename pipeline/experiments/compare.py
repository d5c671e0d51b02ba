"""A live experiment: metrics of both arms with intervals, their differences, and a test of the split of buckets.

Shape legend: B buckets of one arm.

Arms are different devices here, so nothing is paired: each bucket is left out of its own arm (user-bucketed jackknife,
as in Ramaswamy et al. 2020), the two variances add up, and t has the degrees of freedom of Welch and Satterthwaite.
Leaving out the treatment's and the control's buckets in turn gives the interval of the relative change too, without
assuming that the control's metric is known.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from evaluation.arms.held_out import Ratio
from evaluation.comparison import intervals
from evaluation.comparison.intervals import ArmMetric, Difference, Estimate
from evaluation.config import CONFIDENCE
from evaluation.counts import metrics
from pipeline.experiments.logs import ARMS, CONTROL, TREATMENT, Logs

# Significance level of the split test: one correct experiment in a thousand is stopped.
MISMATCH = 0.001


@dataclass(frozen=True)
class SampleRatio:
    """Buckets, or devices, with the candidate, all of them, and the p-value of that number at the planned share."""

    treated: int
    units: int
    share: float
    chance: float


@dataclass(frozen=True)
class Live:
    """Metrics from logs; ``undefined`` names those for which an arm has a zero denominator or too few buckets."""

    ratio: SampleRatio
    arms: tuple[ArmMetric, ...]
    differences: tuple[Difference, ...]
    undefined: tuple[str, ...]


def compare(logs: Logs, share: float, confidence: float = CONFIDENCE) -> Live:
    """Every metric of both arms, and the treatment against the control.

    Args:
      share: planned share of buckets with the candidate.
    """
    tables = {arm: metrics(logs.counts(arm)) for arm in ARMS}
    undefined = tuple(name for name in tables[CONTROL] if not all(_defined(table[name]) for table in tables.values()))
    names = [name for name in tables[CONTROL] if name not in undefined]
    return Live(
        ratio=sample_ratio(int(logs.treated_B.sum()), len(logs.treated_B), share),
        arms=tuple(_arm(arm, name, tables[arm][name], confidence) for arm in ARMS for name in names),
        differences=tuple(
            difference(tables[TREATMENT][name], tables[CONTROL][name], name, confidence) for name in names
        ),
        undefined=undefined,
    )


def sample_ratio(treated: int, buckets: int, share: float) -> SampleRatio:
    """Exact two-sided binomial test of the split of buckets: the probability of a number no likelier than this one."""
    chance = float(stats.binomtest(treated, buckets, share).pvalue)
    return SampleRatio(treated, buckets, share, chance)


def difference(new: Ratio, old: Ratio, metric: str = "metric", confidence: float = CONFIDENCE) -> Difference:
    """Treatment minus control, absolute and relative to the control; the arms have different buckets."""
    new_1B, old_1B = _left_out(new, metric), _left_out(old, metric)
    degrees = _degrees(new), _degrees(old)
    absolute = _of_two(new_1B - old_1B[0], new_1B[0] - old_1B, degrees, confidence)
    relative = None
    if np.all(old_1B > 0):
        relative = _of_two(new_1B / old_1B[0] - 1, new_1B[0] / old_1B - 1, degrees, confidence)
    return Difference(TREATMENT, CONTROL, metric, absolute, relative)


def _of_two(
    without_new_1B: np.ndarray, without_old_1B: np.ndarray, degrees: tuple[float, float], confidence: float
) -> Estimate:
    """An estimate from two independent sets of buckets: the value on everything, then without each bucket of one."""
    parts = [intervals.interval(values_1B, confidence) for values_1B in (without_new_1B, without_old_1B)]
    variances = [part.standard_error**2 for part in parts]
    total = math.fsum(variances)
    error = math.sqrt(total)
    freedom = min(degrees)
    if total > 0:
        freedom = total**2 / math.fsum(part**2 / one for part, one in zip(variances, degrees, strict=True))
    half = intervals.half_widths(confidence, freedom) * error
    value = parts[0].value
    return Estimate(value=value, low=value - half, high=value + half, standard_error=error, degrees=freedom)


def _arm(arm: str, name: str, ratio: Ratio, confidence: float) -> ArmMetric:
    estimate = intervals.interval(_left_out(ratio, name), confidence, _degrees(ratio))
    return ArmMetric(arm, name, float(ratio[0].sum()), float(ratio[1].sum()), estimate)


def _left_out(ratio: Ratio, metric: str) -> np.ndarray:
    """``[1 + B]``: the ratio of sums over all buckets, then without each."""
    buckets = len(ratio[0])
    return intervals.ratios(*ratio, np.arange(buckets), buckets, metric)


def _degrees(ratio: Ratio) -> float:
    return intervals.degrees_of_freedom(ratio[1])


def _defined(ratio: Ratio) -> bool:
    """Return whether an interval exists: at least two buckets have a positive denominator."""
    return int(np.count_nonzero(ratio[1] > 0)) >= 2
