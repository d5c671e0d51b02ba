"""Arms compared on held-out devices: ratios, paired differences and their jackknife intervals.

Shape legend: D devices, B buckets.

The sampling unit is the device, not the word: devices differ far more than words, and the words of one
device are correlated. The jackknife leaves out one device at a time or, with many devices, one bucket by
a salted hash, and measures the change of the ratio of sums (user-bucketed jackknife, as in Ramaswamy et
al. 2020). Arms are scored on the same words, so a difference has its own leave-one-out values: variation
between devices that arms share cancels, and an arm minus itself is exactly zero.

If a few devices type most of the words, they are few observations for any number of other devices. So
t has the degrees of freedom of Satterthwaite (as Bell and McCaffrey 2002 define them for clusters), where the
contribution of a device to the variance is proportional to the square of its words: ``(sum w^2)^2 / sum w^4 - 1``.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from evaluation.arms.held_out import Ratio
from evaluation.config import CONFIDENCE

# Up to this many devices, each is a bucket of its own.
MOST_ALONE = 1000
# Metrics that may exceed 1, or be negative; all others are shares.
_NO_SHARES = frozenset({"cross_entropy", "words_per_minute", "keystroke_savings"})
# Degrees of freedom of a printed table; rounding down to one of them hides the exact number of devices.
_DEGREES = np.array([1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100, 200, 500])


@dataclass(frozen=True)
class Estimate:
    """A value and its interval; ``standard_error`` is the jackknife's, ``degrees`` are those of its t."""

    value: float
    low: float
    high: float
    standard_error: float
    degrees: float


@dataclass(frozen=True)
class ArmMetric:
    """One metric of one arm, with its numerator and denominator."""

    arm: str
    metric: str
    numerator: float
    denominator: float
    estimate: Estimate


@dataclass(frozen=True)
class Difference:
    """Candidate minus baseline, and candidate over baseline minus one (None if the baseline is 0).

    Where the baseline is 0 without some device, ``relative`` is ``absolute`` over the whole baseline.
    """

    candidate: str
    baseline: str
    metric: str
    absolute: Estimate
    relative: Estimate | None


@dataclass(frozen=True)
class AbResult:
    """Metrics of arms and their paired differences, with intervals.

    Attributes:
      devices_at_least: devices with at least one word, rounded down to tens.
      undefined: metrics left out because the denominator of some arm is 0.
      differentially_private: True if the figures follow from noisy sums (``evaluation.noisy``). Plain aggregates over
        held-out devices have no guarantee, and a disclosure must say so.
      drowned: noise exceeds the contributions of the devices, so intervals hold every possible value.
    """

    devices_at_least: int
    confidence: float
    arms: tuple[ArmMetric, ...]
    differences: tuple[Difference, ...]
    undefined: tuple[str, ...] = ()
    differentially_private: bool = False
    drowned: bool = False

    def arm(self, arm: str, metric: str) -> ArmMetric:
        """The row of one metric of one arm."""
        return next(row for row in self.arms if (row.arm, row.metric) == (arm, metric))

    def difference(self, candidate: str, baseline: str, metric: str) -> Difference:
        """The row of one metric's paired difference."""
        wanted = (candidate, baseline, metric)
        return next(row for row in self.differences if (row.candidate, row.baseline, row.metric) == wanted)


def confidence_of(attempt: int) -> float:
    """Confidence of each interval in the ``attempt``-th comparison on the same held-out devices.

    Guarantee: for any dependence between attempts, the probability that an interval of any of them misses is at most
    ``1 - CONFIDENCE``, over all past and future attempts: alpha-spending (Foster and Stine 2008; Tian and Ramdas
    2021 for the familywise error rate) of ``alpha 6 / (pi^2 k^2)``. It does not hold for models that were
    chosen using earlier reports on these devices.
    """
    if attempt < 1:
        raise ValueError(f"attempt: {attempt}; the first is 1")
    return 1 - (1 - CONFIDENCE) * 6 / (math.pi * attempt) ** 2


