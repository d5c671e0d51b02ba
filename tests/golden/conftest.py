"""Seeded tiny launches by this checkout's code, for every test that wants a finished run."""

import pytest

from tests.golden import facts, seeded_launch
from tests.golden.facts import Launched
from tests.golden.seeded_launch import SEEDED
from tests.helpers.launches.command import tacit
from tests.helpers.launches.installed import installed
from tests.helpers.launches.tracking_database import prepared, put
from tests.helpers.processes.forked import Forked


@pytest.fixture(scope="session")
def seeded(tmp_path_factory: pytest.TempPathFactory, forked: Forked) -> Launched:
    return launched(SEEDED, tmp_path_factory, forked)


def launched(name: str, tmp_path_factory: pytest.TempPathFactory, forked: Forked) -> Launched:
    """One of the seeded launches, run to its end."""
    home = tmp_path_factory.mktemp("seeded")
    put(prepared(tmp_path_factory), home)
    seeded_launch.write_data(home)
    file = seeded_launch.write_launch(home, name)
    installed(home, seeded_launch.population(name))
    done = tacit(home, "launch", file.name, program=forked.tacit)
    assert done.returncode in (0, 3), done.stdout + done.stderr
    run = seeded_launch.run_of(home, name)
    return Launched(home, run, facts.of_run(run, home / "runs" / "ledger.db"))
