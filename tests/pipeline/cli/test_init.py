"""``tacit init``: a launch file from a few answers that checks, plans and launches."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from pipeline.ground.errors import PERMANENT
from pipeline.launch.config import load_launch
from pipeline.preflight.shortfalls import of_file, parameters
from pretrain.text import corpus
from pretrain.text.vocabulary import SPECIALS, from_counts
from tests.helpers.launches.checkout import ROOT
from tests.helpers.launches.command import answered, ended

FLAGS = ("--locale", "en-US", "--data", "synthetic", "--population", "1300", "--rho", "0.5")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"--locale": "english"}, "--locale: 'english' is no BCP 47 tag"),
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
    asked = (*FLAGS, "--small", "--set", "pretrain.steps=400", "--set", "vocabulary.max_new_words=100")
    answered(tmp_path, "init", str(tmp_path / "mine.yaml"), *asked)
    made = load_launch(tmp_path / "mine.yaml")
    assert (made.model.hidden_dim, made.vocabulary.base_size, made.pretrain.steps) == (128, 2_000, 400)
    assert (made.pretrain.evaluate_every_steps, made.adapt.steps) == (200, 20)
    assert "# Vocabulary:" not in (tmp_path / "mine.yaml").read_text(encoding="utf-8"), "a reason for another value"


def test_a_small_vocabulary_is_no_larger_than_public_text(tmp_path: Path):
    """Drafted for 2,000 words and 500 directions, the launch was refused after ``pretrain``."""
    words = [f"{first}{last}o" for first in "bdfgklmnprst" for last in "aeiou"][:59]
    texts = [" ".join(words[number:] + words[:number]) for number in range(40)]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (tmp_path / "public.jsonl").write_text(lines, encoding="utf-8")
    asked = (*FLAGS, "--small", "--public", str(tmp_path / "public.jsonl"))
    answered(tmp_path, "init", str(tmp_path / "mine.yaml"), *asked)
    config = load_launch(tmp_path / "mine.yaml")
    assert config.vocabulary.base_size == 59 + len(SPECIALS)
    corpus.build_corpus(config.public_text, config.locale, tmp_path / "corpus")
    counts = corpus.open_corpus(tmp_path / "corpus").counts()
    assert len(from_counts(counts, config.vocabulary.base_size)) == config.vocabulary.base_size
    assert of_file(config, parameters(config, len(SPECIALS) + 59)) == []
    assert config.audit.directions == 362


def test_the_steps_that_it_says_are_those_that_are_left(tmp_path: Path):
    """After a registration it said to make the ledger and to register again, for another budget."""
    (tmp_path / "people.csv").write_text("client_id,text\n" + "".join(f"{n},hello you\n" for n in range(300)))
    asked = ("--locale", "en-US", "--data", str(tmp_path / "people.csv"), "--epsilon", "3", "--rho", "0.05")

    def steps(name: str) -> list[str]:
        return [" ".join(row.split()[:3]) for row in answered(tmp_path, "init", str(tmp_path / name), *asked)["next"]]

    left = [f"tacit {command} {tmp_path}/en-US.yaml" for command in ("check", "plan", "launch")]
    assert steps("en-US.yaml") == ["tacit ledger init", "tacit ledger register", *left]
    answered(tmp_path, "ledger", "init")
    (tmp_path / "en-US.yaml").unlink()
    assert steps("en-US.yaml") == ["tacit ledger register", *left]
    answered(tmp_path, "ledger", "register", "en-US", "--max-rho", "7", "--delta", "1e-5", "--min-approvals", "0")
    (tmp_path / "en-US.yaml").unlink()
    first, *_ = answered(tmp_path, "init", str(tmp_path / "en-US.yaml"), *asked)["next"]
    assert first == f"{left[0]}  (en-US is registered, for rho 7)"


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


@pytest.mark.slow
def test_a_file_like_another_holds_what_is_bound_to_its_locale(tmp_path: Path):
    other = tmp_path / "es-ES.yaml"
    other.write_text((ROOT / "dags/launches/es-ES.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    file, asked = (
        tmp_path / "es-MX.yaml",
        ("--like", str(other), "--locale", "es-MX", "--data", "synthetic", "--population", "9000000"),
    )
    done = ended("init", str(file), *asked, "--set", "policy.max_top3_loss=0.002", "--json")
    assert str(file) in done.stdout
    own = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert own["like"] == "es-ES.yaml"
    assert set(own) == {"like", "name", "locale", "private_text", "planning", "policy"}
    like, whole = load_launch(file), load_launch(other)
    assert like.policy == whole.policy.model_copy(update={"max_top3_loss": 0.002})
    assert (like.locale, like.private_text.name) == ("es-MX", "synthetic-es-MX")
    assert like.mechanism == whole.mechanism
    refused = ended("init", str(tmp_path / "es-AR.yaml"), *asked, "--epsilon", "1", code=PERMANENT)
    assert "--epsilon: not with --like" in refused.stderr
    elsewhere = ended("init", "es-AR.yaml", *asked, code=PERMANENT)
    assert "is in another folder than es-AR.yaml" in elsewhere.stderr
    assert not Path("es-AR.yaml").exists()
