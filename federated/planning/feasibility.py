"""The devices that train against the rounds that they must fill: shortfalls, and the timer in whole days.

Found without private data or training's libraries.
"""

import math
from dataclasses import dataclass
from functools import cache

from federated.config.mechanism import IndependentMechanism, MechanismConfig, SecretSample
from federated.participation import clock, turnout
from federated.participation.availability import Availability


def shortfalls(config: MechanismConfig, devices: int) -> list[str]:
    """Reasons why a typical round would miss the report goal; each names the number to change.

    Args:
      devices: that train, of those that may take part.

    Where availability is simulated, typical is what more than half of the rounds are: nights may make up for days.
    """
    if sample := config.secret_sample:
        return _too_few_to_sample(sample, devices)
    return [
        *_too_few_rested(config, devices),
        *_too_few_participations(config, devices),
        *_too_few_awake(config, devices),
        *never_full(config, devices),
    ]


def rounds_below_goal(config: MechanismConfig, devices: int) -> int | None:
    """Rounds expected to end with fewer devices than the report goal; None where no availability is simulated."""
    day = _day(config)
    return None if day is None else _below_goal(config, devices, day)


def _day(config: MechanismConfig) -> Availability | None:
    """Availability in a round that takes its time, full or not; None for everybody, always, and by the clock."""
    block = None if isinstance(config, IndependentMechanism) else config.availability
    # The seed decides who comes, not how many are expected.
    return None if block is None or block.round_minutes is None else Availability(round_minutes=block.round_minutes)


def most_rest(config: MechanismConfig, devices: int, goal: int) -> int:
    """The largest ``min_sep`` at which a typical round of ``goal`` devices is full; 0 if there is none."""
    day = _day(config)
    rest = min(devices // goal, config.rounds)
    if config.timer_days is not None:
        rest = min((devices - Availability().selected(goal)) // goal + 1, config.rounds)
    if day is None:
        return rest
    low, high = 0, rest
    while low < high:
        middle = (low + high + 1) // 2
        row = config.model_copy(update={"report_goal": goal, "min_sep": middle})
        low, high = (middle, high) if 2 * _below_goal(row, devices, day) <= config.rounds else (low, middle - 1)
    return low


def _below_goal(config: MechanismConfig, devices: int, day: Availability) -> int:
    rounds = turnout.expected(config.rounds, devices, config.report_goal, config.min_sep, day)
    return round(rounds.below_goal)


def _too_few_to_sample(sample: SecretSample, devices: int) -> list[str]:
    if devices >= sample.population:
        return []
    enough = devices if devices >= round(sample.rate * sample.population) else 0
    return [
        f"population {sample.population} is what the sampling rate is accounted for, but there are about "
        f"{devices} devices to train: {either(('lower population to', enough, devices))}"
    ]


def _too_few_rested(config: MechanismConfig, devices: int) -> list[str]:
    apart = min(config.min_sep, config.rounds)
    resting = config.report_goal * apart
    if devices >= resting:
        return []
    fewer = ("lower report_goal to", devices // apart, config.report_goal)
    return [
        f"report_goal {config.report_goal} x min_sep {config.min_sep} keeps {resting} devices busy or resting but "
        f"about {devices} devices train: {either(fewer, ('min_sep to', devices // config.report_goal, apart))}"
    ]


def _too_few_participations(config: MechanismConfig, devices: int) -> list[str]:
    joins = config.report_goal * config.rounds
    if devices * config.max_participations >= joins:
        return []
    # Nobody can join more often than the separation lets a device come back: this one, or what those devices carry.
    most = math.ceil(config.rounds / max(min(config.min_sep, devices // config.report_goal), 1))
    raised = ("raise max_participations to", math.ceil(joins / max(devices, 1)), most)
    fewer = ("lower rounds to", devices * config.max_participations // config.report_goal, config.rounds)
    smaller = ("lower report_goal to", devices * config.max_participations // config.rounds, config.report_goal)
    return [
        f"{config.rounds} rounds of {config.report_goal} devices need {joins} participations but about {devices} "
        f"devices train and may join {config.max_participations} rounds each: {either(raised, fewer, smaller)}"
    ]


def _too_few_awake(config: MechanismConfig, devices: int) -> list[str]:
    day = _day(config)
    if day is None:
        return []
    below = _below_goal(config, devices, day)
    if 2 * below <= config.rounds:
        return []
    shares = [day.share(number) for number in range(config.rounds)]
    rest = most_rest(config, devices, config.report_goal)
    fix = f"lower min_sep to {rest} (a shorter timer)" if rest else "lower report_goal"
    return [
        f"about {below} of {config.rounds} rounds would miss report_goal {config.report_goal}: of {devices} that train "
        f"{min(shares):.0%} to {max(shares):.0%} check in, and up to {config.report_goal * (config.min_sep - 1)} of "
        f"them rest; {fix}, or count on more devices"
    ]


# Fewer devices and rounds than these tell the same: separations follow from shares of the population.
_DEVICES, _CYCLES = 50_000, 4
_LEAST_GOAL = 20


@dataclass(frozen=True)
class Timer:
    """Resting time of devices, and the separation and length of a run expected of it.

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
    """Timer of a launch by the clock, with its expected effects; floor and cap are enforced too. None for another."""
    days = config.timer_days
    if days is None:
        return None
    rounds = min(config.rounds, _CYCLES * config.min_sep)
    limits = (config.min_sep, config.max_participations)
    return _played(days, config.rounds, training_devices, config.report_goal, rounds, limits)


def never_full(config: MechanismConfig, devices: int) -> list[str]:
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
