"""Rows of a population's files for a launch: of its locale, within its retention window, in time order."""

import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from federated.config.population import Retention
from federated.devices.withdrawals import Withdrawals
from pretrain.reading import rows
from pretrain.reading.rows import BadRows, Column, StoredFile, is_string, value_type
from pretrain.text.tags import canonical

FIELD = "private_text.paths"
_NO_ID = "column 'client_id' is null, empty or missing; give every row the id of its device"
_NO_TIME = "column 'ts' is no time of the years 1 to 9999; write ISO 8601, as 2026-01-31T12:00:00Z, or a number"
# Microseconds of a second, units of Arrow's times in a second, and seconds from 1970 to the years 1 and 10000.
_SECOND = 10**6
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_YEARS = (-62_135_596_800, 253_402_300_800)
# Of the years 2000 to 2099.
_NANOSECONDS = (946_684_800e9, 4_102_444_800e9)
_COLUMNS = (Column("client_id", "id"), Column("text"), Column("locale", required=False))
_TIME = Column("ts", "order", required=False)
# Rows of all files that ``first_rows`` reads, or more: of each, enough to tell its types.
_LOOKED_AT = 8 * rows.BATCH_ROWS


@dataclass(frozen=True)
class Part:
    """Devices by their ids: not before ``first``, and before ``end``; None for no bound."""

    first: str | None = None
    end: str | None = None

    def of(self, table: pa.Table) -> pa.Table:
        """The rows of these devices."""
        if self.first is not None:
            table = table.filter(pc.greater_equal(table["client_id"], self.first))
        return table if self.end is None else table.filter(pc.less(table["client_id"], self.end))


EVERYONE = Part()


@dataclass(frozen=True)
class RowBatch:
    """Columns read from rows of a file: ``client_id``, ``ts`` (null if there is none) and, if asked for, ``text``.

    Attributes:
      rows: number of rows read, without bad ones.
      other_locales, older: rows among these that were left out.
      tags: ``client_id`` and ``locale`` of all rows read, before anything was left out; None for a file without that
        column.
      of_locale: ``client_id`` of the locale's rows, before the retention window.
    """

    table: pa.Table
    rows: int
    other_locales: int
    older: int
    tags: pa.Table | None
    of_locale: pa.ChunkedArray

    @property
    def shown(self) -> dict[str, str]:
        """Optional columns of the file, with their types."""
        times = {pa.int64(): "time", pa.float64(): "number"}
        kind = self.table.schema.field("ts").type
        return {} if pa.types.is_null(kind) else {"ts": times[kind]}


def taken_rows(
    patterns: Sequence[str],
    locale: str,
    retention: Retention | None,
    withdrawn: Withdrawals,
    bad: BadRows,
    *,
    read_text: bool = True,
) -> Iterator[RowBatch]:
    """Read the rows of a launch, in batches, in file order.

    Guarantee: no row of a withdrawn device is returned or counted, unless it cannot be read. A row that cannot be read
    is left out alone: whoever's it is, all others are read.

    Args:
      bad: counts those rows.
      read_text: if False, only what tells which rows are kept.

    Raises:
      ValueError: no such file, damaged, missing column, wrong type, too many bad rows; names file, row, column, fix.
      OSError: the disk does not answer.
    """
    columns = (*(each for each in _COLUMNS if read_text or each.name != "text"), _TIME)
    kinds: set[pa.DataType] = set()
    read = 0
    for path in rows.stored(patterns, FIELD):
        filled = _filled(path, columns)
        for batch, order, at in _batches(path, columns, bad):
            read += len(batch)
            staying = withdrawn.staying(batch["client_id"])
            if staying is not None:
                batch, order = batch.filter(staying), order.filter(staying)
            _require_alike(kinds, order, at)
            table = pa.table({name: batch[name] for name in ("client_id", "text") if name in batch.schema.names})
            tags = pa.table({"client_id": batch["client_id"], "locale": _tags(batch)}) if "locale" in filled else None
            mine = _of_locale(table.append_column("ts", order), tags, locale)
            # A line without a time may precede one with a time.
            left = mine if retention is None else kept_rows(mine, retention, path.name, timed="ts" in filled)
            yield RowBatch(
                left, len(batch), len(batch) - len(mine), len(mine) - len(left), tags, of_locale=mine["client_id"]
            )
    bad.require_few(read + bad.kinds.total())


