"""MLflow's database with its tables and nothing in them: making one takes seconds, so a test run makes one."""

import fcntl
import os
import shutil
import sqlite3
import warnings
from pathlib import Path

import pytest

from pipeline.ground import settings
from pipeline.tracking import mlflow_tracker


def prepared(factory: pytest.TempPathFactory) -> Path:
    """The database of this test run, made by the first of its workers that asks."""
    base = factory.getbasetemp()
    home = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "mlflow"
    home.mkdir(exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "made").exists():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # MLflow's own code uses what SQLAlchemy 2.1 deprecates
                mlflow_tracker.connect(settings.load({"TACIT_HOME": str(home)}))
            (home / "made").touch()
    return home / "runs" / "mlflow.db"


def put(database: Path, home: Path) -> None:
    """Give a home, in which nothing ran yet, a copy of the database."""
    (home / "runs").mkdir(exist_ok=True)
    shutil.copy(database, home / "runs" / "mlflow.db")


def moved(home: Path, other: Path) -> None:
    """Let a copy of a home's database name the artifacts beside it: MLflow's rows hold whole addresses."""
    places = {
        "experiments": "artifact_location",
        "runs": "artifact_uri",
        "logged_models": "artifact_location",
        "model_versions": "storage_location",
    }
    with sqlite3.connect(other / "runs" / "mlflow.db") as database:
        for table, column in places.items():
            named = f"UPDATE {table} SET {column} = replace({column}, ?, ?)"
            database.execute(named, (f"{home}/", f"{other}/"))
