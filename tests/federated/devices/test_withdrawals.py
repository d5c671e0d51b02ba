"""A device that withdrew is in no store, by whichever way its text is read: as if its rows had never been there."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from federated.config.population import ChitchatPopulation, FilePopulation, SyntheticPopulation
from federated.devices import parts, pieces, readers, store
from federated.devices.withdrawals import NOBODY, Withdrawals

KEY = "5a" * 32
SPLIT = b"k" * 32
GONE = "7"
ROWS = [
    {"client_id": number % 12, "text": f"typed {'abcdefghijkl'[number % 12]} and more", "locale": "en-US", "ts": number}
    for number in range(240)
]
Writer = Callable[[Path, list[dict]], None]


def withdrawn(*ids: str) -> Withdrawals:
    return Withdrawals(KEY, frozenset(map(Withdrawals(KEY, frozenset()).hashed, ids)))


def of_type(kind: pa.DataType) -> Writer:
    def write(folder: Path, rows: list[dict]) -> None:
        table = pa.Table.from_pylist(rows)
        ids = table["client_id"].cast(pa.string()).cast(kind) if kind != pa.int64() else table["client_id"]
        pq.write_table(table.set_column(0, "client_id", ids), folder / "typed.parquet", row_group_size=50)

    return write


def as_lines(folder: Path, rows: list[dict]) -> None:
    lines = (json.dumps(row | {"client_id": str(row["client_id"])}) + "\n" for row in rows)
    (folder / "typed.jsonl").write_text("".join(lines), encoding="utf-8")


KINDS = (pa.string(), pa.large_string(), pa.int64(), pa.dictionary(pa.int32(), pa.string()))
WRITERS = (*map(of_type, KINDS), as_lines)


def built(
    folder: Path, rows: list[dict], write: Writer, left_out: Withdrawals, readers_of: int = 0
) -> dict[str, bytes]:
    """Files of the store, by as many readers, or by one alone."""
    folder.mkdir()
    write(folder, rows)
    config = FilePopulation(source="files", name="people", max_words_per_device=40, paths=(f"{folder}/typed.*",))
    target, task = folder / "store", folder / "task" if readers_of else None
    if task is not None:
        parts.write_task(task, config, "en-US", None, left_out)
        bounds = parts.Task.model_validate_json((task / "task.json").read_bytes()).bounds
        assert not any(map(left_out.has, bounds))
        for number in range(readers_of):
            parts.write_part(task, config, "en-US", number, readers_of)
    summary = store.build_store(config, "en-US", 1, target, SPLIT, None, task, left_out)
    counted = readers.count(config.paths, "en-US", None, left_out)
    assert counted.devices == len(pieces.device_ids(target))
    assert counted.rows == len([row for row in rows if not left_out.has(str(row["client_id"]))])
    assert (summary.other_locales, counted.other_locales) == (0, 0), "as what they are counted would say how many"
    return {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}


@pytest.mark.parametrize("readers_of", [0, 1, 3])
@pytest.mark.parametrize("write", WRITERS, ids=[*map(str, KINDS), "lines"])
def test_a_store_is_the_one_of_files_without_the_device(tmp_path: Path, write: Writer, readers_of: int):
    others = [row for row in ROWS if str(row["client_id"]) != GONE]
    expected = built(tmp_path / "expected", others, write, NOBODY)
    assert built(tmp_path / "made", ROWS, write, withdrawn(GONE, "nobody's"), readers_of) == expected
    assert built(tmp_path / "all", ROWS, write, withdrawn("nobody's"), readers_of) != expected


@pytest.mark.parametrize(
    "config",
    [
        SyntheticPopulation(source="synthetic", name="made-up", max_words_per_device=40, devices=12),
        pytest.param(
            ChitchatPopulation(source="chitchat", name="chat", max_words_per_device=5), marks=pytest.mark.slow
        ),
    ],
    ids=lambda config: config.source,
)
def test_simulations_leave_them_out_too(tmp_path: Path, config: SyntheticPopulation | ChitchatPopulation):
    store.build_store(config, "en-US", 1, tmp_path / "all", SPLIT)
    everybody = pieces.device_ids(tmp_path / "all")
    store.build_store(config, "en-US", 1, tmp_path / "left", SPLIT, withdrawn=withdrawn(everybody[3]))
    assert pieces.device_ids(tmp_path / "left") == everybody[:3] + everybody[4:]


@pytest.mark.parametrize("other", ["7 ", " 7", "7.0", "７", "7\n"])
def test_a_device_has_left_under_any_spelling(other: str):
    assert withdrawn(GONE).has(other)
    assert withdrawn(other).has(GONE)
    assert not withdrawn(other).has("07")


def test_the_hashes_tell_nothing_without_the_key():
    assert withdrawn().hashed(GONE) != Withdrawals("5b" * 32, frozenset()).hashed(GONE)
    assert not Withdrawals("5b" * 32, withdrawn(GONE).hashes).has(GONE)
    assert NOBODY.digest == ""
    assert withdrawn("a", "b").digest == withdrawn("b", "a").digest != withdrawn("a").digest
