"""A row that cannot be read costs its device that row alone; many are refused, and no message shows a value."""

import gzip
import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from federated.config.population import Retention
from federated.devices import readers
from federated.devices.files import order_of
from tests.federated.devices.built import build

SECRET = "my pin is 4471"
KEPT = Retention(days=30, as_of=date(2026, 3, 15), now=datetime(2026, 3, 16, 8, tzinfo=UTC))
TIME = "2026-03-10T12:00:00Z"


def typed(number: int) -> dict[str, object]:
    return {"client_id": f"d{number % 10}", "text": f"said {number}", "ts": TIME, "locale": "en-US"}


def line(**changes: object) -> bytes:
    return json.dumps({"client_id": "d1", "text": SECRET, "ts": TIME, "locale": "en-US"} | changes).encode()


BAD: dict[str, tuple[bytes, str]] = {
    "leap second": (line(ts="2026-06-30T23:59:60Z"), "without a time that is one"),
    "year 0": (line(ts="0000-01-01T00:00:00Z"), "without a time that is one"),
    "year 12026": (line(ts="12026-01-01T00:00:00Z"), "without a time that is one"),
    "another order": (line(ts="31/01/2026"), "without a time that is one"),
    "a number among times": (line(ts=1769817600), "with ts of another type"),
    "a time that is a list": (line(ts=[TIME]), "with ts of another type"),
    "half a pair as time": (line(ts="\ud800"), "with ts of another type"),
    "null id": (line(client_id=None), "without client_id"),
    "empty id": (line(client_id=""), "without client_id"),
    "no id": (json.dumps({"text": SECRET, "ts": TIME, "locale": "en-US"}).encode(), "without client_id"),
    "id of a number": (line(client_id=4471), "with client_id of another type"),
    "half a pair as id": (line(client_id="d\ud800"), "with client_id of another type"),
    "text of a number": (line(text=5), "with text of another type"),
    "text of a list": (line(text=[SECRET]), "with text of another type"),
    "locale of an object": (line(locale={"tag": SECRET}), "with locale of another type"),
    "cut": (line()[:-20], "not JSON"),
    "a number of many digits, cut": (b'{"text": ' + b"4" * 5000, "not JSON"),
    "null": (b"null", "not JSON"),
    "nested": (b'{"text": ' + b"[" * 100_000, "not JSON"),
    "not UTF-8": (line().replace(b"pin", b"p\xffn"), "not UTF-8"),
    "17 MB": (line(text=f"{SECRET} " * 1_133_334), "too long"),
}


def written(path: Path, bad: bytes, at: int, good: int = 150) -> str:
    lines = [json.dumps(typed(number)).encode() for number in range(good)]
    content = b"\n".join([*lines[:at], bad, *lines[at:]])
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return str(path)


def read(path: str, kept: Retention | None = None) -> tuple[dict[str, list[str]], int]:
    found = readers.from_files([path], "en-US", kept)
    return {client: list(texts) for client, texts in found.devices}, found.read.unreadable


EXPECTED = {f"d{first}": [f"said {number}" for number in range(first, 150, 10)] for first in range(10)}


@pytest.mark.parametrize(("name", "at"), [("a.jsonl", 0), ("a.jsonl", 70), ("a.jsonl.gz", 150)])
@pytest.mark.parametrize("bad", BAD)
def test_one_bad_row_costs_that_row(tmp_path: Path, bad: str, name: str, at: int):
    content, kind = BAD[bad]
    path = written(tmp_path / name, content, at)
    readers.inspect([path], KEPT)
    assert read(path) == (EXPECTED, 1)
    assert read(path, KEPT) == (EXPECTED, 1)
    counted = readers.count([path], "en-US", KEPT)
    assert (counted.rows, counted.clients) == (150 + (counted.unreadable[0] == 0), frozenset(EXPECTED))
    # Text is not read before ``ingest_private``.
    assert counted.unreadable == ((0, "") if kind == "with text of another type" else (1, kind))


@pytest.mark.parametrize("bad", BAD)
def test_many_are_refused_by_the_line_and_no_value_is_shown(tmp_path: Path, bad: str):
    path = written(tmp_path / "a.jsonl", BAD[bad][0], 7, good=20)
    with pytest.raises(
        ValueError, match=r"private_text\.paths: .*a\.jsonl, line 8.*; more than 1% of the rows"
    ) as said:
        readers.from_files([path], "en-US")
    message = str(said.value)
    assert "\n" not in message
    assert len(message) < 400
    assert not any(value in message for value in ("pin", "4471", "31/01", "12026", "23:59"))
    assert said.value.__cause__ is None
    assert said.value.__suppress_context__ or said.value.__context__ is None


def test_the_ceiling_is_one_row_of_a_hundred(tmp_path: Path):
    assert read(written(tmp_path / "a.jsonl", b"{", 3, good=99))[1] == 1
    with pytest.raises(ValueError, match=r"line 4 is not JSON .*more than 1%"):
        read(written(tmp_path / "a.jsonl", b"{", 3, good=98))
    # Of all files together; but a file without a good row is no file of text.
    (tmp_path / "b.jsonl").write_bytes(b"{\n" * 5 + (line() + b"\n") * 500)
    assert read(str(tmp_path / "*.jsonl"))[1] == 6
    (tmp_path / "b.jsonl").write_bytes(b"{\n")
    with pytest.raises(ValueError, match=r"b\.jsonl, line 1 is not JSON"):
        read(str(tmp_path / "*.jsonl"))


