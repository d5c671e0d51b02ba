"""``tacit plan`` and ``tacit rehearse``: what a launch file costs, whether it pays, and what would be better."""

import logging
import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from federated.config.mechanism import MOST_DEVICES
from pipeline.cli.launches.named import LaunchName, to_run
from pipeline.cli.support import AsJson, answer, command, foreseen, taken_over
from pipeline.ground import settings
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.spend import Spend
from pipeline.preflight import rehearsal_verdict
from pipeline.preflight.shortfalls import too_few
from pipeline.releases.ceiling import in_words
from pipeline.releases.policy import above_policy, likely
from pipeline.releases.release import Outlook
from pipeline.releases.total import total
from pipeline.releases.training import TRAINING
from pipeline.releases.uses import planned as planned_spends
from pipeline.run.run_dir import RunDir
from pretrain.config import LEAST_AMOUNT, MOST_AMOUNT
from reports.losses import up

if TYPE_CHECKING:
    from federated.config.planning import PlanningConfig
    from federated.planning.feasibility import Plan
    from federated.planning.proposal import Proposal
    from federated.planning.search import Option
    from federated.planning.verdict import Outcome, Verdict
    from pipeline.preflight.foresee import Foreseen

_log = logging.getLogger(__name__)


@command
def plan(
    launch: LaunchName,
    devices: Annotated[
        int | None,
        typer.Option(help="devices that may take part; default: planning.population_estimate, or what was ingested"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="folder for the numbers and pictures; default: runs/ID/public/planning")
    ] = None,
    noise_to_signal: Annotated[
        float | None,
        typer.Option(help="search for the cheapest mechanism with so much noise, as 'tacit rehearse' finds it"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Worst-case guarantee of a launch file and, where it was rehearsed, whether it pays and what to run instead.

    Reads no private text, but for a digest of its files where another launch here may have used the same: a launch
    file is enough, and its rehearsal. With --noise-to-signal it looks for the cheapest mechanism of that ratio instead.

    Example: tacit plan dags/launches/en-US.yaml --devices 2000000
    """
    from federated.planning import feasibility as core
    from pipeline.cli import words

    asked = to_run(launch)
    config, run_id = asked.config, asked.run_id
    planning = config.planning
    if devices is not None and not 1 <= devices <= MOST_DEVICES:
        raise ValueError(f"devices: got {devices:,}; give a number from 1 to {MOST_DEVICES:,}")
    if devices is not None and planning is not None:
        planning = planning.model_copy(update={"population_estimate": devices})
    splits = _splits(config, run_id, planning.population_estimate if planning else devices)
    trains = splits["train"]
    planned = core.plan(config.mechanism, trains) if TRAINING.asked(config) else core.untrained_plan(config.mechanism)
    spends = planned_spends(config, Outlook(planned.guarantee.rho, trains))
    more_reasons = (
        *above_policy(config, spends, trains),
        *too_few(config, splits),
    )
    planned = replace(
        planned, feasible=planned.feasible and not more_reasons, reasons=(*planned.reasons, *more_reasons)
    )
    content = _worst_case(planned) | {"training_devices": trains}
    text = (
        f"Of {sum(splits.values()):,} devices that may take part about {trains:,} train and {splits['test']:,} test.\n"
        f"{_worst_case_text(planned, trains)}"
    )
    if beside := config.beside_training:
        from federated.accounting.gaussian import epsilon_of_rho

        delta, failure = config.mechanism.delta, math.fsum(spend.failure for spend in spends.values())
        together = planned.guarantee.rho + sum(beside.values())
        content |= {f"{name}_rho": rho for name, rho in beside.items()} | {"launch_rho": together}
        epsilon = epsilon_of_rho(together, delta - failure)
        text += (
            f"\n  with {' and '.join(f'{name} of rho {rho:.6g}' for name, rho in beside.items())} the launch costs rho "
            f"{together:.6g}, epsilon {up(epsilon)} at delta {delta:g}, of policy.max_rho "
            f"{config.policy.max_rho:g}"
        )
    whole = total(config, likely(config, spends))
    content |= {"total": whole.model_dump(mode="json"), "max_total_epsilon": config.policy.max_total_epsilon}
    text += (
        f"\n  all releases together cost one device epsilon {up(whole.epsilon)} at delta {whole.delta:g}, of "
        f"policy.max_total_epsilon {config.policy.max_total_epsilon:g}: {in_words(whole)}"
    )
    rows, lines = words.both_ways(config, trains)
    content |= {"words": rows}
    text += "".join(f"\n{line}" for line in lines)
    taken = foreseen(config, run_id, settings.load())
    room = _room(config, run_id, spends, taken_over(taken))
    content |= {"ledger": {"problems": list(room.problems), "notes": list(room.notes)}}
    text += "".join(f"\n  ledger: {line}" for line in (*room.problems, *room.notes))
    content |= {"reuse": [vars(each) for each in taken]}
    text += "".join(f"\n  {each}" for each in taken)
    if noise_to_signal is not None and not LEAST_AMOUNT <= noise_to_signal <= MOST_AMOUNT:
        raise ValueError(
            f"noise_to_signal: got {noise_to_signal:g}; give {LEAST_AMOUNT:g} to {MOST_AMOUNT:g}, as in 0.01"
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
        answer(content, as_json, text=f"{text}\nFor a proposal, add a planning block to its launch file.")
        return

    directory = out or RunDir(settings.load().runs_dir, run_id).path / "public" / "planning"
    if noise_to_signal is not None:
        more, lines = _searched(config, planning, noise_to_signal, directory, show=not as_json)
    else:
        verdict = rehearsal_verdict.find(config, settings.load().runs_dir, planning)
        if verdict is None and out is not None:
            raise ValueError("out: nothing to draw before a rehearsal; run 'tacit rehearse', or drop --out")
        if verdict is None:
            more, lines = _unrehearsed(config, planning, launch)
        else:
            more, lines = _rehearsed(config, verdict, directory)
            if not as_json:
                _show_trade(verdict, rehearsal_verdict.outcome_of_file(verdict, config), Console(stderr=True))
    answer(content | more, as_json, text="\n".join([text, "", *lines]))


def _searched(
    config: LaunchConfig, planning: "PlanningConfig", ratio: float, directory: Path, *, show: bool
) -> tuple[dict, list[str]]:
    """The cheapest mechanism with a ratio that somebody says is bearable."""
    from federated.planning import proposal as plan_proposal
    from federated.planning.search import terms_of
    from pipeline.stages import plan as plan_stage

    terms = terms_of(config.mechanism, planning, config.private_text.splits, ratio)
    proposal = plan_proposal.propose(config.mechanism, terms, _tell)
    swept = plan_proposal.sweeps(terms, proposal.chosen, _tell)
    paths = plan_stage.write(proposal, swept, directory)
    if show:
        _show_options(proposal.alternatives, terms.target.rho, Console(stderr=True))
    content = {"proposal": plan_stage.as_json(proposal, swept), "files": [str(path) for path in paths]}
    return content, [*_proposal_text(proposal), "", f"files: {directory}"]


def _unrehearsed(config: LaunchConfig, planning: "PlanningConfig", launch: str) -> tuple[dict, list[str]]:
    """No recommendation, and why there is none."""
    from federated.planning import search

    ratio, minutes = search.noise_to_signal(config.mechanism), rehearsal_verdict.minutes(config, planning)
    sentence = (
        f"not rehearsed: run tacit rehearse {launch} (about {minutes:,} minutes of CPU). The file's noise-to-signal "
        f"ratio, {ratio:.4g}, is untried: so much noise stays in the model, per coordinate and in clip norms of the "
        "mean update, whatever people type, and nobody knows whether a model trained under it is better than the one "
        "that it starts from. So no mechanism is recommended"
    )
    content = {"rehearsed": False, "noise_to_signal": ratio, "minutes": minutes, "unrehearsed": sentence}
    return content, [f"{sentence}."]


def _rehearsed(config: LaunchConfig, verdict: "Verdict", directory: Path) -> tuple[dict, list[str]]:
    """The verdict, the split, and blocks to paste."""
    from federated.planning.verdict import as_json
    from pipeline.preflight.rehearsal import draw_trade

    of_file = rehearsal_verdict.outcome_of_file(verdict, config)
    best = None if verdict.best is None else verdict.outcomes[verdict.best]
    draw_trade(verdict, directory)
    content = {"rehearsed": verdict.answer != "inconclusive", "verdict": as_json(verdict), "files": [str(directory)]}
    lines = [f"Verdict: {verdict.answer}. {verdict.sentence}", *(f"note: {note}" for note in verdict.notes)]
    lines.append(
        "This file says another run than those that were rehearsed."
        if of_file is None
        else f"This file's own run: {100 * of_file.gain:+.2f} points (± {200 * of_file.error:.2f})."
    )
    lines.append(
        "Discovery spends an epsilon for each typed word, which adds up with no rho: it stays as the file has it."
    )
    if best is not None:
        lines += ["For the launch file:", best.yaml]
    return content, [*lines, f"files: {directory}"]


@command
def rehearse(
    launch: LaunchName,
    as_json: AsJson = False,
) -> None:
    """Simulate the launch on its public text: does it pay, how to split its rho, clip norm, server rate, noise.

    Runs the stages ingest_public and pretrain if they have not run; the launch then finds them done.
    Run it again to resume.

    Example: tacit rehearse dags/launches/en-US.yaml
    """
    asked, here = to_run(launch), settings.load()
    config, run_id = asked.config, asked.run_id
    planning = config.planning
    if planning is None:
        raise ValueError(f"planning: {launch} has no such block, and the rehearsal is described in it; add one")
    from pipeline.preflight import rehearsal as core
    from pipeline.stages.graph import STAGES
    from pipeline.tracking import mlflow_tracker

    tracker = mlflow_tracker.MlflowTracker(here, config, run_id)
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
        f"Noise that it can bear: {'none of those tried' if ratio is None else f'noise-to-signal {ratio:g}'}",
        f"Verdict: {done.verdict.answer}. {done.verdict.sentence}",
        *(f"note: {note}" for note in done.verdict.notes),
        f"Then: tacit plan {launch}",
        f"files: {done.directory}",
    ]
    answer({**core.as_json(done), "directory": str(done.directory)}, as_json, text="\n".join(lines))


def _tell(message: str) -> None:
    _log.info("plan: %s", message)


def _splits(config: LaunchConfig, run_id: str, population: int | None) -> dict[str, int]:
    """Numbers of devices that train, validate and test: an estimate of those that may take part, or those ingested."""
    from pipeline.run.known import run_folder

    if population is not None:
        return config.private_text.splits.expected(population)
    if (record := run_folder(settings.load(), run_id).record("ingest_private")) is None:
        raise ValueError("devices: unknown before 'ingest_private' ran; give an estimate, as in --devices 100000")
    return record.result["devices_by_split"]


def _room(config: LaunchConfig, run_id: str, spends: Mapping[str, Spend], reused: Collection[str]) -> "Foreseen":
    """Forecast of the ledger's answer to the launch, as far as it is known here."""
    from pipeline.preflight.foresee import foresee

    return foresee(config, settings.load(), run_id, spends, reused)


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
        "by_the_clock": asdict(planned.by_the_clock) if planned.by_the_clock else None,
        "alternatives": [asdict(row) for row in planned.alternatives],
    }


def _worst_case_text(planned: "Plan", trains: int) -> str:
    worst = planned.guarantee
    lines = [
        f"The launch file as it stands: rho {worst.rho:.6g} (zCDP), mu {worst.mu:.6g} (GDP), "
        f"sensitivity^2 {worst.sensitivity_squared:g}"
    ]
    lines += [f"  epsilon {up(value)} at delta {delta:g}" for delta, value in worst.epsilon.items()]
    lines.append(f"  per {worst.unit}, {worst.adjacency} adjacency, at worst within the enforced limits")
    clock = planned.by_the_clock
    if planned.feasible and clock is not None and clock.run_days is not None:
        lines.append(
            f"  feasible: by the clock, {trains:,} devices that rest for {clock.days} days fill every round; the run "
            f"takes about {clock.run_days:.1f} days, and devices come back after {clock.min_sep:,} rounds or more"
        )
        return "\n".join(lines)
    below = planned.rounds_below_goal
    if planned.feasible and below:
        lines.append(f"  feasible: {trains:,} devices fill a typical round")
        return "\n".join([*lines, f"  about {below:,} of {worst.rounds:,} rounds will miss the report goal"])
    if planned.feasible and not worst.rounds:
        return "\n".join([*lines, "  feasible: nothing is trained on devices"])
    if planned.feasible:
        return "\n".join([*lines, f"  feasible: {trains:,} devices can fill every round"])
    return "\n".join([*lines, "  not feasible:", *(f"  - {reason}" for reason in planned.reasons)])


def _proposal_text(proposal: "Proposal") -> list[str]:
    target, chosen = proposal.terms.target, proposal.chosen
    wanted = f"rho {target.rho:.4g} (epsilon {up(target.epsilon)} at delta {target.delta:g})"
    cost = f"rho {chosen.rho:.4g}, epsilon {up(chosen.epsilon)}"
    if proposal.feasible:
        lines = [f"Proposal: {cost}; the target, {wanted}, is met."]
    else:
        lines = [f"The target, {wanted}, cannot be met: {cost} is the nearest. One of these would do:"]
        lines += [f"  - {change.sentence}" for change in proposal.changes if change.needed is not None]
        lines += [f"  ({change.sentence})" for change in proposal.changes if change.needed is None]
    lines += ["Why:", *(f"  - {reason}" for reason in proposal.reasons)]
    from federated.planning.proposal import to_yaml

    return [*lines, "For the launch file:", to_yaml(proposal.mechanism)]


def _show_options(options: "tuple[Option, ...]", target_rho: float, console: Console) -> None:
    """The alternatives in 80 columns, and what else must be known about some of them."""
    title = "The same noise in the model by other means; ok: meets the target"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    columns = ("mechanism", "report\ngoal", "noise\nmult.", "min_sep", "joins\n<=", "rho", "epsilon", "copies", "ok")
    for name in columns:
        table.add_column(name, justify="left" if name == "mechanism" else "right", no_wrap=True)
    for row in options:
        meets = "-" if row.rho is None else "yes" if row.rho <= target_rho else "no"
        cells = [row.label, f"{row.report_goal:,}", f"{row.noise_multiplier:g}", f"{row.min_sep:,}"]
        cells += [f"{row.max_participations:,}", "-" if row.rho is None else f"{row.rho:.4g}", up(row.epsilon)]
        cells += [f"{row.copies:,}", meets]
        table.add_row(*cells, style="bold" if row is options[0] else None)
    console.print(table)
    for row in options:
        if row.note:
            console.print(f"{row.label}: {row.note}", highlight=False, markup=False)


def _show_trade(verdict: "Verdict", of_file: "Outcome | None", console: Console) -> None:
    """Print the gain of each split of rho."""
    title = f"Gain over {100 * verdict.start:.2f}% on held-out pseudo-users, points of top-1 recall"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("spent on", "ships", "rounds", "goal", "rho", "gain", "pays"):
        table.add_column(name, justify="left" if name in ("spent on", "ships") else "right", no_wrap=True)
    for place, row in enumerate(verdict.outcomes):
        shape = (f"{row.rounds:,}", f"{row.report_goal:,}") if row.rounds else ("-", "-")
        pays = "yes" if verdict.pays(row) else "no"
        gain = f"{100 * row.gain:+.2f} ± {200 * row.error:.2f}"
        label = f"{row.label} (this file)" if of_file is not None and row is of_file else row.label
        style = "bold" if place == verdict.best else None
        table.add_row(label, row.ships, *shape, f"{row.rho:.3g}", gain, pays, style=style)
    console.print(table)
