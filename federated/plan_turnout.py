"""Whether a population can fill the rounds of a mechanism, and what would have to change if not."""

import math

from federated.config.mechanism import MechanismConfig
from federated.participation import turnout
from federated.participation.build import availability_of


def shortfalls(config: MechanismConfig, devices: int) -> list[str]:
    """Reasons why a typical round would miss the report goal; each names the number to change.

    Where availability is simulated, typical is what more than half of the rounds are: nights may make up for days.
    """
    if config.kind == "independent":
        return _too_few_to_sample(config, devices)
    return [
        *_too_few_rested(config, devices),
        *_too_few_participations(config, devices),
        *_too_few_awake(config, devices),
    ]


def rounds_below_goal(config: MechanismConfig, devices: int) -> int | None:
    """Rounds expected to end with fewer devices than the report goal; None where no availability is simulated."""
    # The seed decides who comes, not how many are expected.
    day = availability_of(config, seed=0)
    if day is None:
        return None
    found = turnout.expected(config.rounds, devices, config.report_goal, config.min_sep, day)
    return round(found.below_goal)


def most_rest(config: MechanismConfig, devices: int, goal: int) -> int:
    """The largest ``min_sep`` at which a typical round of ``goal`` devices is full; 0 if there is none."""
    day = availability_of(config, seed=0)
    rest = min(devices // goal, config.rounds)
    if day is None:
        return rest
    low, high = 0, rest
    while low < high:
        middle = (low + high + 1) // 2
        row = config.model_copy(update={"report_goal": goal, "min_sep": middle})
        low, high = (middle, high) if 2 * rounds_below_goal(row, devices) <= config.rounds else (low, middle - 1)
    return low


def _too_few_to_sample(config: MechanismConfig, devices: int) -> list[str]:
    if devices >= config.population:
        return []
    return [
        f"population {config.population} is what the sampling rate is accounted for, but there are about "
        f"{devices} devices: lower population to {devices} or less"
    ]


def _too_few_rested(config: MechanismConfig, devices: int) -> list[str]:
    resting = config.report_goal * min(config.min_sep, config.rounds)
    if devices >= resting:
        return []
    return [
        f"report_goal {config.report_goal} x min_sep {config.min_sep} keeps {resting} devices busy or resting but "
        f"the population has about {devices}: lower report_goal to {devices // min(config.min_sep, config.rounds)}"
        f" or min_sep to {max(devices // config.report_goal, 1)}"
    ]


def _too_few_participations(config: MechanismConfig, devices: int) -> list[str]:
    joins = config.report_goal * config.rounds
    if devices * config.max_participations >= joins:
        return []
    return [
        f"{config.rounds} rounds of {config.report_goal} devices need {joins} participations but about {devices} "
        f"devices may join {config.max_participations} rounds each: raise max_participations to "
        f"{math.ceil(joins / max(devices, 1))} or lower rounds to "
        f"{devices * config.max_participations // config.report_goal}"
    ]


def _too_few_awake(config: MechanismConfig, devices: int) -> list[str]:
    day = availability_of(config, seed=0)
    if day is None:
        return []
    kept = day.over_selection * (1 - day.dropout)
    if kept < 1:
        return [
            f"availability.over_selection {day.over_selection:g} with dropout {day.dropout:g} brings in only "
            f"{kept:.0%} of the report goal: raise over_selection above {1 / (1 - day.dropout):.2f}"
        ]
    below = rounds_below_goal(config, devices)
    if 2 * below <= config.rounds:
        return []
    shares = [day.share(number) for number in range(config.rounds)]
    rest = most_rest(config, devices, config.report_goal)
    fix = f"lower min_sep to {rest} (a shorter timer)" if rest else "lower report_goal"
    return [
        f"about {below} of {config.rounds} rounds would miss report_goal {config.report_goal}: of {devices} devices "
        f"{min(shares):.0%} to {max(shares):.0%} check in, and up to {config.report_goal * (config.min_sep - 1)} of "
        f"them rest; {fix}, or count on more devices"
    ]
