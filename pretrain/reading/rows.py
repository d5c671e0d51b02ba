"""Reader of external rows, from Parquet, JSON lines and CSV (also packed by gzip, bzip2 or zstd), as Arrow columns.

First bytes say what a file is, as exports name files as they like. Folders named ``column=value`` are columns.

A file may be damaged, lie about its size or hold other things than text. Whatever it does ends in a ``ValueError``
that names the file, the row and the fix, before it takes more memory than the batch at hand: texts are counted before
they are unpacked, lines are read up to a limit, and a file that unpacks to far more than text ever does is refused.

A row that cannot be read may cost its device that row alone (``BadRows``); a damaged file or row group is refused.

Guarantee: no error shows a value of the file, a field's name or a library's words, which may quote one; causes, which a
traceback would show, are dropped. Errors name place, column, kind and length.
"""

import csv
import glob
import io
import json
import math
import os
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pretrain.reading import objects
from pretrain.reading.objects import StoredObject
from pretrain.reading.paths import (
    LOGS,
    as_glob,
    is_data,
    kind_of,
    require_file,
    require_no_table,
    require_walkable,
    shown,
)

# Text shrinks to a third, repetitive lines to a twentieth. Small files may do as they like.
MOST_EXPANSION, FREE_BYTES = 100, 1 << 26
MOST_TEXT_BYTES = 1 << 24
MOST_FILES = 100_000
# Share of rows that may be bad, and rows of one file before its first good one.
MOST_BAD, MOST_BEFORE = 0.01, 100
BATCH_ROWS, BATCH_BYTES = 10_000, 1 << 26
# Of a column of Parquet at a time, however large its row groups are.
_BUFFER_BYTES = 1 << 20
_DAMAGE = (pa.ArrowException, MemoryError, UnicodeDecodeError)
_PARQUET, _MARK = b"PAR1", b"\xef\xbb\xbf"
_CODECS = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd"}
# Header of CSV: one of the columns that every file of text or ids has.
_OF_CSV = {b"client_id", b"text"}

Kind = Literal["text", "id", "order"]
Form = Literal["Parquet", "JSON lines", "CSV"]
StoredFile = Path | StoredObject
File = TypeVar("File", Path, StoredObject)


@dataclass(frozen=True)
class Column:
    """A column to read.

    Attributes:
      kind: ``text``; ``id``: text that Parquet may hold as whole numbers; ``order``: a time or a number, as it is.
    """

    name: str
    kind: Kind = "text"
    required: bool = True


class BadRows:
    """Rows that cannot be read, by kind, with what is said of the first of each. Private.

    Args:
      most: number of rows that may be bad; beyond it, what is said of the next one is raised.
    """

    def __init__(self, most: float = math.inf) -> None:
        self.kinds: Counter[str] = Counter()
        self._said: dict[str, str] = {}
        self._most = most

    def add(self, kind: str, said: str, number: int = 1) -> None:
        """Count rows of a kind.

        Args:
          said: place, fault and fix.

        Raises:
          ValueError: too many are bad.
        """
        self.kinds[kind] += number
        self._said.setdefault(kind, said)
        if self.kinds.total() > self._most:
            raise ValueError(self._said[kind]) from None

    @property
    def usual(self) -> str:
        """The most frequent kind."""
        return self.kinds.most_common(1)[0][0]

    def require_few(self, rows: int) -> None:
        """Refuse files of which more than a constant share is bad.

        Args:
          rows: number of rows, with the bad ones.

        Raises:
          ValueError: with the first of the most frequent kind.
        """
        if self.kinds.total() > MOST_BAD * rows:
            also = f"more than {MOST_BAD:.0%} of the rows cannot be read, most for this reason"
            raise ValueError(f"{self._said[self.usual]}; {also}")


@dataclass(frozen=True)
class Place:
    """Position of a batch's rows in their file.

    Attributes:
      name: of one, without its number.
      numbers: of all.
    """

    name: str
    numbers: Sequence[int]

    def __str__(self) -> str:
        return f"{self.name}s {self.numbers[0]:,} to {self.numbers[-1]:,}"

    def row(self, number: int) -> str:
        """Position of one row of the batch."""
        return f"{self.name} {self.numbers[number]:,}"

    def taken(self, rows: pa.Array) -> "Place":
        """Positions of the rows of a mask."""
        return Place(self.name, [number for number, stays in zip(self.numbers, rows.to_pylist(), strict=True) if stays])


