"""The planner: from public numbers to a ``mechanism:`` block, with reasons and alternatives."""

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import TypeAdapter

from federated.accounting import guarantees as accounting
from federated.config.mechanism import MechanismConfig
from federated.config.planning import PlanningConfig
from federated.planning import costs as plan_costs
from federated.planning import search as plan_search
from federated.planning.changes import Change, changes
from federated.planning.search import Found, Option, Target

_ALL_KINDS = ("tree", "blt", "banded")


@dataclass(frozen=True)
class Proposal:
    """What to run, why, and what else there was.

    Attributes:
      feasible: whether ``chosen`` meets the target; if not, it is the option nearest to it.
      mechanism: the ``mechanism:`` block, which holds clip norm and delta of the launch file.
      chosen: with rho and epsilon of exactly that block, by the accountant of launches.
      timer_hours: how long a device sleeps after it took part.
      rehearsed: whether the ratio is a rehearsal's, or just that of the launch file's own mechanism.
      reasons: sentences.
      changes: numbers that would meet the target, each alone; () if it is met.
      alternatives: the same run by other mechanisms, then other report goals and rounds.
    """

    feasible: bool
    target: Target
    noise_to_signal: float
    rehearsed: bool
    mechanism: MechanismConfig
    chosen: Option
    timer_hours: float
    reasons: tuple[str, ...]
    changes: tuple[Change, ...]
    alternatives: tuple[Option, ...]


def propose(
    mechanism: MechanismConfig, planning: PlanningConfig, on_progress: Callable[[str], None] = lambda message: None
) -> Proposal:
    """Find the run that meets the target.

    Needs no private data: all inputs stand in the launch file.

    Args:
      mechanism: of the launch file; gives clip norm, delta, and what is kept as it is.
      on_progress: hears what is being tried; the whole takes seconds to tens of seconds.

    Raises:
      ValueError: the noise of no mechanism fits in memory.
    """
    ratio = planning.noise_to_signal or plan_costs.noise_to_signal(mechanism)
    target = plan_search.target_of(planning, mechanism.delta)
    found, tried = plan_search.search(planning, planning.rounds or (mechanism.rounds,), ratio, target, on_progress)
    if not tried:
        raise ValueError(
            f"planning.max_noise_copies: {planning.max_noise_copies} copies of the model hold the noise of none of "
            f"{', '.join(planning.mechanisms)}; raise it, or add blt, which needs 2"
        )
    nearest = found or min(tried, key=lambda item: item.option.rho)
    if found is None:
        goal, rounds = nearest.option.report_goal, nearest.option.rounds
        nearest = plan_search.best(planning, rounds, goal, ratio, target, thorough=True)
    block = mechanism_block(mechanism, nearest)
    chosen = _as_accounted(block, nearest.option, mechanism.delta)
    on_progress("the same run by other mechanisms")
    return Proposal(
        feasible=found is not None,
        target=target,
        noise_to_signal=ratio,
        rehearsed=planning.noise_to_signal is not None,
        mechanism=block,
        chosen=chosen,
        timer_hours=chosen.min_sep * planning.round_minutes / 60,
        reasons=_reasons(planning, mechanism, block, chosen, tried, ratio, target),
        changes=() if found else changes(planning, nearest, ratio, target, on_progress),
        alternatives=_alternatives(planning, chosen, tried, ratio, target),
    )


def mechanism_block(mechanism: MechanismConfig, found: Found) -> MechanismConfig:
    """The launch file's ``mechanism:`` with everything that the plan decides replaced.

    What does not depend on the mechanism (clip norm, delta, randomness, clipping, secure
    aggregation) is kept. Adaptive clipping is kept where the noise has restarts, which it needs, and
    availability without its timer: the plan decides ``min_sep``.
    """
    shared = ("clip_norm", "delta", "randomness", "clipping", "secagg")
    shared += ("adaptive_clipping",) if "restarts" in found.strategy.parameters else ()
    kept = {name: value for name, value in mechanism.model_dump(exclude_defaults=True).items() if name in shared}
    if block := mechanism.model_dump().get("availability"):
        kept["availability"] = {name: value for name, value in block.items() if name != "timer_hours"}
    option = found.option
    decided = {
        "kind": option.kind,
        **found.strategy.parameters,
        "noise_multiplier": option.noise_multiplier,
        "rounds": option.rounds,
        "report_goal": option.report_goal,
        "min_sep": option.min_sep,
        "max_participations": option.max_participations,
    }
    return TypeAdapter(MechanismConfig).validate_python(decided | kept)


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
        # YAML 1.1 takes 1e-10 for a word: it wants the point.
        text = repr(value)
        return text.replace("e", ".0e", 1) if "e" in text and "." not in text else text
    return str(value)


