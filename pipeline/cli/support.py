"""Shared parts of all commands: exit codes, the answer on standard output, finding launches."""

import functools
import io
import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from pipeline.cli.launches import named
from pipeline.ground import settings as settings_module
from pipeline.ground.errors import exit_code
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig
from pipeline.run.run_dir import RunDir
from pipeline.stages.graph import STAGES

if TYPE_CHECKING:
    from pipeline.publication.approvals import Standing
    from pipeline.run.cache import CacheHit

_log = logging.getLogger(__name__)

AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object and nothing else on standard output")]
_LEAST_DELTA = 1e-30
_WIDTH = 140  # where no terminal says how wide it is


def command(function: Callable[..., None]) -> Callable[..., None]:
    """A command of the application: an expected error becomes a message and an exit code; a bug keeps its traceback."""

    @functools.wraps(function)
    def wrapped(**asked: Any) -> None:
        try:
            function(**asked)
        except Exception as error:  # raised again unless exit_code knows it
            code = exit_code(error)
            if code is None:
                raise
            _log.debug("what led to the error below", exc_info=True)
            if settings_module.log_form() == "json":
                _log.error("%s", printable(str(error)))
            else:
                typer.echo(printable(f"error: {error}"), err=True)
            if asked.get("as_json"):
                typer.echo(json.dumps({"ok": False, "error": str(error), "exit_code": code}))
            raise typer.Exit(code) from error

    return wrapped


def check_delta(delta: float) -> None:
    """ValueError unless certificates can be computed at it."""
    if not _LEAST_DELTA <= delta < 1:
        raise ValueError(
            f"delta: got {delta:g}; give a number between 0 and 1, as in 1e-10, and not below {_LEAST_DELTA:g}"
        )


def duration(seconds: float) -> str:
    """A time for people, by its two largest units."""
    whole = round(seconds)
    for unit, size, below, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {below}"
    return f"{whole} s"


def table_text(table: Table) -> str:
    """A table as text, as wide as the terminal that standard output is."""
    terminal, page = Console(), io.StringIO()
    Console(file=page, width=terminal.width if terminal.is_terminal else _WIDTH).print(table)
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines())


def answer(content: dict, as_json: bool, text: str = "") -> None:
    """Print the answer: one line of JSON, or text for a person."""
    typer.echo(json.dumps(content, allow_nan=False) if as_json else printable(text))


def printable(text: str) -> str:
    """Text that any terminal can take: what was no UTF-8 on the command line, or half a character, is spelt out."""
    return text.encode("utf-8", "backslashreplace").decode()


def show_state(config: LaunchConfig, run: RunDir, here: Settings) -> "Standing":
    """Return a launch's state, and show it in its report and in MLflow from now on."""
    from pipeline.ledger.ledger import PrivacyLedger
    from pipeline.publication import approvals
    from pipeline.tracking.mlflow_tracker import MlflowTracker

    ledger, tracker = PrivacyLedger.of(here), MlflowTracker(here, config, run.launch_id)
    now = approvals.standing(config, run, ledger.entries())
    approvals.show(run, now)
    tracker.show_state(now.state, ", ".join(now.approvers))
    tracker.keep_receipts(ledger.heads())
    return now


def open_existing(name: str) -> tuple[LaunchConfig, RunDir, Settings]:
    """A launch that was begun on this machine, as people name it, with the configuration that it keeps."""
    from pipeline.run.known import run_folder
    from pipeline.tracking.mlflow_tracker import MlflowTracker

    here = settings_module.load()
    run_id = named.that_began(name, here)
    config = named.kept_config(here, run_id)
    tracker = MlflowTracker(here, config, run_id)
    return config, run_folder(here, run_id, tracker.fetch), here


def foreseen(config: LaunchConfig, run_id: str, here: Settings) -> "list[CacheHit]":
    """Stages that a launch would reuse from others on this machine."""
    from pipeline.run import cache

    if not cache.are_others(run_id, here):
        return []
    return cache.preview(config, run_id, here, STAGES)


def taken_over(stages: "list[CacheHit]") -> frozenset[str]:
    """The stages that are taken over and not made anew."""
    return frozenset(each.stage for each in stages if not each.problem)
