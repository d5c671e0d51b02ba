"""Readers of typed text: device by device, each device's texts in the order typed."""

import importlib.util
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from federated.config.population import Kept
from pretrain.reading import rows
from pretrain.reading.rows import Column
from pretrain.sources import contents

_BATCH_ROWS = 10_000
_FIELD = "private_text.paths"
_NO_CHITCHAT = "private_text.source: 'chitchat' needs the package chitchat-dataset==0.9.0; install it"
_COLUMNS = (
    Column("client_id", "id"),
    Column("text"),
    Column("locale", required=False),
    Column("ts", "order", required=False),
)


@dataclass(frozen=True)
class Typed:
    """Texts of a source by device, in their order, and its columns.

    Attributes:
      schema: column -> type, as read.
      devices: ``(client id, texts)`` by ascending client id, each client once.
      other_locales: rows left out because they are of another locale.
      older: rows deleted because they were typed at no time that is kept.
    """

    schema: dict[str, str]
    devices: Iterator[tuple[str, Iterable[str]]]
    other_locales: int = 0
    older: int = 0


@dataclass(frozen=True)
class Counted:
    """What files hold, as far as it can be known without their text. Private.

    Attributes:
      devices: that have a row of the locale.
      rows: of any locale.
      other_locales: rows of another one.
      older: rows of the locale that were typed at no time that is kept.
    """

    devices: int
    rows: int
    other_locales: int
    older: int = 0


def from_files(patterns: Sequence[str], locale: str, kept: Kept | None = None) -> Typed:
    """Parquet or JSON lines with ``client_id, text[, locale, ts]``; other columns are ignored.

    Rows of another locale are skipped, and those that are not ``kept`` dropped before anything reads them. Texts go in
    order of ``ts`` (a time, or a number), rows
    without one after those with one; ties and files without ``ts`` in the order of the files.
    A row that repeats text and ``ts`` of its client is an upload sent twice, and is dropped.

    Raises:
      ValueError: no such file, damaged, missing column, wrong type, null client id; names file, column and fix.
      OSError: the disk does not answer.
    """
    checked = [(path, *_checked(path, locale)) for path in rows.matching(patterns, _FIELD)]
    tables = [table if kept is None else _kept(table, kept, path.name) for path, table, _ in checked]
    older = sum(len(table) for _, table, _ in checked) - sum(map(len, tables))
    kinds = {table.schema.field("ts").type for table in tables} - {pa.null()}
    if len(kinds) > 1:
        raise ValueError("private_text.paths: ts is a time in one file and a number in another; write one of them")
    kind = kinds.pop() if kinds else pa.float64()
    unified = [table.set_column(2, "ts", table["ts"].cast(kind)) for table in tables]
    schema = {name: shown for table in tables for name, shown in _shown(table).items()}
    return Typed(schema, _by_device(pa.concat_tables(unified)), sum(others for *_, others in checked), older)


def from_chitchat(locale: str) -> Typed:
    """Every message with sender and time of the chitchat-dataset package (real typed chat, MIT).

    Raises:
      ValueError: not an English locale, or the package is not installed.
    """
    if locale.split("-")[0] != "en":
        raise ValueError(f"private_text.source: 'chitchat' is English text, but locale is {locale!r}; use en-US")
    package = importlib.util.find_spec("chitchat_dataset")
    if package is None or package.origin is None:
        raise ValueError(_NO_CHITCHAT)
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


def chitchat_version() -> str:
    """The installed version of the chitchat-dataset package.

    Raises:
      ValueError: the package is not installed.
    """
    try:
        return metadata.version("chitchat-dataset")
    except metadata.PackageNotFoundError as error:
        raise ValueError(_NO_CHITCHAT) from error


def identity(patterns: Sequence[str]) -> list[tuple[str, str]]:
    """Name and SHA-256 of each file, in order. Private.

    Raises:
      ValueError: nothing matches, or no ordinary file.
      OSError: the disk does not answer.
    """
    return contents(rows.matching(patterns, _FIELD))


def inspect(patterns: Sequence[str], kept: Kept | None = None) -> None:
    """Find what can be known of files before their text is read.

    Raises:
      ValueError: nothing matches, no ordinary file, damaged at its ends, a column missing; names file, column and fix.
      OSError: the disk does not answer.
    """
    for path in rows.matching(patterns, _FIELD):
        names = rows.fields(path, _FIELD)
        for column in ("client_id", "text"):
            if column not in names:
                raise ValueError(f"{_FIELD}: {path.name}: column {column!r} is missing; it needs client_id and text")
        # A later line may say when it was typed; of Parquet all is known.
        if kept is not None and path.suffix == ".parquet" and "ts" not in names:
            _kept(pa.table({"ts": pa.nulls(1)}), kept, path.name)


