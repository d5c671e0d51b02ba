"""What version 0.1 left behind is still understood: launch ids, ledger, checkpoint, report, models.

``run-0.1/`` holds a finished tiny run of it; ``make_version_0_1.py`` says how it was made.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from pipeline.config import config_digest, launch_id, load_launch
from pipeline.ledger.ledger import PrivacyLedger
from pretrain.predictor import KeyboardPredictor
from tests.golden import facts, seeded_launch
from tests.helpers.launches.command import tacit
from tests.helpers.processes.forked import Forked

HERE = Path(__file__).resolve().parent
RECORDED = json.loads((HERE / "version-0.1.json").read_text(encoding="utf-8"))
DIGESTS = RECORDED["config_digests"]
FILE = "tiny-tree.yaml"
LAUNCH_ID = "tiny-tree-6efd1d7e"

slow = pytest.mark.slow


@dataclass(frozen=True)
class Old:
    """A copy of the finished run in a home of its own, without its data and without MLflow's database."""

    home: Path

    @property
    def run(self) -> Path:
        return self.home / "runs" / LAUNCH_ID

    @property
    def ledger(self) -> PrivacyLedger:
        return PrivacyLedger(f"sqlite:///{self.home / 'runs' / 'ledger.db'}")

    def tacit(self, forked: Forked, *arguments: str, code: int = 0) -> subprocess.CompletedProcess:
        done = tacit(self.home, *arguments, program=forked.tacit)
        assert done.returncode == code, done.stdout + done.stderr
        return done


