"""A whole launch whose one noise generator gives nothing: maker and generator agree, and each release is held."""

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from pipeline.ground.errors import HELD
from pipeline.run.bookkeeping import STOPPED
from tests.golden import seeded_launch
from tests.helpers.launches.installed import installed

NO_NOISE = """
import numpy
from pretrain.randomness import noise
noise.gaussian = lambda key, stream, index, size: numpy.zeros(size)
"""
# Training would be stopped in its first round, and what comes after it would not be audited.
NO_WATCH = """
from evaluation.audit.watch import Watch
Watch.after = lambda self, state, *seen: state
"""

NINE_TENTHS = """
from federated.rounds.privatize import Privatizer
from dataclasses import replace
draw = Privatizer.draw
def weaker(self, state, key):
    drawn = draw(self, state, key)
    return replace(drawn, noise_P=0.9 * drawn.noise_P)
Privatizer.draw = weaker
"""
NO_CANARIES = """
from pipeline.stages.training import fine_tune_inputs
make = fine_tune_inputs.canaries.make
class Canaries:
    load = staticmethod(fine_tune_inputs.canaries.load)
    make = staticmethod(lambda *given: make(*given).of(()))
fine_tune_inputs.canaries = Canaries
"""


@pytest.mark.slow
def test_a_launch_with_nine_tenths_of_its_noise_is_held_in_its_first_round(tmp_path: Path) -> None:
    done, run = launched(tmp_path, seeded_launch.SEEDED, NINE_TENTHS)
    stopped = json.loads((run / "private" / "fine_tune" / STOPPED).read_text(encoding="utf-8"))
    assert (stopped["stage"], stopped["exit_code"]) == ("fine_tune", HELD)
    assert "fine_tune: round 1 of 6: the noise is not that of the launch's key; the launch is held" in done.stderr
    assert not (run / "public" / "fine_tune" / "result.json").exists()
    assert not (run / "public" / "audit").exists()
    assert (run / "private" / "fine_tune" / "evidence.npy").stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_a_launch_whose_canaries_were_taken_out_of_training_is_held_by_a_verdict(tmp_path: Path) -> None:
    done, run = launched(tmp_path, seeded_launch.SEEDED, NO_CANARIES)
    assert not done.returncode, done.stderr
    verdicts = {row["type"]: row["verdict"] for row in result(run, "audit")["audits"]}
    assert {kind for kind, verdict in verdicts.items() if verdict != "passed"} == {"canaries_in"}
    decided = result(run, "decide")
    assert decided["decision"] == "hold"
    assert "released" in {gate["id"] for gate in decided["gates"] if not gate["passed"]}


def launched(home: Path, name: str, fault: str) -> tuple[CompletedProcess[str], Path]:
    """Run a seeded launch by code with a fault; return the finished command and the folder of the run."""
    seeded_launch.write_data(home)
    installed(home, seeded_launch.population(name))
    file = seeded_launch.write_launch(home, name)
    done = seeded_launch.tacit(Path(__file__).parents[2], home, ["launch", file.name], fault=fault)
    return done, seeded_launch.run_of(home, name)


def result(run: Path, stage: str) -> dict:
    return json.loads((run / "public" / stage / "result.json").read_text(encoding="utf-8"))["result"]


@pytest.mark.slow
def test_a_launch_without_noise_is_held_for_each_of_its_releases(tmp_path: Path) -> None:
    done, run = launched(tmp_path, "central", NO_NOISE + NO_WATCH)
    assert not done.returncode, done.stderr
    wrong = {
        audit["stage"]: {verdict["name"] for verdict in audit["verdicts"] if not verdict["passed"]}
        for audit in result(run, "audit_releases")["release_audits"]
    }
    assert wrong["discover"] >= {"weights", "total", "forms"}
    assert wrong["count"] == wrong["ab_test"] == {"sum"}
    decided = result(run, "decide")
    assert decided["decision"] == "hold"
    assert "release_audits" in {gate["id"] for gate in decided["gates"] if not gate["passed"]}