def matching(patterns: Sequence[str], field: str) -> list[Path]:
    """Files of this machine that some paths or globs name, each once, in the order named.

    Raises:
      ValueError: one matches nothing, or something that is no ordinary file.
    """
    for pattern in filter(objects.is_address, patterns):
        raise ValueError(f"{field}: {shown(pattern)} is an address, and files of this machine are read; give a path")
    return list(dict.fromkeys(path for pattern in patterns for path in _found(pattern, field, _paths(pattern, field))))


def stored(patterns: Sequence[str], field: str) -> list[StoredFile]:
    """``matching``, of this machine or in object storage.

    Raises:
      ValueError: as of ``matching``, or an object that may not be read.
      OSError: the disk or the store does not answer.
    """
    files: list[StoredFile] = []
    for pattern in patterns:
        if objects.is_address(pattern):
            files += _found(pattern, field, objects.matching(pattern, field))
        else:
            files += _found(pattern, field, _paths(pattern, field))
    return list(dict.fromkeys(files))


def _found(pattern: str, field: str, files: Iterable[File]) -> list[File]:
    """What a pattern matches, sorted: something, and not too much."""
    found: list[File] = []
    for file in files:
        found.append(file)
        if len(found) > MOST_FILES:
            raise ValueError(f"{field}: {shown(repr(pattern))} matches more than {MOST_FILES:,} files; join some")
    if not found:
        raise ValueError(
            f"{field}: no file matches {shown(repr(pattern))}; check the path (names in _ and . are no data)"
        )
    return sorted(found)


def _paths(pattern: str, field: str) -> Iterator[Path]:
    """Each match is looked at as it is found, so that a glob over a whole disk ends at its first folder.

    Systems write one name in two forms of Unicode.
    """
    if len(pattern) > 4_096 or "\0" in pattern:
        raise ValueError(f"{field}: {shown(pattern)} is no path; give a shorter one")
    looked: set[Path] = set()
    spelt = (unicodedata.normalize("NFC", pattern), unicodedata.normalize("NFD", pattern))
    for name in map(Path, (pattern, os.path.expanduser(pattern), *spelt)):  # noqa: PTH111 - of a text
        there, wanted = as_glob(name)
        require_walkable(wanted, field)
        found = False
        for path in map(Path, glob.iglob(wanted, recursive=True)):  # noqa: PTH207 - Path.glob refuses absolute ones
            if is_data(path.relative_to(there).parts):
                found = True
                require_file(path, field, "name files, or a glob that matches files only")
                resolved = path.resolve()
                folders = {*resolved.parents} - looked
                looked |= folders
                logs = (str(each) for folder in folders for log in LOGS for each in (folder / log).glob("*.json"))
                require_no_table(logs, field)
                yield resolved
        if found:
            return


def form(path: StoredFile, field: str) -> Form | None:
    """Format of a file by its first bytes; None for another text.

    Raises:
      ValueError: damaged.
    """
    with _readable(path, field), _unpacked(path) as (file, _):
        line = file.readline(_BUFFER_BYTES).removeprefix(_MARK)
    if line.startswith(_PARQUET):
        return "Parquet"
    if line.lstrip().startswith(b"{"):
        return "JSON lines"
    return "CSV" if _OF_CSV & {name.strip(b'" \r\n') for name in line.split(b",")} else None


@contextmanager
def _unpacked(path: StoredFile) -> Iterator[tuple[io.BufferedReader, bool]]:
    """Content of a file, and whether it was packed."""
    with path.open("rb") as packed:
        codec = next((_CODECS[magic] for magic in _CODECS if packed.peek(4).startswith(magic)), None)
        if codec is None:
            yield packed, False
        else:
            yield io.BufferedReader(pa.CompressedInputStream(packed, codec), _BUFFER_BYTES), True


