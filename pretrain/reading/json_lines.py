"""JSON lines that somebody else wrote: one flat object a line, perhaps packed by gzip or bzip2."""

import bz2
import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa

from pretrain.reading.columns import (
    BATCH_BYTES,
    BATCH_ROWS,
    MOST_TEXT_BYTES,
    Column,
    missing,
    most_bytes,
    too_long,
    too_much,
)
from pretrain.reading.paths import shown

_HALF = ("\\ud", "\\uD")


def batches(path: Path, field: str, columns: Sequence[Column], skip: int) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Columns of a file, with the lines that they stand in."""
    gathered: dict[str, list[Any]] = {column.name: [] for column in columns}
    rows = size = line = 0
    first = 1
    seen: set[str] = set()
    for number, (line, record) in enumerate(records(path, field)):
        seen |= record.keys()
        if number < skip:
            first = line + 1
            continue
        for column in columns:
            value = record.get(column.name)
            _check_value(value, column, path, field, line)
            gathered[column.name].append(value)
            size += len(value) if isinstance(value, str) else 0
        rows += 1
        if rows == BATCH_ROWS or size > BATCH_BYTES:
            yield f"lines {first:,} to {line:,}", _arrays(gathered, columns, path, field)
            gathered, rows, size, first = {column.name: [] for column in columns}, 0, 0, line + 1
    for column in columns:
        if column.required and column.name not in seen:
            raise missing(path, field, column, sorted(seen))
    if rows:
        yield f"lines {first:,} to {line:,}", _arrays(gathered, columns, path, field)


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


def records(path: Path, field: str) -> Iterator[tuple[int, dict[str, Any]]]:
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
    most, read = most_bytes(path), 0
    packed = path.suffix in (".gz", ".bz2")
    with _open(path) as file:
        number = 0
        while line := file.readline(MOST_TEXT_BYTES + 1):
            number += 1
            read += len(line)
            if len(line) > MOST_TEXT_BYTES:
                raise too_long(path, field)
            if packed and read > most:
                raise too_much(path, field, most)
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
