"""``tacit`` and ``python -m tacit`` are one command, and say which version they are."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tacit
from tests.helpers.launches.checkout import ROOT
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
@pytest.mark.parametrize("words", [["-c", "import tacit"], ["-m", "tacit", "--version"]])
def test_the_index_s_other_project_of_this_name_is_named(tmp_path: Path, words: list[str]) -> None:
    """The command is ours also beside a package of the same module name that was installed later."""
    shutil.copytree(ROOT / "tacit", tmp_path / "tacit", ignore=shutil.ignore_patterns("__pycache__"))
    if words[0] == "-m":
        (tmp_path / "tacit" / "__init__.py").write_text("")
    environment = {"PATH": "/usr/bin", "PYTHONPATH": str(ROOT)}
    there = {"cwd": tmp_path, "capture_output": True, "text": True, "env": environment}
    assert subprocess.run([sys.executable, *words], check=False, **there).stderr == ""
    (tmp_path / "tacit-0.3.0.dist-info").mkdir()
    said = subprocess.run([sys.executable, *words], check=False, **there).stderr.splitlines()[-1]
    assert said.startswith("ImportError: tacit-0.3.0 is another project")
    assert said.endswith("install tacit-keyboard into an environment of its own")


@pytest.mark.slow
def test_a_killed_command_leaves_no_core() -> None:
    script = "import resource, sys; from tacit.__main__ import main\ntry: main()\nexcept SystemExit: pass\n"
    script += "print(resource.getrlimit(resource.RLIMIT_CORE)[0])"
    done = subprocess.run([sys.executable, "-c", script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] in ("0", "1"), "1 stops the programs that take cores too"