def _as_accounted(block: MechanismConfig, option: Option, delta: float) -> Option:
    """The option with the numbers that the accountant of launches gives for the block."""
    reached = accounting.guarantee(block, block.rounds, block.min_sep, block.max_participations, (delta,))
    fields = vars(option) | {
        "rho": reached.rho,
        "epsilon": reached.epsilon[delta],
        "noise_to_signal": plan_costs.noise_to_signal(block),
    }
    return Option(**fields)


def _alternatives(
    planning: PlanningConfig, chosen: Option, tried: list[Found], ratio: float, target: Target
) -> tuple[Option, ...]:
    rounds, goal = chosen.rounds, chosen.report_goal
    same = [chosen]
    for strategy in plan_search.strategies(planning, rounds, goal, thorough=True, kinds=_ALL_KINDS):
        note = ""
        if strategy.copies > planning.max_noise_copies:
            note = f"more than max_noise_copies {planning.max_noise_copies}"
        elif strategy.kind not in planning.mechanisms:
            note = "not in planning.mechanisms"
        if strategy.label != chosen.label:
            same.append(plan_search.option(strategy, goal, ratio, target.delta, note))
    sampled = plan_search.independent(planning, rounds, goal, ratio, target.delta)
    others = [item.option for item in tried if (item.option.rounds, item.option.report_goal) != (rounds, goal)]
    return (*same, *([sampled] if sampled else []), *others)


def _reasons(
    planning: PlanningConfig,
    mechanism: MechanismConfig,
    block: MechanismConfig,
    chosen: Option,
    tried: list[Found],
    ratio: float,
    target: Target,
) -> tuple[str, ...]:
    source = (
        "as rehearsed"
        if planning.noise_to_signal
        else "that of the launch file's own mechanism block; 'tacit rehearse' finds what accuracy can bear"
    )
    smaller = [item.option for item in tried if item.option.rounds == chosen.rounds]
    smaller = [option for option in smaller if option.report_goal < chosen.report_goal]
    met = chosen.rho <= target.rho
    before = f"; the next smaller, {smaller[-1].report_goal:,}, gives {smaller[-1].rho:.4g}" if smaller else ""
    if chosen.report_goal == planning.rehearsal.report_goal:
        before = "; the rehearsal has no fewer devices in a round, so smaller ones were not tried"
    joins = f"a device joins at most {chosen.max_participations:,} of {chosen.rounds:,} rounds"
    if chosen.max_participations == 1:
        joins = "no device joins twice"
    reasons = [
        f"Noise-to-signal {ratio:.4g} ({source}): the noise in the model, as a root mean square over rounds, per "
        "coordinate and in clip norms of the mean update. It is held for every row, so all rows are equally useful.",
        f"Report goal {chosen.report_goal:,}: "
        + (f"the smallest tried that meets rho {target.rho:.4g}{before}." if met else "nearest to the target of all."),
        f"min_sep {chosen.min_sep:,}: {planning.usable_population:,} devices ({1 - planning.spare_fraction:.0%} of "
        f"{planning.population_estimate:,}) fill {chosen.min_sep:,} rounds of {chosen.report_goal:,} before one must "
        f"return, so {joins}.",
        f"Timer {chosen.min_sep * planning.round_minutes / 60:,.1f} hours: a device that joins at the start of a round "
        f"must sleep through {chosen.min_sep:,} rounds of {planning.round_minutes:g} minutes; rounds slower than that "
        "would let it back too soon.",
        f"{chosen.label[0].upper() + chosen.label[1:]}: least rho at this ratio among {', '.join(planning.mechanisms)} "
        f"with at most {planning.max_noise_copies} copies of the model for noise (this one keeps {chosen.copies}).",
    ]
    if len(planning.rounds) > 1:
        counts = ", ".join(f"{rounds:,}" for rounds in sorted(planning.rounds))
        why = "the most that meet the target" if met else "nearest to the target"
        reasons.append(f"{chosen.rounds:,} rounds: of {counts}, {why}.")
    if mechanism.adaptive_clipping and not block.adaptive_clipping:
        reasons.append(
            f"Clip norm {block.clip_norm:g} stays fixed: adaptive clipping needs restarts, and this mechanism has none."
        )
    if mechanism.model_dump().get("availability"):
        reasons.append(
            "Who checks in when is not part of this search, which leaves out planning.spare_fraction of the devices, "
            "no more: run 'tacit plan' on the file with this block to see how many rounds would not be full."
        )
    if mechanism.secagg:
        reasons.append("Secure aggregation rounds the updates, which adds a little to rho; the plan stage counts it.")
    return tuple(reasons)
