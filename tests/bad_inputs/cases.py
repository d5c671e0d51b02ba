"""The cases of this folder: what is handed to ``tacit``, how it must end, and what the error must name."""

import copy
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import pytest
import yaml
from click.testing import Result

from pipeline.launch.config import launch_id
from tests.helpers.launches.command import invoked
from tests.helpers.launches.pipeline_launch import RAW, dumped, launch_config, write_launch

FOLDER = Path(__file__).resolve().parent
SECONDS = 30  # as long as anybody would wait on a machine that does other things
PERMANENT = 65


class StillRunning(Exception):
    """No ``OSError``, which a command would take for infrastructure."""


@dataclass(frozen=True)
class Case:
    """One bad input.

    Attributes:
      make: writes the input into a folder and gives the command line.
      says: all of this stands in what the command prints.
    """

    name: str
    make: Callable[[Path], list[str]]
    exit: int = PERMANENT
    says: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


def read(name: str) -> list | dict:
    """One list of the corpus."""
    return yaml.load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)


def changed(dotted: str, value: object, raw: dict = RAW) -> dict:
    """The raw launch with one dotted field replaced."""
    raw = copy.deepcopy(raw)
    *parents, last = dotted.split(".")
    place = raw
    for parent in parents:
        place = place.setdefault(parent, {})
    place[last] = value
    return raw


def of_fields() -> list[Case]:
    """``tacit check`` of a launch file with one wrong value."""
    return [
        Case(
            f"{dotted}={str(value)[:30]!r}",
            lambda folder, dotted=dotted, value=value: [
                "check",
                str(write_launch(folder, changed(dotted, value))),
                "--json",
            ],
            says=(f'"errors": ["{dotted}',),
        )
        for dotted, values in read("fields").items()
        for value in values
    ]


def of_documents() -> list[Case]:
    """``tacit check`` of what is no launch file at all."""

    def make(folder: Path, row: dict) -> list[str]:
        path = folder / "trial.yaml"
        path.write_bytes(_content(row))
        return ["check", str(path), "--json"]

    return [
        Case(row["name"], lambda folder, row=row: make(folder, row), says=tuple(row["says"]))
        for row in read("documents")
    ]


def of_commands() -> list[Case]:
    """Command lines."""
    cases = []
    for row in read("commands"):
        named = " ".join(row["run"]) + "".join(f" {name}={value}" for name, value in row.get("settings", {}).items())
        cases.append(
            Case(
                named.replace("\n", " "),
                lambda folder, row=row: [_argument(folder, argument) for argument in row["run"]],
                row.get("exit", PERMANENT),
                tuple(row["says"]),
                row.get("settings", {}),
            )
        )
    return cases


def run(case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    """Run ``tacit`` in this process, in a folder of its own, for as long as a person would wait."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TACIT_HOME", str(folder))
    arguments = case.make(folder)
    for name, value in case.settings.items():
        monkeypatch.setenv(name, _argument(folder, value))
    with _at_most(SECONDS):
        return invoked(arguments)


def complaint(case: Case, done: Result) -> str:
    """What is wrong with how a case ended; empty if nothing is."""
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return f"{type(done.exception).__name__}: {done.exception}"
    if done.exit_code != case.exit:
        return f"exit code {done.exit_code}, not {case.exit}: {done.output[-500:]}"
    said = " ".join(done.output.replace("│", " ").split())
    missing = [words for words in case.says if words not in said]
    if missing:
        return f"it does not say {missing}: {done.output[-500:]}"
    return "it shows a traceback" if "Traceback" in done.output else ""


def _argument(folder: Path, text: str) -> str:
    """An argument with its stand-ins replaced."""
    if "FIFO" in text:
        os.mkfifo(folder / "pipe")
    for name, value in {
        "FILE": lambda: str(write_launch(folder)),
        "FIFO": lambda: str(folder / "pipe"),
        "FOLDER": lambda: str(folder),
        "LONGLONG": lambda: "x" * 20_000,
        "LONG": lambda: "x" * 5000,
        "BYTES": lambda: "\udcff\udcfe",
        "ID": lambda: launch_id(launch_config()),
    }.items():
        if text == name or text.startswith((f"{name}-", f"{name}/")) or text.endswith(f"-{name}"):
            text = text.replace(name, value())
    return text


def _content(row: dict) -> bytes:
    if "hex" in row:
        return bytes.fromhex(row["hex"])
    if "launch" in row:
        text = dumped(RAW) + row["launch"] + "\n"
    elif "aliases" in row:
        text = _multiplied("[", "]", row["aliases"], row["times"])
    elif "merges" in row:
        text = _multiplied("{<<: [", "]}", row["merges"], row["times"])
    elif "lines" in row:
        text = "".join(row["lines"].format(number) for number in range(row["times"]))
    else:
        text = row.get("before", "") + row.get("repeat", "") * row.get("times", 1) + row.get("text", "")
    return text.encode()


def _multiplied(opens: str, closes: str, levels: int, times: int) -> str:
    """Lines each of which holds the one before so many times."""
    first = "a: &a {x: 1}\n"
    letters = "abcdefghijklmnopqrstuvwxyz"
    return first + "".join(
        f"{new}: &{new} {opens}{', '.join([f'*{old}'] * times)}{closes}\n"
        for old, new in itertools.pairwise(letters[: levels + 1])
    )


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """End what takes longer."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise StillRunning(f"still running after {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
