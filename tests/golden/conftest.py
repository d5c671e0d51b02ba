"""One seeded tiny launch by this checkout's code, for every test that wants a finished run."""

import pytest

from tests.golden import facts, seeded_launch
from tests.golden.seeded_launch import SEEDED
from tests.helpers.launches.command import tacit
from tests.helpers.launches.installed import installed
from tests.helpers.launches.launched import Launched
from tests.helpers.launches.tracking_database import prepared, put
from tests.helpers.processes.forked import Forked


@pytest.fixture(scope="session")
def seeded(tmp_path_factory: pytest.TempPathFactory, forked: Forked) -> Launched:
    home = tmp_path_factory.mktemp("seeded")
    put(prepared(tmp_path_factory), home)
    seeded_launch.write_data(home)
    file = seeded_launch.write_launch(home, SEEDED)
    installed(home, seeded_launch.population(SEEDED))
    done = tacit(home, "launch", file.name, program=forked.tacit)
    assert done.returncode == 0, done.stdout + done.stderr
    run = seeded_launch.run_of(home, SEEDED)
    return Launched(home, run, facts.of_run(run, home / "runs" / "ledger.db"))
