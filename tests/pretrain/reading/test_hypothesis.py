"""Whatever a file holds, a reader gives values or one ``ValueError`` of one line."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pretrain.reading import rows, yaml_text
from pretrain.reading.rows import Column

COLUMNS = (Column("client_id", "id"), Column("text"), Column("ts", "order", required=False))
SOME = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
YAML_LIKE = st.text(alphabet=" \n:-[]{}&*!|>'\"%@`#,?~<=0123456789abnotyrue\t\\\ud800\ufeff\x00", max_size=60)


class Core(yaml.SafeLoader):
    """PyYAML's loader without limits."""

    yaml_implicit_resolvers = yaml_text.RESOLVERS


def read(path: Path) -> list[dict]:
    """All rows of a file."""
    return [row for batch in rows.batches(path, "field", COLUMNS) for row in batch.to_pylist()]


def refusal(function: Callable[..., object], *arguments: object) -> str:
    """The error of one line that it ends with; empty if it ends well."""
    try:
        function(*arguments)
    except ValueError as error:
        return str(error)
    return ""


def ends_well(path: Path) -> None:
    """It is read, or refused with the field and the file."""
    said = refusal(read, path)
    assert not said or (said.startswith("field: ") and path.name in said and "\n" not in said), said


@pytest.mark.slow
@SOME
@given(YAML_LIKE)
@example("? [a, b]\n: c")
@example("a: &x {b: *x}")
@example("a: 2026-13-45")
def test_yaml_is_plain_or_refused(text: str):
    said = refusal(yaml_text.load, text, "file")
    assert "\n" not in said
    if not said:
        # An oracle: what PyYAML's own loader makes of it, with the same plain words.
        assert repr(yaml_text.load(text, "file")) == repr(yaml.load(text, Loader=Core))


@pytest.mark.slow
@SOME
@given(st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), PLAIN, max_size=4))
def test_yaml_of_plain_values_is_read(value: dict):
    text = yaml.safe_dump(value)
    said = refusal(yaml_text.load, text, "file")
    if said:
        assert any(words in said for words in ("surrogate", "nested", "not text")), said
    else:
        assert yaml_text.load(text, "file") == yaml.load(text, Loader=Core)


@pytest.mark.slow
@SOME
@given(st.lists(st.binary(max_size=40) | PLAIN.map(lambda value: json.dumps(value).encode()), max_size=4))
def test_json_lines_of_anything(tmp_path: Path, lines: list[bytes]):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\n".join(lines))
    ends_well(path)


@pytest.mark.slow
@SOME
@given(st.dictionaries(st.sampled_from(["client_id", "text", "ts", "other"]), PLAIN))
def test_records_of_any_values(tmp_path: Path, record: dict):
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"client_id": "a", "text": "b"}) + "\n" + json.dumps(record), encoding="utf-8")
    ends_well(path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["x.parquet", "x.json.gz"])
@SOME
@given(place=st.integers(0, 10_000), byte=st.integers(1, 255), keep=st.floats(0, 1))
def test_any_damage(tmp_path: Path, name: str, place: int, byte: int, keep: float):
    path = tmp_path / name
    whole = [{"client_id": f"d{number}", "text": f"said {number}", "ts": number} for number in range(30)]
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(whole), path)
    else:
        path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in whole).encode(), mtime=0))
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= byte
    path.write_bytes(content[: len(content) if keep > 0.7 else int(keep * len(content))])
    ends_well(path)


@pytest.mark.slow
@pytest.mark.parametrize("byte", [1, 128])
def test_damage_of_any_byte_of_parquet(tmp_path: Path, byte: int):
    """Names and texts that are no UTF-8 any more among them; a draw hits those about once in forty runs."""
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"client_id": ["d1", "d2"], "text": ["said", "heard"], "ts": ["2026-01-01"] * 2}), path)
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ byte]) + content[place + 1 :])
        ends_well(path)


def test_an_order_that_is_not_utf_8_is_refused(tmp_path: Path):
    path = tmp_path / "x.parquet"
    order = pa.array([b"\xf4\x28"]).view(pa.string())
    pq.write_table(pa.table({"client_id": ["d"], "text": ["said"], "ts": order}), path)
    assert "UTF" in refusal(read, path)
    ends_well(path)


@pytest.mark.slow
@SOME
@given(
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.text(max_size=20)), max_size=30),
    st.integers(0, 35),
    st.sampled_from(["x.jsonl", "x.json.gz", "x.parquet"]),
)
def test_rows_come_back_from_any_place(tmp_path: Path, typed: list[tuple[str, str | None]], skip: int, name: str):
    typed = [("é", "first"), *typed]
    path = tmp_path / name
    content = [{"client_id": client, "text": text} for client, text in typed]
    if name.endswith(".parquet"):
        try:
            pq.write_table(pa.Table.from_pylist(content), path, row_group_size=7)
        except UnicodeEncodeError:
            return  # Arrow writes no half characters
    else:
        lines = "".join(json.dumps(row) + "\n" for row in content).encode()
        path.write_bytes(gzip.compress(lines, mtime=0) if name.endswith(".gz") else lines)
    if said := refusal(read, path):
        assert "no character" in said
        return
    back = [row for batch in rows.batches(path, "field", COLUMNS[:2], skip) for row in batch.to_pylist()]
    assert back == [
        {"client_id": client, "text": text and text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")}
        for client, text in typed[skip:]
    ]
