"""``tacit plan``: what a launch file costs, and what would be better."""

import logging
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from pipeline import settings
from pipeline.cli.support import AsJson, LaunchPath, answer, command, read_launch, round_up
from pipeline.config import LaunchConfig, launch_id
from pipeline.run_dir import RunDir

if TYPE_CHECKING:
    from federated.config.planning import PlanningConfig
    from federated.planning.proposal import Proposal
    from federated.planning.search import Option
    from federated.planning.worst_case import Plan

_log = logging.getLogger(__name__)


@command
def plan(
    file: LaunchPath,
    devices: Annotated[
        int | None,
        typer.Option(help="devices of the population; default: planning.population_estimate, or what was ingested"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="folder for plan.json and the pictures; default: runs/ID/public/planning")
    ] = None,
    noise_to_signal: Annotated[
        float | None,
        typer.Option(min=0, help="noise that the model can bear, as 'tacit rehearse' finds it; default: the file's"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Worst-case guarantee of a launch file and, where it has a planning block, what to run instead.

    Reads no private text: a launch file is enough.

    Example: tacit plan dags/launches/demo-en-US.yaml --devices 900
    """
    from federated.planning import worst_case as core

    config = read_launch(file)
    planning = config.planning
    estimate = _devices(config, planning, devices)
    planned = core.plan(config.mechanism, estimate)
    content = _worst_case(planned)
    text = _worst_case_text(planned, estimate)
    if config.counts is not None:
        from federated.accounting.gaussian import epsilon_of_rho

        delta = config.mechanism.delta
        together = planned.guarantee.rho + config.counts.rho
        content |= {"counts_rho": config.counts.rho, "launch_rho": together}
        text += (
            f"\n  with counts of rho {config.counts.rho:.6g} the launch costs rho {together:.6g}, "
            f"epsilon {round_up(epsilon_of_rho(together, delta))} at delta {delta:g}, "
            f"of policy.max_rho {config.policy.max_rho:g}"
        )
    if planning is None:
        if out is not None:
            raise ValueError(
                "out: only the planner draws pictures; give the launch file a planning block, or drop --out"
            )
        if noise_to_signal is not None:
            raise ValueError(
                "noise_to_signal: only the planner holds it; give the launch file a planning block, or drop "
                "--noise-to-signal"
            )
        answer(content, as_json, text=f"{text}\nFor a proposal, add a planning block to {file}.")
        return

    from federated.planning import proposal as plan_proposal
    from federated.planning import sweep as plan_sweep
    from federated.planning.search import terms_of
    from pipeline.stages import plan as plan_stage

    if devices is not None:
        planning = planning.model_copy(update={"population_estimate": devices})
    terms = terms_of(config.mechanism, planning, noise_to_signal)
    proposal = plan_proposal.propose(config.mechanism, terms, _tell)
    swept = plan_sweep.sweeps(terms, proposal.chosen, _tell)
    directory = out or RunDir(settings.load().runs_dir, launch_id(config)).path / "public" / "planning"
    paths = plan_stage.write(proposal, swept, directory)
    content |= {"proposal": plan_stage.as_json(proposal, swept), "files": [str(path) for path in paths]}
    if not as_json:
        _show(proposal.alternatives, terms.target.rho, Console(stderr=True))
    answer(content, as_json, text="\n".join([text, "", *_proposal_text(proposal), "", f"files: {directory}"]))


@command
def rehearse(
    file: LaunchPath,
    as_json: AsJson = False,
) -> None:
    """Simulate the launch in small on its public text: clip norm, server rate and the noise it can bear.

    Runs the stages ingest_public and pretrain if they have not run; the launch then finds them done.
    Run it again to resume.

    Example: tacit rehearse dags/launches/demo-en-US.yaml
    """
    config, here = read_launch(file), settings.load()
    run_id = launch_id(config)
    planning = config.planning
    if planning is None:
        raise ValueError(f"planning: {file} has no such block, and the rehearsal is described in it; add one")
    from pipeline import rehearsal as core
    from pipeline import tracking
    from pipeline.stages.table import STAGES

    tracker = tracking.MlflowTracker(here, config, run_id)
    done = core.run(config, planning, run_id, here, STAGES, tracker, lambda line: _log.info("rehearse: %s", line))
    best = done.best
    ratio = best.noise_to_signal
    lines = [
        f"On {best.pseudo_users:,} pseudo-users with {best.words:,} words of public text:",
        f"  clip norm {best.clip_norm:g}, the median of the updates' norms",
        f"  server learning rate {best.server_learning_rate:g}, the most accurate of those tried",
        f"  accuracy {best.start_accuracy:.4f} before, {best.noiseless_accuracy:.4f} after training without noise",
        *(f"  noise-to-signal {trial.noise_to_signal:g}: {trial.accuracy:.4f}" for trial in best.noise_trials),
        *(f"note: {remark}" for remark in done.remarks),
        "For the launch file:",
        done.paste,
        *([] if ratio is None else [f"Then: tacit plan {file} --noise-to-signal {ratio:g}"]),
        f"files: {done.directory}",
    ]
    answer({**core.as_json(done), "directory": str(done.directory)}, as_json, text="\n".join(lines))


def _tell(message: str) -> None:
    _log.info("plan: %s", message)


def _devices(config: LaunchConfig, planning: "PlanningConfig | None", devices: int | None) -> int:
    if devices is not None:
        return devices
    if planning is not None:
        return planning.population_estimate
    record = RunDir(settings.load().runs_dir, launch_id(config)).record("ingest_private")
    if record is None:
        raise ValueError("devices: unknown before 'ingest_private' ran; give an estimate, as in --devices 100000")
    return record.result["devices_by_split"]["train"]


def _worst_case(planned: "Plan") -> dict:
    worst = planned.guarantee
    return {
        "sensitivity_squared": worst.sensitivity_squared,
        "rho": worst.rho,
        "mu": worst.mu,
        "epsilon": {f"{delta:g}": value for delta, value in worst.epsilon.items()},
        "method": "; ".join(worst.methods),
        "unit": worst.unit,
        "adjacency": worst.adjacency,
        "feasible": planned.feasible,
        "reasons": list(planned.reasons),
        "rounds_below_goal": planned.rounds_below_goal,
        "alternatives": [asdict(row) for row in planned.alternatives],
    }


def _worst_case_text(planned: "Plan", devices: int) -> str:
    worst = planned.guarantee
    lines = [
        f"The launch file as it stands: rho {worst.rho:.6g} (zCDP), mu {worst.mu:.6g} (GDP), "
        f"sensitivity^2 {worst.sensitivity_squared:g}"
    ]
    lines += [f"  epsilon {round_up(value)} at delta {delta:g}" for delta, value in worst.epsilon.items()]
    lines.append(f"  per {worst.unit}, {worst.adjacency} adjacency, at worst within the enforced limits")
    below = planned.rounds_below_goal
    if planned.feasible and below:
        lines.append(f"  feasible: {devices:,} devices fill a typical round")
        return "\n".join([*lines, f"  about {below:,} of {worst.rounds:,} rounds will miss the report goal"])
    if planned.feasible:
        return "\n".join([*lines, f"  feasible: {devices:,} devices can fill every round"])
    return "\n".join([*lines, "  not feasible:", *(f"  - {reason}" for reason in planned.reasons)])


def _proposal_text(proposal: "Proposal") -> list[str]:
    target, chosen = proposal.terms.target, proposal.chosen
    wanted = f"rho {target.rho:.4g} (epsilon {round_up(target.epsilon)} at delta {target.delta:g})"
    cost = f"rho {chosen.rho:.4g}, epsilon {round_up(chosen.epsilon)}"
    if proposal.feasible:
        lines = [f"Proposal: {cost}; the target, {wanted}, is met."]
    else:
        lines = [f"The target, {wanted}, cannot be met: {cost} is the nearest. One of these would do:"]
        lines += [f"  - {change.sentence}" for change in proposal.changes if change.needed is not None]
        lines += [f"  ({change.sentence})" for change in proposal.changes if change.needed is None]
    lines += ["Why:", *(f"  - {reason}" for reason in proposal.reasons)]
    from federated.planning.proposal import to_yaml

    return [*lines, "For the launch file:", to_yaml(proposal.mechanism)]


def _show(options: "tuple[Option, ...]", target_rho: float, console: Console) -> None:
    """The alternatives in 80 columns, and what else must be known about some of them."""
    several = len({row.rounds for row in options}) > 1
    title = "The same noise in the model by other means; ok: meets the target"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    columns = ("mechanism", *(("rounds",) if several else ()), "report\ngoal", "noise\nmult.", "min_sep", "joins\n<=")
    for name in (*columns, "rho", "epsilon", "copies", "ok"):
        table.add_column(name, justify="left" if name == "mechanism" else "right", no_wrap=True)
    for row in options:
        meets = "-" if row.rho is None else "yes" if row.rho <= target_rho else "no"
        cells = [row.label, f"{row.rounds:,}", f"{row.report_goal:,}", f"{row.noise_multiplier:g}", f"{row.min_sep:,}"]
        cells += [f"{row.max_participations:,}", "-" if row.rho is None else f"{row.rho:.4g}", round_up(row.epsilon)]
        cells += [f"{row.copies:,}", meets]
        table.add_row(*cells[:1], *cells[1 if several else 2 :], style="bold" if row is options[0] else None)
    console.print(table)
    for row in options:
        if row.note:
            console.print(f"{row.label}: {row.note}", highlight=False, markup=False)
