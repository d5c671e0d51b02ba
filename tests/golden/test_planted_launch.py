"""A whole launch whose one noise generator gives nothing: maker and generator agree, and each release is held."""

import json
from pathlib import Path

import pytest

from pipeline.ground.errors import HELD
from pipeline.run.bookkeeping import STOPPED
from tests.golden.conftest import RunSeeded
from tests.golden.seeded_launch import SEEDED, run_of

pytestmark = pytest.mark.slow


def test_a_launch_with_nine_tenths_of_its_noise_is_held_in_its_first_round(run_seeded: RunSeeded) -> None:
    done, home = run_seeded(SEEDED, "nine_tenths")
    run = run_of(home, SEEDED)
    stopped = json.loads((run / "private" / "fine_tune" / STOPPED).read_text(encoding="utf-8"))
    assert (stopped["stage"], stopped["exit_code"]) == ("fine_tune", HELD)
    assert "fine_tune: round 1 of 6: the noise is not that of the launch's key; the launch is held" in done.stderr
    assert not (run / "public" / "fine_tune" / "result.json").exists()
    assert not (run / "public" / "audit").exists()
    assert (run / "private" / "fine_tune" / "evidence.npy").stat().st_mode & 0o777 == 0o600


def test_a_launch_whose_canaries_were_taken_out_of_training_is_held_by_a_verdict(run_seeded: RunSeeded) -> None:
    run = held(run_seeded, SEEDED, "no_canaries")
    verdicts = {row["type"]: row["verdict"] for row in result(run, "audit")["audits"]}
    assert {kind for kind, verdict in verdicts.items() if verdict != "passed"} == {"canaries_in"}
    decided = result(run, "decide")
    assert decided["decision"] == "hold"
    assert "released" in {gate["id"] for gate in decided["gates"] if not gate["passed"]}


def held(run_seeded: RunSeeded, name: str, *faults: str) -> Path:
    """The run of a launch with faults, which ran to its end."""
    done, home = run_seeded(name, *faults)
    assert done.returncode == HELD, done.stderr
    return run_of(home, name)


def result(run: Path, stage: str) -> dict:
    return json.loads((run / "public" / stage / "result.json").read_text(encoding="utf-8"))["result"]


def test_a_launch_without_noise_is_held_for_each_of_its_releases(run_seeded: RunSeeded) -> None:
    run = held(run_seeded, "central", "no_noise", "no_watch")
    wrong = {
        audit["stage"]: {verdict["name"] for verdict in audit["verdicts"] if not verdict["passed"]}
        for audit in result(run, "audit_releases")["release_audits"]
    }
    assert wrong["discover"] >= {"weights", "total", "forms"}
    assert wrong["count"] == wrong["ab_test"] == {"sum"}
    decided = result(run, "decide")
    assert decided["decision"] == "hold"
    assert "release_audits" in {gate["id"] for gate in decided["gates"] if not gate["passed"]}
