"""One finished launch for every test that only reads it, and homes that need not make MLflow's tables."""

import json
from pathlib import Path

import pytest
import yaml

from pipeline.launch.config import launch_id, load_launch
from tests.helpers.launches.command import LAUNCHED, Launched, tacit, watched
from tests.helpers.launches.installed import installed, keyed
from tests.helpers.launches.tiny_launch import write_launch
from tests.helpers.launches.tracking_database import prepared, put


@pytest.fixture(scope="session")
def tracking_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory)


@pytest.fixture(autouse=True)
def tables(tmp_path: Path, tracking_database: Path) -> None:
    """Give a test's own home MLflow's tables; that a first launch makes them is seen to in test_client.py."""
    put(tracking_database, tmp_path)


@pytest.fixture(scope="session")
def launched(tmp_path_factory: pytest.TempPathFactory, tracking_database: Path) -> Launched:
    """The tiny launch through the command line, with a twin. Its tests share a file, as workers share no session."""
    home = tmp_path_factory.mktemp("tiny")
    put(tracking_database, home)
    file = write_launch(home)
    launch = yaml.safe_load(file.read_text(encoding="utf-8"))
    launch["audit"] |= {"populations": ["compliant", "stress"], "in_launch": ["compliant"]}
    file.write_text(yaml.safe_dump(launch), encoding="utf-8")
    installed(home, "tiny-clients")
    keyed(home / "runs", file)
    done = tacit(home, "launch", str(file), "--json", **watched())
    assert done.returncode in LAUNCHED, done.stderr
    return Launched(home, file, launch_id(load_launch(file)), json.loads(done.stdout), done.stdout + done.stderr)