@pytest.fixture
def old(tmp_path: Path) -> Old:
    shutil.copy(HERE / "run-0.1" / FILE, tmp_path)
    with tarfile.open(HERE / "run-0.1" / "run.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    return Old(tmp_path)


def public_files(run: Path) -> dict[str, tuple[int, str]]:
    return {
        path.relative_to(run).as_posix(): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in sorted((run / "public").rglob("*"))
        if path.is_file()
    }


def test_the_launch_file_has_its_id() -> None:
    assert launch_id(load_launch(HERE / "run-0.1" / FILE)) == LAUNCH_ID


@pytest.mark.parametrize("name", [name for name in DIGESTS if not name.startswith("tiny-")])
def test_a_launch_file_that_it_shipped_has_its_digest(name: str) -> None:
    path = HERE / f"{Path(name).stem}-0.1.yaml"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == DIGESTS[name]["text"]
    assert config_digest(load_launch(path)) == DIGESTS[name]["config"]


@pytest.mark.parametrize("mechanism", seeded_launch.MECHANISMS)
def test_each_mechanism_has_its_digest(tmp_path: Path, mechanism: str) -> None:
    path = seeded_launch.write_launch(tmp_path, mechanism)
    assert config_digest(load_launch(path)) == DIGESTS[path.name]["config"]


def test_the_ledger_is_whole_and_knows_the_run(old: Old) -> None:
    records = [json.loads(path.read_text(encoding="utf-8")) for path in old.run.glob("public/*/result.json")]
    anchors = [receipt for record in records for receipt in record["ledger"].values()]
    assert len(anchors) == 4
    assert old.ledger.verify(anchors) == []
    config = config_digest(load_launch(old.home / FILE))
    assert [(entry.stage, entry.kind) for entry in old.ledger.entries()] == [
        (stage, kind) for stage in ("discover", "fine_tune") for kind in ("reserve", "commit")
    ]
    for entry in old.ledger.entries():
        key = (old.run / "private" / entry.stage / "key").read_bytes()
        binding = json.loads(entry.binding)
        assert entry.launch_id == LAUNCH_ID
        assert binding["config"] == config
        assert binding["key"] == hashlib.sha256(b"tacit key commitment" + key).hexdigest()


@pytest.mark.slow
def test_the_launch_again_redoes_nothing_and_spends_nothing(old: Old, forked: Forked) -> None:
    files, entries = public_files(old.run), old.ledger.entries()
    answer = json.loads(old.tacit(forked, "launch", FILE, "--json").stdout)
    assert (answer["launch_id"], answer["decision"]) == (LAUNCH_ID, "launch")
    assert public_files(old.run) == files
    assert old.ledger.entries() == entries


@slow
def test_fine_tuning_goes_on_from_the_checkpoint_to_nearly_the_same_weights(old: Old, forked: Forked) -> None:
    """As if the process had died after round 4 of 6: the ledger must take the rest for the same release."""
    trained, rounds = old.run / "public" / "fine_tune", old.run / "private" / "fine_tune" / "rounds"
    weights, entries = load_file(trained / "model.safetensors"), old.ledger.entries()
    before = facts.of_run(old.run, old.home / "runs" / "ledger.db")
    shutil.rmtree(trained)
    (rounds / "round-00000006.ckpt").unlink()
    (rounds / "participation.parquet" / "rounds-00000004-00000006.parquet").unlink()
    (rounds.parent / "audit.npz").unlink()
    done = old.tacit(forked, "stage", "fine_tune", FILE, "--id", LAUNCH_ID)
    assert "goes on after round 4" in done.stderr
    again = load_file(trained / "model.safetensors")
    assert again.keys() == weights.keys()
    for name, tensor in weights.items():
        np.testing.assert_allclose(again[name], tensor, rtol=0, atol=1e-5, err_msg=name)
    assert old.ledger.entries() == entries
    if facts.machine() == RECORDED["machine"]:
        after = facts.of_run(old.run, old.home / "runs" / "ledger.db")
        kinds = ("private/", "result/fine_tune/", "file/fine_tune/")
        # Directions are orthonormal since, so the rounds done now are projected on others; and what is released leaves
        # out the last digits.
        moved = ("projections", "momentum", "weights")
        expected = {
            name: value for name, value in before.items() if name.startswith(kinds) and not name.endswith(moved)
        }
        assert {name: after.get(name) for name in expected} == expected


@slow
def test_what_can_be_said_of_the_disclosure_is_said(old: Old, forked: Forked) -> None:
    """Nothing contradicts it; but its records are not in the ledger and MLflow is not here, so it is not verified."""
    answer = json.loads(old.tacit(forked, "verify", LAUNCH_ID, "--json", code=65).stdout)
    checks = {check["id"]: check["passed"] for check in answer["checks"]}
    assert [check for check in answer["checks"] if check["passed"] is False] == []
    assert (answer["ok"], answer["failed"]) == (False, 0)
    unknown = {name for name, passed in checks.items() if passed is None}
    assert {"bound:fine_tune", "bound:report", "private:fine_tune", "tracked", "registered"} <= unknown
    surely = {"ledger", "spend:discover", "spend:fine_tune", "mechanism", "rho", "epsilon", "participation", "files"}
    assert (
        surely | {f"files:{name}" for name in ("pretrain", "fine_tune", "report", "publish")} <= checks.keys() - unknown
    )


def test_the_bundle_predicts(old: Old) -> None:
    predictor = KeyboardPredictor(old.run / "public" / "publish" / "bundle")
    assert predictor.suggest("this is") == RECORDED["suggestions"]


@slow
def test_mlflow_loads_the_registered_model(old: Old, tmp_path: Path) -> None:
    """With the code that the model carries, in a process that knows nothing of this project."""
    code = (
        "import json, sys, mlflow, pandas\n"
        "model = mlflow.pyfunc.load_model(sys.argv[1])\n"
        "said = model.predict(pandas.DataFrame({'text': ['this is']}))\n"
        "import keyboard_predictor, pretrain\n"
        "print(json.dumps([said, keyboard_predictor.__file__, pretrain.__file__]))"
    )
    names = ("PATH", "HOME", "LANG", "LC_ALL")
    environment = {name: os.environ[name] for name in names if name in os.environ}
    environment |= {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path / 'none.db'}"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(old.home / "model")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said, *places = json.loads(done.stdout.splitlines()[-1])
    assert said == [RECORDED["suggestions"]]
    assert all(Path(place).is_relative_to(old.home / "model" / "code") for place in places)
