"""Counting a population's files without their text, against reading them."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from federated.devices import readers

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
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(ROW, min_size=1, max_size=8), min_size=1, max_size=3), st.sampled_from(["en-US", "es-ES"]))
def test_counts_what_reading_takes(tmp_path: Path, files: list[list[dict]], locale: str):
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    folder.mkdir()
    for number, content in enumerate(files):
        written(folder, f"{number}.{'parquet' if number % 2 else 'json.gz'}", content)
    counted = readers.count([f"{folder}/*"], locale)
    typed = readers.from_files([f"{folder}/*"], locale)
    assert counted.devices == sum(1 for _ in typed.devices)
    assert (counted.rows, counted.other_locales) == (sum(map(len, files)), typed.other_locales)


def test_no_text_is_read(tmp_path: Path):
    """A text that no reader would take is none of the count's business; ingest refuses it."""
    path = tmp_path / "x.parquet"
    text = pa.array([b"\xf4\x28", b"fine"]).view(pa.string())
    pq.write_table(pa.table({"client_id": ["a", "b"], "text": text}), path)
    assert readers.count([str(path)], "en-US") == readers.Counted(2, 2, 0)
    with pytest.raises(ValueError, match="UTF"):
        readers.from_files([str(path)], "en-US")
