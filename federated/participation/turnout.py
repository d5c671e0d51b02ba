"""Expected turnout: the devices that the rounds of a run can be expected to aggregate.

Too few devices weaken no guarantee: the mean's denominator is the report goal and the noise is that of a
full round. They make the update smaller and the noise weigh more.

Shape legend: T rounds.
"""

import math
from collections import deque
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from federated.participation.availability import Availability


@dataclass(frozen=True)
class Expected:
    """Expected turnout of a run.

    Attributes:
      devices_T: devices that report in each round, at most the report goal.
      below_goal: rounds expected to stay below the goal.
    """

    devices_T: np.ndarray
    below_goal: float


def expected(rounds: int, num_devices: int, report_goal: int, min_sep: int, availability: Availability) -> Expected:
    """Follow the means through a run: who rests, who is awake, who was selected and reports.

    Awake devices stay awake for their hour, so rounds of one hour share a pool; a device whose timer runs out
    within the hour it joined in is awake still. That a device is at its cap is not counted, which is
    optimistic where ``max_participations`` is tight. Costs what the rounds cost, not the devices.
    """
    joined: list[float] = []
    resting: deque[float] = deque()
    total, pool, below = 0.0, 0.0, 0.0
    hours = [math.floor(availability.hour(number)) for number in range(rounds)]
    for number, (before, hour) in enumerate(pairwise([-1, *hours])):
        share = availability.share(number)
        back = resting.popleft() if len(resting) >= min_sep else 0.0
        total -= back
        if hour != before:
            pool = share * (num_devices - total)
        else:
            pool += back * (1.0 if hours[number - min_sep] == hour else share)
        selected = min(float(availability.selected(report_goal)), pool)
        mean = selected * (1 - availability.dropout)
        scatter = selected * availability.dropout * (1 - availability.dropout)
        if selected == pool:
            scatter += pool * (1 - share) * (1 - availability.dropout) ** 2
        devices = min(mean, float(report_goal))
        below += _below(report_goal, mean, scatter)
        joined.append(devices)
        resting.append(devices)
        total += devices
        pool -= devices
    return Expected(np.array(joined), below)


def _below(goal: int, mean: float, variance: float) -> float:
    """Chance that a count with this mean and variance is less than ``goal``, by the normal curve."""
    if variance <= 0:
        return float(mean < goal)
    return 0.5 * math.erfc((mean - goal + 0.5) / math.sqrt(2 * variance))
