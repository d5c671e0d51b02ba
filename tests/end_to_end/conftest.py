"""One finished launch for every test that only reads it."""

import json

import pytest

from pipeline.config import launch_id, load_launch
from tests.helpers.command import Launched, tacit
from tests.helpers.tiny_launch import write_launch


@pytest.fixture(scope="session")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """The tiny launch through the command line. Its tests share a group, as workers share no session."""
    home = tmp_path_factory.mktemp("tiny")
    file = write_launch(home)
    done = tacit(home, "launch", str(file), "--json")
    assert done.returncode == 0, done.stderr
    return Launched(home, file, launch_id(load_launch(file)), json.loads(done.stdout), done.stdout + done.stderr)
