"""Shared parts of all commands: conversion of errors to exit codes, output, and names of launches."""

import dis
import functools
import inspect
import io
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.ground import settings as settings_module
from pipeline.ground.errors import exit_code
from pipeline.ground.settings import Settings
from pipeline.telemetry.logs import printable

if TYPE_CHECKING:
    from rich.table import Table

    from pipeline.launch.config import LaunchConfig
    from pipeline.run.run_dir import RunDir

_log = logging.getLogger(__name__)
_LEAST_DELTA = 1e-30
# Whose errors state no value of people's data; those of libraries, and of functions in C, may quote one.
_OURS = frozenset(("discovery", "evaluation", "federated", "pipeline", "pretrain", "reports", "tacit"))
_WIDTH = 140  # columns without a terminal


def completions(incomplete: str) -> list[str]:
    """Shell completions of a launch's name; imports are delayed until a shell asks."""
    from pipeline.run.named import completions as named

    return named(incomplete)


AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object and nothing else on standard output")]
LaunchName = Annotated[
    str,
    typer.Argument(
        metavar="LAUNCH",
        help="a launch file, its name or locale, a launch id, or the beginning of an id ('tacit runs' lists them)",
        autocompletion=completions,
    ),
]

OfPopulation = Annotated[
    str | None,
    typer.Option(
        help="NAME, or SOURCE:NAME of a simulation, as in 'tacit ledger show'; default: the first that published"
    ),
]


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command: an expected error becomes a message and an exit code; a bug keeps its traceback."""

    @functools.wraps(function)
    def wrapped(**asked: Any) -> None:
        try:
            function(**asked)
        except Exception as error:  # re-raised unless exit_code has a code for it
            code = exit_code(error)
            if code is None:
                raise
            said = str(error)
            if isinstance(error, ValueError) and (where := _elsewhere(error)):
                said = f"{where} ended with {type(error).__name__}; its message may quote data, and is not shown"
            if settings_module.log_form() == "json":
                _log.error("%s", said)
            else:
                typer.echo(printable(f"error: {said}"), err=True)
            if asked.get("as_json"):
                typer.echo(json.dumps({"ok": False, "error": said, "exit_code": code}))
            raise typer.Exit(code) from error

    wrapped.__doc__ = unwrapped(function.__doc__ or "")
    return wrapped


def _elsewhere(error: BaseException) -> str:
    """Return the module that raised an error, if that is none of ours or is a function in C; empty if we raised it."""
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    if trace is None:
        return ""
    code, module = trace.tb_frame.f_code.co_code, str(trace.tb_frame.f_globals.get("__name__", ""))
    raises = code[trace.tb_lasti] == dis.opmap["RAISE_VARARGS"]
    return "" if raises and module.partition(".")[0] in _OURS else f"{module}, line {trace.tb_lineno},"


def unwrapped(text: str) -> str:
    """Join the lines of each paragraph, which the terminal's width then wraps once."""
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n"))


def answer(value: object, as_json: bool, text: str = "") -> None:
    """Print a returned value: as one line of JSON, or as text."""
    typer.echo(json.dumps(json_of(value), allow_nan=False) if as_json else printable(text))


def json_of(value: Any) -> Any:
    """Convert a frozen value to JSON values: fields by name, times to the second, deltas as ``1e-10``.

    A field with ``metadata={"json": False}`` is left out.
    """
    if is_dataclass(value) and not isinstance(value, type):
        named = (each.name for each in fields(value) if each.metadata.get("json", True))
        return {name: json_of(getattr(value, name)) for name in named}
    if isinstance(value, Mapping):
        return {f"{key:g}" if isinstance(key, float) else str(key): json_of(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [json_of(each) for each in value]
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    if isinstance(value, date | Path):
        return str(value)
    return json_of(value.model_dump(mode="json")) if hasattr(value, "model_dump") else value


def table_text(table: "Table") -> str:
    """Format a table in the width of the terminal on standard output."""
    from rich.console import Console

    terminal, page = Console(), io.StringIO()
    Console(file=page, width=terminal.width if terminal.is_terminal else _WIDTH).print(table)
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines())


def duration(seconds: float) -> str:
    """Format a duration by its two largest units."""
    whole = round(seconds)
    for unit, size, below, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {below}"
    return f"{whole} s"


def check_delta(delta: float) -> None:
    """ValueError unless certificates can be computed at this delta."""
    if not _LEAST_DELTA <= delta < 1:
        raise ValueError(
            f"delta: got {delta:g}; give a number between 0 and 1, as in 1e-10, and not below {_LEAST_DELTA:g}"
        )


def open_existing(name: str) -> "tuple[LaunchConfig, RunDir, Settings]":
    """Open a launch of this machine by its name, with its stored configuration."""
    from pipeline.run import named
    from pipeline.run.known import run_folder
    from pipeline.tracking.mlflow_tracker import MlflowTracker

    here = settings_module.load()
    run_id = named.begun_id(name, here)
    config = named.kept_config(here, run_id)
    tracker = MlflowTracker(here, config, run_id)
    return config, run_folder(here, run_id, tracker.fetch), here
