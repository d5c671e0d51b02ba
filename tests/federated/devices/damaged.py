"""Parquet of typed text whose pages somebody overwrote."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def write_damaged(path: Path, places: Sequence[tuple[int, int]]) -> None:
    """Three row groups of devices ``a`` and ``b``, with zeros in a page of each (row group, column) that is named."""
    rows = {"client_id": ["a", "b"] * 300, "text": [f"hello number {number}" for number in range(600)]}
    pq.write_table(pa.table(rows), path, row_group_size=200, compression="none", use_dictionary=False)
    content, groups = bytearray(path.read_bytes()), pq.ParquetFile(path).metadata
    for group, column in places:
        begins = groups.row_group(group).column(column).data_page_offset
        content[begins : begins + 40] = bytes(40)
    path.write_bytes(bytes(content))
