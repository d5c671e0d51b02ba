"""Five faults in one whole launch, of those that the benchmark plants, and none in another: the first is held."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.launches.checkout import ROOT


@pytest.mark.slow
def test_five_faults_together_are_held_and_an_honest_launch_is_not(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    command = [sys.executable, "-m", "benchmarks.privacy.planted_launches", "--seeds", "1"]
    command += ["--faults", "none", "five together", "--page", page, "--work", tmp_path / "work"]
    threads = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}  # a fork of a process with more could not compute
    done = subprocess.run(command, cwd=ROOT, env=os.environ | threads, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = page.read_text(encoding="utf-8").splitlines()
    assert "| none | 0 of 1 |  |" in rows, rows
    assert any(row.startswith("| five together | 1 of 1 | ") for row in rows), rows
