"""What a mechanism will cost and whether the population can carry it; needs no private data."""

import math
from dataclasses import dataclass

from federated.accounting import Guarantee, epsilon_of_rho, guarantee
from federated.config import MechanismConfig

_ALTERNATIVES = (0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Alternative:
    """The same run at another noise multiplier: rho falls with its square, noise in the model grows with it."""

    noise_multiplier: float
    rho: float
    epsilon: float


@dataclass(frozen=True)
class Plan:
    """The worst case that the enforced limits allow, before any device takes part."""

    guarantee: Guarantee
    feasible: bool
    reasons: tuple[str, ...]
    alternatives: tuple[Alternative, ...]


def plan(config: MechanismConfig, population_estimate: int) -> Plan:
    """Account the enforced limits and see whether cohorts can be filled.

    Args:
      population_estimate: devices that may take part; a bucketed or public figure.

    Returns:
      A plan; ``feasible`` is False when a typical round would miss the report goal, and every
      reason names the number that would have to change.
    """
    worst = guarantee(config, config.rounds, config.min_sep, config.max_participations, (config.delta,))
    reasons = _shortfalls(config, population_estimate)
    return Plan(
        guarantee=worst,
        feasible=not reasons,
        reasons=tuple(reasons),
        alternatives=tuple(
            Alternative(
                config.noise_multiplier * factor,
                worst.rho / factor**2,
                epsilon_of_rho(worst.rho / factor**2, config.delta),
            )
            for factor in _ALTERNATIVES
        ),
    )


def _shortfalls(config: MechanismConfig, devices: int) -> list[str]:
    reasons = []
    resting = config.report_goal * min(config.min_sep, config.rounds)
    if devices < resting:
        reasons.append(
            f"report_goal {config.report_goal} x min_sep {config.min_sep} keeps {resting} devices busy or resting but "
            f"the population has about {devices}: lower report_goal to {devices // min(config.min_sep, config.rounds)}"
            f" or min_sep to {max(devices // config.report_goal, 1)}"
        )
    joins = config.report_goal * config.rounds
    if devices * config.max_participations < joins:
        reasons.append(
            f"{config.rounds} rounds of {config.report_goal} devices need {joins} participations but about {devices} "
            f"devices may join {config.max_participations} rounds each: raise max_participations to "
            f"{math.ceil(joins / max(devices, 1))} or lower rounds to "
            f"{devices * config.max_participations // config.report_goal}"
        )
    return reasons
