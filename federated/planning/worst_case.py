"""Worst-case cost of a mechanism, and whether the population can fill its cohorts; needs no private data."""

from collections.abc import Sequence
from dataclasses import dataclass

from federated import mechanisms
from federated.accounting.amplification import amplified
from federated.accounting.gaussian import epsilon_of_rho
from federated.accounting.guarantees import Guarantee, account, untrained
from federated.config.mechanism import MechanismConfig
from federated.planning.feasibility import Timer, most_rest, of_launch, rounds_below_goal, shortfalls
from federated.secagg.bounds import Encoding

_NOISE_FACTORS = (0.5, 1.0, 2.0, 4.0)
_GOAL_FACTORS = (0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Alternative:
    """The same run with one number changed, and what follows from it.

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
      by_the_clock: what is expected of a launch by the clock; None for another.
    """

    guarantee: Guarantee
    feasible: bool
    reasons: tuple[str, ...]
    alternatives: tuple[Alternative, ...]
    rounds_below_goal: int | None = None
    by_the_clock: Timer | None = None


def plan(config: MechanismConfig, training_devices: int, encoding: Encoding | None = None) -> Plan:
    """Account the enforced limits and see whether cohorts can be filled.

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
        by_the_clock=of_launch(config, training_devices) if not reasons else None,
    )


def nothing(config: MechanismConfig) -> Plan:
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
