"""``tacit plan`` and ``tacit rehearse`` as a person meets them: forecast, verdict, pictures, and what is missing."""

import functools
import gzip
import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from federated.config.planning import SmallLaunch
from pipeline.ground import settings
from pipeline.launch.config import launch_id, load_launch
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.preflight import rehearsal as rehearse
from pipeline.preflight import rehearsal_verdict
from pipeline.preflight.frontier import EPSILONS
from pipeline.stages.graph import STAGES
from tests.helpers.audits.strategies import two_starts
from tests.helpers.launches import rehearsals
from tests.helpers.launches.command import ended
from tests.helpers.launches.pipeline_launch import RAW

LIMITS = SmallLaunch(shares=(1.0,), median_words=20, most_rounds=3, held_out_words=200)


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
    path.write_text(yaml.safe_dump(RAW | {"public_text": public, "planning": rehearsals.PLANNING | changes}))
    return path


def tacit(*arguments: str, code: int = 0) -> tuple[str, str]:
    """Standard output and standard error."""
    done = ended("--quiet", *arguments, code=code)
    return done.stdout, done.stderr


@pytest.mark.slow
def test_a_forecast_as_json_with_pictures(home: Path) -> None:
    answer = json.loads(tacit("plan", str(written(home)), "--out", str(home / "out"), "--json")[0])
    assert answer["total"]["epsilon"] > 0  # of the file as it stands
    assert answer["rehearsed"] is False
    assert answer["verdict"] is None
    points = answer["frontier"]["points"]
    assert [point["epsilon"] for point in points] == list(EPSILONS)
    assert all(first["rho"] <= second["rho"] for first, second in itertools.pairwise(points))
    assert {Path(path).name for path in answer["files"]} == {"frontier.png", "frontier.svg"}
    assert (home / "out" / "frontier.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_forecast_for_a_person(home: Path) -> None:
    file = written(home)
    text, table = tacit("plan", str(file))
    assert "Forecast from the number of devices alone" in text
    assert f"Not rehearsed: 'tacit rehearse {file}' simulates it" in text
    assert "For the launch file" not in text
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
    estimated = ("plan", str(path), "--devices", "9")
    for arguments in ((*estimated, "--out", "x"), ("rehearse", str(path))):
        refused = json.loads(tacit(*arguments, "--json", code=65)[0])
        assert "planning block" in refused["error"] or "has no such block" in refused["error"]


@pytest.mark.slow
def test_a_rehearsal_end_to_end(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(home)
    config, here, lines = load_launch(file), settings.load(), []
    PrivacyLedger.create(here)
    run_id = launch_id(config)
    done = rehearse.run(config, config.planning, run_id, here, STAGES, None, lines.append, LIMITS)
    assert done.directory == home / "runs" / run_id / "public" / "rehearsal"
    assert (done.directory / "gain.png").read_bytes().startswith(b"\x89PNG")
    assert done.verdict.pseudo_users <= 60
    assert rehearsal_verdict.find(config, here.runs_dir, limits=LIMITS) == done.verdict
    assert rehearsal_verdict.outcome_of_file(done.verdict, config) is done.verdict.outcomes[0]
    # The launch finds its public stages done, and nothing private was read.
    records = {path.parent.name for path in (home / "runs").glob("*/public/*/result.json")}
    assert records == {"ingest_public", "pretrain"}
    # Again: nothing is redone, the answer is the same.
    trained = {path: path.stat().st_mtime_ns for path in (home / "runs").rglob("*.npy")}
    assert trained
    assert rehearse.run(config, config.planning, run_id, here, STAGES, None, lines.append, LIMITS) == done
    assert {path: path.stat().st_mtime_ns for path in (home / "runs").rglob("*.npy")} == trained
    # The command prints the same.
    monkeypatch.setattr(rehearse, "run", functools.partial(rehearse.run, limits=LIMITS))
    line, _ = tacit("rehearse", str(file), "--json")
    assert json.loads(line)["sentence"] == done.verdict.sentence


@pytest.mark.slow
def test_a_rehearsal_s_verdict_is_what_a_plan_says(home: Path) -> None:
    file = written(home)
    config = load_launch(file)
    verdict = rehearsals.written(config, home / "runs", gain=0.01, better=0.02)
    answer = json.loads(tacit("plan", str(file), "--out", str(home / "out"), "--json")[0])
    assert answer["rehearsed"] is True
    assert answer["verdict"]["answer"] == "go"
    assert [row["gain"] for row in answer["verdict"]["outcomes"]] == [0.01, 0.02, 0.03]
    assert (home / "out" / "gain.svg").exists()
    text, table = tacit("plan", str(file))
    assert f"Verdict: go. {verdict.sentence}" in text
    assert "This file's own setting: +1.00 points (± 0.20)." in text
    # The blocks go into the launch file, and are known again: no second rehearsal.
    raw, pasted = (
        yaml.safe_load(file.read_text()),
        yaml.safe_load(text.split("For the launch file:\n")[1].split("files:")[0]),
    )
    file.write_text(yaml.safe_dump(raw | {name: raw[name] | block for name, block in pasted.items()}))
    assert "This file's own setting: +2.00 points" in tacit("plan", str(file))[0]
    assert max(map(len, table.splitlines())) <= 80
    assert "…" not in table
    assert "(this file)" in table
    assert "Not rehearsed" in tacit("plan", str(file), "--devices", "70")[0]


@pytest.mark.slow
def test_a_plan_says_what_is_kept_beside_the_file(home: Path) -> None:
    file = written(home)
    verdict = rehearsals.written(load_launch(file), home / "runs", gain=0.01)
    kept = rehearsal_verdict.keep(verdict, file, None)
    shutil.rmtree(home / "runs")
    answer = json.loads(tacit("plan", str(file), "--json")[0])
    assert (answer["kept"], answer["stale"], answer["rehearsed"]) == (str(kept), False, True)
    text, _ = tacit("plan", str(file))
    assert f"Rehearsed as {kept} states.\nVerdict: go. {verdict.sentence}" in text
    raw = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump(raw | {"seed": 99}))
    text, _ = tacit("plan", str(file))
    assert f"{kept} is stale and not used: a field that it depends on has changed since." in text
    assert "Verdict" not in text
    refused = tacit("rehearse", launch_id(load_launch(file)), "--keep", code=65)[1]
    assert "launch: " in refused or "--keep" in refused


@pytest.mark.slow
def test_no_go_is_said_before_anything_else_is_offered(home: Path) -> None:
    file = written(home)
    rehearsals.written(load_launch(file), home / "runs", gain=-0.01)
    text, table = tacit("plan", str(file))
    assert "Verdict: no-go. This population is too small: 60 devices that train gain at most -1.00 points" in text
    assert "counts would give +3.00 points" in text
    assert "For the launch file" not in text
    assert " yes" not in table
