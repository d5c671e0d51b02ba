"""Rounds that the devices that train cannot fill, found without private data or training's libraries."""

import math

from federated.config.mechanism import IndependentMechanism, MechanismConfig, SecretSample
from federated.participation import turnout
from federated.participation.availability import Availability
from federated.planning.timer import either
from federated.planning.timer import shortfalls as never_full


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
    """Who checks in during a round that takes its time, full or not; None for everybody, always, and by the clock."""
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