def fields(path: StoredFile, field: str, most_bad: int = 0) -> list[str]:
    """Names of a file's columns: of the schema, the header or the first records, and of its folders.

    Args:
      most_bad: how many of the first rows may be bad, or lack a column; 0: the first record counts.

    Raises:
      ValueError: damaged, or neither Parquet, JSON lines nor CSV.
    """
    with _readable(path, field):
        match form(path, field):
            case "Parquet":
                names = pq.ParquetFile(_source(path)).schema_arrow.names
            case "CSV":
                names = next(_cells(path, field, BadRows(0)))[1]
            case _:
                bad = BadRows(most_bad)
                looked_at = islice(_records(path, field, bad), 1 + most_bad)
                names = list(dict.fromkeys(name for _, record in looked_at for name in record))
                if not names:
                    bad.require_few(0)
        return [*names, *(name for name in of_folders(path) if name not in names)]


def of_folders(path: StoredFile) -> dict[str, str | None]:
    """Values in the names of a file's folders, as Spark and Hive write the columns that they leave out of the file.

    No folder holds a text.
    """
    folders = str(path).split("/")[:-1]
    names = {name for name, equals, _ in (folder.partition("=") for folder in folders) if equals} - {"text"}
    if not names:
        return {}
    from pyarrow import dataset  # Slow to import, and most files have no such folder.

    known = dataset.HivePartitioning(pa.schema([(name, pa.string()) for name in sorted(names)]))
    return dataset.get_partition_keys(known.parse("/".join(folders) + "/"))


def batches(
    path: StoredFile, field: str, columns: Sequence[Column], skip: int = 0, bad: BadRows | None = None
) -> Iterator[pa.RecordBatch]:
    """The columns of a file in its order; one that is not required and not there is left out of Parquet's batches.

    Args:
      field: source of the file's name, for errors.
      skip: rows to leave out from the start.
      bad: counts rows that cannot be read, which are left out; None: the first is an error.

    Raises:
      ValueError: damaged, a column missing or twice, or of another type, or far more than a file may hold.
      OSError: the disk does not answer.
    """
    for _, batch in placed_batches(path, field, columns, skip, bad):
        yield batch


def placed_batches(
    path: StoredFile,
    field: str,
    columns: Sequence[Column],
    skip: int = 0,
    bad: BadRows | None = None,
    most_rows: int = BATCH_ROWS,
) -> Iterator[tuple[Place, pa.RecordBatch]]:
    """``batches`` of at most so many rows, each with its position in the file, for errors; none is empty."""
    if isinstance(path, Path):
        require_file(path, field, "name a file that is there")
    with _readable(path, field):
        given = {name: value for name, value in of_folders(path).items() if name in {each.name for each in columns}}
        read = _of_parquet if form(path, field) == "Parquet" else _of_lines
        asked = [replace(column, required=column.required and column.name not in given) for column in columns]
        for place, batch in read(path, field, asked, skip, BadRows(0) if bad is None else bad, most_rows):
            yield place, _with(batch, given) if given else batch


def _with(batch: pa.RecordBatch, given: Mapping[str, str | None]) -> pa.RecordBatch:
    """A batch whose rows without a value of their own have their folder's; times in a type of times stay."""
    for name, value in given.items():
        own = batch[name] if name in batch.schema.names else pa.nulls(len(batch))
        if pa.types.is_null(own.type) or is_string(own.type):
            text = own.cast(pa.large_string())
            filled = text if value is None else text.fill_null(value)
            names = [each for each in batch.schema.names if each != name]
            batch = pa.RecordBatch.from_arrays([*map(batch.column, names), filled], [*names, name])
    return batch


def _source(path: StoredFile) -> Path | io.BufferedReader:
    """What Arrow opens: a path by itself, an object by our reader."""
    return path if isinstance(path, Path) else path.open("rb")


@contextmanager
def _readable(path: StoredFile, field: str, at: Callable[[], str] = lambda: "") -> Iterator[None]:
    """Report damage as ValueError: Arrow and the decompressors raise errors that suggest a retry.

    Args:
      at: finds out where in the file it is.
    """
    try:
        with nullcontext() if isinstance(path, Path) else objects.answering(path.address, field):
            yield
    except (*_DAMAGE, OSError) as error:
        # The disk gives a number.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        why = "text that is not UTF-8" if "UTF" in str(error) else type(error).__name__
        raise ValueError(
            f"{field}: {shown(path)}{at()} is not readable, so damaged or cut short ({why}); copy it again"
        ) from None


def _most_bytes(path: StoredFile) -> int:
    """Most bytes that a file may unpack to."""
    return max(FREE_BYTES, MOST_EXPANSION * path.stat().st_size)


