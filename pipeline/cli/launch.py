"""``tacit check``, ``tacit launch`` and ``tacit stage``: check a launch, run it, or run one of its stages."""

import logging
import re
from contextlib import suppress
from datetime import datetime
from typing import Annotated

import typer

from pipeline.cli import display
from pipeline.cli.support import AsJson, LaunchName, answer, command
from pipeline.ground import settings
from pipeline.ground.errors import HELD, PERMANENT
from pipeline.telemetry import work
from pipeline.telemetry.logs import printable
from pretrain.reading.paths import shown

_log = logging.getLogger(__name__)

Date = Annotated[str | None, typer.Option(help="YYYYMMDD of a scheduled run; it becomes part of the launch id")]


@command
def check(
    launch: LaunchName,
    date: Date = None,
    alone: Annotated[bool, typer.Option("--alone", help="check the launch file alone, not this installation")] = False,
    as_json: AsJson = False,
) -> None:
    """Check a launch file, its data, budget and installation; every problem names field, value and fix.

    Example: tacit check dags/launches/demo-en-US.yaml
    """
    from pipeline.preflight import readiness
    from pipeline.run.named import to_run
    from pipeline.stages.graph import STAGES

    try:
        named = to_run(launch, _date(date))
        if alone:
            done = readiness.check_file(named.config, named.run_id)
        else:
            dated = date is not None
            done = readiness.check(named.config, named.run_id, settings.load(), STAGES, dated=dated)
    except ValueError as error:
        if as_json:  # For the log of the caller, such as Airflow's first task.
            typer.echo(printable(str(error)), err=True)
        answer({"ok": False, "errors": str(error).splitlines()}, as_json, text=str(error))
        raise typer.Exit(PERMANENT) from error
    if as_json:
        for note in done.notes:
            typer.echo(printable(note), err=True)
    first = f"{launch}: ok, launch {done.launch_id}"
    answer(done, as_json, text="\n".join((first, *done.notes, *map(str, done.reuse))))


@command
def launch(launch: LaunchName, date: Date = None, as_json: AsJson = False) -> None:
    """Run every stage of a launch in this process, without Airflow. Run it again to resume.

    Exits with 0 if it is published or waits for its reviewers, and with 3 if gates hold it: then it lists the gates
    with their values, the spends, and the next steps ('tacit explain 3').

    Example: tacit launch dags/launches/demo-en-US.yaml
    """
    from pipeline.run.named import to_run
    from pipeline.stages.graph import STAGES
    from pipeline.stages.launch import HeldEnding, ending_of
    from pipeline.stages.launch import launch as core
    from pipeline.verify.expiry import sweep

    named, here = to_run(launch, _date(date)), settings.load()
    on_stage = display.stage_table(named.config, here.runs_dir / named.run_id)
    core(named.config, named.run_id, here, STAGES, on_stage=on_stage, erase_expired=sweep)
    done = ending_of(named.config, named.run_id, here, STAGES)
    answer(done, as_json, text=display.ending(done))
    if isinstance(done, HeldEnding):
        raise typer.Exit(HELD)


@command
def stage(
    name: Annotated[str, typer.Argument(help="a stage, as in pretrain; a wrong name lists all")],
    launch: LaunchName,
    date: Date = None,
    run: Annotated[
        str | None,
        typer.Option("--id", help="the id from 'tacit check': a file that has changed since is refused"),
    ] = None,
    attempt: Annotated[int, typer.Option(help="attempt number of the stage's task, for logs and telemetry")] = 1,
    as_json: AsJson = False,
) -> None:
    """Run one stage of a launch, as Airflow does. A finished stage does not run again.

    Example: tacit stage pretrain dags/launches/demo-en-US.yaml
    """
    from pipeline.run.named import to_run
    from pipeline.stages.graph import STAGES
    from pipeline.stages.launch import run_stage
    from pipeline.verify.expiry import sweep

    named, here = to_run(launch, _date(date)), settings.load()
    work.attempt(attempt)
    run_id = run or named.run_id
    done = run_stage(name, named.config, run_id, here, STAGES, erase_expired=sweep)
    if done.skipped:
        _log.info("%s: already done with the same inputs, so it does not run again; 'tacit verify' would", name)
    display.stage_table(named.config, here.runs_dir / run_id)(done)
    answer(done.result, as_json, text=f"{name}: {'done before' if done.skipped else 'done'}")


def _date(date: str | None) -> str | None:
    if date is None:
        return None
    # An impossible date would not be parsed from the id, and the launch would count as today's.
    with suppress(ValueError):
        if re.fullmatch(r"[0-9]{8}", date) and datetime.fromisoformat(date):
            return date
    raise ValueError(f"date: {shown(repr(date))} is not YYYYMMDD; write it as in 20261121")
