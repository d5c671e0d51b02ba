"""Plan a launch file: its worst-case loss, both kinds of word discovery, the remaining budget, and a better mechanism.

It reads no private text, except for a digest of the files if another launch on this machine may have used the same.
"""

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from federated.accounting.gaussian import epsilon_of_rho
from federated.config.mechanism import MOST_DEVICES
from federated.config.planning import PlanningConfig
from federated.planning import feasibility, law, search
from federated.planning import proposal as proposals
from federated.planning.feasibility import Alternative, Timer
from federated.planning.law import Step
from federated.planning.proposal import Proposal, Sweep, to_yaml
from federated.planning.search import terms_of
from federated.planning.verdict import Outcome, Verdict
from federated.planning.verdict import as_json as verdict_json
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig
from pipeline.preflight import rehearsal_verdict
from pipeline.preflight.foresee import foresee
from pipeline.preflight.shortfalls import too_few
from pipeline.preflight.words import CentralWords, LocalWords, both_ways
from pipeline.releases.policy import above_policy, likely
from pipeline.releases.release import Outlook
from pipeline.releases.total import total
from pipeline.releases.training import TRAINING
from pipeline.releases.uses import planned as planned_spends
from pipeline.run.cache import CacheHit, preview, reused_stages
from pipeline.run.known import run_folder
from pipeline.run.run_dir import RunDir
from pipeline.run.stage import Stages
from pretrain.config import LEAST_AMOUNT, MOST_AMOUNT
from pretrain.files import write_text
from reports.disclosure.total import Total

_log = logging.getLogger(__name__)
_AXES = {"rounds": "rounds", "report_goal": "report goal", "population_estimate": "devices that may take part"}
# Fields that the JSON output leaves out.
_PYTHON = {"json": False}


@dataclass(frozen=True)
class Room:
    """Forecast of the ledger's decision, if there is a ledger."""

    problems: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class LaunchPlan:
    """Worst case of a launch file within its enforced limits.

    Attributes:
      sensitivity_squared, rho, mu, epsilon: of training alone; ``method`` names the accountant.
      rounds_below_goal, by_the_clock: see ``federated.planning.feasibility.Plan``.
      step: None where nothing is trained, or by Adam.
      devices: number of devices that may take part, by split.
      beside: rho of the other releases about training devices, by block.
      launch_rho, launch_epsilon: of training and the releases beside it, bounded by ``policy.max_rho``.
      total: loss of one device to all releases together.
      words: cost of the file's own kind of word discovery, then of the other kind.
      reuse: stages whose outputs are reused from other launches on this machine.
    """

    sensitivity_squared: float
    rho: float
    mu: float
    epsilon: Mapping[float, float]
    method: str
    unit: str
    adjacency: str
    rounds: int
    delta: float
    feasible: bool
    reasons: tuple[str, ...]
    rounds_below_goal: int | None
    by_the_clock: Timer | None
    step: Step | None
    alternatives: tuple[Alternative, ...]
    devices: Mapping[str, int]
    training_devices: int
    beside: Mapping[str, float]
    launch_rho: float
    launch_epsilon: float
    max_rho: float
    total: Total
    max_total_epsilon: float
    words: tuple[LocalWords | CentralWords, ...]
    ledger: Room
    reuse: tuple[CacheHit, ...]


@dataclass(frozen=True)
class ProposedPlan(LaunchPlan):
    """A plan with the cheapest mechanism for a given noise-to-signal ratio."""

    proposal: Mapping[str, Any]
    files: tuple[Path, ...]
    found: Proposal = field(metadata=_PYTHON)


@dataclass(frozen=True)
class UnrehearsedPlan(LaunchPlan):
    """A plan without a recommendation, as the launch was not rehearsed; a rehearsal takes ``minutes`` of CPU."""

    rehearsed: bool
    noise_to_signal: float
    minutes: int


@dataclass(frozen=True)
class RehearsedPlan(LaunchPlan):
    """A plan with the verdict of the launch's rehearsal.

    Attributes:
      of_file: outcome of the file's own setting; None if it was not rehearsed.
    """

    rehearsed: bool
    verdict: Mapping[str, Any]
    files: tuple[Path, ...]
    found: Verdict = field(metadata=_PYTHON)
    of_file: Outcome | None = field(metadata=_PYTHON)


