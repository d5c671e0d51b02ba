"""Five faults in one whole launch, of those that the benchmark plants, and none in another: the first is held."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.helpers.launches.checkout import ROOT
from tests.helpers.processes.forked import Forked


@pytest.mark.slow
def test_five_faults_together_are_held_and_an_honest_launch_is_not(tmp_path: Path, forked: Forked) -> None:
    page = tmp_path / "page.md"
    command = [forked.python, "-m", "benchmarks.privacy.planted_launches", "--seeds", "1"]
    command += ["--faults", "none", "five together", "--page", page, "--work", tmp_path / "work"]
    told = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=told, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = page.read_text(encoding="utf-8").splitlines()
    assert "| none | 0 of 1 |  |" in rows, rows
    assert any(row.startswith("| five together | 1 of 1 | ") for row in rows), rows
