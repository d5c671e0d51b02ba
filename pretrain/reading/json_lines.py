"""JSON lines that somebody else wrote: one flat object a line, perhaps packed by gzip or bzip2.

Lines are read one at a time by Python's own parser. Arrow's is faster, and a line ``null`` ends its process
(apache/arrow#47409).
"""

import bz2
import gzip
import json
from collections.abc import Callable, Iterator, Sequence
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


def batches(path: Path, field: str, columns: Sequence[Column], skip: int) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Columns of a file, with the lines that they stand in."""
    rows: list[tuple] = []
    seen: set[str] = set()
    size = 0
    for number, (line, record) in enumerate(records(path, field)):
        seen |= record.keys()
        if number < skip:
            continue
        values = [record.get(column.name) for column in columns]
        size += sum(len(value) for value in values if isinstance(value, str))
        rows.append((line, *values))
        if len(rows) == BATCH_ROWS or size > BATCH_BYTES:
            yield _batch(path, field, columns, rows)
            rows, size = [], 0
    for column in columns:
        if column.required and column.name not in seen:
            raise missing(path, field, column, sorted(seen))
    if rows:
        yield _batch(path, field, columns, rows)


def _batch(path: Path, field: str, columns: Sequence[Column], rows: list[tuple]) -> tuple[str, pa.RecordBatch]:
    lines, *values = zip(*rows, strict=True)
    place = f"lines {lines[0]:,} to {lines[-1]:,}"
    arrays = []
    for column, content in zip(columns, values, strict=True):
        if column.kind == "order":
            try:
                arrays.append(pa.array(content))
            except (TypeError, ValueError, OverflowError) as error:
                raise ValueError(
                    f"{field}: {shown(path)}, {place}: {column.name!r} is not a time in each row, nor a number in "
                    f"each ({shown(error)}); write one of them"
                ) from error
            continue
        for line, value in zip(lines, content, strict=True):
            if value is not None and not isinstance(value, str):
                at = f"{field}: {shown(path)}, line {line:,}: {column.name!r}"
                raise ValueError(f"{at} is {shown(repr(value))}, not text; write it as a string")
        try:
            array = pa.array(content, pa.large_string())
        except UnicodeEncodeError as error:
            # Half a surrogate pair stands for no character.
            if column.kind == "id":
                raise ValueError(
                    f"{field}: {shown(path)}, {place}: {column.name!r} holds what is no character, "
                    f"{shown(error.object)}; write ids in letters and digits"
                ) from error
            whole = (text and text.encode("utf-8", "surrogatepass").decode("utf-8", "replace") for text in content)
            array = pa.array(whole, pa.large_string())
        arrays.append(array)
    return place, pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])


def records(path: Path, field: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and content of each line that is not blank."""
    for number, line in _lines(path, field):
        at = f"{field}: {shown(path)}, line {number:,}"
        try:
            record = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
        except UnicodeDecodeError as error:
            raise ValueError(f"{at} is not UTF-8 (byte {error.start:,}); save the file as UTF-8") from error
        except ValueError as error:
            raise ValueError(f"{at} is not JSON ({shown(error)}); write one JSON object a line") from error
        except RecursionError as error:
            raise ValueError(f"{at} is JSON nested too deep; write one flat object a line") from error
        if not isinstance(record, dict):
            raise ValueError(f"{at} must hold one JSON object, got {type(record).__name__}; write one a line")
        yield number, record


def _lines(path: Path, field: str) -> Iterator[tuple[int, bytes]]:
    packers: dict[str, Callable] = {".gz": gzip.open, ".bz2": bz2.open}
    most = most_bytes(path) if path.suffix in packers else None
    number = read = 0
    with cast("IO[bytes]", packers.get(path.suffix, open)(path, "rb")) as file:
        while line := file.readline(MOST_TEXT_BYTES + 1):
            number += 1
            read += len(line)
            if len(line) > MOST_TEXT_BYTES:
                raise too_long(path, field)
            if most is not None and read > most:
                raise too_much(path, field, most)
            if not line.isspace():
                yield number, line
