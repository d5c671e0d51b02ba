"""Arms compared on held-out devices: ratios, paired differences and their jackknife intervals.

Shape legend: D devices, B buckets.

Devices differ far more than words do, and words of one device go together, so words are not the
sample: devices are. They fall into buckets by a salted hash; leaving out one bucket at a time
shows how much the ratio of sums moves (user-bucketed jackknife, as in Ramaswamy et al. 2020).
Arms are scored on the same words, so a difference has its own leave-one-out values: what varies
between devices but not between arms cancels, and an arm against itself is exactly zero.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from evaluation.arms.held_out import Ratio
from evaluation.config import CONFIDENCE


@dataclass(frozen=True)
class Estimate:
    """A value and its interval; ``standard_error`` is the jackknife's."""

    value: float
    low: float
    high: float
    standard_error: float


@dataclass(frozen=True)
class ArmMetric:
    """One metric of one arm, with the sums it is the ratio of."""

    arm: str
    metric: str
    numerator: float
    denominator: float
    estimate: Estimate


@dataclass(frozen=True)
class Difference:
    """Candidate minus baseline, and candidate over baseline minus one (None if the baseline is 0)."""

    candidate: str
    baseline: str
    metric: str
    absolute: Estimate
    relative: Estimate | None


@dataclass(frozen=True)
class AbResult:
    """Every metric of every arm and every paired difference, with intervals.

    Attributes:
      devices_at_least: devices with at least one word, rounded down to tens.
      buckets: buckets that hold a device; with few devices one may stay empty.
      undefined: metrics left out because some arm had nothing to divide by.
      differentially_private: always False. These are plain aggregates over held-out devices: no
        training guarantee covers them, and a disclosure must say so.
    """

    devices_at_least: int
    buckets: int
    confidence: float
    arms: tuple[ArmMetric, ...]
    differences: tuple[Difference, ...]
    undefined: tuple[str, ...] = ()
    differentially_private: Literal[False] = False

    def arm(self, arm: str, metric: str) -> ArmMetric:
        """The row of one metric of one arm."""
        return next(row for row in self.arms if (row.arm, row.metric) == (arm, metric))

    def difference(self, candidate: str, baseline: str, metric: str) -> Difference:
        """The row of one metric's paired difference."""
        wanted = (candidate, baseline, metric)
        return next(row for row in self.differences if (row.candidate, row.baseline, row.metric) == wanted)


def compare(
    tables: Mapping[str, Mapping[str, Ratio]], salt: str, buckets: int, pairs: Sequence[tuple[str, str]]
) -> AbResult:
    """Estimate every metric of every arm and the paired differences.

    Intervals are at ``CONFIDENCE`` each; nothing is adjusted for looking at many. A metric that has no interval,
    as some arm has nothing to divide by, is named in ``undefined``.

    Args:
      tables: each arm's metrics, numerators and denominators ``[D]``, on the same devices in the same order.
      salt: decides the buckets; fix it before looking at results.
      pairs: ``(candidate, baseline)``.

    Raises:
      ValueError: arms of different devices, or too few devices for the buckets.
    """
    metrics = _common_metrics(tables)
    bucket_D, used = _buckets(tables, salt, buckets)
    undefined = [
        metric for metric in metrics if not all(_defined(table[metric][1], bucket_D, used) for table in tables.values())
    ]
    metrics = [metric for metric in metrics if metric not in undefined]
    leave_one_out = {
        (name, metric): ratios(*table[metric], bucket_D, used, metric)
        for name, table in tables.items()
        for metric in metrics
    }

    def difference(candidate: str, baseline: str, metric: str) -> Difference:
        new, old = leave_one_out[candidate, metric], leave_one_out[baseline, metric]
        return Difference(
            candidate=candidate,
            baseline=baseline,
            metric=metric,
            absolute=interval(new - old),
            relative=interval(new / old - 1) if np.all(old > 0) else None,
        )

    return AbResult(
        devices_at_least=int(np.count_nonzero(_words_D(tables))) // 10 * 10,
        buckets=used,
        confidence=CONFIDENCE,
        arms=tuple(
            ArmMetric(
                arm=name,
                metric=metric,
                numerator=float(np.sum(table[metric][0])),
                denominator=float(np.sum(table[metric][1])),
                estimate=interval(leave_one_out[name, metric]),
            )
            for name, table in tables.items()
            for metric in metrics
        ),
        differences=tuple(difference(*pair, metric) for pair in pairs for metric in metrics),
        undefined=tuple(undefined),
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


def interval(values_1B: np.ndarray, confidence: float = CONFIDENCE) -> Estimate:
    """``theta +- t SE`` with ``SE^2 = (B - 1) / B sum (theta_b - mean theta_b)^2`` and t of B - 1 degrees.

    Args:
      values_1B: the value on everything, then without each bucket.
    """
    value, without_B = float(values_1B[0]), values_1B[1:]
    count = len(without_B)
    error = float(np.sqrt((count - 1) / count * np.sum((without_B - without_B.mean()) ** 2)))
    margin = float(stats.t.ppf((1 + confidence) / 2, count - 1)) * error
    return Estimate(value=value, low=value - margin, high=value + margin, standard_error=error)


def _defined(denominator_D: np.ndarray, bucket_D: np.ndarray, buckets: int) -> bool:
    """Whether something is left to divide by whichever bucket is left out."""
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
    """Words by device, from the first metric's denominator: where it is 0, a device has nothing to say."""
    return next(iter(next(iter(tables.values())).values()))[1]


def _buckets(tables: Mapping[str, Mapping[str, Ratio]], salt: str, buckets: int) -> tuple[np.ndarray, int]:
    """Bucket of each device, numbered without gaps, and how many hold a device with words."""
    words_D = _words_D(tables)
    speaking = int(np.count_nonzero(words_D))
    if speaking < buckets:
        raise ValueError(
            f"ab_test.buckets: {buckets} buckets need at least as many test devices with words, got {speaking}; "
            f"set it to {max(2, speaking // 5)} or raise private_text.test_fraction"
        )
    bucket_D = bucket_of([str(number) for number in range(len(words_D))], salt, buckets)
    occupied = np.unique(bucket_D[words_D > 0])
    if len(occupied) < 2:
        raise ValueError(f"ab_test.buckets: all devices fell into one of {buckets}; raise it or change the salt")
    place = np.searchsorted(occupied, bucket_D)
    # A device without words adds nothing, wherever it goes.
    return np.where(words_D > 0, place, 0), len(occupied)
