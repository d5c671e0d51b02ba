"""``tacit plan``: cost of a launch file, its forecast gain, and better settings."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.support import AsJson, answer, command, completions, table_text
from pipeline.ground import clock, settings
from pipeline.ground.errors import PERMANENT
from reports.listed import foreseen
from reports.losses import up

if TYPE_CHECKING:
    from rich.console import Console

    from pipeline.preflight.calendar import Calendar
    from pipeline.preflight.frontier import Frontier, Point
    from pipeline.preflight.plan import LaunchPlan


@command
def plan(
    launches: Annotated[
        list[str],
        typer.Argument(
            metavar="LAUNCH...",
            help="a launch file, its name or locale, a launch id, or the beginning of one; several: their schedules",
            autocompletion=completions,
        ),
    ],
    devices: Annotated[
        int | None,
        typer.Option(
            help="devices that may take part; default: those of the launch's data, or planning.population_estimate"
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="folder for the pictures; default: runs/ID/public/planning")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the worst-case guarantee of a launch file and, with a planning block, its forecast gain.

    The forecast is points of top-1 recall against the total epsilon of one device: for counts, for training, and for
    training from a start that counts moved. It reads no text. Exits with 65 if the launch
    file's own setting cannot be carried out. Of several launch files it shows when they fill the pool of GPUs.

    Example: tacit plan dags/launches/en-US.yaml --devices 2000000
    """
    from rich.console import Console

    from pipeline.preflight.calendar import calendar
    from pipeline.preflight.plan import ForecastPlan
    from pipeline.preflight.plan import plan as core
    from pipeline.run.named import to_run
    from pipeline.stages.graph import STAGES

    here, console = settings.load(), Console(stderr=True, quiet=as_json)
    if len(launches) > 1:
        if devices is not None or out is not None:
            raise ValueError("devices, out: of one launch file; several are planned by their schedules alone")
        whole = calendar({each: to_run(each).config for each in launches}, STAGES, here.pools, clock.now().date())
        answer(whole, as_json, text=_calendar_text(whole))
        return
    named = to_run(launches[0])
    done = core(named.config, named.run_id, here, STAGES, devices=devices, out=out)
    if isinstance(done, ForecastPlan) and done.frontier is not None:
        _show_frontier(done.frontier, console)
    answer(done, as_json, text=plan_text(done))
    if not done.feasible:
        raise typer.Exit(PERMANENT)


def _calendar_text(whole: "Calendar") -> str:
    from rich.table import Table

    from federated.config.training import STAGE_TIMEOUT_MINUTES

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("date", "launch", "hours", "waits, days", "through after, days"):
        table.add_column(name, justify="left" if name in ("date", "launch") else "right", no_wrap=True)
    for turn in whole.turns:
        row = (f"{turn.hours:g}", f"{turn.waits_days:.1f}", f"{turn.takes_days:.1f}")
        table.add_row(str(turn.date), Path(turn.launch).stem, *row)
    busy, full = sum(turn.hours for turn in whole.turns), whole.full
    return "\n".join(
        (
            f"Slots of pool gpu (POOLS): {whole.slots}. A stage counts with its limit of "
            f"{STAGE_TIMEOUT_MINUTES / 60:g} hours, as no GPU was measured:",
            table_text(table),
            f"At most {busy:,g} hours are asked for in these 31 days, which have {31 * 24 * whole.slots:,}.",
            "Within a year no launch finds its file's launch before unfinished."
            if full is None
            else f"Full: on {full.date} {Path(full.launch).stem} finds its launch before unfinished; add slots, or "
            "launch less often.",
        )
    )


def plan_text(done: "LaunchPlan") -> str:
    """Format a plan: its worst case and its forecast; the tables of the command are apart."""
    from pipeline.preflight.plan import ForecastPlan

    lines, own = _worst_case_lines(done), [f"{foreseen(each)} at {up(at)}" for at, each in done.forecast.items()]
    forecast = [f"  this file, by total epsilon: {', '.join(own)}"] if own else []
    forecast += [f"  {gate}" for gate in done.gates]
    if isinstance(done, ForecastPlan) and done.frontier is not None:
        forecast += _frontier_lines(done.frontier)
    if forecast:
        lines += ["", f"Forecast from the number of devices: what {done.measured_on}", *forecast]
    if done.needs:
        lines += ["", "What gates need, by public text:", *(f"  {need}" for need in done.needs)]
    if not isinstance(done, ForecastPlan):
        lines.append("For a forecast by total epsilon, add a planning block to its launch file.")
    elif done.files:
        lines.append(f"files: {done.files[0].parent}")
    return "\n".join(lines)