def _too_much(path: StoredFile, field: str, most: int) -> ValueError:
    """Say that it does not."""
    return ValueError(
        f"{field}: {shown(path)} unpacks to more than {most:,} bytes, {MOST_EXPANSION} times its size, which no text "
        "does; look at what made it"
    )


def missing(path: StoredFile, field: str, column: str, names: Collection[str]) -> ValueError:
    """Say that a column is not there; the names that are may be ids or texts, so they are counted."""
    return ValueError(
        f"{field}: {shown(path)}: column {column!r} is missing among its {len(names):,}; give the column that name"
    )


_TOO_LONG = f"holds a text of more than {MOST_TEXT_BYTES:,} bytes; cut it into texts of a few lines"


# Parquet


def _of_parquet(
    path: StoredFile, field: str, columns: Sequence[Column], skip: int, bad: BadRows, most_rows: int
) -> Iterator[tuple[Place, pa.RecordBatch]]:
    schema = pq.ParquetFile(_source(path)).schema_arrow
    names = schema.names
    for column in columns:
        if names.count(column.name) > 1:
            raise ValueError(f"{field}: {shown(path)} has two columns {column.name!r}; drop one")
        if column.required and column.name not in names:
            raise missing(path, field, column.name, names)
    # One column of any kind says how many rows there are.
    there = [column for column in columns if column.name in names]
    there = there or [Column(name, "order") for name in names if names.count(name) == 1][:1]
    strings = [column.name for column in there if is_string(value_type(schema.field(column.name).type))]
    for column in there:
        kind = value_type(schema.field(column.name).type)
        whole = column.kind == "id" and pa.types.is_integer(kind)
        # What is null throughout may be of any type.
        if column.kind != "order" and column.name not in strings and not whole and not pa.types.is_null(kind):
            # A struct's type holds the names of its fields.
            found = str(kind).partition("<")[0]
            raise ValueError(
                f"{field}: {shown(path)}, column {column.name!r} is {found}, not text; write it as strings"
            )
    # Texts stay packed, each distinct one once, until they are counted.
    file = pq.ParquetFile(_source(path), read_dictionary=strings, buffer_size=_BUFFER_BYTES)
    most, unpacked = _most_bytes(path), 0
    if file.metadata.num_rows > most:
        raise _too_much(path, field, most)
    wanted, texts = [column.name for column in there], [column.kind != "order" for column in there]
    for group in range(file.metadata.num_row_groups):
        first = min(skip, file.metadata.row_group(group).num_rows)
        skip -= first
        with _readable(path, field, partial(_damaged, file, group, wanted)):
            for batch in _of_group(file, group, first, wanted, most_rows):
                place = Place(f"row group {group}, row", range(first + 1, first + len(batch) + 1))
                first += len(batch)
                for name in strings:
                    if _longest(batch[name]) > MOST_TEXT_BYTES:
                        short = pc.fill_null(pc.less_equal(_lengths(batch[name]), MOST_TEXT_BYTES), True)
                        said = f"{field}: {shown(path)}, {place.row(short.index(False).as_py())} {_TOO_LONG}"
                        bad.add("too long", said, len(batch) - short.true_count)
                        batch, place = batch.filter(short), place.taken(short)
                unpacked += _text_bytes(batch, strings)
                if unpacked > most:
                    raise _too_much(path, field, most)
                end = 0
                for light in _light(batch, strings):
                    arrays = [light.column(name) for name in wanted]
                    plain = [_plain_array(array) if text else array for array, text in zip(arrays, texts, strict=True)]
                    made = pa.RecordBatch.from_arrays(plain, names=wanted)
                    made.validate(full=True)  # also the order: text there may not be UTF-8 either
                    begin, end = end, end + len(made)
                    if len(made):
                        yield Place(place.name, place.numbers[begin:end]), made


def _of_group(
    file: pq.ParquetFile, group: int, skip: int, wanted: list[str], most_rows: int
) -> Iterator[pa.RecordBatch]:
    """Batches of a row group without its first rows; none is empty."""
    if skip == file.metadata.row_group(group).num_rows:
        return
    for batch in file.iter_batches(most_rows, row_groups=[group], columns=wanted):
        rest, skip = batch.slice(skip), max(0, skip - len(batch))
        if len(rest):
            yield rest


