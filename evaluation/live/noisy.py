"""A live experiment under a budget: one release of noisy sums over devices, and everything that follows from it.

Shape legend: D devices, T days, M cells of one arm, U cells of the release.

A device adds one bounded vector to the cells of its own arm: its events by the questions of ``evaluation.noisy``, at
its own rates and as at most ``MOST_WORDS`` words over the whole experiment; itself, as ``MOST_WORDS`` words more, so
that the sum of ``WORDS`` counts devices; and the days on which it logged. One release of noise covers both arms.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from evaluation.comparison.intervals import Difference, Estimate
from evaluation.config import CONFIDENCE
from evaluation.live.compare import Live, SampleRatio
from evaluation.live.devices import DeviceLogs
from evaluation.live.logs import ARMS, CONTROL, TREATMENT
from evaluation.noisy import typing_metrics
from evaluation.noisy.estimates import estimate
from evaluation.noisy.questions import EVERY, MOST_WORDS, TYPED, WORDS, Layout, Sums, clip_norm, fewest_devices, vectors
from evaluation.noisy.typing_metrics import SECONDS_A_WORD, Metric

SHOWN = "shown"
# Columns of the logs behind the sums of the questions.
_EVENTS = {
    SHOWN: "shown",
    "prate": "picked",
    TYPED: "committed",
    "words_modified": "modified",
    "compose_trigger_rate": "triggered",
    "compose_prate": "accepted",
}
_TIME = "typing_time"
_STRIP = ("prate", "click_through_rate")
_UNLOGGED = "errors_left"
# Least number of devices that logged on a day, in standard deviations of its noise, and a margin for the noise's luck.
_LEAST_DAY, _LUCK = 4.0, 3.0

Release = Callable[[int, Iterator[tuple[np.ndarray, np.ndarray]]], np.ndarray]


@dataclass(frozen=True)
class ArmSums:
    """Noisy sums over the devices of one arm.

    Attributes:
      sums: by name, in units of ``MOST_WORDS`` words; ``WORDS`` counts devices.
      day_T: devices that logged on each day.
      day_deviation: standard deviation of the noise in ``day_T``.
    """

    sums: Sums
    day_T: np.ndarray
    day_deviation: float

    @property
    def devices(self) -> float:
        """Number of devices."""
        return self.sums.value[WORDS]

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise in ``devices``."""
        return self.sums.deviation[WORDS]


def ratios(features: Collection[str]) -> dict[str, Metric]:
    """Metrics that a device can count; those of the strip are ratios of its own events, as in ``evaluation.counts``."""
    logged = {name: made for name, made in typing_metrics.metrics(features).items() if name != _UNLOGGED}
    of_strip = {
        name: replace(logged[name], ratio=replace(logged[name].ratio, denominator=SHOWN, unit=SHOWN)) for name in _STRIP
    }
    return logged | of_strip


def layout(features: Collection[str]) -> Layout:
    """Cells of one arm, without those of the days."""
    return Layout(tuple(metric.ratio for metric in ratios(features).values()))


def day_weight(days: int) -> float:
    """Weight of a day's cell: a device that logs every day adds as much length as its own cell does."""
    return EVERY / math.sqrt(days)


def size(features: Collection[str], days: int) -> int:
    """Number U of cells of the release."""
    return len(ARMS) * (len(layout(features)) + days)