def _worst_case_lines(plan: "LaunchPlan") -> list[str]:
    from pipeline.releases.ceiling import in_words

    whom = "these" if plan.counted else f"{sum(plan.devices.values()):,} devices that may take part"
    return [
        *plan.counted,
        f"Of {whom} about {plan.training_devices:,} train and {plan.devices['test']:,} test.",
        f"The launch file: one device loses {plan.total.sentence}, over all releases, of policy.max_total_epsilon "
        f"{plan.max_total_epsilon:g}",
        f"  parts: {in_words(plan.total)}; policy.max_rho {plan.max_rho:g}",
        f"  {plan.adjacency} adjacency, worst case within the enforced limits; sensitivity^2 of training "
        f"{plan.sensitivity_squared:g}",
        *_feasible_lines(plan),
        *_step_lines(plan),
        *_time_lines(plan),
        f"Word discovery on {plan.training_devices:,} devices, this file's kind first:",
        *(f"  {way}" for way in plan.words),
        *(["Trust, for the same noise in each sum:"] if plan.trust else []),
        *(f"  {each}" for each in plan.trust),
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


def _time_lines(plan: "LaunchPlan") -> list[str]:
    """Hours on people's devices, and minutes of this machine."""
    from pipeline.preflight.plan import ForecastPlan

    lines = []
    if isinstance(plan, ForecastPlan) and plan.round_hours and plan.by_the_clock is None:
        lines.append(f"  {plan.rounds:,} slow rounds take {plan.round_hours:,.1f} hours or more")
    if plan.cpu_minutes:
        total, parts = sum(plan.cpu_minutes.values()), plan.cpu_minutes.items()
        named = ", ".join(f"{stage} {minutes:,}" for stage, minutes in parts)
        lines.append(f"  simulated here in about {total:,} CPU minutes or twice that: {named}")
    return lines


def _step_lines(plan: "LaunchPlan") -> list[str]:
    """The step noise of the file's server learning rate, and the rate that fits."""
    from federated.planning.law import STEP_NOISE

    if (step := plan.step) is None:
        return []
    line = f"  step: noise of {step.noise:.2g} in each weight of the last model, way {step.way:,.0f}"
    if step.fits:
        return [line]
    better = f"server.learning_rate {step.fitting_rate:g} fits better"
    return [f"{line}; {better}: recall is flat about a noise of {STEP_NOISE:g}"]


def _frontier_lines(frontier: "Frontier") -> list[str]:
    """Format where ways of other files begin to gain, and where more epsilon stops to."""

    def total(epsilon: float | None) -> str:
        return "at no total up to 10" if epsilon is None else f"from epsilon {epsilon:g} on"

    knee, evaluation = frontier.knee, frontier.evaluation
    return [
        f"  with words, rounds and noise for each total, a way gains for sure {total(frontier.beats_start)}",
        f"  training leads counts {total(frontier.beats_counts)}",
        "  no total up to 10 gains for sure: find more devices"
        if knee is None
        else f"  more than epsilon {knee:g} gains less than 0.1 points",
        *(
            [f"  a total below {up(evaluation)} needs a larger evaluation.noise_multiplier"]
            if evaluation > frontier.points[0].epsilon
            else []
        ),
    ]


def _show_frontier(frontier: "Frontier", console: "Console") -> None:
    """Print the forecast of each way at each total; ``both`` is training from a start that counts moved."""
    from rich.table import Table

    title = "Forecast gain over the start of files with other words, rounds and noise, points of top-1"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("epsilon", "words", "rho left", "counts", "training", "both", "wins"):
        table.add_column(name, justify="left" if name in ("words", "wins") else "right", no_wrap=True)
    for point in frontier.points:
        table.add_row(f"{point.epsilon:g}", point.words or "none", *_point_cells(point))
    console.print(table)


def _point_cells(point: "Point") -> list[str]:
    if not point.rho:
        return ["0", "-", "-", "-", "nothing left"]
    ways = (point.counts, point.training, point.both)
    cells = [foreseen(way) if way else "-" for way in ways]
    return [f"{point.rho:.2g}", *cells, point.wins or "not sure"]
