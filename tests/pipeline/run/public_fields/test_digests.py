"""No public digest can be tried, and none is the same in two launches because their text is.

Neither guessed text nor guessed words that nobody has reviewed are found, nor whether any device typed a word since.
"""

import base64
import hashlib
import json
import logging
import re
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from discovery.results import FoundWord
from federated.devices import store
from pipeline.ground.settings import Settings
from pipeline.launch.config import launch_id
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run.run_dir import RunDir, StageRecord
from pipeline.run.runner import run_stage
from pipeline.stages.discover import write_words
from pipeline.stages.graph import STAGES
from tests.helpers.launches.installed import registered
from tests.helpers.launches.pipeline_launch import launch_config

WORDS = [FoundWord(word="haha", layer=4, share=0.1, low=0.05, high=0.15)]


def digest_of(folder: Path, key: bytes) -> str:
    folder.mkdir()
    return write_words(SimpleNamespace(private=folder, noise_key=key), WORDS)


def test_the_digest_of_unreviewed_words_is_another_for_every_key(tmp_path: Path) -> None:
    first, again, other = (
        digest_of(tmp_path / name, key) for name, key in (("a", b"1" * 32), ("b", b"1" * 32), ("c", b"2" * 32))
    )
    assert first == again, "a retry is the same"
    assert first != other
    content = json.loads((tmp_path / "a" / "words.json").read_text(encoding="utf-8"))
    tried = [content["words"], {"words": content["words"]}]
    assert first not in {hashlib.sha256((json.dumps(each, indent=1) + "\n").encode()).hexdigest() for each in tried}


def test_the_digest_of_a_sheet_of_words_is_keyed_and_that_of_a_blocklist_is_not(tmp_path: Path) -> None:
    runs = [RunDir(tmp_path, name) for name in ("one", "two")]
    seen = []
    for run in runs:
        sheet = run.private("build_vocabulary") / "review.csv"
        sheet.write_text("word,decision\nlol,drop\n", encoding="utf-8")
        run.use_file(sheet)
        (name,) = run.used
        seen.append(run.used[name])
        assert run.given_digest("private/build_vocabulary/review.csv") == run.used[name]
        sheet.write_text("word,decision\nlol,keep\n", encoding="utf-8")
        assert run.given_digest("private/build_vocabulary/review.csv") != run.used[name], "a change is noticed"
    assert len(set(seen)) == 2
    assert hashlib.sha256(b"word,decision\nlol,drop\n").hexdigest() not in seen
    blocklist = tmp_path / "blocked.txt"
    blocklist.write_text("slur\n", encoding="utf-8")
    assert runs[0].given_digest(str(blocklist)) == hashlib.sha256(b"slur\n").hexdigest()


WHOLE = {"covered": {"evaluation": {"noise_multiplier": 2.0}}, "open": {}}


def ingested(settings: Settings, name: str, last: str, changes: dict) -> StageRecord:
    """The record of a launch on made-up people of whom the last one typed this; the file has one path in all."""
    path = settings.home / "people.parquet"
    words = [f"{word} {word}" for word in ("see", "you", "soon", "today") for _ in range(20)]
    rows = [{"client_id": f"{number:03}", "text": text, "locale": "en-US"} for number, text in enumerate(words)]
    pq.write_table(pa.Table.from_pylist([*rows, {"client_id": "last", "text": last, "locale": "en-US"}]), path)
    people = {"source": "made_up_files", "name": "people", "paths": [str(path)], "max_words_per_device": 9}
    config = launch_config(name=name, private_text=people | {"test_fraction": 0.2}, **changes)
    return run_stage("ingest_private", config, launch_id(config), settings, STAGES).record


def digests_of(run: Path) -> set[str]:
    """Every digest in every public file of a launch, hidden files and its proof among them."""
    found = set()
    for path in (path for path in (run / "public").rglob("*") if path.is_file()):
        text = path.read_text(encoding="utf-8")
        for coded in re.findall(r'"payload": ?"([^"]*)"', text):  # links are signed envelopes
            text += base64.b64decode(coded).decode()
        found |= set(re.findall("[0-9a-f]{16,}", text))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", WHOLE)
def test_no_public_value_tells_whether_any_text_changed_since_another_launch(
    settings: Settings, kind: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second launch reads the same text and reuses the first one's store; the third reads one word that is new."""
    registered(PrivacyLedger.of(settings), "made_up_files:people")
    records, logs, built, build = [], [], [], store.build_store

    def building(*given: object) -> store.StoreSummary:
        built.append(given[3].parents[2].name)
        return build(*given)

    monkeypatch.setattr(store, "build_store", building)
    with caplog.at_level(logging.INFO):
        for name, last in (("one", "late"), ("same", "late"), ("other", "later")):
            caplog.clear()
            records.append(ingested(settings, name, last, WHOLE[kind]))
            logs.append(re.sub(r"[0-9.]+ s\b", "", caplog.text.replace(records[-1].launch_id, "")))
    one, _, other = records
    assert built == [one.launch_id, other.launch_id], "the second one's store was reused"
    shown = [digests_of(settings.runs_dir / each.launch_id) for each in records]
    assert shown[0] & shown[1] == shown[0] & shown[2]
    assert one.result["store_digest"] in shown[0]
    assert one.content in shown[0]
    plain = [each.model_dump(exclude={"launch_id", "config_digest", "seconds", "started_at"}) for each in records]
    same_fields, other_fields = ({name for name in plain[0] if plain[0][name] == each[name]} for each in plain[1:])
    assert same_fields == other_fields
    assert logs[1] == logs[2]
