"""Ways to spend a given rho: on training of several shapes, on counts, or on both.

Symbols as in ``costs``. With rho given, the noise follows: the mechanism of least RmsLoss for a shape has the least
noise-to-signal ratio that this rho buys.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from federated import mechanisms
from federated.accounting import guarantees as accounting
from federated.config.counts import CountsConfig
from federated.config.mechanism import MechanismConfig
from federated.config.planning import KINDS, SmallTrade
from federated.planning import costs as plan_costs
from federated.planning import search as plan_search
from federated.planning.proposal import mechanism_block
from federated.planning.search import Choice, Terms


@dataclass(frozen=True)
class Training:
    """Training of one shape at one rho: the ``mechanism:`` block, and what it costs at worst."""

    mechanism: MechanismConfig
    server_rate: float
    rho: float


def training_at(
    mechanism: MechanismConfig, terms: Terms, rho: float, shape: tuple[int, int], kinds: tuple[str, ...]
) -> MechanismConfig | None:
    """The ``mechanism:`` block of a shape whose worst case is ``rho`` or a hair below; None if nothing fits.

    Args:
      mechanism: gives clip norm, delta and what the plan does not decide.
      shape: rounds and report goal.
    """
    # Which ratio is held does not matter: at one goal, least rho at a ratio is least ratio at a rho.
    terms = replace(terms, noise_to_signal=1.0, kinds=kinds)
    rounds, goal = shape
    choice = plan_search.best(terms, rounds, goal, thorough=True)
    if choice is None:
        return None
    strategy = plan_costs.as_launched(choice.strategy)
    ratio = strategy.loss / (goal * math.sqrt(2 * rho))
    held = plan_search.option(replace(terms, noise_to_signal=ratio), strategy, goal)
    fixed = mechanism.model_copy(update={"adaptive_clipping": None})
    return mechanism_block(fixed, Choice(held, strategy), terms.planning)


def shapes(mechanism: MechanismConfig, terms: Terms, limits: SmallTrade) -> Iterator[tuple[int, int]]:
    """Rounds and report goals to rehearse, the largest goal first."""
    most = min(terms.planning.max_report_goal, terms.usable_devices)
    goals = dict.fromkeys(max(1, int(most * share)) for share in limits.goals)
    yield from ((mechanism.rounds, goal) for goal in goals)


def own_rho(mechanism: MechanismConfig) -> float:
    """Worst-case rho of a block as it stands, without any gain from sampling."""
    limits = (mechanism.rounds, mechanism.min_sep, mechanism.max_participations)
    return accounting.guarantee_of(mechanisms.build(mechanism), *limits, (mechanism.delta,), twice=False).rho


def counts_at(rho: float) -> CountsConfig:
    """The ``counts:`` block of at most this rho, whose model ships mixed with the network."""
    return CountsConfig(noise_multiplier=plan_costs.round_up((2 * rho) ** -0.5, 4), model="mixture")


def largest_shapes(
    mechanism: MechanismConfig, terms: Terms, rho: float, limits: SmallTrade, server_rate: float
) -> list[Training]:
    """Training of every shape that the devices that train carry, with all of the rho.

    Raises:
      ValueError: they carry none.
    """
    of_splits = [
        Training(block, server_rate, own_rho(block))
        for shape in shapes(mechanism, terms, limits)
        if (block := training_at(mechanism, terms, rho, shape, KINDS)) is not None
    ]
    if not of_splits:
        raise ValueError(
            f"planning.population_estimate: {terms.planning.population_estimate} devices, of which about "
            f"{terms.training_devices} train, fill no round of {terms.planning.max_report_goal}; lower max_report_goal"
        )
    return of_splits


def pairs(shares: tuple[float, ...]) -> Iterator[tuple[float, float]]:
    """Shares of training and of counts that together are no more than all of the rho."""
    yield from ((train, count) for train in shares for count in shares if train + count <= 1 + 1e-9)
