"""Ingest by several processes: the store of one, whatever was lost before, and no piece left."""

import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, launch_id
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run.runner import open_run, run_stage
from pipeline.stages import graph, ingest
from tests.helpers.launches.installed import registered
from tests.helpers.launches.pipeline_launch import launch_config
from tests.helpers.launches.stages import stages_of

STAGES = stages_of({"ingest_private": ingest.ingest_private}, graph.STAGES["ingest_private"])


@pytest.fixture
def typed(tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of what a registered population typed, large enough to be shared."""
    monkeypatch.setattr(ingest, "SMALL_BYTES", 1)
    registered(PrivacyLedger.of(settings), "people")
    rows = [{"client_id": f"c{number * 7 % 30}", "text": f"Hello {'abcde'[number % 5]}x. you"} for number in range(200)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "typed.parquet", row_group_size=40, compression="none")
    return tmp_path / "typed.parquet"


def asked(typed: Path, **runtime: int) -> LaunchConfig:
    text = {"source": "files", "name": "people", "max_words_per_device": 10, "paths": [str(typed)]}
    return launch_config(private_text=text, runtime=runtime)


def ingested(config: LaunchConfig, settings: Settings) -> tuple[dict, dict[str, bytes]]:
    """The stage's record without times, and its private files."""
    made = run_stage("ingest_private", config, launch_id(config), settings, STAGES).record
    return made.model_dump(include={"result", "content", "launch_id"}), private_files(config, settings)


def private_files(config: LaunchConfig, settings: Settings) -> dict[str, bytes]:
    folder = open_run(config, launch_id(config), settings).private("ingest_private")
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if name not in {".lock", ".manifest.json"}}


def kill_one() -> None:
    """Kill one of the two processes that this one shares its work with, once both are there."""
    ended = time.monotonic() + 60
    while len(found := multiprocessing.active_children()) < 2:
        assert time.monotonic() < ended, "none was started"
        time.sleep(0.01)
    time.sleep(0.2)  # they import for seconds
    os.kill(found[0].pid or 0, signal.SIGKILL)


@pytest.mark.slow
def test_workers_and_lost_ones_change_nothing(typed: Path, settings: Settings) -> None:
    alone = ingested(asked(typed), settings)
    assert alone[0]["content"]
    (open_run(asked(typed), launch_id(asked(typed)), settings).public("ingest_private") / "result.json").unlink()
    killing = threading.Thread(target=kill_one)
    killing.start()
    with pytest.raises(OSError, match="a process that read it was killed; run the stage again"):
        ingested(asked(typed, workers=2), settings)
    killing.join()
    assert not private_files(asked(typed), settings).keys() - {".stopped", ".window.json"}, "no store and no piece"
    assert ingested(asked(typed, workers=2), settings) == alone


@pytest.mark.slow
def test_what_is_refused_leaves_no_piece(typed: Path, settings: Settings) -> None:
    pq.write_table(pa.table({"client_id": ["a", "b"], "text": ["1", "2"]}), typed)
    with pytest.raises(ValueError, match="no device of population 'people' has a word of en-US"):
        ingested(asked(typed, workers=2), settings)
    pq.write_table(pa.table({"client_id": ["a", "b"], "wrong": ["1", "2"]}), typed)
    with pytest.raises(ValueError, match="column 'text'"):
        ingested(asked(typed, workers=2), settings)
    assert not any(name.startswith(".parts") for name in private_files(asked(typed, workers=2), settings))


def test_little_text_is_read_where_the_stage_runs(
    typed: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "SMALL_BYTES", typed.stat().st_size + 1)
    monkeypatch.delattr(ingest.parts, "write_parts")
    ingested(asked(typed, workers=2), settings)
