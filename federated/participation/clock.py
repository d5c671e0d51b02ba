"""Simulation of a run by the clock: its length, and the separation of its participations.

A mechanism that is optimised for one separation, such as BLT and banded noise, may observe another.

Shape legend: T rounds.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from federated.participation.availability import Availability
from federated.participation.clock_cohorts import ROUND_MINUTES, ClockCohorts


@dataclass(frozen=True)
class Campaign:
    """Outcome of a run by the clock.

    Attributes:
      start_T, end_T: float64, hours since the first round opened.
      devices_T: int64, devices aggregated in each round.
      separations: difference of the round numbers of a device's successive participations -> number of occurrences.
      max_participations: largest number of rounds of one device.
    """

    start_T: np.ndarray
    end_T: np.ndarray
    devices_T: np.ndarray
    separations: dict[int, int]
    max_participations: int

    @property
    def min_sep(self) -> int:
        """Least difference between two rounds of a device; all rounds if none joined twice."""
        return min(self.separations, default=len(self.end_T))

    @property
    def days(self) -> float:
        """Length of the run in days."""
        return float(self.end_T[-1]) / 24


def run(
    rounds: int,
    num_devices: int,
    report_goal: int,
    timer_days: int,
    availability: Availability,
    round_minutes: float = ROUND_MINUTES,
    limits: tuple[int, int] | None = None,
    on_progress: Callable[[int], None] = lambda rounds: None,
) -> Campaign:
    """Simulate a run of ``ClockCohorts``. Simulation only: reads no client data.

    Args:
      timer_days: whole days that a device rests.
      availability: devices awake by hour, and their reports; its ``round_minutes`` is not used.
      round_minutes: from the last device selected to the end of the round.
      limits: least separation in rounds and most participations, enforced in addition to the timer; None: neither.
      on_progress: progress callback, called with the number of completed rounds.

    Raises:
      ValueError: a round that does not fill, as with too few devices.
    """
    if min(rounds, num_devices, report_goal, timer_days) < 1:
        raise ValueError(
            f"rounds: {rounds}, num_devices: {num_devices}, report_goal: {report_goal}, timer_days: {timer_days}; "
            "give at least 1 of each"
        )
    min_sep, most = limits or (1, rounds)
    rule = ClockCohorts(
        num_devices,
        report_goal,
        min_sep,
        most,
        availability.seed,
        availability,
        timer_days=timer_days,
        round_minutes=round_minutes,
    )
    state = rule.init()
    start, end, joined_T = np.zeros(rounds), np.zeros(rounds), np.zeros(rounds, dtype=np.int64)
    separations = np.zeros(rounds, dtype=np.int64)
    for number in range(rounds):
        cohort, after = rule.draw(state, number)
        start[number], end[number] = state.opens, after.opens
        if end[number] - start[number] > rule.patience_hours:
            limited = f", or who come back after {min_sep} rounds and {most} times at most," if limits else ""
            raise ValueError(
                f"report_goal: round {number} of {rounds} did not fill in {timer_days + 1} days; {report_goal:,} of "
                f"{num_devices:,} devices that rest for {timer_days} days{limited} are too many: lower report_goal"
            )
        last = state.last_round_D[cohort]
        separations += np.bincount(number - last[last >= 0], minlength=rounds)
        joined_T[number], state = len(cohort), after
        on_progress(number + 1)
    seen = {int(separation): int(separations[separation]) for separation in np.flatnonzero(separations)}
    return Campaign(start, end, joined_T, seen, int(state.count_D.max()))


def whole_days(min_sep: int, round_minutes: float) -> int:
    """Least timer in days that covers ``min_sep`` rounds of ``round_minutes`` minutes."""
    return max(1, math.ceil(min_sep * round_minutes / 60 / 24 - 1e-9))
