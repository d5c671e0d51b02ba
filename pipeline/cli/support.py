"""What every command shares: exit codes, the answer on standard output, finding launches."""

import dataclasses
import functools
import inspect
import json
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline import settings as settings_module
from pipeline.config import LaunchConfig, load_launch
from pipeline.errors import LedgerMissing, exit_code
from pipeline.run_dir import RunDir
from pipeline.settings import Settings

if TYPE_CHECKING:
    from pipeline.release import Standing
    from pipeline.reuse.foreseen import Foreseen

_log = logging.getLogger(__name__)

AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object and nothing else on standard output")]
LaunchPath = Annotated[
    Path, typer.Argument(metavar="FILE", help="a launch file, such as dags/launches/demo-en-US.yaml")
]
RunId = Annotated[str, typer.Option("--run", help="launch id, as printed by 'tacit check FILE'")]


def command(function: Callable[..., None]) -> Callable[..., None]:
    """A command of the application: its parameters that are dataclasses become groups of options.

    An expected error becomes a message and an exit code; a bug keeps its traceback.
    """
    parameters = inspect.signature(function).parameters.values()
    groups: dict[str, Any] = {
        each.name: each.annotation for each in parameters if dataclasses.is_dataclass(each.annotation)
    }
    options = [option for each in parameters for option in _options(each)]

    @functools.wraps(function)
    def wrapped(**asked: Any) -> None:
        try:
            for name, group in groups.items():
                asked[name] = group(**{field.name: asked.pop(field.name) for field in dataclasses.fields(group)})
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

    wrapped.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]  # what typer reads
    wrapped.__annotations__ = {option.name: option.annotation for option in options}
    return wrapped


def _options(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """The parameter itself, or one for each field of the dataclass that it is."""
    if not dataclasses.is_dataclass(parameter.annotation):
        return [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
    return [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
        for field in dataclasses.fields(parameter.annotation)
    ]


def round_up(epsilon: float) -> str:
    """An epsilon for people: three decimals, never less than it is."""
    return f"{math.ceil(epsilon * 1000) / 1000:.3f}"


def answer(content: dict, as_json: bool, text: str = "") -> None:
    """Print the answer: one line of JSON, or text for a person."""
    typer.echo(json.dumps(content, allow_nan=False) if as_json else printable(text))


def printable(text: str) -> str:
    """Text that any terminal can take: what was no UTF-8 on the command line, or half a character, is spelt out."""
    return text.encode("utf-8", "backslashreplace").decode()


def read_launch(path: Path) -> LaunchConfig:
    """Load a launch file that somebody named."""
    return load_launch(path)


def show_state(config: LaunchConfig, run: RunDir, here: Settings) -> "Standing":
    """Where a launch stands, which its report and MLflow show too from now on."""
    from pipeline import release
    from pipeline.ledger.ledger import PrivacyLedger
    from pipeline.tracking import MlflowTracker

    now = release.standing(config, run, PrivacyLedger(here.ledger_url).entries())
    release.show(run, now)
    MlflowTracker(here, config, run.launch_id).show_state(now.state)
    return now


def launch_states(here: Settings) -> dict[str, str]:
    """Where each launch on this machine stands; empty where there is no ledger to ask."""
    from pipeline.ledger.ledger import PrivacyLedger
    from pipeline.release import standing

    try:
        entries = PrivacyLedger(here.ledger_url).entries()
    except LedgerMissing:
        return {}
    states: dict[str, str] = {}
    for path in here.runs_dir.glob("*/public/launch/launch.json"):
        run = RunDir(here.runs_dir, path.parents[2].name)
        try:
            states[run.launch_id] = standing(LaunchConfig.model_validate_json(path.read_bytes()), run, entries).state
        except ValueError as error:
            _log.warning("%s: its state is unknown: %s", run.launch_id, error)
    return states


def open_existing(run_id: str) -> tuple[LaunchConfig, RunDir, Settings]:
    """A launch that was begun on this machine, with the configuration it keeps beside its results."""
    from pipeline.ledger.known import fetch_known
    from pipeline.tracking import MlflowTracker

    here = settings_module.load()
    path = RunDir(here.runs_dir, run_id).path / "public" / "launch" / "launch.json"
    if not path.is_file():
        launches = sorted(path.parents[2].name for path in here.runs_dir.glob("*/public/launch/launch.json"))
        raise ValueError(f"run: {run_id!r} is not in {here.runs_dir}; it holds {', '.join(launches) or 'no launch'}")
    config = LaunchConfig.model_validate_json(path.read_bytes())
    tracker = MlflowTracker(here, config, run_id)
    return config, RunDir(here.runs_dir, run_id, fetch_known(tracker.fetch, here.ledger_url, run_id)), here


def foreseen(config: LaunchConfig, run_id: str, here: Settings) -> "list[Foreseen]":
    """What a launch would take over from others on this machine; the stages are imported only if there are any."""
    from pipeline.reuse import foreseen as core

    if not core.are_others(run_id, here):
        return []
    from pipeline.stages.table import STAGES

    return core.foreseen(config, run_id, here, STAGES.public, STAGES.private, STAGES.spends)


def taken_over(told: "list[Foreseen]") -> frozenset[str]:
    """The stages that are taken over and not made anew."""
    return frozenset(each.stage for each in told if not each.problem)
