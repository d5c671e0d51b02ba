"""Commands that need no numbers start without the libraries that compute them."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from pipeline.ledger.ledger import PrivacyLedger

# The two packages of scipy are half a second of CPU; an accountant of trees needs neither.
SCIPY = {"scipy.optimize", "scipy.linalg"}
HEAVY = {"torch", "mlflow", "pandas", "matplotlib", "scipy", "numba", "onnxruntime", "sqlalchemy"} | SCIPY
REPORT = """
import contextlib, io, json, sys
from pipeline.cli.app import app
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    try:
        app(sys.argv[1:], prog_name="tacit")
    except SystemExit as end:
        assert not end.code, end.code
print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize(
    ("arguments", "needs"),
    [
        (("--help",), set()),
        (("check", "--alone", "dags/launches/demo-en-US.yaml"), set()),
        # The plan's worst case and the ledger.
        (("check", "dags/launches/demo-en-US.yaml"), {"scipy", "sqlalchemy"} | SCIPY),
        (("ledger", "show"), {"sqlalchemy"}),
        (
            (
                "account",
                "tree",
                "--noise-multiplier",
                "7",
                "--rounds",
                "100",
                "--mins",
                "29",
                "--max-participations",
                "2",
            ),
            {"scipy"},
        ),
    ],
)
@pytest.mark.slow
def test_imported_modules(
    arguments: Sequence[str], needs: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACIT_RUNS_DIR", str(tmp_path))
    PrivacyLedger.create(f"sqlite:///{tmp_path / 'ledger.db'}")
    done = subprocess.run([sys.executable, "-c", REPORT, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert HEAVY & set(json.loads(done.stdout)) <= needs
