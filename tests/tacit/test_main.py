"""``tacit`` and ``python -m tacit`` are one command, and say which version they are."""

import subprocess
import sys

import pytest

import tacit
from tests.helpers.launches.command import TACIT


@pytest.mark.slow
@pytest.mark.parametrize("command", [[TACIT], [sys.executable, "-m", "tacit"]])
def test_version(command: list) -> None:
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"tacit {tacit.__version__}\n", "")


@pytest.mark.slow
def test_import_loads_nothing_heavy() -> None:
    script = "import sys, tacit; print({'pipeline', 'torch', 'numpy', 'typer'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.slow
def test_a_killed_command_leaves_no_core() -> None:
    script = "import resource, sys; from tacit.__main__ import main\ntry: main()\nexcept SystemExit: pass\n"
    script += "print(resource.getrlimit(resource.RLIMIT_CORE)[0])"
    done = subprocess.run([sys.executable, "-c", script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] in ("0", "1"), "1 stops the programs that take cores too"
