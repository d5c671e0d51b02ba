"""External sort of a population's rows by device and time: sorted runs on disk, merged in bounded memory.

Rows come in any order, and those of one device from many files. As many as fit are sorted in memory and written to a
run; runs are merged piece by piece. A run is an unnamed file, which no other process can open and which disappears with
the process: no client text is ever left behind.
"""

import bisect
import contextlib
import math
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

RUN_BYTES = 1 << 28
# Rows in memory per run; a merge takes this number times the number of runs.
PIECE_ROWS, _PIECE_BYTES = 8_192, 1 << 22
MOST_RUNS = 64
_KEYS = [("client_id", "ascending"), ("ts", "ascending"), ("row", "ascending")]
_Key = tuple[str, int, float, int]


def in_order(tables: Iterable[pa.Table], folder: Path | None = None) -> Iterator[pa.RecordBatch]:
    """All rows by ascending ``client_id``, then ``ts`` (without one last), then in order of arrival.

    All tables are read before it returns, so that their faults are known by then.

    Args:
      tables: with ``client_id``, ``text`` and ``ts``, which is null or of one other type in all of them.
      folder: folder of the runs; None for the system's temporary folder.
    """
    with contextlib.ExitStack() as opened:
        runs = [opened.enter_context(run) for run in _written(tables, folder)]
        kind = _kind(runs)
        while len(runs) > MOST_RUNS:
            first, runs = runs[:MOST_RUNS], runs[MOST_RUNS:]
            runs.append(opened.enter_context(_run(_merged(first, kind), folder)))
            for run in first:
                run.close()
        rows = _merged(runs, kind)
        # A generator that never starts does not run its own cleanup.
        weakref.finalize(rows, opened.pop_all().close)
    return rows


def _written(tables: Iterable[pa.Table], folder: Path | None) -> Iterator[IO[bytes]]:
    """Write sorted runs of rows; every row holds its index in the input."""
    gathered: list[pa.Table] = []
    size = count = 0
    for table in tables:
        if not len(table):
            continue
        numbers = pa.array(np.arange(count, count + len(table)))
        gathered.append(table.append_column("row", numbers))
        count, size = count + len(table), size + table.nbytes
        if size >= RUN_BYTES:
            yield _run(_sorted(gathered), folder)
            gathered, size = [], 0
    if gathered:
        yield _run(_sorted(gathered), folder)


def _sorted(tables: list[pa.Table]) -> Iterator[pa.RecordBatch]:
    """Rows of a few tables, sorted, in small batches."""
    table = pa.concat_tables(tables, promote_options="default").combine_chunks()
    tables.clear()
    # A column of type null has no order.
    time = table["ts"].cast(pa.float64()) if pa.types.is_null(table["ts"].type) else table["ts"]
    order = pc.sort_indices(
        pa.table({"client_id": table["client_id"], "ts": time, "row": table["row"]}), sort_keys=_KEYS
    )
    for first in range(0, len(order), PIECE_ROWS):
        for batch in table.take(order.slice(first, PIECE_ROWS)).combine_chunks().to_batches():
            yield from _pieces(batch)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if len(batch) > 1 and batch.nbytes > _PIECE_BYTES:
        half = len(batch) // 2
        yield from _pieces(batch.slice(0, half))
        yield from _pieces(batch.slice(half))
    else:
        yield batch


def _run(batches: Iterator[pa.RecordBatch], folder: Path | None) -> IO[bytes]:
    """Write batches to an unnamed file."""
    file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - the merge closes it
    codec = "lz4" if pa.Codec.is_available("lz4") else None
    writer = None
    for batch in batches:
        if writer is None:
            writer = pa.ipc.new_file(file, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec))
        writer.write_batch(batch)
    if writer is not None:
        writer.close()
    file.flush()
    return file


def _kind(runs: list[IO[bytes]]) -> pa.DataType:
    """Type of ``ts``: that of the runs in which some row has one."""
    kinds = {pa.ipc.open_file(run).schema.field("ts").type for run in runs} - {pa.null()}
    assert len(kinds) < 2, "readers take times or numbers"
    return kinds.pop() if kinds else pa.float64()


def _merged(runs: list[IO[bytes]], kind: pa.DataType) -> Iterator[pa.RecordBatch]:
    """Rows of all runs in order, with at most a piece of each in memory."""
    readers = [pa.ipc.open_file(run) for run in runs]
    ahead = [_read(reader, kind) for reader in readers]
    heads = [next(batches, None) for batches in ahead]
    while True:
        heads = [
            next(batches, None) if head is not None and not len(head) else head
            for head, batches in zip(heads, ahead, strict=True)
        ]
        there = [head for head in heads if head is not None]
        if not there:
            return
        # Up to this key, the rows of all runs are in memory.
        bound = min(_key(head, len(head) - 1) for head in there)
        ends = [0 if head is None else _first_after(head, bound) for head in heads]
        parts = [head.slice(0, end) for head, end in zip(heads, ends, strict=True) if head is not None and end]
        heads = [head if head is None else head.slice(end) for head, end in zip(heads, ends, strict=True)]
        if len(parts) == 1:
            yield parts[0]
        else:
            together = pa.Table.from_batches(parts).combine_chunks()
            yield from together.take(pc.sort_indices(together, sort_keys=_KEYS)).combine_chunks().to_batches()


def _read(reader: pa.RecordBatchFileReader, kind: pa.DataType) -> Iterator[pa.RecordBatch]:
    for number in range(reader.num_record_batches):
        batch = reader.get_batch(number)
        if len(batch):
            yield batch.set_column(batch.schema.get_field_index("ts"), "ts", batch["ts"].cast(kind))


def _first_after(batch: pa.RecordBatch, bound: _Key) -> int:
    return bisect.bisect_right(range(len(batch)), bound, key=lambda place: _key(batch, place))


def _key(batch: pa.RecordBatch, place: int) -> _Key:
    """Sort key in Arrow's order: text by its characters, then numbers, then NaN, then missing values."""
    client, time, row = (batch[name][place].as_py() for name in ("client_id", "ts", "row"))
    if time is None:
        return client, 2, 0.0, row
    return (client, 1, 0.0, row) if math.isnan(time) else (client, 0, time, row)
