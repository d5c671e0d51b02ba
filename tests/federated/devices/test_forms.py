"""Files and folders as exporters write them are read by what they are, whatever their names say."""

import csv
import gzip
import io
import json
import unicodedata
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from federated.config.population import Retention
from federated.devices import readers

TYPED = [
    {"client_id": f"d{number % 10}", "text": f'said "{number}", and\nmore', "ts": f"2026-03-{number + 1:02}T12:00:00Z"}
    for number in range(30)
]
KEPT = Retention(days=30, as_of=date(2026, 3, 15), now=datetime(2026, 3, 16, 8, tzinfo=UTC))


def parquet(rows: list[dict] = TYPED, **kinds: pa.DataType) -> bytes:
    sink = io.BytesIO()
    columns = {name: pa.array([row[name] for row in rows], kinds.get(name, pa.string())) for name in rows[0]}
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def lines() -> bytes:
    return "".join(json.dumps(row) + "\n" for row in TYPED).encode()


def table(mark: str = "", end: str = "\r\n") -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(TYPED[0]), lineterminator=end)
    writer.writeheader()
    writer.writerows(TYPED)
    return (mark + text.getvalue()).encode()


def put(path: Path, content: bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return str(path)


def read(*patterns: str, locale: str = "en-US", kept: Retention | None = None) -> dict[str, list[str]]:
    typed = readers.from_files(patterns, locale, kept)
    found = {client: list(texts) for client, texts in typed.devices}
    assert readers.count(patterns, locale, kept).clients == frozenset(found)
    return found


EXPECTED = {f"d{first}": [TYPED[number]["text"] for number in range(first, 30, 10)] for first in range(10)}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("data-000000000000", parquet),
        ("a.parq", parquet),
        ("a.PARQUET", parquet),
        ("a.jsonl", parquet),
        ("a.jsonl", lambda: gzip.compress(lines())),
        ("a.jsonl.gz", lines),
        ("a.parquet", lines),
        ("a.jsonl.zst", lambda: pa.compress(lines(), "zstd", asbytes=True)),
        ("a.csv", table),
        ("a.csv", lambda: table("\ufeff", "\n")),
        ("a", lambda: gzip.compress(table())),
    ],
)
def test_first_bytes_say_what_a_file_is(tmp_path: Path, name: str, content: Callable[[], bytes]):
    path = put(tmp_path / name, content())
    readers.inspect([path], KEPT)
    assert read(path) == EXPECTED
    assert sum(map(len, read(path, kept=KEPT).values())) == 15, "rows of the first to the fifteenth of March"


def test_numbers_of_csv_are_an_order(tmp_path: Path):
    rows = ["client_id,text,ts", "a,second,1769000001", "a,third,1769000002.5", "a,first,1769000000", "a,none,"]
    assert read(put(tmp_path / "a.csv", "\n".join(rows).encode())) == {"a": ["first", "second", "third", "none"]}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('client_id,text\na,b\na,"b', "line 3 is no CSV"),
        ("client_id,text\na,b\na,b,c", "line 3 has 3 values for 2 columns"),
        ('client_id,text\na,"b\n\nc"\na', "line 5 has 1 values for 2 columns"),
        ("client_id,text,text\na,b,c", "line 1 names two columns alike"),
        ("client_id,body\na,b", "column 'text' is missing among its 2"),
        ("client_id;text\na;b", "line 1 is not JSON .* or CSV"),
    ],
)
def test_bad_csv_is_named(tmp_path: Path, content: str, said: str):
    with pytest.raises(ValueError, match=rf"private_text.paths: .*x\.csv.*{said}"):
        read(put(tmp_path / "x.csv", content.encode()))


