"""``tacit init``: a launch file from a few answers that checks, plans and launches."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.launch.config import load_launch
from tests.helpers.launches.command import answered

FLAGS = ("--locale", "en-US", "--data", "synthetic", "--population", "1300", "--rho", "0.5")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"--locale": "english"}, "--locale: 'english' is no BCP 47 tag"),
        ({"--population": "3"}, "--population: got 3; give 60 to"),
        ({"--locale": "fr-FR", "--public": "sample-with-chat"}, "--public: 'sample-with-chat' has English chat"),
        ({"--population": None}, "--population: missing, and there is no terminal to ask on"),
        ({"--rho": None}, "--epsilon: missing, and there is no terminal to ask on"),
        ({"--set": "pretrain.steps"}, "--set: 'pretrain.steps' is no NAME=VALUE"),
        (
            {"--set": "evaluation.noise_multiplier=1"},
            "--set: evaluation.noise_multiplier: the drafted file has no block",
        ),
        ({"--set": "pretrain.steps=["}, "--set: '[' is no value of a launch file, for pretrain.steps"),
        ({"--set": "pretrain.step=5"}, "pretrain.step: no such field, got 5; did you mean 'steps'?"),
        ({"--set": "pretrain.steps=much"}, "pretrain.steps: got 'much'"),
    ],
)
def test_a_bad_answer_is_refused_before_anything_is_written(changed: dict[str, str | None], says: str, tmp_path: Path):
    options = dict(zip(FLAGS[::2], FLAGS[1::2], strict=True)) | changed
    flags = [word for name, value in options.items() if value is not None for word in (name, value)]
    assert says in answered(tmp_path, "init", str(tmp_path / "mine.yaml"), *flags, code=65)["error"]
    assert not (tmp_path / "mine.yaml").exists()


def test_a_small_model_and_single_fields_replace_what_the_planner_proposes(tmp_path: Path):
    answered(tmp_path, "init", str(tmp_path / "mine.yaml"), *FLAGS, "--small", "--set", "pretrain.steps=400")
    made = load_launch(tmp_path / "mine.yaml")
    assert (made.model.hidden_dim, made.vocabulary.base_size, made.pretrain.steps) == (128, 2_000, 400)
    assert "# Vocabulary:" not in (tmp_path / "mine.yaml").read_text(encoding="utf-8"), "a reason for another value"


@pytest.mark.slow
def test_a_new_user_types_no_number_of_devices(tmp_path: Path):
    """From files to a verdict: what init counted, check counts again and plan forecasts for."""
    people = {"client_id": [f"{number}" for number in range(300)], "text": ["hello you"] * 300}
    people["locale"] = ["en-US"] * 240 + ["en-GB"] * 60
    pq.write_table(pa.table(people), tmp_path / "people.parquet")
    path, data = tmp_path / "mine.yaml", str(tmp_path / "people.parquet")
    made = answered(tmp_path, "init", str(path), "--locale", "en-US", "--data", data, "--epsilon", "3")
    assert load_launch(path).planning.population_estimate == 240
    assert any(
        "240+ of them have a row of en-US, and the others only rows of en-GB (60+)" in note for note in made["notes"]
    )
    for command in made["next"][:2]:
        answered(tmp_path, *command.partition("  (")[0].split()[1:])
    checked = answered(tmp_path, "check", str(path))
    assert checked["ok"]
    done = answered(tmp_path, "plan", str(path))
    assert done["feasible"]
    assert done["counted"][0] in checked["notes"]
    assert done["total"]["epsilon"] <= 3
    assert done["frontier"]["points"]
    assert 210 < sum(done["devices"].values()) <= 240
