"""Commands that need no numbers start without the libraries that compute them."""

import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from pipeline.ground import settings
from pipeline.launch.config import LaunchConfig, all_fields, launch_id
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run.runner import run_stage
from pipeline.stages.graph import STAGES
from tests.helpers.launches.checkout import ROOT
from tests.helpers.launches.installed import at
from tests.helpers.launches.spends import budget

# The two packages of scipy are half a second of CPU; an accountant of trees needs neither.
SCIPY = {"scipy.optimize", "scipy.linalg"}
# What a command that computes takes: a tenth of a second for numpy, half a second for scipy.
NUMBERS = {"numpy", "scipy", "regex"} | SCIPY
HEAVY = {"torch", "mlflow", "pandas", "matplotlib", "numba", "onnxruntime", "sqlalchemy", "dp_accounting"} | NUMBERS
DRAFT = ("--locale", "en-GB", "--data", "synthetic", "--population", "2000", "--epsilon", "5", "--public", "c4")
REPORT = """
import contextlib, io, json, sys
from pipeline.cli.app import app
with contextlib.redirect_stdout(io.StringIO()) as answer, contextlib.redirect_stderr(io.StringIO()):
    try:
        app(sys.argv[1:], prog_name="tacit")
    except SystemExit as end:
        assert not end.code, end.code
print(json.dumps([answer.getvalue(), sorted(sys.modules)]))
"""


def reported(*arguments: str) -> tuple[str, set[str]]:
    """What a command answers in a process of its own, and which of the slow libraries it imported."""
    done = subprocess.run([sys.executable, "-c", REPORT, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer, modules = json.loads(done.stdout)
    return answer, HEAVY & set(modules)


@pytest.mark.parametrize(
    ("arguments", "needs"),
    [
        (("--help",), set()),
        (("explain", "utility"), set()),
        (("status",), {"sqlalchemy"}),
        # The planner searches, its second accountant waits for 'tacit plan', and the ledger may know these people.
        (("init", "draft.yaml", *DRAFT), {"numba", "sqlalchemy"} | NUMBERS),
        # The one number is a point of a Gaussian's curve.
        (("check", "--alone", "dags/launches/demo-en-US.yaml"), NUMBERS),
        # The plan's worst case and the ledger.
        (("check", "dags/launches/demo-en-US.yaml"), {"sqlalchemy"} | NUMBERS),
        (("ledger", "show"), {"sqlalchemy"}),
        (
            ("account", "--preset", "NWP de-DE"),
            {"numpy", "scipy"},
        ),
    ],
)
@pytest.mark.slow
def test_imported_modules(
    arguments: Sequence[str], needs: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACIT_RUNS_DIR", str(tmp_path))
    PrivacyLedger.create(at(tmp_path, f"sqlite:///{tmp_path / 'ledger.db'}"))
    asked = [str(tmp_path / each) if each == "draft.yaml" else each for each in arguments]
    assert reported(*asked)[1] <= needs


def files_launch(folder: Path) -> Path:
    """A launch file that asks for as much as one can, on files of its own whose times are text."""
    ids = [f"device-{number:05}" for number in range(6_000)]
    rows = {
        "client_id": ids,
        "locale": ["en-US"] * len(ids),
        "text": ["see you later"] * len(ids),
        "ts": [f"{date.today()}T00:00:00Z"] * len(ids),
    }
    pq.write_table(pa.table(rows), folder / "typed.parquet")
    (folder / "public.jsonl").write_text('{"text": "see you later"}\n', encoding="utf-8")
    raw = all_fields(ROOT / "dags" / "launches" / "demo-en-US-central.yaml")
    counts = all_fields(ROOT / "dags" / "launches" / "demo-en-US-counts.yaml")
    public = str(folder / "public.jsonl")
    raw["tuning"] = "public text"
    raw["public_text"] = {"source": "files", "train": [public], "validation": [public], "max_tokens": 1000}
    raw["private_text"] = {"source": "files", "name": "typists", "paths": [str(folder / "typed.parquet")]}
    raw["private_text"] |= {"max_words_per_device": 100, "test_fraction": 0.2}
    raw["counts"] = counts["counts"]
    raw["evaluation"] = {"noise_multiplier": 2.0}
    raw["policy"] |= {"max_rho": 20.0, "budget": {"rho": 50.0, "days": 60}}
    raw["policy"] |= {"max_total_epsilon": 200.0}
    for name in ("population_max_rho",):
        raw["policy"].pop(name, None)
    path = folder / "files.yaml"
    path.write_text(yaml.safe_dump(raw), encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_look_at_files_and_at_other_launches_needs_no_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACIT_RUNS_DIR", str(tmp_path / "runs"))
    file, here = files_launch(tmp_path), settings.load()
    ledger = PrivacyLedger.create(here)
    ledger.register("typists", budget(max_rho=50.0, window_days=60), by="someone")
    answer, modules = reported("check", str(file))
    assert "6,000+ devices" in answer
    # Arrow makes no array of a row of JSON without a look for pandas.
    assert modules <= {"sqlalchemy", "pandas"} | NUMBERS
    config = LaunchConfig.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))
    other = config.model_copy(update={"name": "another"})
    run_stage("ingest_private", other, launch_id(other), here, STAGES)
    answer, modules = reported("check", str(file))
    assert launch_id(other) not in answer, "it would say that no device typed a word since"
    assert modules <= {"sqlalchemy", "pandas"} | NUMBERS
