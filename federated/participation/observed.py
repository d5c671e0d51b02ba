"""What the participation records show of the protected devices: the accountant's input.

Shape legend: D devices of the population, N participations on record.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from federated.participation.cohorts import Cohorts
from federated.participation.secret_sample import SampledCohorts

if TYPE_CHECKING:
    from federated.participation.records import Records


@dataclass(frozen=True)
class Turnout:
    """How full the rounds of a run were, synthetic devices included; holds no device.

    Attributes:
      rounds_below_goal: rounds that ended with fewer devices than the report goal.
      mean_devices: devices aggregated in a round, synthetic ones included.
      check_ins: devices expected to check in during a round's hour, as a mean over rounds; all devices
        where no availability is simulated.
      fewest_check_ins: the same in the worst round.
    """

    rounds_below_goal: int
    mean_devices: float
    check_ins: float
    fewest_check_ins: float


@dataclass(frozen=True)
class Observed:
    """What the records of the protected devices show; the accountant's input. Holds no device.

    Attributes:
      rounds: rounds done.
      min_sep: smallest difference between the round numbers of two participations of one device;
        None if no device joined twice.
      mins: the papers' MinS, the rounds strictly between: ``min_sep - 1``.
      max_participations: the papers' MaxP, most rounds that one device joined.
      participation_histogram: rounds joined -> devices (those that joined none are not counted).
      separation_histogram: difference of round numbers -> how often.
      violations: over all devices, synthetic ones too: pairs of participations closer than the
        enforced ``min_sep``, and devices above the enforced ``max_participations``.
      synthetic_devices: planted devices, which the other numbers leave out.
      turnout: how full the rounds were, planted devices included; None where the sample is secret.
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


def observe(records: "Records", rounds: int, cohorts: Cohorts | SampledCohorts, synthetic_D: np.ndarray) -> Observed:
    """Separation, participations and violations of the limits, as the records show them.

    Args:
      rounds: rounds done, those without a participant too.
      cohorts: the rule that was to be enforced; it does not bind its stress devices.
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
    protected_N = ~synthetic_D[devices_N]
    separations = _separations(rounds_N[protected_N], devices_N[protected_N])
    counts_D = counts_all_D[~synthetic_D]
    min_sep = int(separations.min()) if len(separations) else None
    return Observed(
        rounds=rounds,
        min_sep=min_sep,
        mins=None if min_sep is None else min_sep - 1,
        max_participations=int(counts_D.max(initial=0)),
        participation_histogram=_histogram(counts_D[counts_D > 0]),
        separation_histogram=_histogram(separations),
        violations=violations,
        synthetic_devices=int(np.sum(synthetic_D)),
        # How many a secret sample drew is part of the secret.
        turnout=_turnout(rounds_N, rounds, cohorts) if isinstance(cohorts, Cohorts) else None,
    )


def _turnout(rounds_N: np.ndarray, rounds: int, cohorts: Cohorts) -> Turnout:
    joined_T = np.bincount(rounds_N, minlength=rounds)
    day = cohorts.availability
    shares = [1.0 if day is None else day.share(number) for number in range(rounds)] or [0.0]
    return Turnout(
        rounds_below_goal=int(np.sum(joined_T < cohorts.report_goal)),
        mean_devices=float(joined_T.mean()) if rounds else 0.0,
        check_ins=cohorts.num_devices * float(np.mean(shares)),
        fewest_check_ins=cohorts.num_devices * min(shares),
    )


def _separations(rounds_N: np.ndarray, devices_N: np.ndarray) -> np.ndarray:
    order = np.lexsort((rounds_N, devices_N))
    return np.diff(rounds_N[order])[np.diff(devices_N[order]) == 0]


def _histogram(values: np.ndarray) -> dict[int, int]:
    keys, counts = np.unique(values, return_counts=True)
    return {int(key): int(count) for key, count in zip(keys, counts, strict=True)}
