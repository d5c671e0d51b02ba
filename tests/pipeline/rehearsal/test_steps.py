"""Steps of a rehearsal: each is done once, also over an interruption, and one that ends otherwise stops it."""

import json
import sys
from pathlib import Path

import pytest

from pipeline.ground.errors import PERMANENT, PermanentError
from pipeline.rehearsal.rehearse import Rehearsal, Step
from pipeline.rehearsal.stand_ins import rehearsed
from tests.helpers.launches.checkout import ROOT

# Counts its runs in a file, answers as a command does, and ends as it is told.
PROGRAM = """
import json, os, pathlib, sys
pathlib.Path(os.environ["TACIT_RUNS_DIR"]).parent.joinpath("runs.txt").open("a").write(sys.argv[1] + "\\n")
print(json.dumps({"words": sys.argv[1:-1], "review": os.environ["TACIT_REVIEW_KEY"]}))
sys.exit(int(sys.argv[2]) if len(sys.argv) > 3 else 0)
"""


def begun(folder: Path, told: list[Step]) -> Rehearsal:
    made = rehearsed(ROOT / "dags/launches/de-DE.yaml", folder, 2_000, 0.01, (), by="somebody", mirror=False)
    return Rehearsal(made, folder, (sys.executable, "-c", PROGRAM), told.append)


def test_a_step_is_done_once_and_answers_again(tmp_path: Path):
    told: list[Step] = []
    first = begun(tmp_path, told).step("check", "check", "--json")
    assert first == {"words": ["check"], "review": str(tmp_path / "review.pem")}
    # As after an interruption.
    assert begun(tmp_path, told).step("check", "check", "--json") == first
    assert (tmp_path / "runs.txt").read_text(encoding="utf-8") == "check\n"
    assert [(step.name, step.command) for step in told] == [("check", "tacit check --json")]
    assert told[0].memory_mib > 1


def test_a_step_that_ends_otherwise_stops_the_rehearsal_and_is_done_again(tmp_path: Path):
    for _ in range(2):
        with pytest.raises(PermanentError, match=r"decide: 'tacit decide 3 --json' ended with 3: .*log.txt"):
            begun(tmp_path, []).step("decide", "decide", "3", "--json")
    assert (tmp_path / "runs.txt").read_text(encoding="utf-8") == "decide\n" * 2
    begun(tmp_path, []).step("words", "words", str(PERMANENT), "--json", codes=(PERMANENT,))
    (kept,) = map(json.loads, (tmp_path / "steps.jsonl").read_text(encoding="utf-8").splitlines())
    assert kept["name"] == "words"


def test_a_folder_holds_one_rehearsal(tmp_path: Path):
    begun(tmp_path, []).write()
    begun(tmp_path, []).write()
    other = rehearsed(ROOT / "dags/launches/de-DE.yaml", tmp_path, 3_000, 0.01, (), by="somebody", mirror=False)
    with pytest.raises(ValueError, match=r"--folder: .* name an empty folder"):
        Rehearsal(other, tmp_path, (), lambda step: None).write()
