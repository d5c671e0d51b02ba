"""The planner: from public numbers to a ``mechanism:`` block, with reasons, alternatives and pictures.

Where a target is missed, ``changes`` says one number at a time what would have to change, and to which value. Every
value is tried with the planner's own search, so a plan with that one number changed meets the target. ``sweeps`` are
rho against rounds, report goal and population at a held noise-to-signal ratio, as in Xu et al. 2023, figure 4, and
McMahan et al. 2024, figures 8 and 9. Symbols as in ``search``.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import TypeAdapter

from federated.accounting import guarantees as accounting
from federated.config.mechanism import MechanismConfig
from federated.config.planning import KINDS, SPARE_FRACTION, PlanningConfig
from federated.participation.clock import whole_days
from federated.planning import search as plan_search
from federated.planning.feasibility import Timer, launch_timer, timer
from federated.planning.search import Choice, Option, Strategy, Terms, round_up


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


@dataclass(frozen=True)
class Proposal:
    """Proposed run with its reasons, and the alternatives.

    Attributes:
      feasible: whether ``chosen`` meets the target; if not, it is the option nearest to it.
      mechanism: the ``mechanism:`` block, which holds clip norm and delta of the launch file.
      chosen: with rho and epsilon of exactly that block, by the accountant of launches.
      timer: rest of a device after a participation, and its effect by the clock.
      reasons: sentences.
      changes: numbers that would meet the target, each alone; () if it is met.
      alternatives: the same run by other mechanisms, then other report goals and rounds.
    """

    feasible: bool
    terms: Terms
    mechanism: MechanismConfig
    chosen: Option
    timer: Timer
    reasons: tuple[str, ...]
    changes: tuple[Change, ...]
    alternatives: tuple[Option, ...]


def propose(
    mechanism: MechanismConfig, terms: Terms, on_progress: Callable[[str], None] = lambda message: None
) -> Proposal:
    """Find the run that meets the target.

    Needs no private data: all inputs are in the launch file.

    Args:
      mechanism: of the launch file; gives clip norm, delta, and all fields that do not change.
      on_progress: progress callback, called with a description of each trial; all trials take seconds to tens of
        seconds.

    Raises:
      ValueError: the noise of no mechanism fits in memory.
    """
    planning = terms.planning
    chosen, tried = plan_search.search(terms, mechanism.rounds, on_progress)
    if not tried:
        raise ValueError(
            f"most_copies: {terms.most_copies} copies of the model hold the noise of none of {', '.join(terms.kinds)}; "
            "raise it, or add blt, which needs 2"
        )
    nearest = chosen or min(tried, key=lambda choice: choice.rho)
    if chosen is None:
        goal, rounds = nearest.option.report_goal, nearest.option.rounds
        nearest = plan_search.best(terms, rounds, goal, thorough=True) or nearest
    strategy = plan_search.as_launched(nearest.strategy)
    nearest = Choice(plan_search.option(terms, strategy, nearest.option.report_goal), strategy)
    block = mechanism_block(mechanism, nearest, planning)
    option = _as_accounted(block, nearest.option)
    met = chosen is not None and option.rho is not None and option.rho <= terms.target.rho
    on_progress("the run by the clock")
    rest = launch_timer(block, terms.training_devices) or timer(
        terms.training_devices, planning.round_minutes, option.rounds, option.report_goal, option.min_sep
    )
    on_progress("the same run by other mechanisms")
    return Proposal(
        feasible=met,
        terms=terms,
        mechanism=block,
        chosen=option,
        timer=rest,
        reasons=_reasons(terms, mechanism, block, option, tried, rest),
        changes=() if met else changes(terms, nearest, on_progress),
        alternatives=_alternatives(terms, option, tried),
    )


def mechanism_block(
    mechanism: MechanismConfig, choice: Choice, planning: PlanningConfig | None = None
) -> MechanismConfig:
    """The launch file's ``mechanism:`` with everything that the plan decides replaced.

    What does not depend on the mechanism (clip norm, delta, randomness, clipping, secure
    aggregation, availability) is kept. Adaptive clipping is kept where the noise has restarts, which it needs.

    Args:
      planning: duration of slow rounds, which determines the timer of a launch by the clock; None keeps it.
    """
    names = {"clip_norm", "delta", "randomness", "clipping", "secagg", "availability"}
    names |= {"adaptive_clipping"} if "restarts" in choice.strategy.parameters else set()
    shared = mechanism.model_dump(exclude_defaults=True, include=names)
    option = choice.option
    if planning is not None and mechanism.timer_days is not None:
        shared["availability"] = {"timer_days": whole_days(option.min_sep, planning.round_minutes)}
    decided = {
        "kind": option.kind,
        **choice.strategy.parameters,
        "noise_multiplier": option.noise_multiplier,
        "rounds": option.rounds,
        "report_goal": option.report_goal,
        "min_sep": option.min_sep,
        "max_participations": option.max_participations,
    }
    return TypeAdapter(MechanismConfig).validate_python(decided | shared)


def to_yaml(block: MechanismConfig) -> str:
    """The block as text of a launch file; reading it back gives the same block."""
    content = block.model_dump(mode="json", exclude_defaults=True)
    first = {name: content.pop(name) for name in ("kind", "noise_multiplier", "rounds", "report_goal")}
    lines = [line for item in (first | content).items() for line in _yaml_lines(*item, "  ")]
    return "\n".join(["mechanism:", *lines])


def _yaml_lines(name: str, value: object, indent: str) -> list[str]:
    if isinstance(value, dict) and value:
        return [f"{indent}{name}:", *(line for item in value.items() for line in _yaml_lines(*item, indent + "  "))]
    return [f"{indent}{name}: {_yaml_value(value)}"]


def _yaml_value(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_yaml_value(item) for item in value)}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        # YAML 1.1 reads 1e-10 as text: it needs a point.
        text = repr(value)
        return text.replace("e", ".0e", 1) if "e" in text and "." not in text else text
    return str(value)


def _as_accounted(block: MechanismConfig, option: Option) -> Option:
    """The option with the numbers that the accountant of launches gives for the block."""
    worst = accounting.account(block)
    return replace(
        option,
        rho=worst.rho,
        epsilon=worst.epsilon[block.delta],
        noise_to_signal=plan_search.noise_to_signal(block),
    )


def _alternatives(terms: Terms, chosen: Option, tried: list[Choice]) -> tuple[Option, ...]:
    rounds, goal = chosen.rounds, chosen.report_goal
    same = [chosen]
    for strategy in plan_search.strategies(terms, rounds, goal, thorough=True, kinds=KINDS):
        note = ""
        if strategy.copies > terms.most_copies:
            note = f"more than {terms.most_copies} copies of the model for noise"
        elif strategy.kind not in terms.kinds:
            note = "not among the mechanisms to choose from"
        if strategy.label != chosen.label:
            same.append(plan_search.option(terms, strategy, goal, note))
    sampled = plan_search.independent(terms, rounds, goal)
    others = [item.option for item in tried if item.option.report_goal != goal]
    return (*same, *([sampled] if sampled else []), *others)


def _reasons(
    terms: Terms, mechanism: MechanismConfig, block: MechanismConfig, chosen: Option, tried: list[Choice], rest: Timer
) -> tuple[str, ...]:
    planning, target = terms.planning, terms.target
    source = (
        "as given"
        if terms.rehearsed
        else "that of the launch file's own mechanism block; 'tacit rehearse' finds what accuracy can bear"
    )
    smaller = [item.option for item in tried if item.option.report_goal < chosen.report_goal]
    met = chosen.rho is not None and chosen.rho <= target.rho
    before = f"; the next smaller, {smaller[-1].report_goal:,}, gives {smaller[-1].rho:.4g}" if smaller else ""
    if chosen.report_goal == terms.least_report_goal:
        before = "; the rehearsal has no fewer devices in a round, so smaller ones were not tried"
    joins = f"a device joins at most {chosen.max_participations:,} of {chosen.rounds:,} rounds"
    if chosen.max_participations == 1:
        joins = "no device joins twice"
    reasons = [
        f"Noise-to-signal {terms.noise_to_signal:.4g} ({source}): the noise in the model, as a root mean square over "
        "rounds, per coordinate and in clip norms of the mean update. It is held for every row, so all rows are "
        "equally useful.",
        f"Report goal {chosen.report_goal:,}: "
        + (f"the smallest tried that meets rho {target.rho:.4g}{before}." if met else "nearest to the target of all."),
        f"min_sep {chosen.min_sep:,}: {terms.usable_devices:,} devices ({1 - SPARE_FRACTION:.0%} of about "
        f"{terms.training_devices:,} that train, of {planning.population_estimate:,}) fill {chosen.min_sep:,} rounds "
        f"of {chosen.report_goal:,} before one must return, so {joins}.",
        rest.in_words(chosen.min_sep, by_the_clock=block.timer_days is not None),
        f"{chosen.label[0].upper() + chosen.label[1:]}: least rho at this ratio among {', '.join(terms.kinds)} "
        f"with at most {terms.most_copies} copies of the model for noise (this one keeps {chosen.copies}).",
    ]
    if mechanism.adaptive_clipping and not block.adaptive_clipping:
        reasons.append(
            f"Clip norm {block.clip_norm:g} stays fixed: adaptive clipping needs restarts, and this mechanism has none."
        )
    if mechanism.timer_days is None and mechanism.model_dump().get("availability"):
        reasons.append(
            f"Who checks in when is not part of this search, which leaves out {SPARE_FRACTION:.0%} of the devices, "
            "no more: run 'tacit plan' on the file with this block to see how many rounds would not be full."
        )
    if mechanism.secagg:
        reasons.append("Secure aggregation rounds the updates, which adds a little to rho; the plan stage counts it.")
    return tuple(reasons)


def changes(terms: Terms, choice: Choice, on_progress: Callable[[str], None]) -> tuple[Change, ...]:
    """Changes that each meet the target alone.

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


_LABELS = {"tree": "tree", "blt": "BLT, 2 buffers", "banded": "banded, min_sep bands"}
_STRATEGIES: Mapping[str, Callable[[int, int, int], Strategy]] = {
    "tree": plan_search.tree,
    "blt": lambda rounds, min_sep, most: plan_search.blt(rounds, min_sep, most, 2),
    "banded": plan_search.banded,
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
    """Data of a plan's three pictures.

    Report goals go beyond the ceiling and populations beyond the estimate, to show what more would
    bring. The mechanisms are those that the plan may choose, whatever memory they take.
    """
    planning = terms.planning
    rounds, goal, devices = chosen.rounds, chosen.report_goal, planning.population_estimate

    def rho(kind: str, rounds: int, goal: int, devices: int) -> float | None:
        min_sep = plan_search.min_sep_of(terms.with_planning(population_estimate=devices), rounds, goal)
        if min_sep < 1:
            return None
        limits = (rounds, min_sep, plan_search.most_participations(rounds, min_sep))
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
