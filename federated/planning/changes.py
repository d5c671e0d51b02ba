"""What would have to change for a target to be met: one number at a time, and to which value.

Every value is tried with the planner's own search, so a plan with that one number changed meets
the target.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from federated.accounting.gaussian import epsilon_of_rho
from federated.config.planning import PlanningConfig
from federated.planning import search as plan_search
from federated.planning.costs import round_up
from federated.planning.search import Found, Option, Target


@dataclass(frozen=True)
class Change:
    """One number of the ``planning:`` block, and the value with which the target is met.

    Attributes:
      needed: None if no value would do.
      sentence: the same for people, with the reason where none would do.
    """

    field: str
    now: float | None
    needed: float | None
    sentence: str


def changes(
    planning: PlanningConfig, found: Found, ratio: float, target: Target, on_progress: Callable[[str], None]
) -> tuple[Change, ...]:
    """Each number that could be changed alone.

    Args:
      found: the option of least rho; it misses the target.
    """
    on_progress("which number would have to change")
    nearest = found.option
    return (
        _report_goal(planning, nearest, ratio, target),
        _population(planning, nearest, ratio, target),
        _rounds(planning, nearest, ratio, target),
        *_memory(planning, nearest, ratio, target),
        _noise(planning, found, ratio, target),
        _target(planning, nearest, target),
    )


def _first(values: Sequence[int], meets: Callable[[int], bool]) -> int | None:
    """A value that meets the target whose neighbour before it does not; None if none is found.

    rho need not fall at every step, so strides of growing size look for the first region that
    meets it, and halving finds its edge.
    """
    missed, stride = -1, 1
    while missed < len(values) - 1:
        place = min(missed + stride, len(values) - 1)
        if meets(values[place]):
            while place - missed > 1:
                middle = (missed + place) // 2
                missed, place = (missed, middle) if meets(values[middle]) else (middle, place)
            return values[place]
        missed, stride = place, stride * 2
    return None


def _round_numbers(low: int, high: int) -> list[int]:
    """Whole numbers of at most two significant digits from ``low`` to ``high``, ascending."""
    decades = range(len(str(max(high, 1))))
    found = {digits * 10**decade for decade in decades for digits in range(1, 100)}
    return sorted(value for value in found if low <= value <= high)


def _meets(planning: PlanningConfig, kind: str, rounds: int, ratio: float, target: Target) -> bool:
    # One kind is enough and quick; with more of them rho is no larger.
    only = planning.model_copy(update={"mechanisms": (kind,)})
    found = plan_search.best(only, rounds, plan_search.report_goals(only)[-1], ratio, target)
    return found is not None and found.option.rho <= target.rho


def _report_goal(planning: PlanningConfig, nearest: Option, ratio: float, target: Target) -> Change:
    def meets(goal: int) -> bool:
        changed = planning.model_copy(update={"max_report_goal": goal})
        return _meets(changed, nearest.kind, nearest.rounds, ratio, target)

    now, most = planning.max_report_goal, planning.usable_population // 2
    needed = _first(_round_numbers(now + 1, most), meets)
    sentence = (
        f"raise max_report_goal from {now:,} to {needed:,}, and every device may join each "
        f"{planning.usable_population // needed:,} rounds"
        if needed
        else f"no report goal is large enough: with {most:,}, half of all devices every round, rho is above the target"
    )
    return Change("max_report_goal", now, needed, sentence)


def _population(planning: PlanningConfig, nearest: Option, ratio: float, target: Target) -> Change:
    def meets(devices: int) -> bool:
        changed = planning.model_copy(update={"population_estimate": devices})
        return _meets(changed, nearest.kind, nearest.rounds, ratio, target)

    now = planning.population_estimate
    # From here on no device joins twice, and more devices change nothing.
    once = round_up(planning.max_report_goal * nearest.rounds / (1 - planning.spare_fraction), 2)
    needed = _first(_round_numbers(now + 1, int(once)), meets)
    sentence = (
        f"find {needed:,} devices, not {now:,}"
        if needed
        else f"no population is large enough: even if no device joined twice, {nearest.rounds:,} rounds of at most "
        f"{planning.max_report_goal:,} devices with so little noise would miss the target"
    )
    return Change("population_estimate", now, needed, sentence)


def _rounds(planning: PlanningConfig, nearest: Option, ratio: float, target: Target) -> Change:
    def meets(rounds: int) -> bool:
        return _meets(planning, nearest.kind, rounds, ratio, target)

    needed = _first(_round_numbers(1, nearest.rounds - 1)[::-1], meets)
    sentence = (
        f"train for {needed:,} rounds, not {nearest.rounds:,}; fewer rounds learn less"
        if needed
        else "no number of rounds is small enough: a single one would miss the target"
    )
    return Change("rounds", nearest.rounds, needed, sentence)


def _memory(planning: PlanningConfig, nearest: Option, ratio: float, target: Target) -> tuple[Change, ...]:
    goal = plan_search.report_goals(planning)[-1]
    found = [
        plan_search.option(strategy, goal, ratio, target.delta)
        for strategy in plan_search.strategies(planning, nearest.rounds, goal, thorough=True)
        if strategy.copies > planning.max_noise_copies
    ]
    enough = [option for option in found if option.rho <= target.rho]
    if not enough:
        return ()
    least = min(enough, key=lambda option: option.copies)
    sentence = (
        f"allow {least.copies:,} copies of the model for noise (max_noise_copies), not {planning.max_noise_copies:,}: "
        f"{least.label} then reaches rho {least.rho:.4g}"
    )
    return (Change("max_noise_copies", planning.max_noise_copies, least.copies, sentence),)


def _noise(planning: PlanningConfig, found: Found, ratio: float, target: Target) -> Change:
    needed = round_up(found.strategy.loss / (found.option.report_goal * math.sqrt(2 * target.rho)), 3)
    sentence = f"bear a noise-to-signal ratio of {needed:g}, not {ratio:g}; rehearse what that costs in accuracy"
    return Change("noise_to_signal", planning.noise_to_signal, needed, sentence)


def _target(planning: PlanningConfig, nearest: Option, target: Target) -> Change:
    rho = round_up(nearest.rho, 3)
    if planning.target_rho is not None:
        return Change("target_rho", planning.target_rho, rho, f"accept rho {rho:g}, not {target.rho:g}")
    epsilon = round_up(epsilon_of_rho(rho, target.delta), 3)
    sentence = f"accept epsilon {epsilon:g} at delta {target.delta:g}, not {target.epsilon:g}"
    return Change("target_epsilon", planning.target_epsilon, epsilon, sentence)