def plan(
    config: LaunchConfig,
    run_id: str,
    here: Settings,
    stages: Stages,
    *,
    devices: int | None = None,
    out: Path | None = None,
    noise_to_signal: float | None = None,
) -> LaunchPlan:
    """Plan a launch; with a planning block, also report whether it is worthwhile or a better setting.

    Args:
      devices: number that may take part; None for the estimate of the planning block, or the ingested ones.
      out: folder for the numbers and pictures; None for the launch's own.
      noise_to_signal: find the cheapest mechanism with this ratio, instead of using a rehearsal's verdict.

    Raises:
      ValueError: a number is out of range, an option needs a planning block that is absent, or the number of devices
        is unknown.
    """
    planning = config.planning
    if devices is not None and not 1 <= devices <= MOST_DEVICES:
        raise ValueError(f"devices: got {devices:,}; give a number from 1 to {MOST_DEVICES:,}")
    if devices is not None and planning is not None:
        planning = planning.model_copy(update={"population_estimate": devices})
    splits = _splits(config, run_id, here, planning.population_estimate if planning else devices)
    _require_planner(planning, out, noise_to_signal)
    base = _worst_case(config, run_id, here, stages, splits)
    if planning is None:
        return base
    directory = out or RunDir(here.runs_dir, run_id).path / "public" / "planning"
    if noise_to_signal is not None:
        terms = terms_of(config.mechanism, planning, config.private_text.splits, noise_to_signal)
        found = proposals.propose(config.mechanism, terms, _tell)
        swept = proposals.sweeps(terms, found.chosen, _tell)
        files = tuple(_write(found, swept, directory))
        return ProposedPlan(**vars(base), proposal=_proposal_json(found, swept), files=files, found=found)
    verdict = rehearsal_verdict.find(config, here.runs_dir, planning)
    if verdict is None:
        if out is not None:
            raise ValueError("out: nothing to draw before a rehearsal; run 'tacit rehearse', or drop --out")
        ratio, minutes = search.noise_to_signal(config.mechanism), rehearsal_verdict.minutes(config, planning)
        return UnrehearsedPlan(**vars(base), rehearsed=False, noise_to_signal=ratio, minutes=minutes)
    from pipeline.preflight.rehearsal import draw_trade  # with torch: slow to import

    draw_trade(verdict, directory)
    return RehearsedPlan(
        **vars(base),
        rehearsed=verdict.answer != "inconclusive",
        verdict=verdict_json(verdict),
        files=(directory,),
        found=verdict,
        of_file=rehearsal_verdict.outcome_of_file(verdict, config),
    )


def _require_planner(planning: PlanningConfig | None, out: Path | None, noise_to_signal: float | None) -> None:
    """Refuse a ratio out of range, and options that need the planning block of a launch file without one."""
    if noise_to_signal is not None and not LEAST_AMOUNT <= noise_to_signal <= MOST_AMOUNT:
        raise ValueError(
            f"noise_to_signal: got {noise_to_signal:g}; give {LEAST_AMOUNT:g} to {MOST_AMOUNT:g}, as in 0.01"
        )
    if planning is None and out is not None:
        raise ValueError("out: only the planner draws pictures; give the launch file a planning block, or drop --out")
    if planning is None and noise_to_signal is not None:
        raise ValueError(
            "noise_to_signal: only the planner uses it; give the launch file a planning block, or drop "
            "--noise-to-signal"
        )


