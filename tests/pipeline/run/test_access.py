"""A stage opens its own files and those that it declares; every other one is refused, however it is spelled."""

import os
import shutil
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, dataset, fs

from pipeline.ground.errors import PERMANENT, PermanentError, exit_code
from pipeline.ground.settings import Settings
from pipeline.launch.config import launch_id
from pipeline.run import runner
from pipeline.run.stage import SOURCES, Stage, StageContext
from pipeline.stages.graph import STAGES
from pretrain import processes
from pretrain.access import Access, confined, standing
from pretrain.files import write_text
from tests.helpers.launches.pipeline_launch import Counted, launch_config
from tests.helpers.launches.stages import stages_of

CONFIG = launch_config()
ON_DISK, ONE_COLUMN = fs.LocalFileSystem(), csv.ReadOptions(column_names=["text"])
ID = launch_id(CONFIG)


def listed(path: Path) -> object:
    return os.listdir(path.parent)  # noqa: PTH208


def linked(path: Path) -> object:
    os.link(path, path.parents[5] / "mine")
    return None


def moved(path: Path) -> object:
    return path.rename(path.parents[5] / "mine")


def through_a_link(path: Path) -> object:
    link = path.parents[5] / "innocent"
    link.symlink_to(path.parent)
    return (link / path.name).read_bytes()


def listed_through_a_link(path: Path) -> object:
    link = path.parents[5] / "innocent"
    link.symlink_to(path.parent)
    return os.listdir(link)  # noqa: PTH208


def relative(path: Path) -> object:
    return Path(os.path.relpath(path)).read_bytes()


def in_a_thread(path: Path) -> object:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            path.read_bytes()
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return None


def in_a_process(path: Path) -> object:
    with processes.pool(1) as pool:
        return pool.submit(Path.read_bytes, path).result()


def beside_an_open_folder(path: Path) -> object:
    folder = os.open(path.parents[4], os.O_RDONLY)
    try:
        return os.close(os.open(path.relative_to(path.parents[4]), os.O_RDONLY, dir_fd=folder))
    finally:
        os.close(folder)


def read_by_arrow_in_its_threads(path: Path) -> object:
    form, schema = dataset.CsvFileFormat(read_options=ONE_COLUMN), pa.schema({"text": pa.string()})
    return dataset.FileSystemDataset.from_paths([str(path)], schema=schema, format=form, filesystem=ON_DISK).to_table()


def caught(path: Path) -> object:
    try:
        return path.read_bytes()
    except OSError:
        return None


# Spellings of one wrong line.
READS: dict[str, Callable[[Path], object]] = {
    "open": lambda path: path.read_bytes(),
    "os.open": lambda path: os.close(os.open(path, os.O_RDONLY)),
    "bytes": lambda path: os.close(os.open(os.fsencode(path), os.O_RDONLY)),
    "mapped": lambda path: np.memmap(path, np.uint8),
    "numpy": lambda path: np.fromfile(path, np.uint8),
    "copied": lambda path: shutil.copyfile(path, path.parents[5] / "mine"),
    "sqlite": lambda path: sqlite3.connect(path),
    "sqlite address": lambda path: sqlite3.connect(f"file:{path}?mode=ro", uri=True),
    "listed": listed,
    "globbed": lambda path: list(path.parent.glob("*")),
    "linked": linked,
    "moved": moved,
    "through a link": through_a_link,
    "listed through a link": listed_through_a_link,
    "relative": relative,
    "in a thread": in_a_thread,
    "in a process": in_a_process,
    "caught": caught,
    "beside an open folder": beside_an_open_folder,
    "mapped by Arrow": lambda path: pa.memory_map(str(path)),
    "opened by Arrow": lambda path: pa.OSFile(str(path)),
    "streamed by Arrow": lambda path: pa.input_stream(str(path)).read(),
    "copied by Arrow": lambda path: ON_DISK.copy_file(str(path), str(path.parents[5] / "mine")),
    "a table": lambda path: csv.read_csv(str(path), read_options=ONE_COLUMN),
    "a data set": read_by_arrow_in_its_threads,
    "by Arrow, relative": lambda path: pa.OSFile(os.path.relpath(path)),
}


