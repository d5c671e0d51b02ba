"""``tacit plan`` and ``tacit rehearse`` as a person meets them: what to paste, pictures, and what is missing."""

import functools
import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from federated.config.planning import SmallLaunch, SmallTrade
from federated.planning import search as plan_search
from federated.planning.rehearsal import Rehearsal, Trial
from pipeline.ground import settings
from pipeline.launch.config import LaunchConfig, launch_id, load_launch
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.preflight import rehearsal as rehearse
from pipeline.preflight import rehearsal_verdict
from pipeline.stages.graph import STAGES
from tests.helpers.audits.strategies import two_starts
from tests.helpers.launches import rehearsals
from tests.helpers.launches.command import ended
from tests.helpers.launches.pipeline_launch import RAW

RATIO = ("--noise-to-signal", "0.5")
SMALL = SmallLaunch(
    pseudo_users=30,
    median_words=20,
    report_goal=5,
    rounds=3,
    server_learning_rates=(0.5, 1.0),
    noise_to_signal=(0.01, 30.0, 60.0),
)
LIMITS = SmallTrade(shares=(0.5, 1.0), goals=(1.0,), median_words=20, most_rounds=3, held_out_words=200)


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
def test_a_plan_as_json_with_pictures(home: Path) -> None:
    file = written(home)
    answer = json.loads(tacit("plan", str(file), *RATIO, "--out", str(home / "out"), "--json")[0])
    assert answer["rho"] > 0  # of the file as it stands
    proposal = answer["proposal"]
    assert proposal["feasible"]
    assert proposal["rho"] <= 0.5
    assert proposal["mins"] == proposal["min_sep"] - 1
    assert proposal["timer_days"] == 1
    assert proposal["min_sep_by_the_clock"] > 0
    assert proposal["run_days"] > 0
    # Put into the launch file, the block gives what was promised.
    raw = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump(raw | yaml.safe_load(proposal["yaml"])))
    again = json.loads(tacit("plan", str(file), *RATIO, "--out", str(home / "out"), "--json")[0])
    assert (again["rho"], again["feasible"]) == (proposal["rho"], True)
    assert again["proposal"]["yaml"] == proposal["yaml"]
    assert {Path(path).name for path in answer["files"]} == {"plan.json", "plan.png", "plan.svg"}
    assert (home / "out" / "plan.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((home / "out" / "plan.json").read_text()) == again["proposal"]


@pytest.mark.slow
def test_a_plan_for_a_person(home: Path) -> None:
    file = written(home)
    text, table = tacit("plan", str(file), *RATIO)
    assert "is met" in text
    assert "For the launch file:\nmechanism:\n  kind: " in text
    assert "Timer" in text
    assert max(map(len, table.splitlines())) <= 80
    assert "…" not in table  # nothing was cut off
    for word in ("mechanism", "BLT, 3 buffers", "banded, 4 bands", "independent", "uniform sample"):
        assert word in table
    assert (home / "runs" / launch_id(load_launch(file)) / "public" / "planning" / "plan.svg").exists()


@pytest.mark.slow
def test_a_target_that_cannot_be_met_says_what_would_do(home: Path) -> None:
    text, _ = tacit("plan", str(written(home, target_rho=1e-3)), *RATIO)
    assert "cannot be met" in text
    assert "bear a noise-to-signal ratio of" in text
    assert "accept rho" in text


@pytest.mark.slow
def test_devices_on_the_command_line_replace_the_estimate(home: Path) -> None:
    file = str(written(home))
    few, many = (
        json.loads(tacit("plan", file, *RATIO, "--devices", n, "--json")[0])["proposal"] for n in ("14", "6000")
    )
    assert (few["min_sep"], many["min_sep"]) == (1, 8)  # 90% of 14 fill one round of ten
    assert few["rho"] > many["rho"]


@pytest.mark.slow
def test_without_a_planning_block(home: Path) -> None:
    path = home / "plain.yaml"
    path.write_text(yaml.safe_dump(RAW))
    assert "add a planning block" in tacit("plan", str(path), "--devices", "100")[0]
    estimated = ("plan", str(path), "--devices", "9")
    for arguments in ((*estimated, "--out", "x"), (*estimated, *RATIO), ("rehearse", str(path))):
        refused = json.loads(tacit(*arguments, "--json", code=65)[0])
        assert "planning block" in refused["error"] or "has no such block" in refused["error"]


@pytest.mark.slow
def test_a_rehearsal_end_to_end(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(home)
    config, here, lines = load_launch(file), settings.load(), []
    PrivacyLedger.create(here.ledger_url)
    run_id = launch_id(config)
    done = rehearse.run(config, config.planning, run_id, here, STAGES, None, lines.append, SMALL, LIMITS)
    assert done.directory == home / "runs" / run_id / "public" / "rehearsal"
    assert json.loads((done.directory / "rehearsal.json").read_text()) == json.loads(json.dumps(rehearse.as_json(done)))
    assert (done.directory / "utility.png").read_bytes().startswith(b"\x89PNG")
    assert (done.directory / "gain.png").read_bytes().startswith(b"\x89PNG")
    assert done.best.pseudo_users == 30
    assert done.verdict.pseudo_users <= 60
    assert rehearsal_verdict.find(config, here.runs_dir, limits=LIMITS) == done.verdict
    assert rehearsal_verdict.outcome_of_file(done.verdict, config) is done.verdict.outcomes[0]
    # The launch finds its public stages done, and nothing private was read.
    records = {path.parent.name for path in (home / "runs").glob("*/public/*/result.json")}
    assert records == {"ingest_public", "pretrain"}
    pasted = yaml.safe_load(done.paste)
    raw = yaml.safe_load(file.read_text())
    changed = {name: {**value, **pasted[name]} if name in pasted else value for name, value in raw.items()}
    assert LaunchConfig.model_validate(changed).mechanism.clip_norm == done.best.clip_norm
    # Again: nothing is redone, the answer is the same.
    before = (done.directory / "trials.json").stat().st_mtime_ns
    assert rehearse.run(config, config.planning, run_id, here, STAGES, None, lines.append, SMALL, LIMITS) == done
    assert (done.directory / "trials.json").stat().st_mtime_ns == before
    # The command prints the same.
    monkeypatch.setattr(rehearse, "run", functools.partial(rehearse.run, small=SMALL, limits=LIMITS))
    line, _ = tacit("rehearse", str(file), "--json")
    assert yaml.safe_load(json.loads(line)["yaml"]) == pasted


def outcome(**changes: object) -> Rehearsal:
    trials = tuple(Trial("", 1.0, ratio, 1.0, 0.4, 0.1, 0.2) for ratio in (0.01, 30.0))
    base = {
        "clip_norm": 0.4,
        "server_learning_rate": 1.0,
        "noise_to_signal": 0.01,
        "start_accuracy": 0.1,
        "noiseless_accuracy": 0.2,
        "clip_trials": trials,
        "noise_trials": trials,
        "pseudo_users": 5,
        "words": 50,
    }
    return Rehearsal(**(base | changes))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"noise_to_signal": None}, "even noise-to-signal 0.01 costs more than 0.002 accuracy"),
        ({"noise_to_signal": 60.0}, "60 is the largest that was tried"),
        ({"noiseless_accuracy": 0.1}, "pretrained model learns nothing more from this text"),
        ({}, "server learning rate 1 is at the end of the searched range"),
    ],
)
def test_remarks_say_what_to_know(changes: dict, said: str) -> None:
    assert any(said in remark for remark in rehearse.remarks(outcome(**changes), SMALL))