def first_rows(files: Sequence[StoredFile]) -> Iterator[pa.RecordBatch]:
    """Read the first rows of every file, without bad ones: of many files fewer each.

    Raises:
      ValueError: as of ``taken_rows``, but bad rows refuse a file only where many come before its first good one.
      OSError: the disk does not answer.
    """
    most = max(rows.MOST_BEFORE, min(rows.BATCH_ROWS, _LOOKED_AT // len(files)))
    kinds: set[pa.DataType] = set()
    for path in files:
        bad = BadRows(most)
        for place, batch in rows.placed_batches(path, FIELD, (*_COLUMNS, _TIME), bad=bad, most_rows=most):
            at = f"{path.name}, {place}"
            _require_alike(kinds, order_of(_times(batch), at), at)
            yield batch
            break
        else:
            bad.require_few(rows.BATCH_ROWS)


def _require_alike(kinds: set[pa.DataType], order: pa.ChunkedArray, at: str) -> None:
    """Add the kind of a file's ``ts`` to that of the files before; ValueError if they are two."""
    kinds |= {order.type} - {pa.null()}
    if len(kinds) > 1:
        raise ValueError(f"{FIELD}: ts is a time in one file and a number in another ({at}); write one of them")


def _filled(path: StoredFile, columns: Sequence[Column]) -> set[str]:
    """The columns that some row of a file has a value of: a shard may write others too, as null."""
    optional = [column for column in columns if not column.required]
    absent = {column.name for column in optional} - rows.of_folders(path).keys()
    for batch in rows.batches(path, FIELD, optional, bad=BadRows()):
        there = absent & {*batch.schema.names}
        absent -= {name for name in there if batch[name].null_count < len(batch)}
        if not absent & there:
            break
    return {column.name for column in columns} - absent


def _batches(
    path: StoredFile, columns: Sequence[Column], bad: BadRows
) -> Iterator[tuple[pa.RecordBatch, pa.ChunkedArray, str]]:
    """Rows of a file, their times or numbers, and their position in words."""
    kinds: set[bool] = set()
    for place, batch in rows.placed_batches(path, FIELD, columns, bad=bad):
        at = f"{path.name}, {place}"
        column = _times(batch)
        if not pa.types.is_null(column.type):
            kinds.add(is_string(column.type))
        if len(kinds) > 1:
            raise ValueError(f"{at}: column 'ts' is text in one row and a number in another; write one of them")
        order = order_of(column, at)
        ids = batch["client_id"]
        known = pc.and_kleene(ids.is_valid(), pc.not_equal(pc.binary_length(ids), _scalar(0)))
        timed = pc.or_(order.is_valid(), column.is_null())
        if is_string(column.type):
            timed = pc.or_kleene(timed, pc.equal(pc.binary_length(column), _scalar(0)))
        for good, kind, what in (
            (known, "without client_id", _NO_ID),
            (timed.combine_chunks(), "without a time that is one", _NO_TIME),
        ):
            if wrong := len(good) - good.true_count:
                bad.add(kind, f"{FIELD}: {path.name}, {place.row(good.index(False).as_py())}: {what}", wrong)
        good = pc.and_(known, timed.combine_chunks())
        if good.true_count < len(batch):
            batch, order = batch.filter(good), order.filter(good)
        if len(batch):
            yield batch, order, at


def _times(batch: pa.RecordBatch) -> pa.ChunkedArray:
    """The column ``ts`` as it is written; nulls if there is none."""
    given = batch["ts"] if "ts" in batch.schema.names else pa.nulls(len(batch))
    return pa.chunked_array([given.cast(value_type(given.type))])


def _tags(batch: pa.RecordBatch) -> pa.Array:
    """The column ``locale``, each tag in its canonical form."""
    tags = batch["locale"]
    for tag in pc.unique(tags).to_pylist():
        if tag and (form := canonical(tag)) != tag:
            tags = pc.if_else(pc.equal(tags, _scalar(tag)), _scalar(form), tags)
    return tags


def _of_locale(table: pa.Table, tags: pa.Table | None, locale: str) -> pa.Table:
    """Rows whose tag is the locale's; all if there are no tags."""
    if tags is None:
        return table
    return table.filter(pc.equal(tags["locale"], _scalar(canonical(locale))))


def kept_rows(table: pa.Table, retention: Retention, at: str, *, timed: bool = False) -> pa.Table:
    """Rows of a checked table inside the retention window; a row without a time is outside.

    Guarantee: no row from before the window is kept, so no launch of a later date reads it, and the decision about a
    row depends on that row alone.

    Args:
      timed: other rows of the same file have a time.

    Raises:
      ValueError: no row has a time.
    """
    if not len(table):
        return table
    if timed and pa.types.is_null(table["ts"].type):
        return table.slice(0, 0)
    if not pa.types.is_int64(table["ts"].type):
        what = "is missing" if pa.types.is_null(table["ts"].type) else "is a number and no time"
        raise ValueError(
            f"{FIELD}: {at}: column 'ts' {what}, and text of this population is kept for {retention.days} days "
            "(policy.budget.days, or the window it was registered with), so every row needs its time; add "
            "the column, as in 2026-01-31T12:00:00Z"
        )
    epoch, microsecond = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
    first, last = (_scalar((each - epoch) // microsecond) for each in retention.between)
    within = pc.and_(pc.greater_equal(table["ts"], first), pc.less_equal(table["ts"], last))
    return table.filter(within)  # also drops rows without a time


def _scalar(value: int | str) -> pa.Scalar:
    """A value as an Arrow scalar; Arrow's own constructors import pandas, a tenth of a second."""
    if isinstance(value, int):
        return pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(struct.pack("q", value))])[0]
    text = value.encode()
    buffers = [None, pa.py_buffer(struct.pack("ii", 0, len(text))), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.string(), 1, buffers)[0]


def order_of(column: pa.ChunkedArray, at: str) -> pa.ChunkedArray:
    """Time as int64 microseconds, numbers as float64; what is no time of the years 1 to 9999 is null.

    Whole numbers of about 19 digits are times in nanoseconds, as databases export them.
    """
    kind = value_type(column.type)
    if pa.types.is_null(kind):
        return column
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _of_numbers(column.cast(pa.float64(), safe=False))
    if pa.types.is_date(kind):
        kind = pa.timestamp("s" if pa.types.is_date32(kind) else "ms")
        column = column.cast(kind)
    if pa.types.is_timestamp(kind):
        return _microseconds(column.cast(pa.int64()), _UNITS[kind.unit])
    if is_string(kind):
        return _of_text(column.cast(kind))
    raise ValueError(
        f"{at}: column 'ts' is {str(kind).partition('<')[0]}; write a timestamp, a number or ISO 8601 text"
    )


def _of_text(text: pa.ChunkedArray) -> pa.ChunkedArray:
    # Fewer digits may be a date.
    if pc.all(pc.match_substring_regex(text, r"^-?\d{9,}(\.\d+)?$")).as_py():
        return _of_numbers(text.cast(pa.float64()))
    for zone in ("UTC", None):
        # Arrow parses a column if all rows have one usual form.
        with suppress(pa.ArrowInvalid):
            return _microseconds(text.cast(pa.timestamp("us", tz=zone)).cast(pa.int64()), _SECOND)
    import pandas as pd  # Slow to import, and needed for other forms only.

    iso = pc.replace_substring_regex(text, " UTC$", "Z").to_pylist()
    times = pd.to_datetime(iso, utc=True, format="ISO8601", errors="coerce")
    microseconds = times.tz_convert(None).to_numpy().astype("datetime64[us]")
    return _microseconds(pa.chunked_array([pa.array(microseconds, from_pandas=True).cast(pa.int64())]), _SECOND)


def _of_numbers(numbers: pa.ChunkedArray) -> pa.ChunkedArray:
    """Numbers as they are, or nanoseconds of this century as times, if most are."""
    times = pc.and_(pc.greater(numbers, _NANOSECONDS[0]), pc.less(numbers, _NANOSECONDS[1]))
    if 2 * (pc.sum(times).as_py() or 0) <= len(numbers) - numbers.null_count:
        return numbers
    microseconds = pc.divide(numbers, 1e3).cast(pa.int64(), safe=False)
    return pc.if_else(times, microseconds, pa.nulls(len(numbers), pa.int64()))


def _microseconds(times: pa.ChunkedArray, a_second: int) -> pa.ChunkedArray:
    """Times since 1970 in a unit as microseconds; null for those of other years than 1 to 9999, which may not fit."""
    first, end = (max(-(2**63), min(year * a_second, 2**63 - 1)) for year in _YEARS)
    within = pc.and_(pc.greater_equal(times, _scalar(first)), pc.less(times, _scalar(end)))
    finer = a_second > _SECOND
    factor = _scalar(a_second // _SECOND if finer else _SECOND // a_second)
    return pc.if_else(within, (pc.divide if finer else pc.multiply)(times, factor), pa.nulls(1, pa.int64())[0])