def compare(
    tables: Mapping[str, Mapping[str, Ratio]],
    salt: str,
    buckets: int,
    pairs: Sequence[tuple[str, str]],
    confidence: float = CONFIDENCE,
) -> AbResult:
    """Estimate every metric of every arm and the paired differences.

    Each interval has ``confidence``, without correction for several metrics. ``undefined`` names metrics without an
    interval, because the denominator of some arm is 0.

    Args:
      tables: each arm's metrics, numerators and denominators ``[D]``, on the same devices in the same order.
      salt: determines the buckets of many devices; fix it before any results.
      buckets: least number of devices.
      pairs: ``(candidate, baseline)``.

    Raises:
      ValueError: arms of different devices, or too few devices.
    """
    metrics = _common_metrics(tables)
    bucket_D, used = _buckets(tables, salt, buckets)
    undefined = [
        metric for metric in metrics if not all(_defined(table[metric][1], bucket_D, used) for table in tables.values())
    ]
    metrics = [metric for metric in metrics if metric not in undefined]
    keys = [(name, metric) for name in tables for metric in metrics]
    leave_one_out = {key: ratios(*tables[key[0]][key[1]], bucket_D, used, key[1]) for key in keys}
    degrees = {key: degrees_of_freedom(np.bincount(bucket_D, tables[key[0]][key[1]][1], used)) for key in keys}

    def level(name: str, metric: str) -> Estimate:
        made = interval(leave_one_out[name, metric], confidence, degrees[name, metric])
        return made if metric in _NO_SHARES else share(made)

    def difference(candidate: str, baseline: str, metric: str) -> Difference:
        new, old = leave_one_out[candidate, metric], leave_one_out[baseline, metric]
        fewest, relative = min(degrees[candidate, metric], degrees[baseline, metric]), None
        if old[0] > 0:
            relative = interval(new / old - 1 if np.all(old > 0) else (new - old) / old[0], confidence, fewest)
        return Difference(
            candidate=candidate,
            baseline=baseline,
            metric=metric,
            absolute=interval(new - old, confidence, fewest),
            relative=relative,
        )

    return AbResult(
        devices_at_least=int(np.count_nonzero(_words_D(tables))) // 10 * 10,
        confidence=confidence,
        arms=tuple(
            ArmMetric(
                arm=name,
                metric=metric,
                numerator=float(np.sum(tables[name][metric][0])),
                denominator=float(np.sum(tables[name][metric][1])),
                estimate=level(name, metric),
            )
            for name, metric in keys
        ),
        differences=tuple(difference(*pair, metric) for pair in pairs for metric in metrics),
        undefined=tuple(undefined),
    )


def joined(result: AbResult, more: AbResult) -> AbResult:
    """Join two results on the same devices; ``more`` has other metrics, of all arms or of some."""
    return replace(
        result,
        arms=(*result.arms, *more.arms),
        differences=(*result.differences, *more.differences),
        undefined=(*result.undefined, *more.undefined),
    )


def bucket_of(keys: Sequence[str], salt: str, buckets: int) -> np.ndarray:
    """Bucket of each key: its salted SHA-256 modulo ``buckets``, the same on every machine."""
    return np.array(
        [int.from_bytes(hashlib.sha256(f"{salt}\0{key}".encode()).digest()[:8], "big") % buckets for key in keys],
        dtype=np.int64,
    )


def ratios(
    numerator_D: np.ndarray, denominator_D: np.ndarray, bucket_D: np.ndarray, buckets: int, metric: str = "metric"
) -> np.ndarray:
    """``[1 + B]``: the ratio of sums over all devices, then without each bucket."""
    sums = [np.bincount(bucket_D, weights=part_D, minlength=buckets) for part_D in (numerator_D, denominator_D)]
    numerators, denominators = (np.concatenate([[part.sum()], part.sum() - part]) for part in sums)
    if not np.all(denominators > 0):
        raise ValueError(
            f"{metric}: without one bucket of devices its denominator is 0, so it has no interval; "
            "lower ab_test.buckets or evaluate more devices"
        )
    return numerators / denominators


def interval(values_1B: np.ndarray, confidence: float = CONFIDENCE, degrees: float | None = None) -> Estimate:
    """``theta +- t SE`` with ``SE^2 = (B - 1) / B sum (theta_b - mean theta_b)^2``.

    Args:
      values_1B: the value on everything, then without each bucket.
      degrees: of freedom of t; by default B - 1, which is right for buckets that weigh the same.
    """
    value, without_B = float(values_1B[0]), values_1B[1:]
    count = len(without_B)
    degrees = float(count - 1) if degrees is None else degrees
    error = float(np.sqrt((count - 1) / count * np.sum((without_B - without_B.mean()) ** 2)))
    margin = half_widths(confidence, degrees) * error
    return Estimate(value=value, low=value - margin, high=value + margin, standard_error=error, degrees=degrees)


