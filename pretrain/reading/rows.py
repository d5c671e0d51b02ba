"""Rows of Parquet and JSON lines that somebody else wrote, batch by batch, as Arrow columns.

A file may be damaged, lie about its size or hold other things than text. Whatever it does ends in a ``ValueError``
that names the file, the row and the fix, before it takes more memory than the batch at hand: texts are counted before
they are unpacked, lines are read up to a limit, and a file that unpacks to far more than text ever does is refused.
"""

import bz2
import glob
import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pretrain.reading.paths import require_file, shown

# Text shrinks to a third, repetitive lines to a twentieth. Small files may do as they like.
MOST_EXPANSION, FREE_BYTES = 100, 1 << 26
MOST_TEXT_BYTES = 1 << 24
_BATCH_ROWS, _BATCH_BYTES = 10_000, 1 << 26
_DAMAGE = (EOFError, zlib.error, pa.ArrowException, MemoryError, UnicodeDecodeError)
_HALF = ("\\ud", "\\uD")

Kind = Literal["text", "id", "order"]


@dataclass(frozen=True)
class Column:
    """A column to read.

    Attributes:
      kind: ``text``; ``id``: text that Parquet may hold as whole numbers; ``order``: a time or a number, as it is.
    """

    name: str
    kind: Kind = "text"
    required: bool = True


def matching(patterns: Sequence[str], field: str) -> list[Path]:
    """Files that some paths or globs name, each once, in the order named.

    Raises:
      ValueError: one matches nothing, or something that is no ordinary file.
    """
    paths: list[Path] = []
    for pattern in patterns:
        if len(pattern) > 4_096 or "\0" in pattern:
            raise ValueError(f"{field}: {shown(pattern)} is no path; give a shorter one")
        matches = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - Path.glob refuses absolute patterns
        if not matches:
            raise ValueError(f"{field}: no file matches {shown(repr(pattern))}; check the path")
        paths += [require_file(Path(name), field, "name files, or a glob that matches files only") for name in matches]
    return list(dict.fromkeys(path.resolve() for path in paths))


def fields(path: Path, field: str) -> list[str]:
    """Names of a file's columns: of the schema, or of the first record.

    Raises:
      ValueError: damaged, or neither Parquet nor JSON lines.
    """
    with _readable(path, field):
        if path.suffix == ".parquet":
            return list(pq.ParquetFile(path).schema_arrow.names)
        record = next(_records(path, field), None)
        return [] if record is None else list(record[1])


def batches(path: Path, field: str, columns: Sequence[Column], skip: int = 0) -> Iterator[pa.RecordBatch]:
    """The columns of a file in its order; one that is not required and not there is left out of Parquet's batches.

    Args:
      field: what named the file, for errors.
      skip: rows to leave out from the start.

    Raises:
      ValueError: damaged, a column missing or twice, a value of another type, or far more than a file may hold.
      OSError: the disk does not answer.
    """
    require_file(path, field, "name a file that is there")
    with _readable(path, field):
        yield from (_of_parquet if path.suffix == ".parquet" else _of_json)(path, field, columns, skip)


@contextmanager
def _readable(path: Path, field: str) -> Iterator[None]:
    """Say of damage that it is damage: Arrow and the decompressors raise what a retry would be for."""
    try:
        yield
    except (*_DAMAGE, OSError) as error:
        # The disk gives a number.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        why = shown(" ".join(str(error).split()) or type(error).__name__)
        kind = "Parquet" if path.suffix == ".parquet" else "JSON lines"
        raise ValueError(
            f"{field}: {shown(path)} is not readable as {kind}, so damaged or cut short ({why}); copy it again"
        ) from error


def _most_bytes(path: Path) -> int:
    return max(FREE_BYTES, MOST_EXPANSION * path.stat().st_size)


def _too_much(path: Path, field: str, most: int) -> ValueError:
    return ValueError(
        f"{field}: {shown(path)} unpacks to more than {most:,} bytes, {MOST_EXPANSION} times its size, which no text "
        "does; look at what made it"
    )


# Parquet


def _of_parquet(path: Path, field: str, columns: Sequence[Column], skip: int) -> Iterator[pa.RecordBatch]:
    names = fields(path, field)
    for column in columns:
        if names.count(column.name) > 1:
            raise ValueError(f"{field}: {shown(path)} has two columns {column.name!r}; drop one")
        if column.required and column.name not in names:
            raise _missing(path, field, column, names)
    there = [column for column in columns if column.name in names]
    schema = pq.ParquetFile(path).schema_arrow
    strings = [column.name for column in there if _is_string(_plain(schema.field(column.name).type))]
    for column in there:
        kind = _plain(schema.field(column.name).type)
        whole = column.kind == "id" and pa.types.is_integer(kind)
        if column.kind != "order" and column.name not in strings and not whole:
            raise ValueError(
                f"{field}: {shown(path)}, column {column.name!r} is {schema.field(column.name).type}, not text; write "
                "it as strings"
            )
    # Texts stay packed, each distinct one once, until they are counted.
    file, most, unpacked = pq.ParquetFile(path, read_dictionary=strings), _most_bytes(path), 0
    metadata = file.metadata
    if metadata.num_rows > most:
        raise _too_much(path, field, most)
    groups: list[int] = []
    for group in range(metadata.num_row_groups):
        size = metadata.row_group(group).num_rows
        if not groups and skip >= size:
            skip -= size
        else:
            groups.append(group)
    wanted = [column.name for column in there]
    for batch in file.iter_batches(_BATCH_ROWS, row_groups=groups, columns=wanted) if groups else ():
        if skip:
            batch, skip = batch.slice(skip), max(0, skip - len(batch))
        unpacked += sum(_unpacked_bytes(batch.column(name), path, field) for name in strings)
        if unpacked > most:
            raise _too_much(path, field, most)
        if len(batch):
            arrays = [batch.column(column.name) for column in there]
            texts = [column.kind != "order" for column in there]
            plain = [_plain_array(array) if text else array for array, text in zip(arrays, texts, strict=True)]
            batch = pa.RecordBatch.from_arrays(plain, names=wanted)
            batch.validate(full=True)  # also the order: text there may not be UTF-8 either
            yield batch


