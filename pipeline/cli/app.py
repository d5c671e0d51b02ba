"""The ``tacit`` command.

Standard output holds the answer and, with ``--json``, one JSON object and nothing else. Logs,
progress and tables go to standard error. Exit codes: 0 done, 3 a launch that is held, 65 permanent
(a person must act), 75 temporary (try again later), 1 a bug, 2 a wrong command line; the same where the reader leaves.
"""

import json
import logging
import re
import sys
from contextlib import suppress
from datetime import datetime
from importlib import metadata
from typing import Annotated

import typer
from rich.console import Console

from pipeline.cli import account as cli_account
from pipeline.cli import explain as cli_explain
from pipeline.cli import init as cli_init
from pipeline.cli import ledger as cli_ledger
from pipeline.cli import optimize as cli_optimize
from pipeline.cli import plan as cli_plan
from pipeline.cli import progress
from pipeline.cli import release as cli_release
from pipeline.cli import results as cli_judge
from pipeline.cli import shuffle as cli_shuffle
from pipeline.cli import verification as cli_verification
from pipeline.cli.experiment import commands as cli_experiment
from pipeline.cli.launches import commands as cli_launches
from pipeline.cli.launches import known
from pipeline.cli.launches import pages as cli_pages
from pipeline.cli.launches.named import LaunchName, to_run
from pipeline.cli.support import AsJson, answer, command, foreseen, printable, show_state, taken_over
from pipeline.ground import settings
from pipeline.ground.errors import HELD, PERMANENT
from pipeline.run.run_dir import RESULT
from pipeline.run.stage import of_launch
from pipeline.stages.graph import STAGES
from pipeline.telemetry import logs, work
from pretrain.reading.paths import shown

_log = logging.getLogger(__name__)
_HELP = """Launch private keyboard language models.

One YAML file describes one launch. Begin with one that ships, or make one of your own (tacit init en-GB.yaml):

    tacit check dags/launches/demo-en-US.yaml

    tacit launch dags/launches/demo-en-US.yaml

    tacit status

Every command shows an example under --help. Exit codes: 0 done, 3 a launch is held, 65 a person must act, 75 try again
later. What one of them, a gate or a field of the launch file means:

    tacit explain policy.min_top1_gain
"""

# Locals of a traceback could hold a client's text, so the plain traceback of Python is kept.
app = typer.Typer(help=_HELP, no_args_is_help=True, pretty_exceptions_enable=False)
app.add_typer(cli_experiment.app, name="experiment")
app.add_typer(cli_ledger.app, name="ledger")
app.add_typer(cli_optimize.app, name="optimize")
app.command("account")(cli_account.account)
app.command("shuffle")(cli_shuffle.shuffle)
app.command("init")(cli_init.init)
app.command("plan")(cli_plan.plan)
app.command("rehearse")(cli_plan.rehearse)
app.command("runs")(cli_launches.runs)
app.command("status")(cli_launches.status)
app.command("explain")(cli_explain.explain)
app.command("audit")(cli_judge.audit)
app.command("ab")(cli_judge.ab)
app.command("predict")(cli_release.predict)
app.command("rollback")(cli_release.rollback)
app.command("review")(cli_release.review)
app.command("verify")(cli_verification.verify)
app.command("erase")(cli_verification.erase)
app.command("withdraw")(cli_verification.withdraw)
app.command("site")(cli_pages.site)

Date = Annotated[str | None, typer.Option(help="YYYYMMDD of a scheduled run; it becomes part of the launch id")]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"tacit {metadata.version('tacit')}")
        raise typer.Exit


@app.callback()
def _configure(
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="warnings and errors only")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version and end")
    ] = False,
) -> None:
    try:
        logs.configure(logging.WARNING if quiet else logging.INFO, settings.log_form())
        settings.telemetry()
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    progress.show(logging.getLogger().handlers, progress.Shown(quiet=quiet, console=_console()))


@app.command()
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
    taken = []
    try:
        named = to_run(launch, _date(date))
        parsed, run_id = named.config, named.run_id
        notes: tuple[str, ...] = ()
        from pipeline.preflight import readiness

        if alone:
            notes = readiness.require_schedule(parsed)
        else:
            here = settings.load()
            taken = foreseen(parsed, run_id, here)
            notes = readiness.require(parsed, here, run_id, taken_over(taken)) + known.lost_ledger(here)
            if date is not None:
                notes += cli_ledger.would_spend(parsed, here, run_id, taken_over(taken))
    except ValueError as error:
        if as_json:  # The log of whoever asked, such as Airflow's first task, says it too.
            typer.echo(printable(str(error)), err=True)
        answer({"ok": False, "errors": str(error).splitlines()}, as_json, text=str(error))
        raise typer.Exit(PERMANENT) from error
    if as_json:
        for note in notes:
            typer.echo(printable(note), err=True)
    reuse = [vars(each) for each in taken]
    content = {"ok": True, "errors": [], "notes": list(notes), "launch_id": run_id, "reuse": reuse}
    answer(content, as_json, text="\n".join((f"{launch}: ok, launch {run_id}", *notes, *map(str, taken))))