def test_folders_are_columns(tmp_path: Path):
    """As Spark's partitionBy writes them; a row's own value counts before its folder's, and no folder is a text."""
    for tag, first in (("en-US", 0), ("de%2DDE", 10), ("__HIVE_DEFAULT_PARTITION__", 20)):
        put(tmp_path / f"text=raw/locale={tag}/part-0.parquet", parquet(TYPED[first : first + 10]))
    pattern = str(tmp_path / "**/part-*")
    assert read(pattern) == {f"d{number}": [TYPED[number]["text"]] for number in range(10)}
    counted = readers.count([pattern], "fr-FR")
    assert (counted.other_locales, counted.tags) == (30, {"en-US": 10, "de-DE": 10, "": 10})
    only = str(tmp_path / "text=raw/locale=*/part-0.parquet")
    assert read(only, locale="de-DE") == read(str(tmp_path / "**/locale=de*/*"), locale="de-DE")
    own = [TYPED[0] | {"locale": "fr-FR"}, TYPED[11] | {"locale": None}, TYPED[2] | {"text": None}]
    put(tmp_path / "text=raw/locale=de%2DDE/part-1", "".join(json.dumps(row) + "\n" for row in own).encode())
    assert list(read(str(tmp_path / "**/part-1"), locale="fr-FR")) == ["d0"]
    german = read(str(tmp_path / "**/part-1"), locale="de-DE")
    assert german == {"d1": [TYPED[11]["text"]], "d2": []}
    put(tmp_path / "people/client_id=a/0", parquet([{"text": "hello"}]))
    assert read(str(tmp_path / "people/*/0")) == {"a": ["hello"]}
    timed = [{"client_id": "a", "text": "hello"}]
    for day in ("2026-01-31", "2026-03-10"):
        put(tmp_path / f"days/ts={day}/0.parquet", parquet([row | {"client_id": day} for row in timed]))
    assert list(read(str(tmp_path / "days/**/*.parquet"), kept=KEPT)) == ["2026-03-10"]


def test_names_of_systems_are_no_data(tmp_path: Path):
    put(tmp_path / "part-00000", parquet())
    for name in ("_SUCCESS", "_temporary/0/part-00000", "._part-00000", ".part-00000.crc", ".hidden/part-00000"):
        put(tmp_path / name, b"")
    assert read(str(tmp_path / "*")) == read(str(tmp_path / "**/*part-*")) == EXPECTED
    with pytest.raises(ValueError, match=r"no file matches .*names in _ and \. are no data"):
        read(str(tmp_path / "_*"))
    assert read(put(tmp_path / "_named", parquet())) == EXPECTED, "somebody named it"


@pytest.mark.parametrize(
    ("log", "file", "kind"),
    [
        ("_delta_log/00000000000000000000.json", "part-0.parquet", "Delta"),
        ("_delta_log/00000000000000000001.json", "locale=en-US/part-0.parquet", "Delta"),
        ("metadata/00001-5b0b.metadata.json", "data/ts=2026-01-31/0.parquet", "Iceberg"),
    ],
)
def test_a_table_with_a_log_is_refused(tmp_path: Path, log: str, file: str, kind: str):
    path = put(tmp_path / "table" / file, parquet())
    put(tmp_path / "table/metadata/notes.json", b"{}")
    put(tmp_path / "other" / log, b"{}")
    assert read(path) == EXPECTED, "another folder's log is none of its own"
    put(tmp_path / "table" / log, b"{}")
    for pattern in (path, str(tmp_path / "table/**/*.parquet")):
        fix = rf"export it by spark.read.format\('{kind.lower()}'\)"
        with pytest.raises(ValueError, match=f"private_text.paths: {tmp_path}/table is a table of {kind}.*{fix}"):
            readers.inspect([pattern])


def test_copies_under_other_names_are_said(tmp_path: Path):
    for name, content in (("a", parquet()), ("b", lines()), ("c", parquet()), ("d", lines()[:-1] + b" ")):
        put(tmp_path / name, content)
    assert readers.copies([str(tmp_path / "*")]) == [(str(tmp_path / "c"), str(tmp_path / "a"))]


@pytest.mark.parametrize("kind", [pa.null(), pa.string()])
def test_what_is_null_throughout_a_shard_is_no_value(tmp_path: Path, kind: pa.DataType):
    put(tmp_path / "0.parquet", parquet([row | {"locale": "en-US"} for row in TYPED[:10]]))
    later = [row | {"locale": None, "ts": None} for row in TYPED[10:20]]
    put(tmp_path / "1.parquet", parquet(later, locale=kind, ts=kind))
    assert {len(texts) for texts in read(str(tmp_path / "*.parquet")).values()} == {2}
    put(tmp_path / "2.parquet", parquet([row | {"text": None} for row in TYPED[20:]], text=kind))
    assert {len(texts) for texts in read(str(tmp_path / "*.parquet")).values()} == {2}


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_path_that_exists_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str):
    name = unicodedata.normalize(form, "données [final] (v2)*")
    path = put(tmp_path / name / "a?.jsonl", lines())
    for spelling in ("NFC", "NFD"):
        asked = unicodedata.normalize(spelling, path)
        assert read(asked) == read(f"{Path(asked).parent}/*.jsonl") == EXPECTED
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read(f"~/{name}/a?.jsonl") == read("~/*/a?.jsonl") == EXPECTED
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "~/b.jsonl", parquet(TYPED[:1]))
    assert list(read("~/b.jsonl")) == ["d0"]
