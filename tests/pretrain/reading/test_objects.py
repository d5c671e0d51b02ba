"""Objects of a store are read as files of this machine are, and say what is wrong in the same words."""

import errno
import gzip
import io
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pretrain.reading import objects, rows
from pretrain.reading.rows import Column
from pretrain.text.sources import contents
from tests.helpers.processes.objects import SECRET, SERVER, Bucket

pytestmark = pytest.mark.slow
FIELD = "private_text.paths"
COLUMNS = (Column("client_id", "id"), Column("text"))
TYPED = [{"client_id": f"c{number}", "text": f"word{number} and more"} for number in range(300)]


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(TYPED), sink, row_group_size=100)
    return sink.getvalue()


LINES = "".join(f'{{"client_id": "{row["client_id"]}", "text": "{row["text"]}"}}\n' for row in TYPED).encode()
FORMS: dict[str, Callable[[], bytes]] = {
    "typed.parquet": parquet,
    "typed.jsonl": lambda: LINES,
    "typed.jsonl.gz": lambda: gzip.compress(LINES),
    "typed": lambda: pa.compress(LINES, "zstd", asbytes=True),
}


def read(*patterns: str) -> list[dict]:
    files = rows.stored(patterns, FIELD)
    return [row for file in files for batch in rows.batches(file, FIELD, COLUMNS) for row in batch.to_pylist()]


@pytest.mark.parametrize("name", FORMS)
def test_an_object_has_the_rows_and_the_digest_of_a_file(bucket: Bucket, tmp_path, name: str):
    content = FORMS[name]()
    (tmp_path / name).write_bytes(content)
    address = bucket.put(f"en/{name}", content)
    assert read(address) == TYPED
    assert contents(rows.stored([address], FIELD)) == contents([tmp_path / name])
    (found,) = rows.stored([address], FIELD)
    assert (found.name, found.stat().st_size) == (name, len(content))
    assert rows.fields(found, FIELD) == ["client_id", "text"]


def test_a_glob_stops_at_slashes_as_it_does_for_paths(bucket: Bucket, tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for key in ("a.jsonl", "b.jsonl", "[c].jsonl", "deep/d.jsonl", "deep/er/e.jsonl", "deep/f.txt"):
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(LINES)
        bucket.put(key, LINES)
    for pattern in ("*.jsonl", "?.jsonl", "[ab].jsonl", "[!a].jsonl", "[[]c].jsonl", "deep/**/*.jsonl", "**/*.jsonl"):
        local = [str(path.relative_to(tmp_path)) for path in rows.stored([pattern], FIELD)]
        there = [str(found).removeprefix(bucket.address("")) for found in rows.stored([bucket.address(pattern)], FIELD)]
        assert there == local, pattern


def test_folders_say_of_objects_what_they_say_of_files(bucket: Bucket):
    """Partitions are columns, names that systems give are no data, and a table with a log is refused."""
    german = bucket.put("[final]/locale=de-DE/part-0", parquet())
    bucket.put("[final]/locale=de-DE/_SUCCESS", b" ")
    bucket.put("[final]/_temporary/part-0", b" ")
    pattern = bucket.address("**/part-*")
    (found,) = rows.stored([pattern], FIELD)
    assert [found] == rows.stored([german], FIELD), "a key that exists is no glob"
    (batch, *_) = rows.batches(found, FIELD, (*COLUMNS, Column("locale")))
    assert set(batch["locale"].to_pylist()) == {"de-DE"}
    bucket.put("metadata/v1.metadata.json", b"{}")
    objects.table_logs.cache_clear()
    for asked in (german, pattern):
        with pytest.raises(ValueError, match=rf"{bucket.address('')[:-1]} is a table of Iceberg"):
            rows.stored([asked], FIELD)


def test_what_is_damaged_is_named_by_its_address(bucket: Bucket):
    content = parquet()
    address = bucket.put("cut.parquet", content[: len(content) // 2])
    with pytest.raises(ValueError, match=f"{FIELD}: {address} is not readable, so damaged"):
        read(address)
    address = bucket.put("bad.jsonl", LINES + b"{")
    with pytest.raises(ValueError, match=f"{address}, line 301 is not JSON"):
        read(address)
    address = bucket.put("bomb.jsonl.gz", gzip.compress((b" " * 999 + b"\n") * (rows.FREE_BYTES // 1000 + 1)))
    with pytest.raises(ValueError, match="unpacks to more than"):
        read(address)


@pytest.mark.parametrize("pattern", ["none.parquet", "*.parquet", "folder", "folder/"])
def test_an_address_that_nothing_has_is_refused(bucket: Bucket, pattern: str):
    bucket.put("folder/a.jsonl", LINES)
    with pytest.raises(ValueError, match=r"private_text.paths: no file matches '(s3|gs)://.*check the path"):
        rows.stored([bucket.address(pattern)], FIELD)


def test_an_object_that_goes_is_not_there_and_a_store_that_goes_may_come_back(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
):
    address = bucket.put("a.jsonl", LINES)
    (found,) = rows.stored([address], FIELD)
    bucket.delete("a.jsonl")
    with pytest.raises(ValueError, match=f"{address} does not exist"):
        list(rows.batches(found, FIELD, COLUMNS))
    monkeypatch.setenv(SERVER[bucket.scheme], "http://127.0.0.1:9")
    with pytest.raises(OSError, match=r"the store does not answer \((NETWORK_CONNECTION|UNAVAILABLE)\)") as failed:
        rows.stored([f"{bucket.scheme}://nobody-listens/a.jsonl"], FIELD)
    assert failed.value.errno == errno.EIO, "which the command ends with 75 for"
    assert SECRET not in str(failed.value)


@pytest.mark.parametrize("status", [401, 403])
def test_what_these_credentials_may_not_read_is_refused(bucket: Bucket, monkeypatch: pytest.MonkeyPatch, status: int):
    """By a server that answers every request so."""

    class Refusal(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(status)

        do_HEAD = do_GET

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusal) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv(SERVER[bucket.scheme], f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(ValueError, match="may not be read with these credentials; check the address") as refused:
            rows.stored([f"{bucket.scheme}://refused-{status}/a.jsonl"], FIELD)
        server.shutdown()
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("s3://me:open-sesame@people/a.parquet", "holds a login"),
        ("s3://open-sesame@people/a.parquet", "holds a login"),
        ("s3://people/a.parquet?access_key=me&secret_key=open-sesame", "holds a login"),
        ("hdfs://people/a.parquet", "hdfs:// is not read"),
        ("https://people/a.parquet", "https:// is not read"),
        ("S3://people/a.parquet", "S3:// is not read"),
        ("s3://people", "no bucket with a key"),
        ("s3:///a.parquet", "no bucket with a key"),
        ("s3://*/a.parquet", "no bucket with a key"),
    ],
)
def test_an_address_that_is_none_is_refused_and_no_login_repeated(address: str, found: str):
    with pytest.raises(ValueError, match=found) as refused:
        objects.require_address(address)
    assert "open-sesame" not in str(refused.value)
    with pytest.raises(ValueError, match=found):
        rows.stored([address], FIELD)


def test_public_text_and_logs_are_files_of_this_machine():
    with pytest.raises(ValueError, match="is an address, and files of this machine are read"):
        rows.matching(["s3://people/a.parquet"], "public_text.train")