def contributions(logged: DeviceLogs, features: Collection[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Each device's cells and values; not clipped yet. Private.

    Guarantee: what a device contributes depends on its own rows alone.
    """
    wanted, days = layout(features), logged.logged_DT.shape[1]
    events = {name: logged.sums[column] for name, column in _EVENTS.items()}
    events |= {_TIME: logged.sums["seconds"] / SECONDS_A_WORD, WORDS: np.full(len(logged.treated_D), MOST_WORDS)}
    cells = np.arange(len(wanted) + days)
    for device, (_, values_M) in enumerate(vectors(wanted, events)):
        arm = ARMS.index(TREATMENT if logged.treated_D[device] else CONTROL)
        yield arm * len(cells) + cells, np.concatenate([values_M, day_weight(days) * logged.logged_DT[device]])


def read(released_U: np.ndarray, features: Collection[str], days: int, noise_multiplier: float) -> dict[str, ArmSums]:
    """The sums behind a release, by arm.

    Args:
      noise_multiplier: of the release, in clip norms of ``layout``.
    """
    wanted = layout(features)
    deviation, weight = noise_multiplier * wanted.clip_norm, day_weight(days)
    return {
        arm: ArmSums(wanted.read(half[: len(wanted)], deviation), half[len(wanted) :] / weight, deviation / weight)
        for arm, half in zip(ARMS, np.split(released_U, len(ARMS)), strict=True)
    }


def compare(
    arms: Mapping[str, ArmSums], features: Collection[str], share: float, confidence: float = CONFIDENCE
) -> Live:
    """Every metric of both arms, and the treatment against the control.

    Guarantee: a function of noisy sums and of numbers from the launch file, so it is as private as they are.

    Args:
      share: planned share of devices with the candidate.
    """
    rows, differences, undefined = [], [], []
    for name, metric in ratios(features).items():
        new, old = (_level(metric, arms[arm], confidence) for arm in (TREATMENT, CONTROL))
        if new is None or old is None:
            undefined.append(name)
            continue
        rows += [
            typing_metrics.row(arm, name, _denominator(metric, arms[arm]), level)
            for arm, level in ((CONTROL, old), (TREATMENT, new))
        ]
        differences.append(Difference(TREATMENT, CONTROL, name, less(new, old), relative(new, old)))
    return Live(sample_ratio(arms[TREATMENT], arms[CONTROL], share), tuple(rows), tuple(differences), tuple(undefined))


def _denominator(metric: Metric, arm: ArmSums) -> float:
    return MOST_WORDS / metric.factor * arm.sums.value[metric.ratio.denominator]


def _level(metric: Metric, arm: ArmSums, confidence: float) -> Estimate | None:
    """The metric of an arm in its own unit; None if noise exceeds its denominator."""
    level = estimate(metric.ratio, arm.sums, confidence)
    return None if level is None else typing_metrics.scaled(level, metric.factor)


def less(new: Estimate, old: Estimate) -> Estimate:
    """``new - old`` of independent estimates: half-widths add up in squares (Zou & Donner 2008)."""
    value = new.value - old.value
    down, up = (
        math.hypot(new.value - new.low, old.high - old.value),
        math.hypot(new.high - new.value, old.value - old.low),
    )
    error = math.hypot(new.standard_error, old.standard_error)
    return Estimate(value, value - down, value + up, error, min(new.degrees, old.degrees))


def relative(new: Estimate, old: Estimate) -> Estimate | None:
    """``new / old - 1`` of independent estimates; None if noise exceeds an arm.

    Half-widths of the two arms, each relative to its own value, are added in squares (Zou & Donner 2008).
    """
    if not (new.low > 0 and old.low > 0):
        return None
    ratio = new.value / old.value
    down = math.hypot((new.value - new.low) / new.value, (old.high - old.value) / old.value) * ratio
    up = math.hypot((new.high - new.value) / new.value, (old.value - old.low) / old.value) * ratio
    error = ratio * math.hypot(new.standard_error / new.value, old.standard_error / old.value)
    return Estimate(ratio - 1, ratio - 1 - down, ratio - 1 + up, error, min(new.degrees, old.degrees))


def sample_ratio(new: ArmSums, old: ArmSums, share: float) -> SampleRatio:
    """Test of the split of devices: two-sided, with the variance of the assignment and that of the noise.

    Both numbers are rounded to whole devices. A device that the bound scales down counts as less than one, in either
    arm.
    """
    total = new.devices + old.devices
    variance = max(total, 0.0) * share * (1 - share) + (new.deviation * (1 - share)) ** 2 + (old.deviation * share) ** 2
    chance = 2 * float(stats.norm.sf(abs(new.devices - share * total) / math.sqrt(variance)))
    return SampleRatio(round(new.devices), round(new.devices) + round(old.devices), share, chance)


def missing_days(arm: ArmSums) -> np.ndarray:
    """``[T]`` bool: days on which the noise may hide that no device logged; each misses by chance 3 times in 10^5."""
    return arm.day_T <= _LEAST_DAY * arm.day_deviation


def least_devices(noise_multiplier: float, days: int) -> int:
    """Least number of devices of an arm, on each day of an experiment, that noise does not hide."""
    of_day = (_LEAST_DAY + _LUCK) * noise_multiplier * clip_norm(typed=True) / day_weight(days)
    return max(fewest_devices(noise_multiplier, typed=True), math.ceil(of_day))
