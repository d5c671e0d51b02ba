"""Counting a population's files without their text, against reading them."""

import gzip
import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from federated.config.population import Retention
from federated.devices import readers
from federated.devices.files import order_of

ROW = st.fixed_dictionaries(
    {"client_id": st.sampled_from(["a", "b", "c", "d"]), "text": st.sampled_from(["hello", ""])},
    optional={"locale": st.sampled_from(["en-US", "en_us", "es-ES", None]), "ts": st.integers(0, 3)},
)


def written(folder: Path, name: str, content: list[dict]) -> None:
    path = folder / name
    if name.endswith(".parquet"):
        columns = {column: [row.get(column) for row in content] for column in ("client_id", "text", "locale")}
        kinds = pa.schema([(column, pa.string()) for column in columns])
        pq.write_table(pa.table(columns, schema=kinds), path, row_group_size=3)
    else:
        path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in content).encode()))


@pytest.mark.slow
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.lists(st.lists(ROW, min_size=1, max_size=8), min_size=1, max_size=3), st.sampled_from(["en-US", "es-ES"]))
def test_counts_what_reading_takes(tmp_path: Path, files: list[list[dict]], locale: str):
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    folder.mkdir()
    for number, content in enumerate(files):
        written(folder, f"{number}.{'parquet' if number % 2 else 'json.gz'}", content)
    counted = readers.count([f"{folder}/*"], locale)
    typed = readers.from_files([f"{folder}/*"], locale)
    assert counted.devices == sum(1 for _ in typed.devices)
    assert (counted.rows, counted.other_locales) == (sum(map(len, files)), typed.read.other_locales)


def test_no_text_is_read(tmp_path: Path):
    """A text that no reader would take is none of the count's business; ingest refuses it."""
    path = tmp_path / "x.parquet"
    text = pa.array([b"\xf4\x28", b"fine"]).view(pa.string())
    pq.write_table(pa.table({"client_id": ["a", "b"], "text": text}), path)
    both = frozenset(("a", "b"))
    assert readers.count([str(path)], "en-US") == readers.FileCounts(
        both, 2, 0, 0, everybody=2, of_locale=2, largest_share=0.5, tags=None
    )
    with pytest.raises(ValueError, match="UTF"):
        readers.from_files([str(path)], "en-US")


KEPT = Retention(days=30, as_of=date(2026, 3, 15), now=datetime(2026, 3, 16, 8, tzinfo=UTC))
# Thirty days before the day, and now, to the microsecond.
FIRST, LAST = datetime(2026, 2, 13, tzinfo=UTC), datetime(2026, 3, 16, 8, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)


def read(path: Path, kept: Retention | None = KEPT) -> tuple[dict[str, list[str]], int]:
    typed = readers.from_files([str(path)], "en-US", kept)
    return {client: list(texts) for client, texts in typed.devices}, typed.read.older


@pytest.mark.parametrize("kind", ["timestamp", "zone", "text"])
def test_what_was_typed_outside_the_days_is_gone(tmp_path: Path, kind: str):
    times = [FIRST - MOMENT, FIRST, LAST, LAST + MOMENT, None, datetime(1999, 1, 1, tzinfo=UTC)]
    said = ["too old", "oldest", "newest", "not yet", "who knows", "last century"]
    there = {"timestamp": pa.timestamp("us"), "zone": pa.timestamp("us", tz="Asia/Tokyo")}.get(kind)
    column = pa.array([time and time.isoformat() for time in times]) if there is None else pa.array(times, there)
    table = pa.table({"client_id": ["a", "a", "a", "a", "a", "gone"], "text": said, "ts": column})
    pq.write_table(table, tmp_path / "typed.parquet")
    assert read(tmp_path / "typed.parquet") == ({"a": ["oldest", "newest"]}, 4)
    everything, older = read(tmp_path / "typed.parquet", kept=None)
    assert (len(everything["a"]), list(everything), older) == (5, ["a", "gone"], 0)
    counted = readers.count([str(tmp_path / "typed.parquet")], "en-US", KEPT)
    assert counted == readers.FileCounts(
        frozenset("a"), 6, 0, older=4, everybody=2, of_locale=2, largest_share=1.0, tags=None
    )


def test_devices_are_counted_before_and_after_each_filter(tmp_path: Path):
    """One file without the column, whose rows are the locale's, and one with three tags and a row that has none."""
    some = {"client_id": ["a", "b", "b"], "text": ["x"] * 3, "ts": [LAST, FIRST - MOMENT, FIRST - MOMENT]}
    pq.write_table(pa.table(some), tmp_path / "0.parquet")
    other = {"client_id": ["c", "d", "d", "e", "f"], "text": ["x"] * 5, "ts": [LAST] * 5}
    other["locale"] = ["EN_us", "en-Latn-US", "fr-FR", "fr_FR.UTF-8", None]
    pq.write_table(pa.table(other), tmp_path / "1.parquet")
    counted = readers.count([str(tmp_path / "*.parquet")], "en-US", KEPT)
    assert (counted.everybody, counted.of_locale, counted.clients) == (6, 4, frozenset("acd"))
    assert counted.tags == {"fr-FR": 1, "": 1}, "d has a row of the locale too"
    assert (counted.rows, counted.other_locales, counted.older) == (8, 3, 2)


@pytest.mark.parametrize(
    ("row", "why"), [({}, "'ts' is missing"), ({"ts": 3}, "'ts' is a number"), ({"ts": None}, "'ts' is missing")]
)
def test_text_without_a_time_cannot_be_kept_for_so_many_days(tmp_path: Path, row: dict, why: str):
    path = tmp_path / "typed.jsonl"
    path.write_text(json.dumps({"client_id": "a", "text": "hello"} | row) + "\n", encoding="utf-8")
    for look in (readers.from_files, readers.count):
        with pytest.raises(ValueError, match=rf"private_text.paths: typed.jsonl: column {why}.*kept for 30 days.*add"):
            look([str(path)], "en-US", KEPT)
        look([str(path)], "en-US")
    pq.write_table(pa.table({"client_id": ["a"], "text": ["hello"]}), tmp_path / "typed.parquet")
    with pytest.raises(ValueError, match="column 'ts' is missing"):
        readers.inspect([str(tmp_path / "typed.parquet")], KEPT)


def test_a_file_without_rows_has_none_to_delete(tmp_path: Path):
    rows = pa.table({"client_id": pa.array([], pa.string()), "text": pa.array([], pa.string())})
    pq.write_table(rows, tmp_path / "empty.parquet")
    assert readers.count([str(tmp_path / "empty.parquet")], "en-US", KEPT).older == 0


@pytest.mark.parametrize(
    "text",
    [
        ["2026-01-31T12:00:00Z", None],
        ["2026-01-31T12:00:00.123456+02:00", "2026-01-31T12:00:00-0330"],
        ["2026-01-31 12:00:00", "2026-01-31"],
        ["2026-01-31T12", "2026-01-31T12:00:00Z"],
        ["2026-01-31T12:00:00.1234567Z", ""],
        ["1500-01-01", "20260131"],
    ],
)
def test_times_as_text_are_what_pandas_reads(text: list[str | None]):
    """It reads more forms than Arrow, which is asked first as it is there already."""
    expected = pd.to_datetime(text, utc=True, format="ISO8601").tz_convert(None).to_numpy().astype("datetime64[us]")
    column = pa.chunked_array([pa.array(text)]).dictionary_encode()
    assert order_of(column, "a file").to_pylist() == pa.array(expected, from_pandas=True).cast(pa.int64()).to_pylist()
