"""The ``tacit`` command.

Standard output holds the answer and, with ``--json``, one JSON object and nothing else. Logs,
progress and tables go to standard error. Exit codes: 0 done, 3 a launch that is held, 65 permanent
(a person must act), 75 temporary (retry later), 1 a bug, 2 a wrong command line; closing the output early
changes none of them.

A command parses its arguments, calls one function of the pipeline that returns a frozen value, and prints that value.
"""

import gc
import json
import logging
import math
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Annotated, Any

import typer
import typer.core

from pipeline.cli import (
    account,
    decide,
    display,
    explain,
    init,
    launch,
    ledger,
    look,
    operate,
    optimize,
    results,
    shuffle,
)
from pipeline.cli import plan as planning
from pipeline.cli.support import unwrapped
from pipeline.experiments import command as experiments
from pipeline.ground import settings
from pipeline.rehearsal import command as rehearsal
from pipeline.telemetry import logs

_HELP = """Launch private keyboard language models.

One YAML file describes one launch. Start with a shipped one, or make one of your own (tacit init en-GB.yaml):

    tacit check dags/launches/demo-en-US.yaml

    tacit launch dags/launches/demo-en-US.yaml

    tacit status

Every command shows an example under --help. Exit codes: 0 done, 3 a launch is held, 65 a person must act, 75 retry
later. To explain an exit code, a gate or a field of the launch file:

    tacit explain policy.min_top1_gain
"""
# Help groups, in order: the commands of every launch, then those that fewer launches need.
_GROUPS: dict[str, dict[str, Callable[..., None] | typer.Typer]] = {
    "Launch": {
        "init": init.init,
        "check": launch.check,
        "plan": planning.plan,
        "launch": launch.launch,
    },
    "Look": {
        "status": look.status,
        "site": look.site,
        "explain": explain.explain,
        "predict": look.predict,
    },
    "Decide": {"review": decide.review, "rollback": decide.rollback},
    "Privacy": {"verify": operate.verify, "ledger": ledger.app, "account": account.account},
    "For some launches": {
        "rehearse": rehearsal.rehearse,
        "runs": look.runs,
        "audit": results.audit,
        "ab": results.ab,
        "experiment": experiments.app,
        "stage": launch.stage,
        "optimize": optimize.app,
        "shuffle": shuffle.shuffle,
        "challenge": operate.challenge,
        "erase": operate.erase,
        "withdraw": operate.withdraw,
    },
}
_ORDER = [name for commands in _GROUPS.values() for name in commands]


class CommandGroup(typer.core.TyperGroup):
    """Group that lists its commands in the order of the help groups, then those without a group."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(self.commands, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))


# Local variables in a traceback could hold client text, so Python's plain traceback is used.
app = typer.Typer(cls=CommandGroup, help=unwrapped(_HELP), no_args_is_help=True, pretty_exceptions_enable=False)
for group, commands in _GROUPS.items():
    for name, each in commands.items():
        if isinstance(each, typer.Typer):
            app.add_typer(each, name=name, rich_help_panel=group)
        else:
            app.command(name, rich_help_panel=group)(each)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"tacit {metadata.version('tacit-keyboard')}")
        raise typer.Exit


@app.callback()
def _configure(
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="warnings and errors only")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="every log line, a table for each stage")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version and exit")
    ] = False,
) -> None:
    try:
        form = settings.log_form()
        detailed = verbose or (form == "json" and not quiet)
        logs.configure(logging.INFO if detailed else logging.WARNING, form)
        settings.telemetry()
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    every = display.DETAILED if detailed else math.inf if quiet else display.TERSE
    shown = display.ProgressFilter(every, console=display.standard_error)
    display.show_progress(logging.getLogger().handlers, shown)


@app.command(hidden=True)
def ready() -> None:
    """Import the modules of all stages, then run the command read from standard input; without one, exit.

    The command is one line, a JSON list of arguments. The caller saves the seconds that imports take.

    Example: tacit ready <<< '["check", "dags/launches/demo-en-US.yaml"]'
    """
    from pipeline.stages.graph import STAGES
    from pipeline.tracking import mlflow_tracker

    gc.disable()  # modules stay; collecting while they are imported adds a fifth
    try:
        mlflow_tracker.load()
        for each in STAGES.values():
            _ = each.function
    finally:
        gc.enable()
    if line := sys.stdin.readline():
        app(json.loads(line), prog_name="tacit")
