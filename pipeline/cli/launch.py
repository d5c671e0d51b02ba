"""``tacit check``, ``tacit launch`` and ``tacit stage``: a launch checked, run, or run stage by stage."""

import logging
import re
from contextlib import suppress
from datetime import datetime
from typing import Annotated

import typer

from pipeline.cli import display
from pipeline.cli.support import AsJson, LaunchName, answer, command, printable
from pipeline.ground import settings
from pipeline.ground.errors import HELD, PERMANENT
from pipeline.stages.graph import STAGES
from pipeline.telemetry import work
from pretrain.reading.paths import shown

_log = logging.getLogger(__name__)

Date = Annotated[str | None, typer.Option(help="YYYYMMDD of a scheduled run; it becomes part of the launch id")]


@command
def check(
    launch: LaunchName,
    date: Date = None,
    alone: Annotated[bool, typer.Option("--alone", help="the launch file alone, not this installation")] = False,
    as_json: AsJson = False,
) -> None:
    """Validate a launch file, and all that is known of its launch here; every problem names field, value and fix.

    Example: tacit check dags/launches/demo-en-US.yaml
    """
    from pipeline.preflight import readiness
    from pipeline.run.named import to_run

    try:
        named = to_run(launch, _date(date))
        if alone:
            done = readiness.check_file(named.config, named.run_id)
        else:
            dated = date is not None
            done = readiness.check(named.config, named.run_id, settings.load(), STAGES, dated=dated)
    except ValueError as error:
        if as_json:  # The log of whoever asked, such as Airflow's first task, says it too.
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

    Ends with 0 where it is published, or waits for its reviewers, and with 3 where gates hold it: then it says which,
    at which values, what was spent, and what to do next ('tacit explain 3').

    Example: tacit launch dags/launches/demo-en-US.yaml
    """
    from pipeline.run.named import to_run
    from pipeline.stages.launch import HeldEnding
    from pipeline.stages.launch import launch as core
    from pipeline.verify.expiry import sweep

    named, here = to_run(launch, _date(date)), settings.load()
    on_stage = display.stage_table(named.config, here.runs_dir / named.run_id)
    done = core(named.config, named.run_id, here, STAGES, on_stage=on_stage, erase_expired=sweep)
    answer(done, as_json, text=display.ending(done))
    if isinstance(done, HeldEnding):
        raise typer.Exit(HELD)


@command
def stage(
    name: Annotated[str, typer.Argument(help=", ".join(STAGES))],
    launch: LaunchName,
    date: Date = None,
    run: Annotated[
        str | None,
        typer.Option("--id", help="the id that 'tacit check' gave: a file that is another launch by now is refused"),
    ] = None,
    attempt: Annotated[int, typer.Option(help="of the task that the stage is; logs and telemetry say it")] = 1,
    as_json: AsJson = False,
) -> None:
    """Run one stage of a launch, which is what Airflow does. A finished stage is not redone.

    Example: tacit stage pretrain dags/launches/demo-en-US.yaml
    """
    from pipeline.run.named import to_run
    from pipeline.stages.launch import run_stage
    from pipeline.verify.expiry import sweep

    named, here = to_run(launch, _date(date)), settings.load()
    work.attempt(attempt)
    run_id = run or named.run_id
    done = run_stage(name, named.config, run_id, here, STAGES, erase_expired=sweep)
    if done.skipped:
        _log.info("%s: done before from the same inputs, so nothing is made again; 'tacit verify' would", name)
    display.stage_table(named.config, here.runs_dir / run_id)(done)
    answer(done.result, as_json, text=f"{name}: {'done before' if done.skipped else 'done'}")


def _date(date: str | None) -> str | None:
    if date is None:
        return None
    # What is no day of any month would be no date in the id either, and the launch would count as today's.
    with suppress(ValueError):
        if re.fullmatch(r"[0-9]{8}", date) and datetime.fromisoformat(date):
            return date
    raise ValueError(f"date: {shown(repr(date))} is not YYYYMMDD; write it as in 20261121")