def share(made: Estimate) -> Estimate:
    """An estimate cut to [0, 1], where shares lie; the coverage of its interval does not change."""
    value, low, high = (min(max(end, 0.0), 1.0) for end in (made.value, made.low, made.high))
    return replace(made, value=value, low=low, high=high)


def half_widths(confidence: float, degrees: float) -> float:
    """Half of an interval in standard errors."""
    # As ``stats.t.ppf``, which takes fifty times as long.
    return float(special.stdtrit(degrees, (1 + confidence) / 2))


def simultaneous(estimate: Estimate, confidence: float, tests: int) -> Estimate:
    """The estimate with one of ``tests`` intervals that hold together (Bonferroni).

    Guarantee: if intervals have their coverage, the probability that any of the ``tests`` lies wholly above its true
    value is at most ``(1 - confidence) / 2``, for any dependence between them; so is that of any wholly below.

    Args:
      confidence: of the estimate's own interval, and of all together.
    """
    wider = half_widths(1 - (1 - confidence) / tests, estimate.degrees) / half_widths(confidence, estimate.degrees)
    low, high = (estimate.value + wider * (end - estimate.value) for end in (estimate.low, estimate.high))
    return replace(estimate, low=low, high=high)


def degrees_of_freedom(weight_B: np.ndarray) -> float:
    """Degrees of freedom of the jackknife variance over buckets with these weights; B - 1 for equal weights."""
    share_B = weight_B / weight_B.max()
    exact = np.sum(share_B**2) ** 2 / np.sum(share_B**4) - 1
    return float(_DEGREES[max(np.searchsorted(_DEGREES, exact + 1e-9, side="right") - 1, 0)])


def _defined(denominator_D: np.ndarray, bucket_D: np.ndarray, buckets: int) -> bool:
    """Return whether the denominator stays positive without any one bucket."""
    held = np.bincount(bucket_D, weights=denominator_D, minlength=buckets)
    return bool(np.all(held.sum() - held > 0))


def _common_metrics(tables: Mapping[str, Mapping[str, Ratio]]) -> list[str]:
    if not tables:
        raise ValueError("arms: none given; compare needs at least one")
    first = next(iter(tables))
    for name, table in tables.items():
        if table.keys() != tables[first].keys():
            raise ValueError(f"arms: {name!r} has metrics {list(table)}, {first!r} has {list(tables[first])}")
        for metric, (_, denominator_D) in table.items():
            # In-vocabulary words differ between arms of different vocabularies; devices must not.
            if len(denominator_D) != len(tables[first][metric][1]):
                raise ValueError(
                    f"arms: {name!r} has {len(denominator_D)} devices, {first!r} has "
                    f"{len(tables[first][metric][1])}; score all arms on the same devices"
                )
    return list(tables[first])


def _words_D(tables: Mapping[str, Mapping[str, Ratio]]) -> np.ndarray:
    """Words by device, from the first metric's denominator; 0 for a device without words."""
    return next(iter(next(iter(tables.values())).values()))[1]


def _buckets(tables: Mapping[str, Mapping[str, Ratio]], salt: str, buckets: int) -> tuple[np.ndarray, int]:
    """Bucket of each device, numbered without gaps, and the number of buckets with words."""
    words_D = _words_D(tables)
    speaking = int(np.count_nonzero(words_D))
    if speaking < max(buckets, 2):
        raise ValueError(
            f"ab_test.buckets: {buckets} buckets need at least as many test devices with words, got {speaking}; "
            f"set it to {max(2, speaking // 5)} or raise private_text.test_fraction"
        )
    bucket_D = np.arange(len(words_D))
    if speaking > MOST_ALONE:
        bucket_D = bucket_of([str(number) for number in range(len(words_D))], salt, max(buckets, MOST_ALONE))
    occupied = np.unique(bucket_D[words_D > 0])
    place = np.searchsorted(occupied, bucket_D)
    # A device without words adds nothing to any bucket.
    return np.where(words_D > 0, place, 0), len(occupied)
