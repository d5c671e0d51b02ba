"""Simulated availability: devices train by night, on a charger, and some selected ones never report.

Shape legend: S devices asked about, D devices of the population.

Everything is a function of (seed, device, hour or round) by a counter-based hash, so that no state is kept per
device and a round's cost is proportional to its cohort. Bonawitz et al. 2019 (*Towards
Federated Learning at Scale*, sections 2 and 9) describe the day and night of availability,
selecting 130% of the goal, and the 6% to 10% that drop out.
"""

import math
from dataclasses import dataclass

import numpy as np

# Share of devices that check in at the best and at the worst hour of their day, and the local time of the best hour.
NIGHT_FRACTION, DAY_FRACTION, BEST_HOUR = 0.9, 0.2, 2.0
# Local times of a population are spread evenly over this many hours.
ZONE_SPREAD_HOURS = 3.0
# Devices selected for each place in a round, and the probability that one of them does not report.
OVER_SELECTION, DROPOUT = 1.3, 0.08

_ZONE, _COIN, _DROP, _DELAY = range(4)
_DAY_HOURS = 24.0


@dataclass(frozen=True)
class Availability:
    """Simulation of devices' check-ins by hour, and of their reports.

    Attributes:
      night_fraction, day_fraction: devices that check in at the best and the worst hour of their day.
      best_hour: local time of the former.
      zone_spread_hours: hours over which the local times of a population are spread evenly.
      round_minutes: duration of a round.
      over_selection: devices selected per required device.
      dropout: probability that a selected device does not report.
      seed: the launch's public seed.
    """

    night_fraction: float = NIGHT_FRACTION
    day_fraction: float = DAY_FRACTION
    best_hour: float = BEST_HOUR
    zone_spread_hours: float = ZONE_SPREAD_HOURS
    round_minutes: float = 30.0
    over_selection: float = OVER_SELECTION
    dropout: float = DROPOUT
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("night_fraction", "day_fraction", "dropout"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: {getattr(self, name)} is not a probability; give a number from 0 to 1")
        if not (self.round_minutes > 0 and self.over_selection >= 1):
            raise ValueError(
                f"round_minutes: {self.round_minutes}, over_selection: {self.over_selection}; "
                "give minutes above 0 and an over-selection of at least 1"
            )

    def fraction(self, local_hour: np.ndarray) -> np.ndarray:
        """Probability of checking in at a local time."""
        swing = (1 + np.cos((local_hour - self.best_hour) * (2 * math.pi / _DAY_HOURS))) / 2
        return self.day_fraction + (self.night_fraction - self.day_fraction) * swing

    def share(self, round_number: int) -> float:
        """Expected share of all devices that check in during this round's hour, over all their time zones."""
        return self.share_at(math.floor(self.hour(round_number)))

    def share_at(self, hour: int) -> float:
        """Expected share of all devices that check in during this hour since the first round."""
        turn, first = 2 * math.pi / _DAY_HOURS, hour - self.best_hour
        if self.zone_spread_hours:
            last = first + self.zone_spread_hours
            mean = (math.sin(last * turn) - math.sin(first * turn)) / (self.zone_spread_hours * turn)
        else:
            mean = math.cos(first * turn)
        return self.day_fraction + (self.night_fraction - self.day_fraction) * (1 + mean) / 2

    def hour(self, round_number: int) -> float:
        """Hours since the first round."""
        return round_number * self.round_minutes / 60

    def awake(self, devices_S: np.ndarray, round_number: int) -> np.ndarray:
        """bool ``[S]``: checks in during this round's hour. One coin per hour, not per round."""
        return self.awake_at(devices_S, math.floor(self.hour(round_number)))

    def awake_at(self, devices_S: np.ndarray, hour: int) -> np.ndarray:
        """bool ``[S]``: checks in during this hour since the first round."""
        zone_S = self.uniform(_ZONE, devices_S, 0) * self.zone_spread_hours
        local_S = (hour + zone_S) % _DAY_HOURS
        return self.uniform(_COIN, devices_S, hour) < self.fraction(local_S)

    def uniform(self, stream: int, devices_S: np.ndarray, time: int) -> np.ndarray:
        """float64 in [0, 1) of each device, under this seed."""
        return uniform(self.seed, stream, devices_S, time)

    def selected(self, report_goal: int) -> int:
        """Devices to select for a report goal."""
        return math.ceil(report_goal * self.over_selection)

    def reporting(self, devices_S: np.ndarray, round_number: int, report_goal: int) -> tuple[np.ndarray, int]:
        """The first ``report_goal`` devices that report, in order of arrival, and how many before the last dropped out.

        The round closes after the report goal. Whoever drops out does so while it reports.
        """
        arrived_S = devices_S[np.argsort(uniform(self.seed, _DELAY, devices_S, round_number), kind="stable")]
        stay_S = uniform(self.seed, _DROP, arrived_S, round_number) >= self.dropout
        reported = arrived_S[stay_S][:report_goal]
        begun = len(arrived_S)
        if 0 < report_goal == len(reported):  # 0: canaries have every place
            begun = int(np.flatnonzero(stay_S)[report_goal - 1]) + 1
        return reported, begun - len(reported)


def uniform(seed: int, stream: int, devices_S: np.ndarray, time: int) -> np.ndarray:
    """float64 in [0, 1) of each device: a pure function of its arguments."""
    rng = np.random.SeedSequence([0x617661696C, seed, stream, time]).generate_state(1, np.uint64)
    # splitmix64 (Steele et al. 2014) of the device's number, from a start of its own for each question.
    with np.errstate(over="ignore"):
        mixed = (devices_S.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + rng
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53
