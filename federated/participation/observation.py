"""Observed participation of the protected devices, from the records: the accountant's input.

Shape legend: D devices of the population, N participations on record.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from federated.participation.cohorts import Cohorts
from federated.participation.secret_sample import SampledCohorts

if TYPE_CHECKING:
    from federated.participation.records import Records

# Probability that some device joins more rounds than stated for a secret sample; the actual number is then stated.
_EXCESS = 1e-9
# Parts of a run, for the figure of round durations.
_PARTS = 10


@dataclass(frozen=True)
class Timetable:
    """Durations of a run's rounds by the clock.

    Attributes:
      days: from the first round's begin to the last one's end.
      shortest, median, longest: minutes of a round.
      median_by_part: median minutes of each of ten parts of the run, or of fewer if there are fewer rounds.
    """

    days: float
    shortest: float
    median: float
    longest: float
    median_by_part: tuple[float, ...]


@dataclass(frozen=True)
class Turnout:
    """Turnout of a run's rounds, synthetic devices included; holds no device.

    Attributes:
      rounds_below_goal: rounds that ended with fewer devices than the report goal.
      mean_devices: devices aggregated in a round, synthetic ones included.
      check_ins: mean over rounds of the devices expected to check in during a round's hour, of whole tens of people;
        all devices without simulated availability.
      fewest_check_ins: the same in the worst round.
      timetable: durations by the clock; None without one.
    """

    rounds_below_goal: int
    mean_devices: float
    check_ins: float
    fewest_check_ins: float
    timetable: Timetable | None = None


@dataclass(frozen=True)
class Observation:
    """Observed participation of the protected devices; the accountant's input. Holds no device.

    For a secret sample it holds bounds instead of the recorded values, and no histogram (``_of_secret_sample``).

    Attributes:
      rounds: completed rounds.
      min_sep: smallest difference between the round numbers of two participations of one device;
        None if no device joined twice.
      mins: the papers' MinS, the rounds strictly between: ``min_sep - 1``.
      max_participations: the papers' MaxP, most rounds that one device joined.
      participation_histogram: rounds joined -> devices (those that joined none are not counted).
      separation_histogram: difference of round numbers -> how often.
      violations: over all devices, synthetic ones too: pairs of participations closer than the
        enforced ``min_sep``, and devices above the enforced ``max_participations``.
      synthetic_devices: planted devices, which the other numbers leave out.
      turnout: turnout of the rounds, including planted devices; None if the sample is secret.
    """

    rounds: int
    min_sep: int | None
    mins: int | None
    max_participations: int
    participation_histogram: dict[int, int]
    separation_histogram: dict[int, int]
    violations: int
    synthetic_devices: int
    turnout: Turnout | None = None


def observe(records: "Records", rounds: int, cohorts: Cohorts | SampledCohorts, synthetic_D: np.ndarray) -> Observation:
    """Separation, participations and violations of the limits, from the records.

    Args:
      rounds: completed rounds, including those without a participant.
      cohorts: the enforced rule, which does not bind its stress devices.
      synthetic_D: bool, devices made for the audit.
    """
    rounds_N, devices_N = records.rounds_N, records.devices_N
    counts_all_D = records.participations(cohorts.num_devices)
    stress_D = cohorts.stress_D if isinstance(cohorts, Cohorts) else None
    bound_D = np.ones(cohorts.num_devices, dtype=bool) if stress_D is None else ~stress_D
    bound_N = bound_D[devices_N]
    separations_all = _separations(rounds_N[bound_N], devices_N[bound_N])
    violations = int(
        np.sum(separations_all < cohorts.min_sep) + np.sum(counts_all_D[bound_D] > cohorts.max_participations)
    )
    synthetic = int(np.sum(synthetic_D))
    if isinstance(cohorts, SampledCohorts):
        largest = int(counts_all_D[~synthetic_D].max(initial=0))
        return _of_secret_sample(cohorts, rounds, largest, violations, synthetic)
    protected_N = ~synthetic_D[devices_N]
    separations = _separations(rounds_N[protected_N], devices_N[protected_N])
    counts_D = counts_all_D[~synthetic_D]
    min_sep = int(separations.min()) if len(separations) else None
    return Observation(
        rounds=rounds,
        min_sep=min_sep,
        mins=None if min_sep is None else min_sep - 1,
        max_participations=int(counts_D.max(initial=0)),
        participation_histogram=_histogram(counts_D[counts_D > 0]),
        separation_histogram=_histogram(separations),
        violations=violations,
        synthetic_devices=synthetic,
        turnout=_turnout(records, rounds, cohorts, _tens(cohorts.num_devices, synthetic)),
    )


def _of_secret_sample(
    cohorts: SampledCohorts, rounds: int, largest: int, violations: int, synthetic: int
) -> Observation:
    """Public participation of a secret sample: no histogram, and a bound in place of the largest participation.

    Guarantee: no device joined more rounds than stated. Except with probability 1e-9, every stated value is a function
    of the rule and of the number of devices in whole tens, so it reveals nothing about the sample; in the exceptional
    event the actual largest participation is stated, since the accounting must cover it.
    """
    return Observation(
        rounds=rounds,
        min_sep=cohorts.min_sep,
        mins=cohorts.min_sep - 1,
        max_participations=max(largest, most_drawn(cohorts, rounds, synthetic)),
        participation_histogram={},
        separation_histogram={},
        violations=violations,
        synthetic_devices=synthetic,
    )


def most_drawn(cohorts: SampledCohorts, rounds: int, synthetic: int) -> int:
    """Bound on the rounds of a device of a secret sample, except with probability 1e-9 over all devices.

    Each device joins by its own coins, so its rounds are binomial. The number of devices is rounded up to a power of
    two; and, as everywhere, what is computed of it is the same for all numbers of people in one ten.
    """
    from scipy import stats  # 0.3 s to import

    if not rounds or not cohorts.num_devices:
        return 0
    fewest = max(_tens(cohorts.num_devices, synthetic), 1)
    rate = cohorts.sampling_rate if cohorts.poisson else min(1.0, cohorts.report_goal / fewest)
    devices = 1 << (fewest + 9).bit_length()
    return min(rounds, int(stats.binom.isf(_EXCESS / devices, rounds, rate)))


def _tens(devices: int, synthetic: int) -> int:
    """Number of devices with that of people rounded down to tens; that of synthetic ones is public."""
    return (devices - synthetic) // 10 * 10 + synthetic


def _turnout(records: "Records", rounds: int, cohorts: Cohorts, devices: int) -> Turnout:
    joined_T = np.bincount(records.rounds_N, minlength=rounds)
    day = cohorts.availability
    hours = [math.floor(begin) for _, begin, _ in records.hours]
    shares = [1.0 if day is None else day.share(number) for number in range(rounds)] or [0.0]
    if day is not None and hours:
        shares = [day.share_at(hour) for hour in hours]
    return Turnout(
        rounds_below_goal=int(np.sum(joined_T < cohorts.report_goal)),
        mean_devices=float(joined_T.mean()) if rounds else 0.0,
        check_ins=devices * float(np.mean(shares)),
        fewest_check_ins=devices * min(shares),
        timetable=_timetable(records) if records.hours else None,
    )


def _timetable(records: "Records") -> Timetable:
    minutes_T = np.array([(end - begin) * 60 for _, begin, end in records.hours])
    parts = np.array_split(minutes_T, min(_PARTS, len(minutes_T)))
    return Timetable(
        days=records.hours[-1][2] / 24,
        shortest=float(minutes_T.min()),
        median=float(np.median(minutes_T)),
        longest=float(minutes_T.max()),
        median_by_part=tuple(float(np.median(part)) for part in parts),
    )


def _separations(rounds_N: np.ndarray, devices_N: np.ndarray) -> np.ndarray:
    order = np.lexsort((rounds_N, devices_N))
    return np.diff(rounds_N[order])[np.diff(devices_N[order]) == 0]


def _histogram(values: np.ndarray) -> dict[int, int]:
    keys, counts = np.unique(values, return_counts=True)
    return {int(key): int(count) for key, count in zip(keys, counts, strict=True)}
