"""Discovered words wait for a person where the launch file asks for one."""

import csv
import json
from pathlib import Path

import pytest
import yaml

from pipeline.ground.errors import PERMANENT
from pipeline.launch.config import launch_id, load_launch
from pretrain.files import sha256
from pretrain.text import vocabulary
from tests.helpers.launches.command import answered
from tests.helpers.launches.installed import installed
from tests.helpers.launches.tiny_launch import leaks, write_launch

pytestmark = pytest.mark.slow


def test_a_person_decides_on_every_word(tmp_path: Path) -> None:
    file = write_launch(tmp_path, vocabulary={"base_size": 80, "max_new_words": 8, "filters": [], "review": True})
    installed(tmp_path, "tiny-clients")
    blocklist = tmp_path / "blocked.txt"
    blocklist.write_text("slur\n", encoding="utf-8")
    raw = yaml.safe_load(file.read_text(encoding="utf-8"))
    raw["discovery"]["blocklist"] = str(blocklist)
    file.write_text(yaml.safe_dump(raw), encoding="utf-8")
    run_id = launch_id(load_launch(file))

    def stage(name: str, code: int = 0) -> dict:
        return answered(tmp_path, "stage", name, str(file), "--id", run_id, code=code)

    for name in ("ingest_public", "ingest_private", "plan", "discover"):
        stage(name)
    assert "wait for a decision" in json.dumps(stage("build_vocabulary", PERMANENT))
    sheet = tmp_path / "runs" / run_id / "private" / "build_vocabulary" / "review" / "review.csv"
    with sheet.open(encoding="utf-8", newline="") as source:
        rows = list(csv.DictReader(source))
    words = [row["word"] for row in rows]
    assert "lol" in words, "typed by all: discovery finds it"
    for row in rows:
        row["decision"] = "drop" if row["word"] == "lol" else "keep"
    with sheet.open("w", encoding="utf-8", newline="") as target:
        writer = csv.DictWriter(target, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    built = stage("build_vocabulary")
    assert built["reviewed"]
    assert built["dropped_by_person"] == 1
    assert built["added"] == len(words) - 1
    grown = vocabulary.load(tmp_path / "runs" / run_id / "public" / "build_vocabulary" / "vocabulary.json")
    assert "lol" not in grown.words
    assert leaks([tmp_path / "runs" / run_id / "public", tmp_path / "runs" / "mlflow-artifacts"], {}, ["lol"]) == []
    assert set(words) - {"lol"} <= set(grown.words)
    record = json.loads((tmp_path / "runs" / run_id / "public" / "build_vocabulary" / "result.json").read_text("utf-8"))
    sheet_digest = record["inputs"]["given/private/build_vocabulary/review/review.csv"]
    assert sheet_digest != sha256(sheet), "it holds words that were dropped, so it is keyed"
    assert record["inputs"][f"given/{blocklist}"] == sha256(blocklist)
    blocklist.write_text("slur\nanother\n", encoding="utf-8")
    stage("build_vocabulary")
    again = json.loads((tmp_path / "runs" / run_id / "public" / "build_vocabulary" / "result.json").read_text("utf-8"))
    assert again["inputs"][f"given/{blocklist}"] == sha256(blocklist)
    assert again["result"] == record["result"]