def count(patterns: Sequence[str], locale: str, kept: Kept | None = None) -> Counted:
    """Count devices and rows as ``from_files`` would take them; text is not read, so nothing is known of it.

    Raises:
      ValueError: no such file, damaged, missing column, wrong type; names file, column and fix.
      OSError: the disk does not answer.
    """
    clients: set[str] = set()
    total = others = older = 0
    timed = (Column("ts", "order", required=False),) if kept else ()
    for path in rows.matching(patterns, _FIELD):
        raw = _read(path, (Column("client_id", "id"), Column("locale", required=False), *timed))
        order = _order(raw["ts"], path.name) if "ts" in raw.column_names else pa.nulls(len(raw))
        table, left_out = _of_locale(pa.table({"client_id": raw["client_id"], "ts": order}), raw, locale)
        total, others, before = total + len(raw), others + left_out, len(table)
        table = _kept(table, kept, path.name) if kept else table
        older += before - len(table)
        clients.update(client for client in pc.unique(table["client_id"]).to_pylist() if client)
    return Counted(len(clients), total, others, older)


def _of_locale(table: pa.Table, raw: pa.Table, locale: str) -> tuple[pa.Table, int]:
    """Rows whose tag in ``raw`` is the locale's, all if there are no tags, and how many others there are."""
    if "locale" not in raw.column_names:
        return table, 0
    tags = pc.utf8_lower(pc.replace_substring(raw["locale"], "_", "-"))
    taken = table.filter(pc.fill_null(pc.equal(tags, locale.lower()), False))
    return taken, len(table) - len(taken)


def _checked(path: Path, locale: str) -> tuple[pa.Table, int]:
    """Columns client_id, text, ts (null if the file has none) of the locale's rows, and how many others there are."""
    raw = _read(path)
    clients = raw["client_id"]
    unnamed = pc.sum(pc.or_(pc.is_null(clients), pc.equal(pc.fill_null(clients, ""), ""))).as_py() or 0
    if unnamed:
        raise ValueError(
            f"{path.name}: column 'client_id' is null, empty or missing in {unnamed} of {len(raw)} rows; "
            "give every row the id of its device"
        )
    order = _order(raw["ts"], path.name) if "ts" in raw.column_names else pa.nulls(len(raw))
    table = pa.table({"client_id": clients, "text": raw["text"], "ts": order})
    return _of_locale(table, raw, locale)


def _kept(table: pa.Table, kept: Kept, file_name: str) -> pa.Table:
    """The rows of a checked table that are kept; one that does not say when it was typed is not.

    Guarantee: no row that was typed before the days that are kept is left, so no launch of a later date reads it; and
    whether a row is left depends on that row alone.

    Raises:
      ValueError: no row says when it was typed.
    """
    if not len(table):
        return table
    if not pa.types.is_int64(table["ts"].type):
        what = "is missing" if pa.types.is_null(table["ts"].type) else "is a number and no time"
        raise ValueError(
            f"{_FIELD}: {file_name}: column 'ts' {what}, and text of this population is kept for {kept.days} days "
            "(policy.budget.days, or the window it was registered with), so every row must say when it was typed; add "
            "the column, as in 2026-01-31T12:00:00Z"
        )
    first, last = ((each - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) for each in kept.between)
    within = pc.and_(pc.greater_equal(table["ts"], first), pc.less_equal(table["ts"], last))
    return table.filter(pc.fill_null(within, False))


def _read(path: Path, columns: Sequence[Column] = _COLUMNS) -> pa.Table:
    """The wanted columns of a file; of JSON lines those that some row has."""
    read = list(rows.batches(path, _FIELD, columns))
    if not read:
        empty = pa.schema({"client_id": pa.large_string(), "text": pa.large_string()})
        return empty.empty_table()
    try:
        table = pa.concat_tables([pa.Table.from_batches([batch]) for batch in read], promote_options="permissive")
    except pa.ArrowException as error:
        raise ValueError(
            f"{path.name}: column 'ts' is text in one row and a number in another; write one of them"
        ) from error
    if path.suffix == ".parquet":
        return table
    optional = [column.name for column in columns if not column.required]
    absent = [name for name in optional if table[name].null_count == len(table)]
    return table.drop_columns(absent)


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


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
    for client, typed in itertools.groupby(_rows(ordered), key=lambda row: row[0]):
        yield client, _texts(typed)


def _rows(table: pa.Table) -> Iterator[tuple[str, str | None, float | None]]:
    for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
        yield from zip(*(batch[name].to_pylist() for name in ("client_id", "text", "ts")), strict=True)


def _texts(typed: Iterable[tuple[str, str | None, float | None]]) -> Iterator[str]:
    now: float | None = None
    seen: set[str] = set()
    for _, text, time in typed:
        if time != now:
            now = time
            seen.clear()
        if not text or (time is not None and text in seen):
            continue
        seen.add(text)
        yield text
