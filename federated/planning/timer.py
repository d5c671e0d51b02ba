"""The device timer in whole days: of a plan, and of a launch by the clock, with the separation that comes of it."""

from dataclasses import dataclass
from functools import cache

from federated.config.mechanism import MechanismConfig
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
      min_sep: least difference between two rounds of a device that is expected; None if rounds of this size do not
        fill.
      run_days: how long the run takes, one round after the other; None likewise.
    """

    days: int
    min_sep: int | None
    run_days: float | None

    def in_words(self, planned: int, *, by_the_clock: bool = False) -> str:
        """The timer and what comes of it, in a sentence or two, beside the planned separation.

        Args:
          by_the_clock: whether the launch goes by this timer.
        """
        rest = f"Timer {self.days} whole day{'s' if self.days > 1 else ''}: a device rests as long as {planned:,} slow "
        rest += "rounds take. By the clock, "
        if self.min_sep is None or self.run_days is None:
            return rest + "by night and day, rounds of this size do not fill: lower report_goal."
        rest += f"rounds being as long as they take to fill, the run takes {self.run_days:.1f} days and "
        if self.min_sep >= planned:
            return rest + f"devices come back after {self.min_sep:,} rounds or more."
        rest += f"the first devices are back after {self.min_sep:,} rounds already: "
        if by_the_clock:
            return rest + f"min_sep {planned:,}, which the guarantee rests on, keeps them away longer."
        return rest + (
            f"the server's {planned:,} keeps them away longer; where only a timer does, plan with the smaller number. "
            f"'availability: {{timer_days: {self.days}}}' makes the launch go by the clock."
        )


def timer(training_devices: int, round_minutes: float, rounds: int, report_goal: int, min_sep: int) -> Timer:
    """The timer for a planned separation, where nothing but the timer keeps a device away."""
    days = clock.whole_days(min_sep, round_minutes)
    return _played(days, rounds, training_devices, report_goal, min(rounds, _CYCLES * min_sep), None)


def of_launch(config: MechanismConfig, training_devices: int) -> Timer | None:
    """What is to be expected of a launch by the clock, whose floor and cap are enforced too; None for another."""
    days = config.timer_days
    if days is None:
        return None
    rounds = min(config.rounds, _CYCLES * config.min_sep)
    limits = (config.min_sep, config.max_participations)
    return _played(days, config.rounds, training_devices, config.report_goal, rounds, limits)


def shortfalls(config: MechanismConfig, devices: int) -> list[str]:
    """Reasons why rounds by the clock would not fill, however long they wait; each names the number to change.

    Args:
      devices: that train.
    """
    days = config.timer_days
    if days is None:
        return []
    goal, rounds, cap = config.report_goal, config.rounds, config.max_participations
    wanted, resting = Availability().selected(goal), goal * (min(config.min_sep, rounds) - 1)
    if devices < resting + wanted:
        apart = min(config.min_sep, rounds)
        fix = either(
            ("lower min_sep to", (devices - wanted) // goal + 1, apart),
            ("lower report_goal to", int(devices // (apart + 0.31)), goal),
        )
        return [
            f"report_goal {goal}: a round selects {wanted} devices while {resting} that joined one of the last "
            f"{apart - 1} may not come back, but about {devices} devices train; {fix}"
        ]
    # At their cap are at most so many devices, and none where the separation alone keeps them below it.
    capped = goal * rounds // cap if cap < -(-rounds // config.min_sep) else 0
    if devices >= resting + wanted + capped:
        return []
    if _played(days, rounds, devices, goal, rounds, (config.min_sep, cap)).run_days is not None:
        return []
    return [
        f"max_participations {cap}: by the clock, the last of {rounds} rounds would not fill, as too many of about "
        f"{devices} devices that train have joined {cap} rounds by then; raise it, or lower rounds"
    ]


def either(*changes: tuple[str, int, int]) -> str:
    """The changes of a number that the number can have, one of which is enough.

    Args:
      changes: words, the number that would do, and the most that it may be.
    """
    possible = [f"{change} {number}" for change, number, most in changes if 1 <= number <= most]
    return " or ".join(possible) or "have more devices"


@cache
def _played(
    days: int, rounds: int, training_devices: int, report_goal: int, first: int, limits: tuple[int, int] | None
) -> Timer:
    """A run by the clock on as many pretended devices as there may be, of its first rounds.

    Of many a part of the devices and as large a part of the goal stand for all.
    """
    share = max(min(1.0, _DEVICES / max(training_devices, 1)), min(1.0, _LEAST_GOAL / report_goal))
    devices, goal = round(training_devices * share), max(1, round(report_goal * share))
    try:
        campaign = clock.run(first, devices, goal, days, Availability(), limits=limits)
    except ValueError:
        return Timer(days, None, None)
    return Timer(days, campaign.min_sep, campaign.days * rounds / first)
