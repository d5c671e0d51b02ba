"""``tacit runs`` and ``tacit status``: what there is, what runs, what is left to spend."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.table import Table

from pipeline.cli.launches import known, named, spent
from pipeline.cli.launches.held import Hold, budget_lines, failed_gates
from pipeline.cli.launches.known import Launch
from pipeline.cli.launches.named import complete
from pipeline.cli.launches.steps import next_steps
from pipeline.cli.support import AsJson, answer, command, duration, table_text
from pipeline.ground import settings
from pipeline.ground.settings import Settings
from pipeline.run.attempts import ActiveStage, running
from pipeline.run.stage import of_launch
from pipeline.stages.graph import STAGES
from reports.listed import gain, minute, shown_state
from reports.losses import up

_HEADS = ("launch", "locale", "features", "began", "state", "rho", "epsilon", "gain in top-1 recall")


@command
def runs(
    locale: Annotated[str | None, typer.Option(help="only launches of this one, such as en-US")] = None,
    as_json: AsJson = False,
) -> None:
    """List the launches of this machine, the newest first: what they spent, what they gained, which one runs.

    A state is that of 'tacit review': unfinished, held, waiting, approved, in experiment, rejected, published or
    rolled back. Epsilon
    holds at the delta of each launch file; the gain is that of the private model over its start on held-out devices,
    with its interval.

    Example: tacit runs --locale en-US
    """
    here = settings.load()
    rows = [row for row in known.rows(here, known.entries_of(here)) if locale in (None, row["locale"])]
    if not rows:
        answer({"runs": []}, as_json, text=f"no launch in {here.runs_dir}; begin one: tacit launch FILE")
        return
    table = Table(*_HEADS, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*_cells(row))
    answer({"runs": rows}, as_json, text="" if as_json else table_text(table))


@command
def status(
    launch: Annotated[
        str | None,
        typer.Argument(
            metavar="LAUNCH",
            help="a launch file, a launch id, or how an id begins; without one, what goes on here",
            autocompletion=complete,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What runs and since when, how the last launch ended, and the budget that each population has left.

    Of one launch: where it stands, which stages have ended, what was spent, and what to do next.

    Example: tacit status demo-en-US
    """
    here = settings.load()
    if launch is None:
        _of_machine(here, as_json)
    else:
        _of_launch(here, named.that_began(launch, here), as_json)


def _of_machine(here: Settings, as_json: bool) -> None:
    entries, now = known.entries_of(here), running(here)
    newest = sorted(named.begun(here), key=lambda name: (named.began(here, name), name), reverse=True)
    runs_now = {each.launch_id for each in now}
    wanted = [*(name for name in newest if name in runs_now), *newest[:1]]
    by_id = {each.run.launch_id: each for each in known.launches(here, entries, dict.fromkeys(wanted))}
    last, left = by_id.get(newest[0]) if newest else None, spent.left(entries or ())
    lines = [f"running: {_progress(each, by_id.get(each.launch_id))}" for each in now] or ["running: nothing"]
    lines.append(f"last:    {_said(last)}" if last else f"last:    no launch in {here.runs_dir}")
    lines += [f"left:    {each}, for {each.population}" for each in left]
    if entries is None:
        lines.append(f"left:    {known.without_ledger(here)}")
    content = {
        "running": [_running(each) for each in now],
        "last": last.row if last else None,
        "left": [each.content for each in left],
    }
    answer(content, as_json, text="\n".join(lines))


def _of_launch(here: Settings, run_id: str, as_json: bool) -> None:
    now = [each for each in running(here) if each.launch_id == run_id]
    about, hold = _standing(here, run_id, runs_now=bool(now))
    ended = [{"stage": name, "seconds": record.seconds} for name, record in about.records.items()]
    content = about.row | {"stages": ended, "running": [_running(each) for each in now]}
    why = [line for gate in hold.gates for line in gate.lines] or ([f"  {about.detail}"] if about.detail else [])
    lines = [_said(about), *why, *(f"running: {_progress(each, about)}" for each in now), f"ended:   {_ended(about)}"]
    lines += [*budget_lines(hold.spent, hold.left), *(f"next:    {step}" for step in hold.next)]
    answer(content | hold.content, as_json, text="\n".join(lines))


def held(here: Settings, run_id: str) -> Hold:
    """Why a launch is held, what it spent, and what to do next."""
    return _standing(here, run_id, runs_now=False)[1]


def _standing(here: Settings, run_id: str, *, runs_now: bool) -> tuple[Launch, Hold]:
    entries = known.entries_of(here)
    (about,) = known.launches(here, entries, [run_id]) or (None,)
    if about is None:
        raise ValueError(f"launch: {run_id} cannot be read; see the warning above, and restore it from MLflow")
    return about, Hold(
        gates=failed_gates(about.results.get("decide", {})),
        spent=spent.of_launch(entries or (), run_id),
        left=spent.left(entries or (), [about.config.population]),
        next=next_steps(about, runs=runs_now),
    )


def _said(launch: Launch) -> str:
    """One line of a launch."""
    row = launch.row
    amounts = "" if row["rho"] is None else f", rho {up(row['rho'], 4)}, epsilon {up(row['epsilon'])}"
    gained = "" if row["top1_gain"] is None else f", {gain(row)} in top-1 recall"
    return f"{row['launch_id']}: {shown_state(row)}, begun {minute(launch.began)}{amounts}{gained}"


def _ended(launch: Launch) -> str:
    stages = of_launch(launch.config, STAGES)
    ended = [name for name in stages if name in launch.records]
    seconds = sum(launch.records[name].seconds for name in ended)
    rest = [name for name in stages if name not in launch.records]
    coming = f"; not yet: {', '.join(rest)}" if rest else ""
    return f"{len(ended)} of {len(stages)} stages, in {duration(seconds)}{coming}"


def _progress(now: ActiveStage, launch: Launch | None) -> str:
    stages = of_launch(launch.config, STAGES) if launch else ()
    place = f" (stage {stages.index(now.stage) + 1} of {len(stages)})" if now.stage in stages else ""
    for_long = duration((datetime.now(UTC) - now.since).total_seconds())
    point = now.progress
    how_far = f", {point.what} {point.share:.0%}" if point else ""
    left = f", about {duration(point.left)} left of it" if point and point.left is not None else ""
    return f"{now.launch_id}, {now.stage}{place}, since {minute(now.since)} ({for_long}){how_far}{left}"


def _running(now: ActiveStage) -> dict[str, Any]:
    return asdict(now) | {"since": now.since.isoformat(timespec="seconds")}


def _cells(row: dict[str, Any]) -> Sequence[str]:
    state = shown_state(row) + (f", {row['running']} runs" if row["running"] else "")
    rho, epsilon = row["rho"], row["epsilon"]
    return (
        row["launch_id"],
        row["locale"],
        ", ".join(row["features"]),
        minute(row["began"]),
        state,
        "-" if rho is None else up(rho, 4),
        "-" if epsilon is None else up(epsilon),
        gain(row),
    )
