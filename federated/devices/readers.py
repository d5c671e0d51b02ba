"""Readers of typed text: device by device, each device's texts in the order typed."""

import glob
import importlib.util
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import pyarrow.parquet as pq

_BATCH_ROWS = 10_000
_LONGEST_LINE = 1 << 26
_PEEK = 1 << 20


@dataclass(frozen=True)
class Typed:
    """Texts of a source by device, in their order, and its columns.

    Attributes:
      schema: column -> type, as read.
      devices: ``(client id, texts)`` by ascending client id, each client once.
    """

    schema: dict[str, str]
    devices: Iterator[tuple[str, Iterable[str]]]


def from_files(patterns: Sequence[str], locale: str) -> Typed:
    """Parquet or JSON lines with ``client_id, text[, locale, ts]``; other columns are ignored.

    Rows of another locale are skipped. Texts go in order of ``ts`` (a time, or a number), rows
    without one after those with one; ties and files without ``ts`` in the order of the files.
    A row that repeats text and ``ts`` of its client is an upload sent twice, and is dropped.

    Raises:
      ValueError: missing column, wrong type, null client id; names file, column and fix.
      OSError: no such file, no permission, or damaged.
    """
    tables = [_checked(path, locale) for path in _matching(patterns)]
    kinds = {table.schema.field("ts").type for table in tables} - {pa.null()}
    if len(kinds) > 1:
        raise ValueError("private_text.paths: ts is a time in one file and a number in another; write one of them")
    kind = kinds.pop() if kinds else pa.float64()
    unified = [table.set_column(2, "ts", table["ts"].cast(kind)) for table in tables]
    schema = {name: shown for table in tables for name, shown in _shown(table).items()}
    return Typed(schema, _by_device(pa.concat_tables(unified)))


def from_chitchat(locale: str) -> Typed:
    """Every message with sender and time of the chitchat-dataset package (real typed chat, MIT).

    Raises:
      ValueError: not an English locale, or the package is not installed.
    """
    if locale.split("-")[0] != "en":
        raise ValueError(f"private_text.source: 'chitchat' is English text, but locale is {locale!r}; use en-US")
    package = importlib.util.find_spec("chitchat_dataset")
    if package is None or package.origin is None:
        raise ValueError("private_text.source: 'chitchat' needs the package chitchat-dataset==0.9.0; install it")
    conversations = json.loads(Path(package.origin).with_name("dataset.json").read_text(encoding="utf-8"))
    messages = [
        message for conversation in conversations.values() for turn in conversation["messages"] for message in turn
    ]
    raw = pa.table(
        {
            "client_id": pa.array([message["sender"] for message in messages], pa.large_string()),
            "text": pa.array([message["text"] for message in messages], pa.large_string()),
            "ts": pa.array([message["timestamp"] for message in messages]),
        }
    )
    table = raw.set_column(2, "ts", _order(raw["ts"], "dataset.json"))
    return Typed({"sender": "string", "text": "string", "timestamp": "time"}, _by_device(table))


def _matching(patterns: Sequence[str]) -> list[Path]:
    paths: list[Path] = []
    for pattern in patterns:
        matches = sorted(Path(name) for name in glob.glob(pattern, recursive=True))  # noqa: PTH207  (absolute patterns)
        if not matches:
            raise FileNotFoundError(f"private_text.paths: nothing is at {pattern!r}")
        paths += matches
    return list(dict.fromkeys(paths))


def _checked(path: Path, locale: str) -> pa.Table:
    """Columns client_id, text, ts (null if the file has none), rows of the locale only."""
    raw = _read(path)
    for column in ("client_id", "text"):
        if column not in raw.column_names:
            raise ValueError(f"{path.name}: column {column!r} is missing; it needs client_id and text")
    clients = raw["client_id"]
    if pa.types.is_integer(_plain(clients.type)):
        clients = clients.cast(pa.large_string())
    clients = _strings(clients, path, "client_id")
    unnamed = pc.sum(pc.or_(pc.is_null(clients), pc.equal(pc.fill_null(clients, ""), ""))).as_py() or 0
    if unnamed:
        raise ValueError(
            f"{path.name}: column 'client_id' is null, empty or missing in {unnamed} of {len(raw)} rows; "
            "give every row the id of its device"
        )
    texts = _strings(raw["text"], path, "text")
    order = _order(raw["ts"], path.name) if "ts" in raw.column_names else pa.nulls(len(raw))
    table = pa.table({"client_id": clients, "text": texts, "ts": order})
    if "locale" not in raw.column_names:
        return table
    tags = pc.utf8_lower(pc.replace_substring(_strings(raw["locale"], path, "locale"), "_", "-"))
    return table.filter(pc.fill_null(pc.equal(tags, locale.lower()), False))


