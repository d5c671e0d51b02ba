"""Rows put in order on the disk, against sorting all of them in memory."""

import math
import random
from pathlib import Path

import pyarrow as pa
import pytest

from federated.devices import order

Row = tuple[str, str | None, float | None]


def rows(count: int, seed: int, *, times: str) -> list[Row]:
    draw = random.Random(seed)
    some = {"number": [0.5, 2.0, -1.0, math.nan, None], "time": [0, 3, 10**15, None], "none": [None]}[times]
    clients = ["b", "a", "B", "é", "日本", "𐍈", "zz", "z"]
    return [(draw.choice(clients), draw.choice(["x", None, "y" * 40]), draw.choice(some)) for _ in range(count)]


def tables(some: list[Row], at_once: int, kind: pa.DataType) -> list[pa.Table]:
    """Some rows at a time; where none of a part has a time, its column has no type."""
    made = []
    for first in range(0, len(some), at_once):
        client, text, ts = zip(*some[first : first + at_once], strict=True)
        typed = pa.null() if set(ts) == {None} else kind
        kinds = {"client_id": pa.large_string(), "text": pa.large_string(), "ts": typed}
        made.append(pa.table({"client_id": client, "text": text, "ts": ts}, schema=pa.schema(kinds.items())))
    return made


def in_memory(some: list[Row]) -> list[Row]:
    """Sorted by client, time, then as they came; no number after all numbers, and nothing after that."""

    def key(row: Row) -> tuple[bytes, int, float]:
        missing = 2 if row[2] is None else int(math.isnan(row[2]))
        return row[0].encode(), missing, 0 if missing else row[2]

    return sorted(some, key=key)


@pytest.mark.parametrize("times", ["number", "time", "none"])
@pytest.mark.parametrize(("run_bytes", "piece", "most"), [(1 << 28, 8192, 64), (400, 3, 3), (1, 1, 2)])
def test_in_order_whatever_fits_into_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, times: str, run_bytes: int, piece: int, most: int
):
    monkeypatch.setattr(order, "RUN_BYTES", run_bytes)
    monkeypatch.setattr(order, "PIECE_ROWS", piece)
    monkeypatch.setattr(order, "MOST_RUNS", most)
    some = rows(90, 1, times=times)
    kind = pa.int64() if times == "time" else pa.float64()
    parts = tables(some, 4, kind)
    ordered = order.in_order([parts[0].slice(0, 0), *parts, parts[-1].slice(0, 0)], tmp_path)
    assert not list(tmp_path.iterdir()), "files have no names: a crash leaves none"
    back = [
        row
        for batch in ordered
        for row in zip(*(batch[name].to_pylist() for name in ("client_id", "text", "ts")), strict=True)
    ]
    assert repr(back) == repr(in_memory(some))


def test_what_is_wrong_is_known_at_once(tmp_path: Path):
    def broken():
        yield from tables(rows(20, 1, times="none"), 4, pa.float64())
        raise ValueError("row group 7")

    with pytest.raises(ValueError, match="row group 7"):
        order.in_order(broken(), tmp_path)
    assert not list(order.in_order([], tmp_path))


def test_little_is_in_memory_however_few_devices_there_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """One device may have typed everything, all at one time."""
    monkeypatch.setattr(order, "RUN_BYTES", 1 << 14)
    monkeypatch.setattr(order, "PIECE_ROWS", 16)
    some: list[Row] = [("one", f"text {number}", None) for number in range(5_000)]
    batches = list(order.in_order(tables(some, 100, pa.float64()), tmp_path))
    assert [text for batch in batches for text in batch["text"].to_pylist()] == [row[1] for row in some]
    runs = 5_000 * 30 // (1 << 14) + 2
    assert max(map(len, batches)) <= 16 * runs
