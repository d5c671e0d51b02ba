"""A population that several read in parts: the store of one reader, to the byte."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from federated.config.population import FilePopulation, Retention
from federated.devices import parts, readers, store
from pretrain.text import words
from tests.federated.devices.damaged import write_damaged
from tests.helpers.processes.objects import Bucket

KEY = bytes(range(32))
KEPT = Retention(30, date(2026, 2, 1), datetime(2026, 2, 1, 12, tzinfo=UTC))
DEVICES = 23


def row(rng: np.random.Generator, number: int) -> dict[str, object]:
    """One row of some device: often of the same moment, sometimes repeated, capitalised or empty."""
    spelt = [f"{'abcdefgh'[letter]}{'xyz'[letter % 3]}" for letter in rng.integers(8, size=rng.integers(1, 9))]
    text = [" ".join(spelt), f"{' '.join(spelt).capitalize()}. Go to BYU {number}.", " ?! ", ""][
        rng.choice(4, p=[0.5, 0.3, 0.1, 0.1])
    ]
    return {
        # Devices of many rows and of few; one starts as another ends.
        "client_id": ["né", "a", "a b", "Z", "10", "9"][number % 6]
        if number % 3
        else f"c{int(rng.integers(DEVICES)) ** 2 % DEVICES:03d}",
        "text": text,
        "ts": datetime(2026, 1, int(rng.integers(1, 28)), tzinfo=UTC) if number % 7 else None,
        "locale": ["en-US", "en_us", "es-ES"][rng.choice(3, p=[0.7, 0.2, 0.1])],
    }


def rows(count: int) -> list[dict[str, object]]:
    rng = np.random.default_rng(count)
    made = [row(rng, number) for number in range(count)]
    again = rng.integers(count, size=count // 10)
    return [*made, *(made[number] for number in again.tolist())]


def unsorted(folder: Path) -> None:
    """Devices over several files and row groups."""
    made = rows(400)
    for number in range(3):
        pq.write_table(pa.Table.from_pylist(made[number::3]), folder / f"{number}.parquet", row_group_size=50)


def mixed(folder: Path) -> None:
    """Parquet and JSON lines, each with columns of its own, and a line that was cut."""
    made = rows(120)
    pq.write_table(pa.Table.from_pylist(made[:60]), folder / "0.parquet", row_group_size=7)
    lines = [each | {"ts": each["ts"] and each["ts"].isoformat()} for each in made[60:]]
    (folder / "1.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines) + "{", encoding="utf-8")


def untimed(folder: Path) -> None:
    """No times, no locales, ids that are numbers; one device typed half of all."""
    ids = [7 if number % 2 else number for number in range(200)]
    pq.write_table(
        pa.table({"client_id": ids, "text": [f"word {number}" for number in range(200)]}), folder / "0.parquet"
    )


def lonely(folder: Path) -> None:
    """Fewer devices than readers."""
    pq.write_table(pa.table({"client_id": ["b", "a"], "text": ["Hello there", " "]}), folder / "0.parquet")


def alone(folder: Path, kept: Retention | None) -> dict[str, bytes]:
    """Files of the store that one reader writes."""
    store.build_store(config(folder), "en-US", 1, folder / "one", KEY, kept)
    return content(folder / "one")


def together(folder: Path, kept: Retention | None, of: int) -> dict[str, bytes]:
    """Files of the store that so many make."""
    task = folder / f"task-{of}"
    parts.write_task(task, config(folder), "en-US", kept)
    for number in reversed(range(of)):
        parts.write_part(task, config(folder), "en-US", number, of)
    store.build_store(config(folder), "en-US", 1, folder / f"of-{of}", KEY, kept, task)
    return content(folder / f"of-{of}")


def config(folder: Path) -> FilePopulation:
    return FilePopulation(source="files", name="typists", max_words_per_device=40, paths=(f"{folder}/*.*",))


def content(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("kept", [None, KEPT], ids=["all", "kept"])
@pytest.mark.parametrize("population", [unsorted, mixed])
def test_any_number_of_readers_make_the_store_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, population: Callable[[Path], None], kept: Retention | None
) -> None:
    monkeypatch.setattr(words, "FLUSH_TOKENS", 100)
    population(tmp_path)
    expected = alone(tmp_path, kept)
    for of in (1, 2, 3, 5):
        assert together(tmp_path, kept, of) == expected, of


@pytest.mark.slow
def test_objects_of_a_store_make_the_same_devices(tmp_path: Path, bucket: Bucket) -> None:
    """By one reader, by two, and counted."""
    mixed(tmp_path)
    expected, counted = alone(tmp_path, KEPT), readers.count(config(tmp_path).paths, "en-US", KEPT)
    for path in (tmp_path / "0.parquet", tmp_path / "1.jsonl"):
        bucket.put(f"en/{path.name}", path.read_bytes())
        path.unlink()
    there = config(tmp_path).model_copy(update={"paths": (bucket.address("en/*"),)})
    assert readers.count(there.paths, "en-US", KEPT) == counted
    store.build_store(there, "en-US", 1, tmp_path / "objects", KEY, KEPT)
    assert content(tmp_path / "objects") == expected
    parts.write_task(tmp_path / "task", there, "en-US", KEPT)
    parts.write_parts(tmp_path / "task", there, "en-US", 2)
    assert len(parts.pieces_of(tmp_path / "task")[0]) == 2
    bucket.put("en/1.jsonl", b"{}\n")
    with pytest.raises(OSError, match=r"1\.jsonl: not the file that others read"):
        parts.write_part(tmp_path / "task", there, "en-US", 0, 2)


@pytest.mark.parametrize("population", [untimed, lonely])
def test_few_devices_and_one_that_typed_most(tmp_path: Path, population: Callable[[Path], None]) -> None:
    population(tmp_path)
    expected = alone(tmp_path, None)
    for of in (2, 4):
        assert together(tmp_path, None, of) == expected, of


def test_readers_have_about_the_same_to_do(tmp_path: Path) -> None:
    """However the files are sorted."""
    ids = [f"c{number:05d}" for number in range(20_000)]
    for name in ("sorted", "shuffled"):
        (tmp_path / name).mkdir()
        order = ids if name == "sorted" else np.random.default_rng(1).permutation(ids).tolist()
        pq.write_table(pa.table({"client_id": order, "text": order}), tmp_path / name / "0.parquet")
        parts.write_task(tmp_path / name / "task", config(tmp_path / name), "en-US", None)
        task = parts.Task.model_validate_json((tmp_path / name / "task" / "task.json").read_bytes())
        sizes = [len(task.part(number, 3).of(pa.table({"client_id": ids}))) for number in range(3)]
        assert sum(sizes) == len(ids)
        assert max(sizes) < 1.1 * len(ids) / 3, name


def test_damage_is_told_as_one_reader_tells_it(tmp_path: Path) -> None:
    write_damaged(tmp_path / "typed.parquet", [(1, 1), (2, 0)])
    with pytest.raises(ValueError, match="row group 1, column 'text', is not readable") as caught:
        alone(tmp_path, None)
    parts.write_task(tmp_path / "task", config(tmp_path), "en-US", None)
    for number in range(2):
        with pytest.raises(ValueError, match="row group 1, column 'text'") as told:
            parts.write_part(tmp_path / "task", config(tmp_path), "en-US", number, 2)
        assert str(told.value) == str(caught.value)


def test_pieces_of_other_files_or_rows_make_no_store(tmp_path: Path) -> None:
    untimed(tmp_path)
    task = tmp_path / "task"
    parts.write_task(task, config(tmp_path), "en-US", None)
    parts.write_part(task, config(tmp_path), "en-US", 0, 2)
    whole = (tmp_path / "0.parquet").read_bytes()
    lonely(tmp_path)
    with pytest.raises(OSError, match=r"0\.parquet: not the file that others read"):
        parts.write_part(task, config(tmp_path), "en-US", 1, 2)
    with pytest.raises(OSError, match="pieces of some workers are missing"):
        parts.pieces_of(task)
    (tmp_path / "0.parquet").write_bytes(whole)
    parts.write_part(task, config(tmp_path), "en-US", 1, 2)
    assert len(parts.pieces_of(task)[0]) == 2
    path = task / "1" / "part.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    for wrong in ({"rows": 201}, {"part_rows": 1}, {"older": 1}):
        path.write_text(json.dumps(content | {"read": content["read"] | wrong}), encoding="utf-8")
        with pytest.raises(OSError, match="not read the same rows, each of them once"):
            parts.pieces_of(task)
