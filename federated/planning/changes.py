"""What would have to change for a target to be met: one number at a time, and to which value.

Every value is tried with the planner's own search, so a plan with that one number changed meets
the target.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from federated.config.planning import SPARE_FRACTION
from federated.planning import search as plan_search
from federated.planning.costs import round_up
from federated.planning.search import Choice, Option, Terms


@dataclass(frozen=True)
class Change:
    """One number of the plan, and the value with which the target is met.

    Attributes:
      needed: None if no value would do.
      sentence: the same for people, with the reason where none would do.
    """

    field: str
    now: float | None
    needed: float | None
    sentence: str


def changes(terms: Terms, choice: Choice, on_progress: Callable[[str], None]) -> tuple[Change, ...]:
    """Each number that could be changed alone.

    Args:
      choice: the option of least rho; it misses the target.
    """
    on_progress("which number would have to change")
    nearest = choice.option
    return (
        _report_goal(terms, nearest),
        _population(terms, nearest),
        _rounds(terms, nearest),
        _noise(terms, choice),
        _target(terms, choice),
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
    round_numbers = {digits * 10**decade for decade in decades for digits in range(1, 100)}
    return sorted(value for value in round_numbers if low <= value <= high)


def _meets(terms: Terms, kind: str, rounds: int) -> bool:
    # One kind is enough and quick; with more of them rho is no larger.
    only = replace(terms, kinds=(kind,))
    choice = plan_search.best(only, rounds, plan_search.report_goals(only)[-1])
    return choice is not None and choice.rho <= terms.target.rho


def _report_goal(terms: Terms, nearest: Option) -> Change:
    planning = terms.planning

    def meets(goal: int) -> bool:
        return _meets(terms.with_planning(max_report_goal=goal), nearest.kind, nearest.rounds)

    now, most = planning.max_report_goal, terms.usable_devices // 2
    needed = _first(_round_numbers(now + 1, most), meets)
    sentence = (
        f"raise max_report_goal from {now:,} to {needed:,}, and every device may join each "
        f"{terms.usable_devices // needed:,} rounds"
        if needed
        else f"no report goal is large enough: with {most:,}, half of all devices every round, rho is above the target"
    )
    return Change("max_report_goal", now, needed, sentence)


def _population(terms: Terms, nearest: Option) -> Change:
    planning = terms.planning

    def meets(devices: int) -> bool:
        return _meets(terms.with_planning(population_estimate=devices), nearest.kind, nearest.rounds)

    now = planning.population_estimate
    # From here on no device joins twice, and more devices change nothing.
    usable = (1 - SPARE_FRACTION) * (1 - terms.splits.test - terms.splits.validation)
    once = round_up(planning.max_report_goal * nearest.rounds / usable, 2)
    needed = _first(_round_numbers(now + 1, int(once)), meets)
    sentence = (
        f"find {needed:,} devices that may take part, not {now:,}"
        if needed
        else f"no population is large enough: even if no device joined twice, {nearest.rounds:,} rounds of at most "
        f"{planning.max_report_goal:,} devices with so little noise would miss the target"
    )
    return Change("population_estimate", now, needed, sentence)


def _rounds(terms: Terms, nearest: Option) -> Change:
    def meets(rounds: int) -> bool:
        return _meets(terms, nearest.kind, rounds)

    needed = _first(_round_numbers(1, nearest.rounds - 1)[::-1], meets)
    sentence = (
        f"train for {needed:,} rounds, not {nearest.rounds:,}; fewer rounds learn less"
        if needed
        else "no number of rounds is small enough: a single one would miss the target"
    )
    return Change("rounds", nearest.rounds, needed, sentence)


def _noise(terms: Terms, choice: Choice) -> Change:
    ratio = terms.noise_to_signal
    needed = round_up(choice.strategy.loss / (choice.option.report_goal * math.sqrt(2 * terms.target.rho)), 3)
    sentence = f"bear a noise-to-signal ratio of {needed:g}, not {ratio:g}; rehearse what that costs in accuracy"
    return Change("noise_to_signal", ratio, needed, sentence)


def _target(terms: Terms, choice: Choice) -> Change:
    rho = round_up(choice.rho, 3)
    return Change("target_rho", terms.target.rho, rho, f"accept rho {rho:g}, not {terms.target.rho:g}")
