"""Seeded tiny launches by this checkout's code, for every test that wants a finished run."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.golden import facts, seeded_launch
from tests.golden.facts import Launched
from tests.golden.seeded_launch import FROZEN, SEEDED
from tests.helpers.launches.command import LAUNCHED, tacit
from tests.helpers.launches.tracking_database import prepared, put
from tests.helpers.processes.forked import Forked

RunSeeded = Callable[..., tuple[CompletedProcess[str], Path]]


@pytest.fixture(scope="session")
def run_seeded(tmp_path_factory: pytest.TempPathFactory, forked: Forked) -> RunSeeded:
    """Run a seeded launch, in a home of its own, by code with faults; the finished command and the home."""
    tables = prepared(tmp_path_factory)

    def run(name: str, *faults: str) -> tuple[CompletedProcess[str], Path]:
        home = tmp_path_factory.mktemp("seeded")
        put(tables, home)
        file = seeded_launch.begun(home, name)
        program = (forked.python, "-m", "tests.golden.faults", ",".join(faults)) if faults else (forked.tacit,)
        return tacit(home, *map(str, program[1:]), "launch", file.name, program=program[0]), home

    return run


@pytest.fixture(scope="session")
def seeded(run_seeded: RunSeeded) -> Launched:
    return _launched(SEEDED, run_seeded)


@pytest.fixture(scope="session")
def runs(seeded: Launched, run_seeded: RunSeeded) -> dict[str, Launched]:
    """All frozen launches by name. Tests read them, and copy what they change."""
    return {name: seeded if name == SEEDED else _launched(name, run_seeded) for name in FROZEN}


def _launched(name: str, run_seeded: RunSeeded) -> Launched:
    """One of the seeded launches, run to its end."""
    done, home = run_seeded(name)
    assert done.returncode in LAUNCHED, done.stdout + done.stderr
    run = seeded_launch.run_of(home, name)
    return Launched(home, run, facts.of_run(run, home / "runs" / "ledger.db"))