def parquet(**columns: tuple[object, pa.DataType]) -> Callable[[Path], int]:
    """One value of another kind in the seventh of three hundred rows, in row groups of a hundred."""

    def write(path: Path) -> int:
        whole: dict[str, list] = {"client_id": ["a"] * 300, "text": ["hello"] * 300, "ts": [None] * 300}
        kinds = {"client_id": pa.string(), "text": pa.string(), "ts": pa.timestamp("s")}
        for name, (value, kind) in columns.items():
            whole[name][206], kinds[name] = value, kind
        pq.write_table(pa.table(whole, pa.schema(kinds.items())), path, row_group_size=100)
        return 299

    return write


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"client_id": (None, pa.string())}, "'client_id' is null"),
        ({"client_id": (None, pa.int64())}, "'client_id' is null"),
        ({"text": ("x" * 17_000_000, pa.string())}, "holds a text of more than 16,777,216 bytes"),
        ({"ts": ("2026-06-30T23:59:60Z", pa.string())}, "'ts' is no time of the years 1 to 9999"),
        ({"ts": (1_769_000_000_000_000, pa.timestamp("s"))}, "'ts' is no time of the years 1 to 9999"),
        ({"ts": (-62_135_596_801_000, pa.timestamp("ms"))}, "'ts' is no time of the years 1 to 9999"),
        ({"ts": (2**31 - 1, pa.date32())}, "'ts' is no time of the years 1 to 9999"),
    ],
)
def test_one_bad_row_of_parquet(tmp_path: Path, columns: dict, said: str):
    if columns.get("client_id", ("", ""))[1] == pa.int64():
        ids = pa.array([7] * 206 + [None] + [7] * 93, pa.int64())
        pq.write_table(
            pa.table({"client_id": ids, "text": ["hello"] * 300}), tmp_path / "a.parquet", row_group_size=100
        )
    else:
        parquet(**columns)(tmp_path / "a.parquet")
    ((texts,), unreadable) = (list(read(str(tmp_path / "a.parquet"))[0].values()), read(str(tmp_path / "a.parquet"))[1])
    assert (len(texts), unreadable) == (299, 1)
    table = pq.read_table(tmp_path / "a.parquet").slice(200, 10)
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=rf"a\.parquet, row group 0, row 7:? .*{said}.*more than 1% of the rows"):
        read(str(tmp_path / "a.parquet"))


def test_a_bad_row_of_csv(tmp_path: Path):
    path = tmp_path / "a.csv"
    rows = [f"d{number % 10},said {number}\n" for number in range(150)]
    for bad in ("d1\n", "d1,a,b\n", 'd1,"a"b\n', ",hello\n"):
        path.write_text("client_id,text\n" + "".join([*rows[:70], bad, *rows[70:]]), encoding="utf-8")
        assert read(str(path)) == (EXPECTED, 1), bad


def test_damage_is_refused_however_little_it_is(tmp_path: Path):
    path = written(tmp_path / "a.jsonl.gz", b"{", 100, good=5000)
    Path(path).write_bytes(Path(path).read_bytes()[:-2])
    with pytest.raises(ValueError, match=r"a\.jsonl\.gz is not readable, so damaged or cut short"):
        read(path)


SECONDS = [1_768_000_000, 1_773_144_000, -62_135_596_800, 253_402_300_799]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_every_unit_are_microseconds(unit: str):
    """The first and the last second of the years 1 to 9999 among them, which nanoseconds cannot hold."""
    factor = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    fitting = [second for second in SECONDS if abs(second * factor) < 2**63]
    outside = [second for second in (-62_135_596_801, 253_402_300_800) if abs(second * factor) < 2**63]
    column = pa.chunked_array([pa.array([each * factor for each in [*fitting, *outside]], pa.timestamp(unit))])
    assert order_of(column, "").to_pylist() == [second * 10**6 for second in fitting] + [None] * len(outside)


def test_nanoseconds_of_databases_are_times(tmp_path: Path):
    """As whole numbers, in Parquet, as numbers or text of JSON lines, and as text with the zone UTC."""
    nanoseconds = [second * 10**9 for second in (1_768_000_000, 1_773_144_000)]
    rows = {"client_id": ["a", "b"], "text": ["old", "new"]}
    pq.write_table(pa.table(rows | {"ts": nanoseconds}), tmp_path / "0.parquet")
    spelt = ["2026-01-09 23:06:40 UTC", "2026-03-10 12:00:00.5 UTC"]
    for number, times in enumerate((nanoseconds, [str(each) for each in nanoseconds], spelt), 1):
        said = [dict(zip(rows, each, strict=True)) for each in zip(*rows.values(), strict=True)]
        lines = (json.dumps(row | {"ts": time}) + "\n" for row, time in zip(said, times, strict=True))
        (tmp_path / f"{number}.jsonl").write_text("".join(lines), encoding="utf-8")
    assert read(str(tmp_path / "*.*"), KEPT)[0] == {"b": ["new", "new"]}, "three of one time are one upload"
    assert order_of(pa.chunked_array([pa.array([3, None, 10**18 + 1])]), "").to_pylist() == [3.0, None, 1e18]


def test_what_is_published_is_hundreds(tmp_path: Path):
    ids = [None if number < 150 else f"d{number % 50}" for number in range(20_000)]
    pq.write_table(pa.table({"client_id": ids, "text": ["hello"] * 20_000}), tmp_path / "a.parquet")
    assert build(tmp_path, tmp_path / "a.parquet")[0].unreadable == 100
    assert readers.count([str(tmp_path / "a.parquet")], "en-US").unreadable == (150, "without client_id")
