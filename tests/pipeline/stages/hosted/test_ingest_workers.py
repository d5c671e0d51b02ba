"""Ingest by several workers, each called in this process: the store of one, whatever was lost before."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from federated.workers import Worker
from pipeline.config import LaunchConfig, launch_id
from pipeline.errors import StaleAttempt
from pipeline.hosts import fence
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.runner import Stages, open_run, run_stage
from pipeline.settings import Settings
from pipeline.stage import StageContext
from pipeline.stages import ingest, reuse
from pipeline.stages.hosted import ingest_workers
from tests.helpers.launches.installed import registered
from tests.helpers.launches.pipeline_launch import launch_config

STAGES = Stages(
    {"ingest_private": ingest.ingest_private}, {}, private={"ingest_private": reuse.PRIVATE["ingest_private"]}
)
Share = Callable[[StageContext], None]


@pytest.fixture
def typed(tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of what a registered population typed, large enough to be shared."""
    monkeypatch.setattr(ingest_workers, "SMALL_BYTES", 1)
    registered(PrivacyLedger(settings.ledger_url), "people")
    rows = [{"client_id": f"c{number * 7 % 30}", "text": f"Hello {'abcde'[number % 5]}x. you"} for number in range(200)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "typed.parquet", row_group_size=40, compression="none")
    return tmp_path / "typed.parquet"


def asked(typed: Path, **runtime: int) -> LaunchConfig:
    text = {"source": "files", "name": "people", "max_words_per_device": 10, "paths": [str(typed)]}
    return launch_config(private_text=text, runtime=runtime)


def by(
    workers: int, monkeypatch: pytest.MonkeyPatch, around: Share = lambda ctx: None, done: int | None = None
) -> None:
    """Let so many workers do what is shared out, those that get so far; something else happens after them."""

    def share_out(ctx: StageContext) -> None:
        for number in range(workers if done is None else done):
            ingest_workers.read_part(ctx, Worker(number, workers))
        around(ctx)

    monkeypatch.setattr(ingest_workers, "share_out", share_out)


def ingested(config: LaunchConfig, settings: Settings) -> tuple[dict, dict[str, bytes]]:
    """The stage's record without times, and its private files."""
    made = run_stage("ingest_private", config, launch_id(config), settings, STAGES).record
    return made.model_dump(include={"result", "content", "launch_id"}), private_files(config, settings)


def private_files(config: LaunchConfig, settings: Settings) -> dict[str, bytes]:
    folder = open_run(config, launch_id(config), settings).private("ingest_private")
    hidden = {".lock", ".manifest.json", ".attempt", ".attempt.lock"}
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if name not in hidden}


def again(config: LaunchConfig, settings: Settings) -> None:
    """Forget that the stage is done."""
    run = open_run(config, launch_id(config), settings)
    (run.public("ingest_private") / "result.json").unlink()


def test_workers_hosts_and_lost_ones_change_nothing(
    typed: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = ingested(asked(typed), settings)
    assert alone[0]["content"]
    again(asked(typed), settings)

    def lost(ctx: StageContext) -> None:
        raise OSError("a worker was lost")

    by(3, monkeypatch, lost, done=2)
    with pytest.raises(OSError, match="a worker was lost"):
        ingested(asked(typed, workers=3), settings)
    by(3, monkeypatch, done=2)
    with pytest.raises(OSError, match="pieces of some workers are missing"):
        ingested(asked(typed, workers=3), settings)
    by(2, monkeypatch)
    assert ingested(asked(typed, workers=2), settings) == alone, "nothing of the first tries is in it, or left"


def test_who_was_shut_out_adds_no_piece_and_writes_no_store(
    typed: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = asked(typed, workers=2)

    def newer(ctx: StageContext) -> None:
        fence.begin(ctx.private)

    by(2, monkeypatch, newer)
    with pytest.raises(StaleAttempt, match="attempt 1 may write no more"):
        ingested(config, settings)
    names = private_files(config, settings)
    assert not any(name.startswith("store") for name in names)

    def newer_gang(ctx: StageContext) -> None:
        fence.hand_over(ctx.private, fence.begin(ctx.private))
        ingest_workers.read_part(ctx, Worker(1, 2))

    by(2, monkeypatch, newer_gang, done=1)
    with pytest.raises(StaleAttempt, match="gang 3 may write no more, as gang 4 has begun"):
        ingested(config, settings)
    names = private_files(config, settings)
    assert [name for name in names if name.endswith("part.json")] == [".parts/3/0/part.json"]


def test_a_gang_that_is_shut_out_while_it_reads_adds_no_piece(
    typed: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, write_piece = asked(typed, workers=2), ingest_workers.parts.write_piece
    folder = open_run(config, launch_id(config), settings).private("ingest_private")

    def slept(*arguments: object) -> object:
        fence.hand_over(folder, fence.begin(folder))
        return write_piece(*arguments)

    by(2, monkeypatch)
    monkeypatch.setattr(ingest_workers.parts, "write_piece", slept)
    with pytest.raises(StaleAttempt, match="gang 1 may write no more, as gang 2 has begun"):
        ingested(config, settings)
    assert not any(name.endswith("part.json") for name in private_files(config, settings))


def test_text_without_a_word_is_refused_and_leaves_no_piece(
    typed: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"client_id": ["a", "b"], "text": ["1", "2"]}), typed)
    by(2, monkeypatch)
    with pytest.raises(ValueError, match="no device of population 'people' has a word of en-US"):
        ingested(asked(typed, workers=2), settings)
    assert not any(name.startswith(".parts") for name in private_files(asked(typed, workers=2), settings))


def test_hosts_that_nobody_named_are_refused_before_anything(typed: Path, settings: Settings) -> None:
    with pytest.raises(ValueError, match=r"runtime.hosts: 2, but TACIT_HOSTS names no agents here"):
        ingested(asked(typed, hosts=2), settings)
    assert not private_files(asked(typed, hosts=2), settings).keys() - {".stopped"}


def test_little_text_is_read_where_the_stage_runs(
    typed: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest_workers, "SMALL_BYTES", typed.stat().st_size + 1)
    monkeypatch.delattr(ingest_workers, "share_out")
    ingested(asked(typed, workers=2), settings)
