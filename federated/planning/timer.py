"""The device timer of a plan, in whole days, and the separation that it comes to by the clock."""

from dataclasses import dataclass

from federated.config.planning import PlanningConfig
from federated.participation import clock
from federated.participation.availability import Availability

# Fewer devices and rounds than these tell the same: separations follow from shares of the population.
_DEVICES, _CYCLES = 50_000, 4
_LEAST_GOAL = 20


@dataclass(frozen=True)
class Timer:
    """How long a device rests, and what is to be expected of that.

    Attributes:
      days: whole days, as devices are told.
      min_sep: least difference between two rounds of a device that comes out where nothing but the timer keeps it
        away; None if rounds of this size do not fill.
      run_days: how long the run takes, one round after the other; None likewise.
    """

    days: int
    min_sep: int | None
    run_days: float | None

    def in_words(self, planned: int) -> str:
        """The timer and what comes of it, in a sentence or two, beside the planned separation."""
        rest = f"Timer {self.days} whole day{'s' if self.days > 1 else ''}: a device rests as long as {planned:,} slow "
        rest += "rounds take. By the clock, "
        if self.min_sep is None or self.run_days is None:
            return rest + "by night and day, rounds of this size do not fill: lower report_goal."
        rest += f"rounds being as long as they take to fill, the run takes {self.run_days:.1f} days and "
        if self.min_sep >= planned:
            return rest + f"devices come back after {self.min_sep:,} rounds or more."
        return rest + (
            f"the first devices are back after {self.min_sep:,} rounds already: the server's {planned:,} keeps them "
            "away longer; where only a timer does, plan with the smaller number."
        )


def timer(planning: PlanningConfig, rounds: int, report_goal: int, min_sep: int) -> Timer:
    """The timer for a planned separation, played by the clock on as many pretended devices as there may be.

    In a large population a part of the devices and as large a part of the goal stand for all.
    """
    days = clock.whole_days(min_sep, planning.round_minutes)
    share = max(min(1.0, _DEVICES / planning.population_estimate), min(1.0, _LEAST_GOAL / report_goal))
    played = min(rounds, _CYCLES * min_sep)
    devices, goal = round(planning.population_estimate * share), max(1, round(report_goal * share))
    try:
        campaign = clock.run(played, devices, goal, days, Availability())
    except ValueError:
        return Timer(days, None, None)
    return Timer(days, campaign.min_sep, campaign.days * rounds / played)
