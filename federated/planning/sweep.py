"""rho against rounds, report goal and population at a held noise-to-signal ratio.

As in Xu et al. 2023, figure 4, and McMahan et al. 2024, figures 8 and 9. Symbols as in ``costs``.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from federated.planning import costs as plan_costs
from federated.planning import search as plan_search
from federated.planning.costs import Strategy
from federated.planning.search import Option, Terms

_LABELS = {"tree": "tree", "blt": "BLT, 2 buffers", "banded": "banded, min_sep bands"}
_STRATEGIES: Mapping[str, Callable[[int, int, int], Strategy]] = {
    "tree": plan_costs.tree,
    "blt": lambda rounds, min_sep, most: plan_costs.blt(rounds, min_sep, most, 2),
    "banded": plan_costs.banded,
}
_POINTS = 13


@dataclass(frozen=True)
class Curve:
    """rho of one mechanism; ``points`` are (the number that varies, rho)."""

    label: str
    points: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Sweep:
    """One number varies, the others and the noise-to-signal ratio stay.

    Attributes:
      over: ``rounds``, ``report_goal`` or ``population_estimate``.
      at: its value in the plan.
    """

    over: str
    at: int
    curves: tuple[Curve, ...]


def sweeps(
    terms: Terms, chosen: Option, on_progress: Callable[[str], None] = lambda message: None
) -> tuple[Sweep, ...]:
    """The three pictures of a plan, as numbers.

    Report goals go beyond the ceiling and populations beyond the estimate, to show what more would
    bring. The mechanisms are those that the plan may choose, whatever memory they take.
    """
    planning = terms.planning
    rounds, goal, devices = chosen.rounds, chosen.report_goal, planning.population_estimate

    def rho(kind: str, rounds: int, goal: int, devices: int) -> float | None:
        min_sep = plan_search.min_sep_of(terms.with_planning(population_estimate=devices), rounds, goal)
        if min_sep < 1:
            return None
        limits = (rounds, min_sep, plan_costs.most_participations(rounds, min_sep))
        strategy = _STRATEGIES[kind](*limits)
        return (strategy.loss / (terms.noise_to_signal * goal)) ** 2 / 2

    curves_over = []
    for over, at, span in (
        ("rounds", rounds, _spread(rounds, max(2, rounds // 16), 2 * rounds)),
        ("report_goal", goal, _spread(goal, max(1, goal // 16), 4 * max(goal, planning.max_report_goal))),
        ("population_estimate", devices, _spread(devices, max(1, devices // 16), 16 * devices)),
    ):
        on_progress(f"rho against {over.replace('_', ' ')}")
        place = ("rounds", "report_goal", "population_estimate").index(over)
        curves = []
        for kind in terms.kinds:
            points = []
            for value in span:
                numbers = [rounds, goal, devices]
                numbers[place] = value
                cost = rho(kind, *numbers)
                points += [] if cost is None else [(value, cost)]
            curves.append(Curve(_LABELS[kind], tuple(points)))
        curves_over.append(Sweep(over, at, tuple(curves)))
    return tuple(curves_over)


def _spread(at: int, low: int, high: int) -> list[int]:
    """Whole numbers in geometric progression from ``low`` to ``high``, with ``at`` among them."""
    ratio = math.log(high / low) / (_POINTS - 1)
    return sorted({round(low * math.exp(step * ratio)) for step in range(_POINTS)} | {at})
