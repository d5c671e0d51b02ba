"""A run by the clock: rounds last as long as their goal takes to fill, devices rest for days, MinS is what comes out.

In the field nobody enforces a separation in rounds. A device rests for a timer of whole days, and how many rounds
happen meanwhile depends on how many devices check in by day and by night (Bonawitz et al. 2019, *Towards Federated
Learning at Scale*, sections 2.3 and 9; Xu et al. 2023, section 3.2). A mechanism that is made for a separation, as BLT
and banded noise are, meets another one.

Shape legend: D devices of the population, T rounds, A arrivals of an hour.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from federated.participation.availability import Availability

# From the last device selected to the sum: download, local training, upload.
ROUND_MINUTES = 3.0
# Hours that a round may stay open before the run is given up.
MOST_HOURS = 24 * 60
_ARRIVALS = 0x636C6F636B  # "clock": apart from every other use of a seed


@dataclass(frozen=True)
class Campaign:
    """What a run by the clock came to.

    Attributes:
      start_T, end_T: float64, hours since the first round opened.
      devices_T: int64, devices aggregated in each round.
      separations: difference of the round numbers of two participations of a device -> how often.
      max_participations: most rounds that one device joined.
    """

    start_T: np.ndarray
    end_T: np.ndarray
    devices_T: np.ndarray
    separations: dict[int, int]
    max_participations: int

    @property
    def min_sep(self) -> int:
        """Least difference between two rounds of a device; all rounds where none joined twice."""
        return min(self.separations, default=len(self.end_T))

    @property
    def minutes_T(self) -> np.ndarray:
        """float64, how long each round took."""
        return (self.end_T - self.start_T) * 60

    @property
    def days(self) -> float:
        """How long the run took."""
        return float(self.end_T[-1]) / 24


def run(
    rounds: int,
    num_devices: int,
    report_goal: int,
    timer_days: int,
    availability: Availability,
    round_minutes: float = ROUND_MINUTES,
    on_progress: Callable[[int], None] = lambda rounds: None,
) -> Campaign:
    """Play a run, one round at a time, hour by hour.

    A device that is awake in an hour checks in at a time of its own in it, evenly spread, as Pace Steering asks
    devices to. Whoever comes while a round gathers devices is selected, until there are ``1.3 report_goal``; who comes
    between rounds is sent home for the hour. Some of the selected never report; of the others the first
    ``report_goal`` are aggregated, and rest for the timer from the round's end. Simulation only: reads no client data.

    Args:
      timer_days: whole days that a device rests.
      availability: who is awake at which hour, and who reports; its ``round_minutes`` is not used.
      round_minutes: from the last device selected to the end of the round.
      on_progress: hears how many rounds are done, once an hour.

    Raises:
      ValueError: a round that does not fill in ``MOST_HOURS``, as with too few devices for the timer.
    """
    if min(rounds, num_devices, report_goal, timer_days) < 1:
        raise ValueError(
            f"rounds: {rounds}, num_devices: {num_devices}, report_goal: {report_goal}, timer_days: {timer_days}; "
            "give at least 1 of each"
        )
    devices_D, wanted = np.arange(num_devices), availability.selected(report_goal)
    rested_D, last_D, count_D = np.zeros(num_devices), np.full(num_devices, -1), np.zeros(num_devices, dtype=np.int64)
    start, end, joined_T = np.zeros(rounds), np.zeros(rounds), np.zeros(rounds, dtype=np.int64)
    separations = np.zeros(rounds, dtype=np.int64)
    gathered: list[np.ndarray] = []
    number, opened, hour = 0, 0.0, 0
    while number < rounds:
        if hour - opened > MOST_HOURS:
            raise ValueError(
                f"report_goal: round {number} of {rounds} did not fill in {MOST_HOURS // 24} days; {report_goal:,} of "
                f"{num_devices:,} devices that rest for {timer_days} days are too many: lower report_goal or timer_days"
            )
        arrival_A, arrived_A = _arrivals(devices_D, rested_D, hour, availability)
        at = 0
        while number < rounds:
            at = max(at, int(np.searchsorted(arrival_A, opened)))
            taken = min(wanted - sum(map(len, gathered)), len(arrived_A) - at)
            gathered.append(arrived_A[at : at + taken])
            rested_D[gathered[-1]] = np.inf  # busy: it does not check in again while its round is open
            at += taken
            if sum(map(len, gathered)) < wanted:
                break
            selected = np.concatenate(gathered)
            cohort = availability.reporting(selected, number)[:report_goal]
            start[number], end[number] = opened, arrival_A[at - 1] + round_minutes / 60
            rested_D[selected] = end[number]
            again = cohort[last_D[cohort] >= 0]
            separations += np.bincount(number - last_D[again], minlength=rounds)
            last_D[cohort] = number
            count_D[cohort] += 1
            rested_D[cohort] = end[number] + 24 * timer_days
            joined_T[number] = len(cohort)
            gathered, opened, number = [], float(end[number]), number + 1
        on_progress(number)
        hour += 1
    seen = {int(separation): int(separations[separation]) for separation in np.flatnonzero(separations)}
    return Campaign(start, end, joined_T, seen, int(count_D.max()))


def _arrivals(
    devices_D: np.ndarray, rested_D: np.ndarray, hour: int, availability: Availability
) -> tuple[np.ndarray, np.ndarray]:
    """Times in one hour, ascending, and the devices that check in then: awake, and rested by that time."""
    ready = devices_D[rested_D < hour + 1]
    awake = ready[availability.awake_at(ready, hour)]
    arrival_A = hour + availability.uniform(_ARRIVALS, awake, hour)
    in_time = arrival_A >= rested_D[awake]
    awake, arrival_A = awake[in_time], arrival_A[in_time]
    order = np.argsort(arrival_A, kind="stable")
    return arrival_A[order], awake[order]


def whole_days(min_sep: int, round_minutes: float) -> int:
    """Least timer in days that is as long as ``min_sep`` rounds of this many minutes."""
    return max(1, math.ceil(min_sep * round_minutes / 60 / 24 - 1e-9))
