"""Plan a launch file: its worst-case loss, both kinds of word discovery, the remaining budget, and its forecast gain.

It reads no private text, except for a digest of the files if another launch on this machine may have used the same; of
the files it counts the devices.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from federated.config.mechanism import MOST_DEVICES
from federated.config.planning import SLOW_ROUND_MINUTES
from federated.planning import feasibility, law
from federated.planning.feasibility import Alternative, Timer
from federated.planning.gain import Forecast
from federated.planning.law import Step
from federated.planning.search import terms_of
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig
from pipeline.preflight import frontier as frontiers
from pipeline.preflight.compute import launch_minutes
from pipeline.preflight.devices import count_devices, countable, retention, stated_devices
from pipeline.preflight.foresee import foresee
from pipeline.preflight.frontier import Frontier
from pipeline.preflight.gains import GainGate, gain_gates, least_gain, measured_on, pretrained, public_needs
from pipeline.preflight.shortfalls import refusals
from pipeline.preflight.trust import Trust, prices
from pipeline.preflight.words import CentralWords, LocalWords, both_ways
from pipeline.releases.terms import Terms
from pipeline.releases.training import TRAINING
from pipeline.run.cache import CacheHit, preview, reused_stages
from pipeline.run.known import run_folder
from pipeline.run.run_dir import RunDir
from pipeline.run.stage import Stages
from reports.disclosure.total import Total

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Room:
    """Forecast of the ledger's decision, if there is a ledger."""

    problems: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class LaunchPlan:
    """Worst case of a launch file within its enforced limits.

    Attributes:
      sensitivity_squared: of training alone.
      rounds_below_goal, by_the_clock: see ``federated.planning.feasibility.Plan``.
      step: None where nothing is trained, or by Adam.
      cpu_minutes: of the longest stages, by stage, as ``compute.launch_minutes``.
      devices: number of devices that may take part, by split.
      counted: devices of the launch's files before and after each filter, if they were counted for this plan.
      total: loss of one device to all releases together, bounded by ``policy.max_total_epsilon``; the rho of each part
        is bounded by ``policy.max_rho``.
      forecast: gain over the start by total epsilon, at the launch's own and at one less and more, as its report will
        state it; empty where none is known.
      measured_on: whose gains every forecast is made of, and what of this launch is none of that.
      gates: on gains, with the forecast; empty where there is none.
      needs: what gates on quality need by what is known of public text, once the launch's pretraining is there.
      least_gain: points over the start that these gates ask for.
      words: the file's own kind of word discovery, then the other kind at equal reach and at equal epsilon.
      trust: losses under each choice of whom to trust, the file's own first.
      reuse: stages whose outputs are reused from other launches on this machine.
    """

    sensitivity_squared: float
    adjacency: str
    rounds: int
    feasible: bool
    reasons: tuple[str, ...]
    rounds_below_goal: int | None
    by_the_clock: Timer | None
    step: Step | None
    cpu_minutes: Mapping[str, int]
    alternatives: tuple[Alternative, ...]
    devices: Mapping[str, int]
    counted: tuple[str, ...]
    training_devices: int
    max_rho: float
    total: Total
    max_total_epsilon: float
    forecast: Mapping[float, Forecast]
    measured_on: str
    gates: tuple[GainGate, ...]
    needs: tuple[str, ...]
    least_gain: float
    words: tuple[LocalWords | CentralWords, ...]
    trust: tuple[Trust, ...]
    ledger: Room
    reuse: tuple[CacheHit, ...]


@dataclass(frozen=True)
class ForecastPlan(LaunchPlan):
    """A plan with the forecast of its population.

    Attributes:
      frontier: None where the server's optimizer is Adam, of which the step law says nothing.
      round_hours: hours that the rounds take on people's devices, at ``SLOW_ROUND_MINUTES`` each.
    """

    frontier: Frontier | None
    round_hours: float
    files: tuple[Path, ...]


def plan(
    config: LaunchConfig,
    run_id: str,
    here: Settings,
    stages: Stages,
    *,
    devices: int | None = None,
    out: Path | None = None,
) -> LaunchPlan:
    """Plan a launch; with a planning block, also forecast its gain against its total epsilon.

    Args:
      devices: number that may take part; None for those of the launch's own data or, if these cannot be counted here,
        the estimate of the planning block.
      out: folder for the numbers and pictures; None for the launch's own.

    Raises:
      ValueError: a number is out of range, an option needs a planning block that is absent, or the number of devices
        is unknown.
    """
    planning = config.planning
    if devices is not None and not 1 <= devices <= MOST_DEVICES:
        raise ValueError(f"devices: got {devices:,}; give a number from 1 to {MOST_DEVICES:,}")
    if devices is not None and planning is not None:
        planning = planning.model_copy(update={"population_estimate": devices})
    splits, counted = _splits(config, run_id, here, devices)
    if planning is None and out is not None:
        raise ValueError("out: only a forecast draws pictures; give the launch file a planning block, or drop --out")
    base = _worst_case(config, run_id, here, stages, splits, counted)
    if planning is None:
        return base
    own = planning.model_copy(update={"population_estimate": sum(splits.values())})
    terms = terms_of(own, config.private_text.splits, config.server)
    found = None
    if config.server.optimizer != "adam":
        worst = Terms.of_file(config, base.devices)
        found = frontiers.frontier(config, terms, worst.likely(worst.spends))
    directory = out or RunDir(here.runs_dir, run_id).path / "public" / "planning"
    return ForecastPlan(
        **vars(base),
        frontier=found,
        round_hours=base.rounds * SLOW_ROUND_MINUTES / 60,
        files=_draw(found, base, directory),
    )


