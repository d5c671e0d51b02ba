"""Frames of people's text are read as a Parquet file of the same rows, whatever library holds them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit.training import ingested
from tests.helpers.launches.pipeline_launch import launch_config

ROWS, SECRET = 200, "my pin is 4471"
TYPED = pa.table(
    {
        "client_id": [f"d{number % 40}" for number in range(ROWS)],
        "text": [f"hello you and number {'again ' * (number % 9)}" for number in range(ROWS)],
        "locale": ["en-US" if number % 7 else "de-DE" for number in range(ROWS)],
        "ts": pa.array(range(ROWS, 0, -1), pa.timestamp("s", "UTC")),
        "other": [[number] for number in range(ROWS)],
    }
)


@dataclass(frozen=True)
class Stream:
    """A frame of which nothing but the protocol is known; ``views`` holds text as polars does."""

    table: pa.Table
    views: bool = False
    rows: int | None = None

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        table = self.table
        for place, (name, kind) in enumerate(zip(table.schema.names, table.schema.types, strict=True)):
            if self.views and pa.types.is_string(kind):
                categories = name in ("client_id", "locale")
                views = _categories(table[name]) if categories else table[name].cast(pa.string_view())
                table = table.set_column(place, name, views)
        return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(self.rows)).__arrow_c_stream__()


def _categories(column: pa.ChunkedArray) -> pa.Array:
    packed = column.combine_chunks().dictionary_encode()
    return pa.DictionaryArray.from_arrays(packed.indices.cast(pa.uint32()), packed.dictionary.cast(pa.string_view()))


def _pandas(table: pa.Table) -> pd.DataFrame:
    """With a column of which Arrow makes nothing."""
    return table.to_pandas().assign(other=[object() for _ in range(len(table))])


def _chosen(table: pa.Table) -> datasets.Dataset:
    """A dataset whose rows are chosen from a table of more, in another order."""
    twice = datasets.Dataset(pa.concat_tables([table.slice(0, 50), table]))
    return twice.select([*range(150, 50 + len(table)), *range(50, 150)])


FRAMES: dict[str, Callable[[pa.Table], object]] = {
    "pandas": _pandas,
    "categories of pandas": lambda table: _pandas(table).astype({"locale": "category"}),
    "datasets": datasets.Dataset,
    "chosen rows of datasets": _chosen,
    "Arrow": lambda table: table,
    "batches of a stream": lambda table: Stream(table, rows=7),
    "text as polars holds it": lambda table: Stream(table, views=True),
}


def digest(people: object) -> tuple[str, int]:
    with ingested(people, launch_config(), 0) as store:  # type: ignore[arg-type]
        return store.digest, len(store.split_D)


def written(folder: Path, table: pa.Table) -> str:
    pq.write_table(table, folder / "people.parquet")
    return str(folder / "people.parquet")


def without_ids(rows: int) -> pa.Table:
    ids = TYPED["client_id"].to_pylist()[:-rows] + [None] * rows
    return TYPED.set_column(0, "client_id", pa.array(ids, pa.string()))


@pytest.mark.parametrize("frame", FRAMES)
def test_a_frame_is_read_as_its_file(frame: str, tmp_path: Path) -> None:
    """With its locale and its times; rows that cannot be read are left out alone."""
    of_all = digest(written(tmp_path, TYPED))
    assert digest(FRAMES[frame](TYPED)) == of_all
    bad = without_ids(1)
    of_some = digest(written(tmp_path, bad))
    assert of_some[1] == of_all[1] == 40
    assert digest(FRAMES[frame](bad)) == of_some != of_all


def test_times_as_text_are_an_order(tmp_path: Path) -> None:
    times = [f"2026-03-10T12:{59 - number // 60:02}:{59 - number % 60:02}Z" for number in range(ROWS)]
    timed = TYPED.set_column(3, "ts", pa.array(times))
    of_file = digest(written(tmp_path, timed))
    assert digest(Stream(timed, views=True)) == of_file == digest(TYPED)
    assert digest(TYPED.drop_columns("ts")) != of_file


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize(
    ("table", "said"),
    [
        (without_ids(10), "'client_id' is null, empty or missing; .*more than 1% of the rows"),
        (TYPED.drop_columns("ts").append_column("ts", pa.array([True] * ROWS)), "column 'ts' is bool; write a time"),
        (TYPED.set_column(1, "text", pa.array(range(ROWS))), "column 'text' is int64, not text; write it as strings"),
        (TYPED.drop_columns("client_id"), "column 'client_id' is missing among its"),
        (TYPED.set_column(1, "text", pa.array([f"{SECRET}<br>"] * ROWS)), "hold HTML tags, which would become words"),
    ],
    ids=["ids", "times", "type", "column", "debris"],
)
def test_errors_are_those_of_its_file(frame: str, table: pa.Table, said: str, tmp_path: Path) -> None:
    for people in (FRAMES[frame](table), written(tmp_path, table)):
        with pytest.raises(ValueError, match=said) as refused:
            digest(people)
        assert "4471" not in str(refused.value)


def test_two_columns_of_one_name_are_refused() -> None:
    twice = TYPED.append_column("text", TYPED["text"])
    for people in (twice, Stream(twice), pd.concat([_pandas(TYPED), _pandas(TYPED)[["text"]]], axis=1)):
        with pytest.raises(ValueError, match=r"people\.parquet has two columns 'text'; drop one"):
            digest(people)


@pytest.mark.parametrize(
    "people",
    [
        [SECRET],
        TYPED.to_pydict(),
        TYPED["text"],
        _pandas(TYPED)["text"],
        datasets.DatasetDict(train=datasets.Dataset(TYPED)),
    ],
    ids=lambda people: type(people).__name__,
)
def test_what_is_no_frame_is_named_by_its_kind(people: object) -> None:
    with pytest.raises(
        ValueError, match=f"people: no table can be read from a {type(people).__name__} .*; give a data"
    ):
        digest(people)
