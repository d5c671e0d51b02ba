"""The record of public text, and devices that leave nothing to learn, to watch or to compare."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from federated.devices import pieces, store
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, launch_id
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run.known import run_folder
from pipeline.run.runner import open_run, run_stage
from pipeline.run.stage import StageContext
from pipeline.stages import identity
from pipeline.stages.graph import STAGES
from pretrain.text import corpus, sources
from tests.helpers.launches.installed import registered
from tests.helpers.launches.pipeline_launch import launch_config
from tests.helpers.text.c4_clone import write_clone

MADE_UP = {"source": "synthetic", "name": "made-up", "devices": 60, "max_words_per_device": 30}

pytestmark = [
    # MLflow's own code uses what SQLAlchemy 2.1 deprecates, and warns about type hints of its own.
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*Any type hint is inferred as AnyType.*:UserWarning"),
]


@pytest.fixture
def config(tmp_path: Path) -> LaunchConfig:
    """A launch on 60 public documents."""
    path = tmp_path / "public.jsonl"
    said = ["see you later.", "you see me.", "later you see more of it.", "something else."]
    rows = [{"text": f"{said[number % 4]} Text {'abcdefgh'[number % 8]} {said[number % 3]}"} for number in range(60)]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (tmp_path / "held_out.jsonl").write_text('{"text": "see you"}', encoding="utf-8")
    paths = {"train": [str(path)], "validation": [str(tmp_path / "held_out.jsonl")]}
    public_text = {"source": "files", "max_tokens": 10_000, **paths}
    return LaunchConfig.model_validate(launch_config().model_dump(mode="json") | {"public_text": public_text})


@pytest.mark.slow
def test_c4_is_recorded_with_its_commit_which_decides_the_stage(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="pipeline.stages.ingest")
    monkeypatch.setattr(sources, "C4_DATASET", str(write_clone(tmp_path / "c4")))
    monkeypatch.setattr(sources, "require_hub", lambda config: None)
    records = []
    for name, revision in (("one", "a" * 40), ("same", "a" * 40), ("other", "b" * 40)):
        public_text = {"source": "c4", "subset": "en", "revision": revision, "max_tokens": 400}
        config = LaunchConfig.model_validate(
            launch_config(name=name).model_dump(mode="json") | {"public_text": public_text}
        )
        records.append(run_stage("ingest_public", config, launch_id(config), settings, STAGES).record)
    one, same, other = records
    assert (one.result["revision"], other.result["revision"]) == ("a" * 40, "b" * 40)
    assert one.result["left_out_documents"] is None
    assert "public_text.max_tokens ended the text after 50 documents; the rest of the stream was not" in caplog.text
    assert (same.reused_from, other.reused_from) == (one.launch_id, None)
    assert one.content == same.content != other.content


@pytest.mark.slow
def test_documents_that_a_cap_leaves_out_are_counted_and_logged(
    config: LaunchConfig, settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="pipeline.stages.ingest")
    changes = {"max_tokens": 100}
    capped = LaunchConfig.model_validate(
        config.model_dump(mode="json") | {"public_text": config.public_text.model_dump() | changes}
    )
    stated = run_stage("ingest_public", capped, launch_id(capped), settings, STAGES).result
    assert stated["train_tokens"] <= 100
    # The document in which the cap falls is kept in part: it counts on both sides.
    summary = corpus.build_corpus(
        capped.public_text.model_copy(update={"max_tokens": 10_000}), "en-US", tmp_path / "whole"
    )
    assert summary.left_out_documents == 0
    kept = stated["documents"] - summary.validation_documents
    assert kept + stated["left_out_documents"] in (summary.train_documents, summary.train_documents + 1)
    assert f"{stated['left_out_documents']} documents are left out whole or in part, about" in caplog.text


def silenced(split: str, tmp_path: Path, settings: Settings, **changes: object) -> dict:
    """What comes of ingesting devices of which those of one split, or of all, typed no word."""
    registered(PrivacyLedger.of(settings), "people")
    path, clients = tmp_path / "typed.parquet", [f"c{number}" for number in range(60)]

    def ingested(texts: list[str], seed: int) -> tuple[Path, dict]:
        pq.write_table(pa.table({"client_id": clients, "text": texts}), path)
        people = {"source": "files", "name": "people", "max_words_per_device": 10, "paths": [str(path)]}
        config = launch_config(private_text=people, seed=seed, **changes)
        result = run_stage("ingest_private", config, launch_id(config), settings, STAGES).result
        return open_run(config, launch_id(config), settings).private("ingest_private") / "store", result

    folder, _ = ingested(["hello you"] * len(clients), 1)
    quiet = store.open_store(folder).devices(split) if split in store.SPLITS else range(len(clients))
    names = {pieces.device_ids(folder)[number] for number in quiet}
    assert names, "the split has devices"
    return ingested(["1" if client in names else "hello you" for client in clients], 2)[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("split", "refusal"),
    [
        ("all", "no device of population 'people' has a word of en-US"),
        (
            "validation",
            r"none of the validation devices \(10% of all, by a keyed hash\) of population 'people' has a word",
        ),
        ("test", r"ab_test.buckets: 2, but fewer test devices have a word"),
    ],
)
def test_what_nobody_could_watch_or_compare_is_refused_before_a_spend(
    split: str, refusal: str, tmp_path: Path, settings: Settings
) -> None:
    with pytest.raises(ValueError, match=refusal):
        silenced(split, tmp_path, settings)


@pytest.mark.slow
@pytest.mark.parametrize("split", ["all", "validation", "test"])
def test_under_a_budget_nobody_is_asked_whether_they_typed(split: str, tmp_path: Path, settings: Settings) -> None:
    result = silenced(split, tmp_path, settings, evaluation={"noise_multiplier": 2.0})
    assert result["devices_at_least"] == 60


SALAM = "\u0633\u0644\u0627\u0645"
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ([SALAM + "\u0627" * number for number in range(26)], "no letter of the script of 'en-US'"),
        (["\U0001f600", "\U0001f602"], "no letter of the script"),
        (["hello", "you", "\U0001f600"], r"base_size: 40, but public_text has 4 different words; .* lower it to 8"),
        ([*LETTERS, *(SALAM + "\u0627" * number for number in range(25))], None),
    ],
)
def test_public_text_that_is_no_text_of_the_locale_is_refused(
    words: list[str], refusal: str | None, tmp_path: Path, settings: Settings
) -> None:
    for split in ("train", "validation"):
        rows = ({"text": " ".join(words) + f"\n{split}"} for _ in range(3))
        (tmp_path / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    paths = {split: [str(tmp_path / f"{split}.jsonl")] for split in ("train", "validation")}
    public_text = {"source": "files", "max_tokens": 10_000, **paths}
    config = LaunchConfig.model_validate(
        launch_config(vocabulary={"base_size": 40}).model_dump(mode="json") | {"public_text": public_text}
    )
    if refusal is None:
        run_stage("ingest_public", config, launch_id(config), settings, STAGES)
        return
    with pytest.raises(ValueError, match=refusal):
        run_stage("ingest_public", config, launch_id(config), settings, STAGES)


@pytest.mark.slow
@pytest.mark.parametrize("covered", [False, True])
def test_what_devices_wrote_in_another_script_is_said_but_under_a_budget(
    covered: bool, tmp_path: Path, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    registered(PrivacyLedger.of(settings), "people")
    path, clients = tmp_path / "typed.parquet", [f"c{number}" for number in range(60)]
    pq.write_table(pa.table({"client_id": clients, "text": [f"{SALAM} {SALAM} hello"] * 60}), path)
    people = {"source": "files", "name": "people", "max_words_per_device": 10, "paths": [str(path)]}
    config = launch_config(private_text=people, evaluation={"noise_multiplier": 2.0} if covered else None)
    run_stage("ingest_private", config, launch_id(config), settings, STAGES)
    assert ("no letter of the script of en-US" in caplog.text) != covered


def test_a_store_is_named_as_its_record_commits_to_it(settings: Settings) -> None:
    """In two launches alike, for the cache alone; an edited summary names no other store."""
    ids = []
    for name in ("one", "other"):
        config = launch_config(name=name, private_text=MADE_UP)
        run_stage("ingest_private", config, launch_id(config), settings, STAGES)
        run = run_folder(settings, launch_id(config))
        ctx = StageContext(config, run, settings, "discover", None, config.population)
        ids.append((identity.people(ctx), run.result("ingest_private")["store_digest"]))
    assert ids[0][0] == ids[1][0]
    assert ids[0][1] != ids[1][1]
    path = run.private("ingest_private") / "store" / "store.json"
    digest = str(ids[0][0]["store"])
    path.write_text(path.read_text("utf-8").replace(digest, digest[::-1]), "utf-8")
    with pytest.raises(ValueError, match=r"the device store is not that of result\.json"):
        identity.people(ctx)