def test_nothing_to_remark() -> None:
    assert rehearse.remarks(outcome(), replace(SMALL, server_learning_rates=(0.5, 1.0, 2.0))) == ()
    assert set(yaml.safe_load(rehearse.paste(outcome()))) == {"mechanism", "server"}


@pytest.mark.slow
def test_without_a_rehearsal_nothing_is_recommended(home: Path) -> None:
    file = written(home, target_rho=100.0)
    answer = json.loads(tacit("plan", str(file), "--json")[0])
    assert answer["rehearsed"] is False
    assert answer["minutes"] >= 1
    assert answer["noise_to_signal"] == plan_search.noise_to_signal(load_launch(file).mechanism)
    assert "proposal" not in answer
    assert "nothing to draw" in json.loads(tacit("plan", str(file), "--out", "x", "--json", code=65)[0])["error"]
    text, _ = tacit("plan", str(file))
    assert f"not rehearsed: run tacit rehearse {file} (about {answer['minutes']} minutes of CPU)" in text
    assert "is untested" in text
    assert "For the launch file" not in text


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
    assert "not rehearsed" in tacit("plan", str(file), "--devices", "70")[0]


@pytest.mark.slow
def test_no_go_is_said_before_anything_else_is_offered(home: Path) -> None:
    file = written(home)
    rehearsals.written(load_launch(file), home / "runs", gain=-0.01)
    text, table = tacit("plan", str(file))
    assert "Verdict: no-go. This population is too small: 60 devices that train gain at most -1.00 points" in text
    assert "counts would give +3.00 points" in text
    assert "For the launch file" not in text
    assert " yes" not in table