def _draw(found: Frontier | None, plan: LaunchPlan, directory: Path) -> tuple[Path, ...]:
    """Draw ``frontier.png`` and ``frontier.svg``: forecast gain against the total epsilon of one device."""
    if found is None:
        return ()
    from reports.figures import plan as figures_plan  # Slow to import: matplotlib.

    return figures_plan.write(frontier_figure(found, plan), directory, "frontier")


def frontier_figure(found: Frontier, plan: LaunchPlan) -> "Figure":
    """Draw the forecast gain of each way against the total epsilon of one device."""
    from reports.figures import plan as figures_plan

    points = [point for point in found.points if point.rho]
    curves = {
        name: [(point.epsilon, way.points, way.error) for point in points if (way := getattr(point, attribute))]
        for name, attribute in (("counts", "counts"), ("training", "training"), ("both: counts move the start", "both"))
    }
    return figures_plan.gain_figure(
        curves,
        "total epsilon of one device",
        plan.least_gain,
        (plan.total.epsilon, f"this file, {plan.training_devices:,} devices train"),
        [(epsilon, each.points, each.error) for epsilon, each in plan.forecast.items()],
    )


def _worst_case(
    config: LaunchConfig,
    run_id: str,
    here: Settings,
    stages: Stages,
    splits: Mapping[str, int],
    counted: tuple[str, ...],
) -> LaunchPlan:
    trains = splits["train"]
    planned = (
        feasibility.plan(config.mechanism, trains)
        if TRAINING.asked(config)
        else feasibility.untrained_plan(config.mechanism)
    )
    terms = Terms.of(config, planned.guarantee.rho, splits)
    reasons = tuple(refusals(terms))
    reuse = tuple(preview(config, run_id, here, stages))
    public = pretrained(here, run_id, reuse)
    room = foresee(terms, here, run_id, reused_stages(reuse))
    worst, words = planned.guarantee, both_ways(config, trains)
    return LaunchPlan(
        sensitivity_squared=worst.sensitivity_squared,
        adjacency=worst.adjacency,
        rounds=worst.rounds,
        feasible=not reasons,
        reasons=reasons,
        rounds_below_goal=planned.rounds_below_goal,
        by_the_clock=planned.by_the_clock,
        step=law.step(config.mechanism, config.server) if TRAINING.asked(config) else None,
        cpu_minutes=launch_minutes(config),
        alternatives=tuple(planned.alternatives),
        devices=splits,
        counted=counted,
        training_devices=trains,
        max_rho=config.policy.max_rho,
        total=terms.total,
        max_total_epsilon=config.policy.max_total_epsilon,
        forecast=frontiers.around(config, trains, terms.likely(terms.spends), terms.total.epsilon),
        measured_on=measured_on(config, trains),
        gates=gain_gates(terms, public),
        needs=public_needs(config.policy, public),
        least_gain=least_gain(config.policy, public),
        words=words,
        trust=prices(config, terms.total, worst.rho, words),
        ledger=Room(room.problems, room.notes),
        reuse=reuse,
    )


def _splits(
    config: LaunchConfig, run_id: str, here: Settings, devices: int | None
) -> tuple[Mapping[str, int], tuple[str, ...]]:
    """Train, validation and test devices, and how the launch's files were counted, if they were.

    They are those of the option, of the ingested store, of the files as ``tacit check`` counts them, or of the launch
    file's own number.
    """
    expected = config.private_text.splits.expected
    if devices is not None:
        return expected(devices), ()
    if (record := run_folder(here, run_id).record("ingest_private")) is not None:
        return record.result["devices_by_split"], ()
    stated, missing = stated_devices(config), ""
    try:
        if countable(config):
            found = count_devices(config, here.ledger_url, retention(config, here.ledger_url, run_id))
            return found.splits or expected(found.devices), (found.filters,)
    except ValueError as error:  # such as files that are on another machine
        missing = f" ({error})"
    if stated is None:
        raise ValueError(f"devices: unknown{missing}; give an estimate, as in --devices 100000")
    if missing:
        _log.warning("plan: the devices of the data are unknown%s; planning.population_estimate counts", missing)
    return expected(stated), ()