def _unpacked_bytes(array: pa.Array, path: Path, field: str) -> int:
    values = array.dictionary if isinstance(array, pa.DictionaryArray) else array
    if len(values) and (pc.max(pc.binary_length(values)).as_py() or 0) > MOST_TEXT_BYTES:
        raise _too_long(path, field)
    lengths = pc.binary_length(values)
    taken = pc.take(lengths, array.indices) if isinstance(array, pa.DictionaryArray) else lengths
    return (pc.sum(pc.cast(taken, pa.int64())).as_py() or 0) + len(array)


def _plain_array(array: pa.Array) -> pa.Array:
    """A column as large strings."""
    return array.cast(pa.large_string())


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _missing(path: Path, field: str, column: Column, names: Sequence[str]) -> ValueError:
    has = shown(", ".join(map(repr, names))) or "none"
    return ValueError(f"{field}: {shown(path)}: column {column.name!r} is missing; it has {has}")


def _too_long(path: Path, field: str) -> ValueError:
    return ValueError(
        f"{field}: {shown(path)} holds a text of more than {MOST_TEXT_BYTES:,} bytes; cut it into texts of a few lines"
    )


# JSON lines


def _of_json(path: Path, field: str, columns: Sequence[Column], skip: int) -> Iterator[pa.RecordBatch]:
    gathered: dict[str, list[Any]] = {column.name: [] for column in columns}
    rows = size = 0
    seen: set[str] = set()
    for number, (line, record) in enumerate(_records(path, field)):
        seen |= record.keys()
        if number < skip:
            continue
        for column in columns:
            value = record.get(column.name)
            _check_value(value, column, path, field, line)
            gathered[column.name].append(value)
            size += len(value) if isinstance(value, str) else 0
        rows += 1
        if rows == _BATCH_ROWS or size > _BATCH_BYTES:
            yield _arrays(gathered, columns, path, field)
            gathered, rows, size = {column.name: [] for column in columns}, 0, 0
    for column in columns:
        if column.required and column.name not in seen:
            raise _missing(path, field, column, sorted(seen))
    if rows:
        yield _arrays(gathered, columns, path, field)


def _arrays(gathered: dict[str, list[Any]], columns: Sequence[Column], path: Path, field: str) -> pa.RecordBatch:
    arrays = []
    for column in columns:
        values = gathered[column.name]
        if column.kind == "order":
            kinds = {isinstance(value, str) for value in values if value is not None}
            if len(kinds) > 1:
                raise ValueError(
                    f"{field}: {shown(path)}: {column.name!r} is text in one row and a number in another; write one"
                )
            kind = {True: pa.large_string(), False: pa.float64()}[kinds.pop()] if kinds else pa.null()
            arrays.append(pa.array(values, kind))
        else:
            arrays.append(pa.array(values, pa.large_string()))
    return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def _check_value(value: object, column: Column, path: Path, field: str, line: int) -> None:
    at = f"{field}: {shown(path)}, line {line:,}: {column.name!r}"
    if value is None:
        return
    if column.kind == "order":
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError(f"{at} is {shown(repr(value))}; write a time or a number")
        if isinstance(value, int) and abs(value) > 1 << 62:
            raise ValueError(f"{at} is a number of {len(str(value)):,} digits; write a time or a smaller number")
    elif not isinstance(value, str):
        raise ValueError(f"{at} is {shown(repr(value))}, not text; write it as a string")
    elif column.kind == "id" and "\ufffd" in value:
        raise ValueError(f"{at} holds what is no character; write ids in letters and digits")


def _records(path: Path, field: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and content of each line that is not blank."""
    for number, line in _lines(path, field):
        at = f"{field}: {shown(path)}, line {number:,}"
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            record = _DECODER.decode(text)
        except UnicodeDecodeError as error:
            raise ValueError(f"{at} is not UTF-8 (byte {error.start:,}); save the file as UTF-8") from error
        except ValueError as error:
            raise ValueError(
                f"{at} is not JSON ({shown(error)}); write one JSON object a line, and each name once"
            ) from error
        except RecursionError as error:
            raise ValueError(f"{at} is JSON nested too deep; write one flat object a line") from error
        if not isinstance(record, dict):
            raise ValueError(f"{at} must hold one JSON object, got {type(record).__name__}; write one a line")
        if any(half in text for half in _HALF):
            # Half a surrogate pair stands for no character; a whole one has become one by now.
            record = {
                name: value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
                if isinstance(value, str)
                else value
                for name, value in record.items()
            }
        yield number, record


def _open(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return cast("IO[bytes]", gzip.open(path, "rb"))
    return cast("IO[bytes]", bz2.open(path, "rb")) if path.suffix == ".bz2" else path.open("rb")


def _lines(path: Path, field: str) -> Iterator[tuple[int, bytes]]:
    most, read = _most_bytes(path), 0
    packed = path.suffix in (".gz", ".bz2")
    with _open(path) as file:
        number = 0
        while line := file.readline(MOST_TEXT_BYTES + 1):
            number += 1
            read += len(line)
            if len(line) > MOST_TEXT_BYTES:
                raise _too_long(path, field)
            if packed and read > most:
                raise _too_much(path, field, most)
            if not line.isspace():
                yield number, line


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} stands twice")
    return record


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_number)
