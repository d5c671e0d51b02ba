"""The seeded launch, to be changed by a test and whole again afterwards."""

import shutil
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.ground import settings as settings_module
from pipeline.run.known import run_folder
from tests.golden.facts import Launched
from tests.golden.tampering.edits import Launch
from tests.helpers.audits.made_once import made_once

_DATABASES = ("ledger.db", "mlflow.db")


class Whole:
    """A copy of everything that a launch left, which puts back what a test changed: most edit one file of hundreds."""

    def __init__(self, runs: Path, kept: Path) -> None:
        shutil.copytree(runs, kept)
        self._runs, self._kept, self._stamps = runs, kept, _stamps(runs)

    def put_back(self) -> None:
        found = _stamps(self._runs)
        # What stands in a folder before the folder.
        for path in sorted(found.keys() - self._stamps.keys(), reverse=True):
            path.rmdir() if stat.S_ISDIR(found[path][0]) else path.unlink()
        for path, stamp in self._stamps.items():
            if found.get(path) == stamp:
                continue
            kept = self._kept / path.relative_to(self._runs)
            if kept.is_dir():
                path.mkdir(exist_ok=True)
                shutil.copystat(kept, path)
            else:
                shutil.copy2(kept, path)
        self._stamps = _stamps(self._runs)
        for name in _DATABASES:
            # Into the same file, which MLflow holds open.
            with sqlite3.connect(self._kept / name) as source, sqlite3.connect(self._runs / name) as changed:
                source.backup(changed)


def _stamps(runs: Path) -> dict[Path, tuple[int, ...]]:
    """What tells a changed file of a launch from the same; a folder before what it holds."""
    stamps = {}
    for path in sorted(path for place in runs.iterdir() if place.is_dir() for path in (place, *place.rglob("*"))):
        seen = path.lstat()
        written = () if stat.S_ISDIR(seen.st_mode) else (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
        stamps[path] = (seen.st_mode, *written)
    return stamps


@pytest.fixture(scope="module", autouse=True)
def once() -> Iterator[None]:
    with made_once():
        yield


@pytest.fixture(scope="module")
def whole(seeded: Launched, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(seeded.home / "runs", tmp_path_factory.mktemp("whole") / "runs")


@pytest.fixture
def launch(seeded: Launched, whole: Whole, monkeypatch: pytest.MonkeyPatch, forked_python: None) -> Iterator[Launch]:
    """The launch, to be changed; it is whole again afterwards."""
    monkeypatch.chdir(seeded.home)
    settings = settings_module.load({"TACIT_HOME": str(seeded.home)})
    yield Launch(settings, run_folder(settings, seeded.run.name))
    whole.put_back()
