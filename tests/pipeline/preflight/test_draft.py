"""A launch file from a few answers: valid, carried by its population, and nothing is written of a bad answer."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.launch.config import load_launch
from pipeline.preflight.draft import SYNTHETIC, Answers, draft
from tests.helpers.launches.tiny_launch import write_launch

ANSWERS = Answers("mine", "en-US", SYNTHETIC, "sample", 1300, 0.5, 1.5, None)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"population": 3}, "--population: got 3; give 60 to"),
        ({"rho": 0.0}, "--rho: got 0; give a number from 0.0001"),
        ({"rho": float("nan")}, "--rho: got nan"),
        ({"budget": 0.1}, "--budget: 0.1 is less than one launch may lose"),
        ({"days": 0}, "--days: got 0"),
        ({"locale": "fr-FR"}, "--public: sample is English, not fr-FR"),
        ({"data": "no/such-*.parquet"}, "--data: no file matches"),
    ],
)
def test_what_no_launch_could_be_is_refused_before_anything_is_written(
    changed: dict[str, Any], says: str, tmp_path: Path
):
    with pytest.raises(ValueError, match=re.escape(says)):
        draft(tmp_path / "mine.yaml", replace(ANSWERS, **changed))
    assert not (tmp_path / "mine.yaml").exists()


@pytest.mark.parametrize(
    ("name", "says"), [("mine.txt", "no name of a launch file"), ("no/mine.yaml", "make that folder first")]
)
def test_a_bad_name_is_refused(name: str, says: str, tmp_path: Path):
    with pytest.raises(ValueError, match=says):
        draft(tmp_path / name, ANSWERS)


def test_a_file_that_is_there_is_never_overwritten(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match="is not overwritten"):
        draft(path, ANSWERS)
    assert path.read_text(encoding="utf-8") == "mine"


@pytest.mark.slow
@pytest.mark.parametrize(
    "answers",
    [
        replace(ANSWERS, name="en-US"),
        Answers("es-ES", "es-ES", SYNTHETIC, "c4", 60_000, 1.0, 3.0, 60),
        Answers("fr-FR", "fr-FR", "DATA", "c4", 3_000_000, 0.5, 2.0, None),
    ],
    ids=lambda answers: answers.name,
)
def test_what_it_makes_is_valid_and_its_population_carries_it(answers: Answers, tmp_path: Path):
    write_launch(tmp_path)
    data = str(tmp_path / "clients.parquet") if answers.data == "DATA" else answers.data
    path = tmp_path / f"{answers.name}.yaml"
    made = draft(path, replace(answers, data=data))
    assert (made.feasible, made.reasons) == (True, ())
    config = load_launch(path)
    assert (config.name, config.mechanism) == (answers.name, made.mechanism)
    assert made.rho <= config.policy.max_rho
    assert made.rho > 0.99 * config.policy.max_rho, "all that may be lost buys accuracy"
    assert made.total_epsilon == config.policy.max_total_epsilon
    assert f"tacit check {path}" in made.next