@app.command()
@command
def launch(launch: LaunchName, date: Date = None, as_json: AsJson = False) -> None:
    """Run every stage of a launch in this process, without Airflow. Run it again to resume.

    Ends with 0 where it is published, or waits for its reviewers, and with 3 where gates hold it: then it says which,
    at which values, what was spent, and what to do next ('tacit explain 3').

    Example: tacit launch dags/launches/demo-en-US.yaml
    """
    from pipeline.cli import display
    from pipeline.ledger.ledger import PrivacyLedger
    from pipeline.preflight import readiness
    from pipeline.publication import approvals
    from pipeline.run import runner
    from pipeline.stages.launch import run_launch
    from pipeline.tracking import mlflow_tracker

    named, here = to_run(launch, _date(date)), settings.load()
    parsed, run_id = named.config, named.run_id
    PrivacyLedger.of(here)  # Without it nothing could be spent in the end.
    if not (here.runs_dir / run_id / "public" / "ingest_private" / RESULT).is_file():
        taken = foreseen(parsed, run_id, here)
        for each in taken:
            _log.info("%s", each)
        readiness.require(parsed, here, run_id, taken_over(taken))
    _erase_expired(here)
    console, tracker = _console(), mlflow_tracker.MlflowTracker(here, parsed, run_id)
    with tracker.failing():
        outcomes = run_launch(
            parsed,
            run_id,
            here,
            STAGES,
            tracker,
            on_stage=lambda outcome: display.show_stage(
                outcome, console, of_launch(parsed, STAGES), here.runs_dir / run_id
            ),
        )
    _erase_expired(here)
    result = {name: outcome.result for name, outcome in outcomes.items()}
    run_dir = here.runs_dir / run_id
    ledger = PrivacyLedger.of(here)
    run = runner.open_run(parsed, run_id, here)
    now = approvals.standing(parsed, run, ledger.entries())
    if not all(outcome.skipped for outcome in outcomes.values()):
        approvals.show(run, now)
        tracker.show_state(now.state, ", ".join(now.approvers))
    # Where more than training was released the decision states what all of it costs.
    spent = known.cost(result)
    content = {
        "launch_id": run_id,
        "decision": result["decide"]["decision"],
        "state": now.state,
        "ledger": ledger.address,
        "reasons": result["decide"]["reasons"],
        "rho": spent["rho"],
        "epsilon": spent["epsilon"],
        "delta": parsed.mechanism.delta,
        "run_dir": str(run_dir),
        "report": str(run_dir / "public" / "report" / "report.html"),
        "bundle": str(run_dir / "public" / "publish" / "bundle")
        if result.get("publish", {}).get("published")
        else None,
        "tracking_uri": here.tracking_uri,
    }
    held = cli_launches.held(here, run_id) if now.state == "held" else None
    if held:
        content |= held.content
    answer(content, as_json, text=display.ending(content, now, held.lines if held else ()))
    if held:
        raise typer.Exit(HELD)


@app.command()
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
    named, here = to_run(launch, _date(date)), settings.load()
    parsed, run = named.config, run or named.run_id
    work.attempt(attempt)
    if name not in STAGES:
        raise ValueError(f"stage: {shown(repr(name))} does not exist; choose one of {', '.join(STAGES)}")
    from pipeline.cli import display
    from pipeline.run import runner
    from pipeline.tracking import mlflow_tracker

    if name == "ingest_private":
        _erase_expired(here)
    tracker = mlflow_tracker.MlflowTracker(here, parsed, run)
    outcome = runner.find_done(name, parsed, run, here, tracker)
    with tracker.failing():
        outcome = outcome or runner.run_stage(name, parsed, run, here, STAGES, tracker)
    if outcome.skipped:
        _log.info("%s: done before from the same inputs, so nothing is made again; 'tacit verify' would", name)
    display.show_stage(outcome, _console(), of_launch(parsed, STAGES), here.runs_dir / run)
    if name in ("report", "publish") and not outcome.skipped:
        show_state(parsed, runner.open_run(parsed, run, here, tracker), here)
    if name == [*STAGES][-1]:
        _erase_expired(here)
    answer(outcome.result, as_json, text=f"{name}: {'done before' if outcome.skipped else 'done'}")


@app.command(hidden=True)
def ready() -> None:
    """Import what every stage needs, then be the command that standard input brings; without one, end.

    The command is one line, a JSON list of arguments: what starts this gains the seconds that imports take.

    Example: tacit ready <<< '["check", "dags/launches/demo-en-US.yaml"]'
    """
    from pipeline.tracking import mlflow_tracker

    mlflow_tracker.load()
    for each in STAGES.values():
        _ = each.function
    if line := sys.stdin.readline():
        app(json.loads(line), prog_name="tacit")


def _console() -> Console:
    """Standard error for people's tables; where log lines are JSON nothing else stands among them."""
    return Console(stderr=True, quiet=settings.log_form() == "json")


def _erase_expired(here: settings.Settings) -> None:
    """Erase launches whose time is over, before text is read and when a launch ends; what fails is in the log."""
    from pipeline.verify.expiry import sweep

    sweep(here)


def _date(date: str | None) -> str | None:
    if date is None:
        return None
    # What is no day of any month would be no date in the id either, and the launch would count as today's.
    with suppress(ValueError):
        if re.fullmatch(r"[0-9]{8}", date) and datetime.fromisoformat(date):
            return date
    raise ValueError(f"date: {shown(repr(date))} is not YYYYMMDD; write it as in 20261121")
