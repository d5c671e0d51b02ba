"""Airflow on a throw-away SQLite, two launch files, and a small script in the place of ``tacit``.

These tests run in Airflow's environment (``make test``), which has no tacit: what they check is
the contract between a task and a command, so any command that keeps the contract will do.
"""

import copy
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.helpers.processes.server import latest_monthly

if importlib.util.find_spec("airflow") is None:
    collect_ignore_glob = ["test_*.py"]  # the stages' environment collects this folder too

ROOT = Path(__file__).resolve().parents[2]
HOME = Path(tempfile.mkdtemp(prefix="tacit-airflow-"))
LAUNCHES = HOME / "launches"
STAND_IN = Path(__file__).parent / "tacit_stand_in.py"

DEMO = """\
name: demo
locale: en-US
features: [NWP]
"""
# A locale that no shipped file has: a whole run of one DAG writes all of them to the database that tests share.
SCHEDULED = """\
name: scheduled
locale: it-IT
features: [NWP]
schedule: "@monthly"
reviewers: [privacy-reviewer, second-reviewer]
policy: {approvals: 2}
runtime: {device: cuda}
experiment: {share: 0.05, days: 14, min_gain: 0.0}
"""


def _set_up() -> None:
    """Must be done before Airflow is imported anywhere."""
    command = ["bash", "-c", "set -a; . dags/airflow.env; env -0"]
    listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, env={}).stdout
    shared = dict(line.split("=", 1) for line in listing.split("\0") if "=" in line)
    os.environ.update({name: value for name, value in shared.items() if name.startswith("AIRFLOW__")})
    os.environ.update(
        AIRFLOW_HOME=str(HOME),
        AIRFLOW__CORE__DAGS_FOLDER=str(ROOT / "dags"),
        AIRFLOW__CORE__PLUGINS_FOLDER=str(ROOT / "dags" / "plugins"),
        AIRFLOW__CORE__UNIT_TEST_MODE="False",
        TACIT_HOME=str(HOME),
        TACIT_BIN=str(HOME / "tacit"),
        TACIT_LAUNCHES=str(LAUNCHES),
    )
    LAUNCHES.mkdir()
    (LAUNCHES / "demo.yaml").write_text(DEMO, encoding="utf-8")
    (LAUNCHES / "scheduled.yaml").write_text(SCHEDULED, encoding="utf-8")
    # A task runs the file by its first line, as it runs the real command.
    (HOME / "tacit").write_text(f"#!{sys.executable}\n{STAND_IN.read_text(encoding='utf-8')}", encoding="utf-8")
    (HOME / "tacit").chmod(0o755)


if importlib.util.find_spec("airflow") is not None:
    _set_up()


def pytest_configure(config: pytest.Config) -> None:
    # Airflow deprecates parts of itself; our own warnings stay errors in the other environment.
    config.addinivalue_line("filterwarnings", "default")


def pytest_unconfigure() -> None:
    shutil.rmtree(HOME, ignore_errors=True)


@dataclass(frozen=True)
class StandIn:
    """What the stand-in does and what it was asked."""

    home: Path

    def behave(self, **exit_codes_by_command: list[int]) -> None:
        """Exit codes of each command's first, second ... call; 0 after the last."""
        (self.home / "behaviour.json").write_text(json.dumps(exit_codes_by_command), encoding="utf-8")

    def decide(self, decision: str) -> None:
        (self.home / "decision").write_text(decision, encoding="utf-8")

    def tries(self, *, decision: str = "promote", **status: object) -> None:
        """What ``tacit experiment`` says: where it stands, and how it is decided."""
        usual = {"first_day": "2026-03-02", "last_day": "2026-03-15", "over": True, "ended": None, "arrived": True}
        said = {"status": usual | {"launch_id": "scheduled-0123abcd", "logs": "here"} | status}
        said["begin"] = said["status"]
        said["decide"] = {"decision": decision, "reasons": ["fine"]}
        (self.home / "experiment").write_text(json.dumps(said), encoding="utf-8")

    def calls(self) -> list[list[str]]:
        path = self.home / "calls.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []

    def variables(self) -> list[set[str]]:
        """Names of the variables that each call was told."""
        return [set(json.loads(line)) for line in (self.home / "variables.jsonl").read_text().splitlines()]

    def stages(self) -> list[str]:
        return [call[1] for call in self.calls() if call[0] == "stage"]


def fresh_stand_in() -> StandIn:
    for name in ("behaviour.json", "decision", "experiment", "calls.jsonl", "variables.jsonl"):
        (HOME / name).unlink(missing_ok=True)
    return StandIn(HOME)


@pytest.fixture
def stand_in() -> StandIn:
    return fresh_stand_in()


@pytest.fixture(scope="session")
def database() -> None:
    """Airflow's tables and our pools, in this process: a command for each would load Airflow twice more."""
    from airflow.cli.commands.pool_command import pool_import_helper
    from airflow.utils.db import initdb

    initdb()
    _, failed = pool_import_helper(ROOT / "dags" / "pools.json")
    assert failed == []


@pytest.fixture(scope="session")
def dagbag(database):
    from airflow.dag_processing.dagbag import BundleDagBag

    folder = ROOT / "dags"
    return BundleDagBag(dag_folder=folder, bundle_path=folder, bundle_name="dags-folder")


def operator(dagbag):
    """A task of its own: one that ran a command holds its process, and the session's DAGs are copied by other tests."""
    return copy.copy(dagbag.dags["demo"].get_task("pretrain"))


def leave_the_dates(soon: timedelta, *names: str) -> None:
    """Wait until no monthly date of the launch files is soon: a schedule would make its run amid a test."""
    while any(latest_monthly(name, datetime.now(UTC) + soon) > datetime.now(UTC) for name in names):
        time.sleep(1)


def wait_for(condition, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
