"""``tacit plan`` as a person meets it: forecast, pictures, and what is missing."""

import gzip
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from pipeline.launch.config import launch_id, load_launch
from pipeline.preflight.frontier import EPSILONS, around
from pipeline.preflight.gains import measured_on
from pipeline.releases.terms import Terms
from reports.listed import foreseen
from reports.losses import up
from tests.helpers.audits.strategies import two_starts
from tests.helpers.launches.command import ended
from tests.helpers.launches.pipeline_launch import RAW

PLANNING = {"population_estimate": 60, "max_report_goal": 10, "target_rho": 0.5}


@pytest.fixture(scope="module", autouse=True)
def few_starts() -> Iterator[None]:
    with two_starts():
        yield


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TACIT_HOME", str(tmp_path))
    return tmp_path


def written(home: Path, **changes: object) -> Path:
    """A launch file whose public text is a few made-up documents."""
    rng = np.random.default_rng(3)
    words = ["alpha", "beta", "gamma", "delta", "word", "line", "tree", "noise", "green", "south"]
    for name, documents in (("train", 40), ("validation", 6)):
        with gzip.open(home / f"{name}.json.gz", "wt", encoding="utf-8") as file:
            for _ in range(documents):
                text = " ".join(" ".join(rng.choice(words, size=6)) + "." for _ in range(10))
                file.write(json.dumps({"text": text}) + "\n")
    public = {
        "source": "files",
        "train": [str(home / "train.json.gz")],
        "validation": [str(home / "validation.json.gz")],
        "max_tokens": 5000,
    }
    path = home / "launch.yaml"
    path.write_text(yaml.safe_dump(RAW | {"public_text": public, "planning": PLANNING | changes}))
    return path


def tacit(*arguments: str, code: int = 0) -> tuple[str, str]:
    """Standard output and standard error."""
    done = ended("--quiet", *arguments, code=code)
    return done.stdout, done.stderr


@pytest.mark.slow
def test_a_forecast_as_json_with_pictures(home: Path) -> None:
    answer = json.loads(tacit("plan", str(written(home)), "--out", str(home / "out"), "--json")[0])
    assert answer["total"]["epsilon"] > 0  # of the file as it stands
    points = answer["frontier"]["points"]
    assert [point["epsilon"] for point in points] == list(EPSILONS)
    assert all(first["rho"] <= second["rho"] for first, second in itertools.pairwise(points))
    assert {Path(path).name for path in answer["files"]} == {"frontier.png", "frontier.svg"}
    assert (home / "out" / "frontier.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_launch_has_one_forecast_in_its_plan_and_its_report(home: Path) -> None:
    """They said +3.6 ± 1.9 and +2.90 ± 1.53 of one launch."""
    file = str(written(home))
    answer, config = json.loads(tacit("plan", file, "--json")[0]), load_launch(Path(file))
    worst = Terms.of_file(config, answer["devices"])
    of_report = around(config, worst.splits["train"], worst.spends, worst.total.epsilon)
    assert answer["forecast"] == {f"{at:g}": vars(each) for at, each in of_report.items()}
    assert answer["forecast"][f"{worst.total.epsilon:g}"] == answer["gates"][0]["gain"]
    said = ", ".join(f"{foreseen(each)} at {up(at)}" for at, each in of_report.items())
    text = tacit("plan", file)[0]
    assert f"this file, by total epsilon: {said}\n" in text
    assert f"Forecast from the number of devices: what {measured_on(config, worst.splits['train'])}\n" in text


@pytest.mark.slow
def test_a_forecast_for_a_person(home: Path) -> None:
    file = written(home)
    text, table = tacit("plan", str(file))
    assert "Forecast from the number of devices: " in text
    assert max(map(len, table.splitlines())) <= 80
    assert "…" not in table  # nothing was cut off
    assert (home / "runs" / launch_id(load_launch(file)) / "public" / "planning" / "frontier.svg").exists()


@pytest.mark.slow
def test_devices_on_the_command_line_replace_the_estimate(home: Path) -> None:
    file = str(written(home))
    few, many = (
        json.loads(tacit("plan", file, "--devices", n, "--json")[0])["frontier"]["points"][-1] for n in ("60", "60000")
    )
    assert many["way"] > few["way"]
    assert many["rho"] >= few["rho"]


@pytest.mark.slow
def test_without_a_planning_block(home: Path) -> None:
    path = home / "plain.yaml"
    path.write_text(yaml.safe_dump(RAW))
    assert "add a planning block" in tacit("plan", str(path), "--devices", "100")[0]
    refused = json.loads(tacit("plan", str(path), "--devices", "9", "--out", "x", "--json", code=65)[0])
    assert "planning block" in refused["error"]