def _damaged(file: pq.ParquetFile, group: int, wanted: Sequence[str]) -> str:
    """The row group, and the column that cannot be read of it if there is one."""
    for name in wanted:
        try:
            for batch in file.iter_batches(BATCH_ROWS, row_groups=[group], columns=[name]):
                batch.validate(full=True)
        except (*_DAMAGE, OSError):
            return f", row group {group}, column {name!r},"
    return f", row group {group},"


def _light(batch: pa.RecordBatch, strings: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """A batch in parts that take little memory once unpacked."""
    if len(batch) < 2 or _text_bytes(batch, strings) <= BATCH_BYTES:
        yield batch
        return
    half = len(batch) // 2
    yield from _light(batch.slice(0, half), strings)
    yield from _light(batch.slice(half), strings)


def _text_bytes(batch: pa.RecordBatch, strings: Sequence[str]) -> int:
    return sum((pc.sum(_lengths(batch[name])).as_py() or 0) + len(batch) for name in strings)


def _longest(array: pa.Array) -> int:
    """Bytes of the longest text of a column, or of one that it no longer has."""
    values = array.dictionary if isinstance(array, pa.DictionaryArray) else array
    return pc.max(pc.binary_length(values)).as_py() or 0


def _lengths(array: pa.Array) -> pa.Array:
    """Bytes of each text of a column once unpacked."""
    if isinstance(array, pa.DictionaryArray):
        return pc.take(_lengths(array.dictionary), array.indices)
    return pc.cast(pc.binary_length(array), pa.int64())


def _plain_array(array: pa.Array) -> pa.Array:
    """A column as large strings."""
    return array.cast(pa.large_string())


def value_type(kind: pa.DataType) -> pa.DataType:
    """The type of a column's values, which may be packed, each distinct one once."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def is_string(kind: pa.DataType) -> bool:
    """Return whether values of a type are text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


# JSON lines and CSV


def _of_lines(
    path: StoredFile, field: str, columns: Sequence[Column], skip: int, bad: BadRows, most_rows: int
) -> Iterator[tuple[Place, pa.RecordBatch]]:
    """Columns of a file, with their lines.

    Python's own parsers read one row at a time, and name its line. Arrow's are faster; a line ``null`` of JSON ends its
    process (apache/arrow#47409).
    """
    names = fields(path, field, MOST_BEFORE)
    for column in columns:
        if column.required and column.name not in names:
            raise missing(path, field, column.name, names)
    taken: list[tuple] = []
    size = 0
    for number, (line, record) in enumerate(_records(path, field, bad)):
        if number < skip:
            continue
        values = [record.get(column.name) for column in columns]
        size += sum(len(value) for value in values if isinstance(value, str))
        taken.append((line, *values))
        if len(taken) == most_rows or size > BATCH_BYTES:
            yield from _batch(path, field, columns, taken, bad)
            taken, size = [], 0
    yield from _batch(path, field, columns, taken, bad)


def _batch(
    path: StoredFile, field: str, columns: Sequence[Column], taken: list[tuple], bad: BadRows
) -> Iterator[tuple[Place, pa.RecordBatch]]:
    """The rows whose values are of the columns' types; none if there are none."""
    wrong: set[int] = set()
    for place, column in enumerate(columns, 1):
        for row, what in _wrong(column, [values[place] for values in taken]):
            if row not in wrong:
                said = f"{field}: {shown(path)}, line {taken[row][0]:,}: {column.name!r} {what}"
                bad.add(f"with {column.name} of another type", said)
                wrong.add(row)
    taken = [values for row, values in enumerate(taken) if row not in wrong] if wrong else taken
    if not taken:
        return
    lines, *values = zip(*taken, strict=True)
    arrays = [_array(column, content) for column, content in zip(columns, values, strict=True)]
    yield Place("line", lines), pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def _array(column: Column, content: Sequence[Any]) -> pa.Array:
    if column.kind == "order":
        return pa.array(_order(content))
    try:
        return pa.array(content, pa.large_string())
    except UnicodeEncodeError:
        # Half a surrogate pair is not a character.
        whole = (text and text.encode("utf-8", "surrogatepass").decode("utf-8", "replace") for text in content)
        return pa.array(whole, pa.large_string())


def _wrong(column: Column, content: Sequence[Any]) -> Iterator[tuple[int, str]]:
    """Rows whose value is none of a column's, and what is wrong with it.

    An order holds what most rows have, times as text or numbers: a later batch of the other kind is refused.
    """
    kinds = Counter(map(type, content))
    numbers = column.kind == "order" and kinds[int] + kinds[float] > kinds[str]
    allowed = {int, float, type(None)} if numbers else {str, type(None)}
    if kinds.keys() <= allowed and (numbers or column.kind == "text" or _is_whole("".join(filter(None, content)))):
        return
    fix = "a number" if numbers else "text; write it as a string" if column.kind != "order" else "a time as text"
    fix += ", as in most rows; write one of them" if column.kind == "order" else ""
    for row, value in enumerate(content):
        if type(value) not in allowed:
            yield row, f"is {kind_of(value)}, not {fix}"
        elif column.kind != "text" and isinstance(value, str) and not _is_whole(value):
            yield row, "holds what is no character; write letters and digits"


def _is_whole(text: str) -> bool:
    """Return whether a text has no half of a surrogate pair, which is no character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _records(path: StoredFile, field: str, bad: BadRows) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line and content of each row; blank lines are none."""
    if form(path, field) == "CSV":
        cells = _cells(path, field, bad)
        _, names = next(cells)
        for number, values in cells:
            yield number, {name: value or None for name, value in zip(names, values, strict=True)}
        return
    for number, line in _lines(path, field, bad):
        if line.isspace():
            continue
        try:
            record = json.loads(line, parse_int=_number)
        except json.JSONDecodeError as error:
            what = f"is not JSON (character {error.pos + 1:,}); write one JSON object a line, Parquet, or CSV"
        except RecursionError:
            what = "is JSON nested too deep; write one flat object a line"
        else:
            if isinstance(record, dict):
                yield number, record
                continue
            what = f"must hold one JSON object, got {kind_of(record)}; write one a line"
        bad.add("not JSON", f"{field}: {shown(path)}, line {number:,} {what}")


def _cells(path: StoredFile, field: str, bad: BadRows) -> Iterator[tuple[int, list[str]]]:
    """Line and cells of the header and of each row of CSV, all of one number."""
    csv.field_size_limit(MOST_TEXT_BYTES)
    found = csv.reader((line for _, line in _lines(path, field, bad)), strict=True)
    number, width = 1, 0
    while True:
        at = f"{field}: {shown(path)}, line {number:,}"
        try:
            cells = next(found)
        except StopIteration:
            return
        except csv.Error:
            bad.add("not CSV", f'{at} is no CSV; write commas between values, and "" for " in a value')
            cells = []
        width = width or len(cells)
        if len(set(cells)) < width and number == 1:
            raise ValueError(f"{at} names two columns alike; rename one")
        if len(cells) == width:
            yield number, cells
        elif cells:
            said = f"{at} has {len(cells):,} values for {width:,} columns; write a value for each"
            bad.add("not CSV", said)
        number = found.line_num + 1


def _order(content: Sequence[Any]) -> Sequence[Any]:
    """Times or numbers of a column; whole numbers beside fractions become fractions, which Arrow would refuse."""
    if not any(isinstance(value, float) for value in content):
        return content
    return [float(value) if type(value) is int else value for value in content]


def _number(digits: str) -> int | float:
    """A whole number; beyond 64 bits only its size, as more digits cost time and Python refuses thousands."""
    return int(digits) if len(digits) < 19 else float(digits)


def _lines(path: StoredFile, field: str, bad: BadRows) -> Iterator[tuple[int, str]]:
    number = read = 0
    goes_on = False
    with _unpacked(path) as (file, packed):
        most = _most_bytes(path) if packed else None
        while line := file.readline(MOST_TEXT_BYTES + 1):
            read += len(line)
            if most is not None and read > most:
                raise _too_much(path, field, most)
            of_long, goes_on = goes_on, len(line) > MOST_TEXT_BYTES and not line.endswith(b"\n")
            if of_long:
                continue
            number += 1
            if goes_on:
                bad.add("too long", f"{field}: {shown(path)}, line {number:,} {_TOO_LONG}")
                continue
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                at = f"{field}: {shown(path)}, line {number:,}"
                bad.add("not UTF-8", f"{at} is not UTF-8 (byte {error.start:,}); save the file as UTF-8")
                continue
            yield number, text