def _read(path: Path) -> pa.Table:
    if path.suffix == ".parquet":
        try:
            with pq.ParquetFile(path) as file:
                wanted = {"client_id", "text", "locale", "ts"} & set(file.schema_arrow.names)
                return file.read(columns=sorted(wanted))
        except pa.ArrowInvalid as error:
            raise OSError(f"{path.name}: not readable as Parquet, so damaged or cut short: {error}") from error
    return _read_json_lines(path)


def _read_json_lines(path: Path) -> pa.Table:
    # Types are declared, or Arrow would take a text that looks like a date for a date.
    text = pa.large_string()
    schema = pa.schema({"client_id": text, "text": text, "locale": text, "ts": _json_time(path)})
    try:
        table = pyarrow.json.read_json(
            path,
            read_options=pyarrow.json.ReadOptions(block_size=_LONGEST_LINE),
            parse_options=pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid as error:
        raise ValueError(
            f"{path.name}: {error}; write one JSON object a line, client_id and text as strings "
            "(and ts as strings in all rows or as numbers in all)"
        ) from error
    absent = [name for name in ("locale", "ts") if table[name].null_count == len(table)]
    return table.drop_columns(absent)


def _json_time(path: Path) -> pa.DataType:
    """Type of ``ts``: that of the first one near the head of the file."""
    with pa.input_stream(str(path), compression="detect") as stream:
        *whole_lines, _ = (stream.read(_PEEK) + b"\n").split(b"\n")
    for line in whole_lines:
        try:
            row = json.loads(line)
        except ValueError:
            break  # Cut by the peek, or not JSON: then reading the whole file says where.
        if isinstance(row, dict) and row.get("ts") is not None:
            return pa.large_string() if isinstance(row["ts"], str) else pa.float64()
    return pa.large_string()


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _strings(column: pa.ChunkedArray, path: Path, name: str) -> pa.ChunkedArray:
    kind = _plain(column.type)
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise ValueError(f"{path.name}: column {name!r} is {column.type}, not text; write it as strings")
    return column.cast(pa.large_string())


def _order(column: pa.ChunkedArray, file_name: str) -> pa.ChunkedArray:
    """Time as int64 microseconds, numbers as float64."""
    kind = _plain(column.type)
    if pa.types.is_null(kind):
        return column
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return column.cast(pa.float64())
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        zone = getattr(kind, "tz", None)
        return column.cast(pa.timestamp("us", tz=zone), safe=False).cast(pa.int64())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        import pandas as pd  # Slow to import, and needed here only.

        try:
            times = pd.to_datetime(column.to_pylist(), utc=True, format="ISO8601")
        except ValueError as error:
            raise ValueError(
                f"{file_name}: column 'ts' is text that is not ISO 8601; write 2026-01-31T12:00:00Z or a number"
            ) from error
        microseconds = times.tz_convert(None).to_numpy().astype("datetime64[us]")
        return pa.chunked_array([pa.array(microseconds, from_pandas=True).cast(pa.int64())])
    raise ValueError(f"{file_name}: column 'ts' is {column.type}; write a timestamp, a number or ISO 8601 text")


def _shown(table: pa.Table) -> dict[str, str]:
    times = {pa.int64(): "time", pa.float64(): "number"}
    optional = {} if pa.types.is_null(table["ts"].type) else {"ts": times[table["ts"].type]}
    return {"client_id": "string", "text": "string", **optional}


def _by_device(table: pa.Table) -> Iterator[tuple[str, Iterable[str]]]:
    # A stable sort: ties stay in the order of the files.
    order = pc.sort_indices(table, sort_keys=[("client_id", "ascending"), ("ts", "ascending")])
    ordered = table.take(order)
    for client, rows in itertools.groupby(_rows(ordered), key=lambda row: row[0]):
        yield client, _texts(rows)


def _rows(table: pa.Table) -> Iterator[tuple[str, str | None, float | None]]:
    for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
        yield from zip(*(batch[name].to_pylist() for name in ("client_id", "text", "ts")), strict=True)


def _texts(rows: Iterable[tuple[str, str | None, float | None]]) -> Iterator[str]:
    now: float | None = None
    seen: set[str] = set()
    for _, text, time in rows:
        if time != now:
            now = time
            seen.clear()
        if not text or (time is not None and text in seen):
            continue
        seen.add(text)
        yield text
