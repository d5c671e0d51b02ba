"""``tacit plan`` and ``tacit rehearse``: cost of a launch file, its forecast gain, and better settings."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.support import AsJson, LaunchName, answer, command
from pipeline.ground import settings
from reports.losses import up

if TYPE_CHECKING:
    from rich.console import Console

    from federated.planning.proposal import Proposal
    from federated.planning.search import Option
    from federated.planning.verdict import Outcome, Verdict
    from pipeline.preflight.plan import LaunchPlan, RehearsedPlan

_log = logging.getLogger(__name__)


@command
def plan(
    launch: LaunchName,
    devices: Annotated[
        int | None,
        typer.Option(help="devices that may take part; default: planning.population_estimate, or the ingested number"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="folder for the numbers and pictures; default: runs/ID/public/planning")
    ] = None,
    noise_to_signal: Annotated[
        float | None,
        typer.Option(help="find the cheapest mechanism with this ratio, as measured by 'tacit rehearse'"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the worst-case guarantee of a launch file and, if rehearsed, its forecast gain and better settings.

    It reads no private text, except for a digest of the files if another launch here may have used the same. With
    --noise-to-signal it finds the cheapest mechanism with that ratio instead.

    Example: tacit plan dags/launches/en-US.yaml --devices 2000000
    """
    from rich.console import Console

    from pipeline.preflight.plan import ProposedPlan, RehearsedPlan, UnrehearsedPlan
    from pipeline.preflight.plan import plan as core
    from pipeline.run.named import to_run
    from pipeline.stages.graph import STAGES

    named, here, console = to_run(launch), settings.load(), Console(stderr=True, quiet=as_json)
    done = core(named.config, named.run_id, here, STAGES, devices=devices, out=out, noise_to_signal=noise_to_signal)
    lines = _worst_case_lines(done)
    if isinstance(done, ProposedPlan):
        _show_options(done.found.alternatives, done.found.terms.target.rho, console)
        lines += ["", *_proposal_text(done.found), "", f"files: {done.files[0].parent}"]
    elif isinstance(done, UnrehearsedPlan):
        lines += [
            "",
            f"not rehearsed: run tacit rehearse {launch} (about {done.minutes:,} minutes of CPU). The file's "
            f"noise-to-signal ratio, {done.noise_to_signal:.4g}, is untested: it is the noise in the model per "
            "coordinate, in clip norms of the mean update, and it is unknown whether a model trained under it is "
            "better than its starting point. So no mechanism is recommended.",
        ]
    elif isinstance(done, RehearsedPlan):
        _show_trade(done.found, done.of_file, console)
        lines += ["", *_rehearsed_lines(done)]
    else:
        lines.append("For a proposal, add a planning block to its launch file.")
    answer(done, as_json, text="\n".join(lines))


@command
def rehearse(
    launch: LaunchName,
    as_json: AsJson = False,
) -> None:
    """Simulate the launch on its public text, to forecast its gain, the split of its rho, clip norm and server rate.

    It runs the stages ingest_public and pretrain if they have not run; the launch then finds them done.
    Run it again to resume.

    Example: tacit rehearse dags/launches/en-US.yaml
    """
    from pipeline.run.named import to_run

    named, here = to_run(launch), settings.load()
    config, run_id = named.config, named.run_id
    planning = config.planning
    if planning is None:
        raise ValueError(f"planning: {launch} has no such block, which describes the rehearsal; add one")
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
        f"Tolerable noise: {'none of those tried' if ratio is None else f'noise-to-signal {ratio:g}'}",
        f"Verdict: {done.verdict.answer}. {done.verdict.sentence}",
        *(f"note: {note}" for note in done.verdict.notes),
        f"Then: tacit plan {launch}",
        f"files: {done.directory}",
    ]
    answer({**core.as_json(done), "directory": str(done.directory)}, as_json, text="\n".join(lines))