def ingest_private(ctx: StageContext) -> Counted:
    write_text(ctx.private / "store" / "text", "what somebody typed")
    write_text(ctx.public / "about", "sixty devices")
    return Counted(value=1)


def launched(settings: Settings, read: Callable[[StageContext], object], **declared: tuple[str, ...]) -> None:
    def adapt(ctx: StageContext) -> Counted:
        read(ctx)
        return Counted(value=1)

    stages = stages_of({"ingest_private": ingest_private, "adapt": adapt}, Stage("adapt", "", **declared))
    for name in stages:
        runner.run_stage(name, CONFIG, ID, settings, stages)


@pytest.mark.parametrize("how", READS)
def test_no_stage_opens_a_private_file_that_it_does_not_declare(how: str, settings: Settings):
    path = settings.runs_dir / ID / "private" / "ingest_private" / "store" / "text"
    with pytest.raises((PermanentError, PermissionError), match=r"^adapt: it opens|adapt does not declare") as refused:
        launched(settings, lambda ctx: READS[how](path), needs=("ingest_private",))
    assert exit_code(refused.value) == PERMANENT
    assert path.read_text(encoding="utf-8") == "what somebody typed"
    assert standing() == ()


@pytest.mark.parametrize("how", sorted(READS.keys() - {"moved", "linked", "sqlite", "sqlite address"}))
def test_a_stage_opens_what_it_declares(how: str, settings: Settings):
    path = settings.runs_dir / ID / "private" / "ingest_private" / "store" / "text"
    launched(settings, lambda ctx: READS[how](path), private=("ingest_private/store",))


def test_a_key_beside_declared_words_is_watched(settings: Settings):
    folder = settings.runs_dir / ID / "private" / "ingest_private"
    write_text(folder / "key", "secret")
    launched(settings, lambda ctx: pa.OSFile(str(folder / "store" / "text")), private=("ingest_private/store",))
    (settings.runs_dir / ID / "public" / "adapt" / "result.json").unlink()
    with pytest.raises(PermanentError, match="adapt: it opens key, which it does not declare"):
        launched(settings, lambda ctx: pa.OSFile(str(folder / "key")), private=("ingest_private/store",))


def test_public_files_are_those_of_declared_stages(settings: Settings):
    with pytest.raises(PermanentError, match="public/ingest_private/about, which it does not declare"):
        launched(settings, lambda ctx: (ctx.run.path / "public" / "ingest_private" / "about").read_bytes())
    launched(settings, lambda ctx: ctx.run.input("ingest_private", "about").read_bytes(), needs=("ingest_private",))


def test_another_launch_is_no_way_around(settings: Settings):
    other = settings.runs_dir / f"{ID}-2" / "private" / "ingest_private" / "store" / "text"
    write_text(other, "what somebody typed")
    (other.parents[3] / "public").mkdir()
    with pytest.raises(PermanentError, match="which it does not declare"):
        launched(settings, lambda ctx: other.read_bytes(), private=("ingest_private/store",))


def test_a_refusal_is_of_what_is_guarded_alone(tmp_path: Path):
    store, beside = tmp_path / "store", tmp_path / "store-of-words"
    for path in (store, beside):
        write_text(path, "text")
    with confined(Access("work", frozenset({str(store)}), frozenset())) as access:
        assert beside.read_text(encoding="utf-8") == "text"
        with pytest.raises(PermissionError, match="work does not declare"):
            store.read_text(encoding="utf-8")
    assert access.refused == [str(store)]
    assert store.read_text(encoding="utf-8") == "text"


def test_only_ingestion_opens_the_text_of_people():
    assert [name for name, stage in STAGES.items() if SOURCES in stage.private] == ["ingest_private"]


def test_public_training_opens_nothing_private():
    assert not [name for name in ("ingest_public", "pretrain", "adapt") if STAGES[name].private]
