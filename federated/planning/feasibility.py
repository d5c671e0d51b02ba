"""The plan of a launch: its worst-case cost, and whether the devices that train can fill its rounds.

Found without private data or training's libraries.

Shape legend: T rounds.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from federated import mechanisms
from federated.accounting.gaussian import epsilon_of_rho
from federated.accounting.guarantees import Guarantee, account, untrained
from federated.config.mechanism import IndependentMechanism, MechanismConfig, SecretSample
from federated.participation import clock
from federated.participation.availability import Availability
from federated.secagg.bounds import Encoding

_NOISE_FACTORS = (0.5, 1.0, 2.0, 4.0)
_GOAL_FACTORS = (0.5, 1.0, 2.0, 4.0)
# Fewer devices and rounds than these tell the same: separations follow from shares of the population.
_DEVICES, _CYCLES = 50_000, 4
_LEAST_GOAL = 20


@dataclass(frozen=True)
class Timer:
    """Resting time of devices, with the expected separation and length of the run.

    Attributes:
      days: whole days, the setting of devices.
      min_sep: least difference between two rounds of a device that is expected; None if rounds of this size do not
        fill.
      run_days: length of the run, one round after the other; None likewise.
    """

    days: int
    min_sep: int | None
    run_days: float | None


@dataclass(frozen=True)
class Alternative:
    """The same run with one number changed, and its cost.

    Attributes:
      noise_multiplier: rho falls with its square.
      report_goal: a smaller one lets a device rest longer, so ``min_sep`` grows and rho falls.
      min_sep: as configured, or the most that the population carries at another report goal.
      max_participations: as configured, or fewer where ``min_sep`` allows fewer.
      rho: without any gain from sampling.
      epsilon: with it, where there is sampling.
      noise_per_device: ``noise_multiplier / report_goal``, a node's noise in the mean update in
        clip norms: the price of the row, because utility falls as it grows.
    """

    noise_multiplier: float
    report_goal: int
    min_sep: int
    max_participations: int
    noise_per_device: float
    rho: float
    epsilon: float


@dataclass(frozen=True)
class Plan:
    """The worst case that the enforced limits allow, before any device takes part.

    Attributes:
      rounds_below_goal: expected; None where no availability is simulated, or a round waits until it is full.
      by_the_clock: forecast of a launch by the clock; None for another.
    """

    guarantee: Guarantee
    feasible: bool
    reasons: tuple[str, ...]
    alternatives: tuple[Alternative, ...]
    rounds_below_goal: int | None = None
    by_the_clock: Timer | None = None


def plan(config: MechanismConfig, training_devices: int, encoding: Encoding | None = None) -> Plan:
    """Account the enforced limits and check that the devices can fill the cohorts.

    Args:
      training_devices: those that rounds draw from: of the devices that may take part the ones that are not held out.
      encoding: of secure aggregation, whose rounding counts; None without it.

    Returns:
      A plan; ``feasible`` is False when a typical round would miss the report goal, and every
      reason names the number that would have to change.
    """
    worst = account(config, mechanism=mechanisms.build(config), encoding=encoding)
    reasons = shortfalls(config, training_devices)
    return Plan(
        guarantee=worst,
        feasible=not reasons,
        reasons=tuple(reasons),
        alternatives=rho_for(
            config,
            training_devices,
            noise_multipliers=[config.noise_multiplier * factor for factor in _NOISE_FACTORS],
            report_goals=sorted({max(1, int(config.report_goal * factor)) for factor in _GOAL_FACTORS}),
        ),
        rounds_below_goal=rounds_below_goal(config, training_devices),
        by_the_clock=launch_timer(config, training_devices) if not reasons else None,
    )


def untrained_plan(config: MechanismConfig) -> Plan:
    """The plan of a launch that trains nothing on devices: it costs nothing, and no cohort has to be filled."""
    return Plan(untrained((config.delta,)), feasible=True, reasons=(), alternatives=())


def rho_for(
    config: MechanismConfig,
    training_devices: int,
    noise_multipliers: Sequence[float] = (),
    report_goals: Sequence[int] = (),
) -> tuple[Alternative, ...]:
    """Worst-case rho if one number of a launch were another.

    Rows of ``noise_multipliers`` keep every other number. Rows of ``report_goals`` take the
    ``min_sep`` that the population then carries; those it could not carry are left out.

    Raises:
      ValueError: a noise multiplier or report goal that is not above 0.
    """
    for name, values in (("noise_multipliers", noise_multipliers), ("report_goals", report_goals)):
        wrong = [value for value in values if not value > 0]
        if wrong:
            raise ValueError(f"{name}: got {wrong[0]}, expected numbers above 0")
    changed = [config.model_copy(update={"noise_multiplier": value}) for value in noise_multipliers]
    # A banded strategy is made for its min_sep, and independent noise has none: their rows end here.
    for goal in report_goals if config.any_min_sep else ():
        rest = most_rest(config, training_devices, goal)
        if rest < 1:
            continue
        most = min(config.max_participations, -(-config.rounds // rest))
        row = config.model_copy(update={"report_goal": goal, "min_sep": rest, "max_participations": most})
        if not shortfalls(row, training_devices):
            changed.append(row)
    return tuple(_alternative(row) for row in changed)


def _alternative(config: MechanismConfig) -> Alternative:
    # Advice, so one route is enough; the plan's own guarantee takes both.
    rho = mechanisms.sensitivity_squared(config) / (2 * config.noise_multiplier**2)
    epsilon = epsilon_of_rho(rho, config.delta)
    if sample := config.secret_sample:
        from federated.accounting.amplification import amplified  # Imports dp_accounting: seconds.

        limits = (config.noise_multiplier, sample.rate, sample.population, config.rounds)
        epsilon = amplified(sample.kind, *limits, (config.delta,)).epsilon[config.delta]
    return Alternative(
        noise_multiplier=config.noise_multiplier,
        report_goal=config.report_goal,
        min_sep=config.min_sep,
        max_participations=config.max_participations,
        noise_per_device=config.noise_multiplier / config.report_goal,
        rho=rho,
        epsilon=epsilon,
    )


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
        *unfillable(config, devices),
    ]


def rounds_below_goal(config: MechanismConfig, devices: int) -> int | None:
    """Rounds expected to end with fewer devices than the report goal; None where no availability is simulated."""
    day = _day(config)
    return None if day is None else _below_goal(config, devices, day)


def _day(config: MechanismConfig) -> Availability | None:
    """Availability in rounds of fixed length; None where all devices are available, and for a launch by the clock."""
    block = None if isinstance(config, IndependentMechanism) else config.availability
    # The seed determines the devices that come, not their expected number.
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
    rounds = expected_turnout(config.rounds, devices, config.report_goal, config.min_sep, day)
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


def launch_timer(config: MechanismConfig, training_devices: int) -> Timer | None:
    """Timer of a launch by the clock, with its expected effects; floor and cap are enforced too. None for another."""
    days = config.timer_days
    if days is None:
        return None
    rounds = min(config.rounds, _CYCLES * config.min_sep)
    limits = (config.min_sep, config.max_participations)
    return _simulated(days, config.rounds, training_devices, config.report_goal, rounds, limits)


def unfillable(config: MechanismConfig, devices: int) -> list[str]:
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
    # Most devices that can be at their cap; none where the separation alone keeps them below it.
    capped = goal * rounds // cap if cap < -(-rounds // config.min_sep) else 0
    if devices >= resting + wanted + capped:
        return []
    if _simulated(days, rounds, devices, goal, rounds, (config.min_sep, cap)).run_days is not None:
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
def _simulated(
    days: int, rounds: int, training_devices: int, report_goal: int, first: int, limits: tuple[int, int] | None
) -> Timer:
    """Simulate the first rounds of a run by the clock on as many devices as train.

    In a large population a share of the devices stands for all, and the same share of the goal for the goal.
    """
    share = max(min(1.0, _DEVICES / max(training_devices, 1)), min(1.0, _LEAST_GOAL / report_goal))
    devices, goal = round(training_devices * share), max(1, round(report_goal * share))
    try:
        campaign = clock.run(first, devices, goal, days, Availability(), limits=limits)
    except ValueError:
        return Timer(days, None, None)
    return Timer(days, campaign.min_sep, campaign.days * rounds / first)


@dataclass(frozen=True)
class ExpectedTurnout:
    """Expected turnout of a run.

    Attributes:
      devices_T: devices that report in each round, at most the report goal.
      below_goal: rounds expected to stay below the goal.
    """

    devices_T: np.ndarray
    below_goal: float


def expected_turnout(
    rounds: int, num_devices: int, report_goal: int, min_sep: int, availability: Availability
) -> ExpectedTurnout:
    """Follow the means through a run: devices that rest, that are awake, that are selected and report.

    Too few devices weaken no guarantee: the mean's denominator is the report goal and the noise is that of a full
    round. They make the update smaller and the noise weigh more.

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
        below += _chance_below(report_goal, mean, scatter)
        joined.append(devices)
        resting.append(devices)
        total += devices
        pool -= devices
    return ExpectedTurnout(np.array(joined), below)


def _chance_below(goal: int, mean: float, variance: float) -> float:
    """Chance that a count with this mean and variance is less than ``goal``, by the normal curve."""
    if variance <= 0:
        return float(mean < goal)
    return 0.5 * math.erfc((mean - goal + 0.5) / math.sqrt(2 * variance))