def _worst_case_lines(plan: "LaunchPlan") -> list[str]:
    from pipeline.releases.ceiling import in_words

    lines = [
        f"Of {sum(plan.devices.values()):,} devices that may take part about {plan.training_devices:,} train and "
        f"{plan.devices['test']:,} test.",
        f"The launch file: rho {plan.rho:.6g} (zCDP), mu {plan.mu:.6g} (GDP), "
        f"sensitivity^2 {plan.sensitivity_squared:g}",
        *(f"  epsilon {up(value)} at delta {delta:g}" for delta, value in plan.epsilon.items()),
        f"  per {plan.unit}, {plan.adjacency} adjacency, worst case within the enforced limits",
        *_feasible_lines(plan),
        *_step_lines(plan),
    ]
    if plan.beside:
        others = " and ".join(f"{name} of rho {rho:.6g}" for name, rho in plan.beside.items())
        lines.append(
            f"  with {others} the launch costs rho {plan.launch_rho:.6g}, epsilon {up(plan.launch_epsilon)} at delta "
            f"{plan.delta:g}, of policy.max_rho {plan.max_rho:g}"
        )
    return [
        *lines,
        f"  all releases together cost one device epsilon {up(plan.total.epsilon)} at delta {plan.total.delta:g}, of "
        f"policy.max_total_epsilon {plan.max_total_epsilon:g}: {in_words(plan.total)}",
        f"Word discovery on {plan.training_devices:,} devices, this file's kind first:",
        *(f"  {way}" for way in plan.words),
        *(f"  ledger: {line}" for line in (*plan.ledger.problems, *plan.ledger.notes)),
        *(f"  {each}" for each in plan.reuse),
    ]


def _feasible_lines(plan: "LaunchPlan") -> list[str]:
    trains, clock = plan.training_devices, plan.by_the_clock
    if not plan.feasible:
        return ["  not feasible:", *(f"  - {reason}" for reason in plan.reasons)]
    if clock is not None and clock.run_days is not None:
        return [
            f"  feasible: by the clock, {trains:,} devices that rest for {clock.days} days fill every round; the run "
            f"takes about {clock.run_days:.1f} days, and devices come back after {clock.min_sep:,} rounds or more"
        ]
    if plan.rounds_below_goal:
        return [
            f"  feasible: {trains:,} devices fill a typical round",
            f"  about {plan.rounds_below_goal:,} of {plan.rounds:,} rounds will miss the report goal",
        ]
    if not plan.rounds:
        return ["  feasible: nothing is trained on devices"]
    return [f"  feasible: {trains:,} devices can fill every round"]


def _step_lines(plan: "LaunchPlan") -> list[str]:
    """The step noise of the file's server learning rate, and the rate that fits."""
    from federated.planning.law import STEP_NOISE

    if (step := plan.step) is None:
        return []
    line = f"  step: noise of {step.noise:.2g} in each weight of the last model, way {step.way:.3g}"
    if step.fits:
        return [line]
    better = f"server.learning_rate {step.fitting_rate:g} fits better"
    return [f"{line}; {better}: recall is flat about a noise of {STEP_NOISE:g}"]


def _rehearsed_lines(plan: "RehearsedPlan") -> list[str]:
    """Format the verdict, the split, and blocks to paste."""
    verdict, of_file = plan.found, plan.of_file
    lines = [f"Verdict: {verdict.answer}. {verdict.sentence}", *(f"note: {note}" for note in verdict.notes)]
    lines.append(
        "This file's own setting was not rehearsed."
        if of_file is None
        else f"This file's own setting: {100 * of_file.gain:+.2f} points (± {200 * of_file.error:.2f})."
    )
    lines.append("Discovery spends an epsilon per typed word, which never adds to rho: it stays as in the file.")
    if verdict.best is not None:
        lines += ["For the launch file:", verdict.outcomes[verdict.best].yaml]
    return [*lines, f"files: {plan.files[0]}"]


def _proposal_text(proposal: "Proposal") -> list[str]:
    target, chosen = proposal.terms.target, proposal.chosen
    wanted = f"rho {target.rho:.4g} (epsilon {up(target.epsilon)} at delta {target.delta:g})"
    cost = f"rho {chosen.rho:.4g}, epsilon {up(chosen.epsilon)}"
    if proposal.feasible:
        lines = [f"Proposal: {cost}; the target, {wanted}, is met."]
    else:
        lines = [f"The target, {wanted}, cannot be met: {cost} is the nearest. One of these changes suffices:"]
        lines += [f"  - {change.sentence}" for change in proposal.changes if change.needed is not None]
        lines += [f"  ({change.sentence})" for change in proposal.changes if change.needed is None]
    lines += ["Why:", *(f"  - {reason}" for reason in proposal.reasons)]
    from federated.planning.proposal import to_yaml

    return [*lines, "For the launch file:", to_yaml(proposal.mechanism)]


def _show_options(options: "tuple[Option, ...]", target_rho: float, console: "Console") -> None:
    """Print the alternatives in 80 columns, with notes on some of them."""
    from rich.table import Table

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


def _show_trade(verdict: "Verdict", of_file: "Outcome | None", console: "Console") -> None:
    """Print the gain of each split of rho."""
    from rich.table import Table

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
