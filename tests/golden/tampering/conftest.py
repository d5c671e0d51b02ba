"""The seeded launch, to be changed by a test and whole again afterwards."""

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline import settings as settings_module
from pipeline.run_dir import RunDir
from tests.golden.tampering.edits import Launch
from tests.helpers.launches.launched import Launched

_DATABASES = ("ledger.db", "mlflow.db")


@pytest.fixture(scope="module")
def whole(seeded: Launched, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of everything that a launch left."""
    kept = tmp_path_factory.mktemp("whole") / "runs"
    shutil.copytree(seeded.home / "runs", kept)
    return kept


@pytest.fixture
def launch(seeded: Launched, whole: Path, monkeypatch: pytest.MonkeyPatch, forked_python: None) -> Iterator[Launch]:
    """The launch, to be changed; it is whole again afterwards."""
    monkeypatch.chdir(seeded.home)
    settings = settings_module.load({"TACIT_HOME": str(seeded.home)})
    yield Launch(settings, RunDir(settings.runs_dir, seeded.run.name))
    for place in whole.iterdir():
        if place.is_dir():
            shutil.rmtree(settings.runs_dir / place.name)
            shutil.copytree(place, settings.runs_dir / place.name)
    for name in _DATABASES:
        # Into the same file, which MLflow holds open.
        with sqlite3.connect(whole / name) as source, sqlite3.connect(settings.runs_dir / name) as changed:
            source.backup(changed)
