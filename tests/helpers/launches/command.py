"""The command line as a user runs it: a process of its own, in a home of its own; or the same without the process."""

import functools
import json
import logging
import os
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import typer.main
import typer.testing
from click.testing import Result

from pipeline.cli.app import app
from pipeline.ground.errors import DONE, HELD
from pipeline.ground.settings import OVERRIDES
from tests.helpers.processes.telemetry_console import CONSOLE

ROOT = Path(__file__).resolve().parents[3]
TACIT = Path(sys.executable).with_name("tacit")
# How a launch may end that ran to its end.
LAUNCHED = (DONE, HELD)
AIRFLOW = ROOT / ".venv" / "airflow" / "bin" / "airflow"


@dataclass(frozen=True)
class Launched:
    """What the first run of the command line left."""

    home: Path
    file: Path
    run_id: str
    answer: dict
    console: str

    @property
    def run(self) -> Path:
        return self.home / "runs" / self.run_id


def watched() -> dict[str, str]:
    """Every way of watching a launch, switched on; spans and metrics go where the search for leaks looks."""
    return {**CONSOLE, "TACIT_LOG": "json", "TACIT_PDF": "yes"}


def environment(home: Path, **more: str) -> dict[str, str]:
    """Only what a user's shell would hold, and everything kept under ``home``."""
    # PYTHONPATH: where a checkout is not the installed one.
    names = ("PATH", "HOME", "LANG", "LC_ALL", "PYTHONPATH", *OVERRIDES)
    return (
        {name: os.environ[name] for name in names if name in os.environ}
        | {"TACIT_HOME": str(home), "TACIT_PDF": "no", "TACIT_REVIEW_KEY": str(home / "review.pem")}
        | more
    )


def tacit(home: Path, *arguments: str, program: Path = TACIT, **variables: str) -> subprocess.CompletedProcess:
    """Run the command as a user would.

    Args:
      program: another that does the same, such as a forked one, which has nothing to import.
      variables: of the environment, beside those of a user's shell.
    """
    told = environment(home, **variables)
    return subprocess.run(
        [program, *arguments], cwd=home, env=told, capture_output=True, text=True, timeout=600, check=False
    )


@functools.cache
def _built() -> object:
    """Every command with its options, which typer's runner would build again for each call."""
    return typer.main.get_command(app)


def invoked(arguments: Sequence[str], variables: dict[str, str | None] | None = None) -> Result:
    """The command in this process: one of its own takes seconds to load its libraries."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        with mock.patch.object(typer.testing, "_get_command", return_value=_built()):
            return typer.testing.CliRunner().invoke(app, arguments, env=variables)
    finally:
        # The command sent its logs to the standard error of this call, which is gone now.
        root.handlers[:] = handlers
        root.setLevel(level)


def ended(*arguments: str, code: int | Collection[int] = 0, variables: dict[str, str | None] | None = None) -> Result:
    """What the command printed; it must end with ``code``, one of several, or what it printed says why not."""
    done = invoked(arguments, variables)
    assert done.exit_code in ((code,) if isinstance(code, int) else code), (
        f"exit code {done.exit_code}: ...{done.output[-3000:]}"
    )
    return done


def answered(home: Path, *arguments: str, code: int | Collection[int] = 0) -> dict:
    """The answer of a command in this process and in a home."""
    # MLflow writes its address into the environment, where the next home would read it.
    variables = {"TACIT_HOME": str(home), "MLFLOW_TRACKING_URI": None, "TACIT_REVIEW_KEY": str(home / "review.pem")}
    return json.loads(ended(*arguments, "--json", code=code, variables=variables).stdout)


def ledger_entries(home: Path) -> list[dict]:
    """The ledger as the command line shows it."""
    return answered(home, "ledger", "show")["entries"]