def _worst_case(
    config: LaunchConfig, run_id: str, here: Settings, stages: Stages, splits: Mapping[str, int]
) -> LaunchPlan:
    trains, delta = splits["train"], config.mechanism.delta
    planned = (
        feasibility.plan(config.mechanism, trains)
        if TRAINING.asked(config)
        else feasibility.untrained_plan(config.mechanism)
    )
    spends = planned_spends(config, Outlook(planned.guarantee.rho, trains))
    more_reasons = (*above_policy(config, spends, trains), *too_few(config, splits))
    reuse = tuple(preview(config, run_id, here, stages))
    room = foresee(config, here, run_id, spends, reused_stages(reuse))
    worst, beside = planned.guarantee, config.beside_training
    failure = math.fsum(spend.failure for spend in spends.values())
    launch_rho = worst.rho + sum(beside.values())
    return LaunchPlan(
        sensitivity_squared=worst.sensitivity_squared,
        rho=worst.rho,
        mu=worst.mu,
        epsilon=worst.epsilon,
        method="; ".join(worst.methods),
        unit=worst.unit,
        adjacency=worst.adjacency,
        rounds=worst.rounds,
        delta=delta,
        feasible=planned.feasible and not more_reasons,
        reasons=(*planned.reasons, *more_reasons),
        rounds_below_goal=planned.rounds_below_goal,
        by_the_clock=planned.by_the_clock,
        step=law.step(config.mechanism, config.server) if TRAINING.asked(config) else None,
        alternatives=tuple(planned.alternatives),
        devices=splits,
        training_devices=trains,
        beside=beside,
        launch_rho=launch_rho,
        launch_epsilon=epsilon_of_rho(launch_rho, delta - failure) if launch_rho else 0.0,
        max_rho=config.policy.max_rho,
        total=total(config, likely(config, spends)),
        max_total_epsilon=config.policy.max_total_epsilon,
        words=both_ways(config, trains),
        ledger=Room(room.problems, room.notes),
        reuse=reuse,
    )


def _splits(config: LaunchConfig, run_id: str, here: Settings, population: int | None) -> dict[str, int]:
    """Numbers of train, validation and test devices, from an estimate or from the ingested store."""
    if population is not None:
        return config.private_text.splits.expected(population)
    if (record := run_folder(here, run_id).record("ingest_private")) is None:
        raise ValueError("devices: unknown before 'ingest_private' has run; give an estimate, as in --devices 100000")
    return record.result["devices_by_split"]


def _tell(message: str) -> None:
    _log.info("plan: %s", message)


def _proposal_json(proposal: Proposal, swept: tuple[Sweep, ...]) -> dict[str, Any]:
    """Convert a proposal to plain values, with the launch file's block as text."""
    return {
        **asdict(proposal.chosen),
        "feasible": proposal.feasible,
        "target_rho": proposal.terms.target.rho,
        "target_epsilon": proposal.terms.target.epsilon,
        "delta": proposal.terms.target.delta,
        "mins": proposal.chosen.min_sep - 1,
        "timer_days": proposal.timer.days,
        "min_sep_by_the_clock": proposal.timer.min_sep,
        "run_days": proposal.timer.run_days,
        "rehearsed": proposal.terms.rehearsed,
        "reasons": list(proposal.reasons),
        "changes": [asdict(change) for change in proposal.changes],
        "alternatives": [asdict(row) for row in proposal.alternatives],
        "mechanism": proposal.mechanism.model_dump(mode="json", exclude_defaults=True),
        "yaml": to_yaml(proposal.mechanism),
        "sweeps": [asdict(sweep) for sweep in swept],
    }


def _write(proposal: Proposal, swept: tuple[Sweep, ...], directory: Path) -> list[Path]:
    """Write the plan's files into ``directory``; PNG and SVG show the same picture."""
    from reports.figures import plan as figures_plan  # Slow to import: matplotlib.

    path = directory / "plan.json"
    write_text(path, json.dumps(_proposal_json(proposal, swept), indent=1) + "\n")
    panels = [
        figures_plan.Panel(
            x_label=_AXES[sweep.over],
            at=sweep.at,
            limit=proposal.terms.planning.max_report_goal if sweep.over == "report_goal" else None,
            curves={curve.label: curve.points for curve in sweep.curves},
        )
        for sweep in swept
    ]
    assert proposal.chosen.rho is not None, "the chosen mechanism has a guarantee"
    figure = figures_plan.plan_figure(panels, proposal.terms.target.rho, proposal.chosen.rho)
    return [path, *figures_plan.write(figure, directory, "plan")]
