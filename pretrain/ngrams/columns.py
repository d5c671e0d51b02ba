"""Long columns of numbers on disk, in unnamed files that disappear with the process."""

import tempfile
from pathlib import Path

import numpy as np

# Shorter ones end in memory.
HELD_BYTES = 1 << 26


class Column:
    """Numbers that are written from one end to the other, and read in parts or, in the end, as an array."""

    def __init__(self, dtype: type, folder: Path | None) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - open for as long as the column is
        self._dtype = np.dtype(dtype)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def append(self, values: np.ndarray) -> None:
        """Add values behind the others."""
        self._file.seek(self._size * self._dtype.itemsize)
        self._file.write(np.ascontiguousarray(values, dtype=self._dtype).data)
        self._size += len(values)

    def read(self, first: int, last: int) -> np.ndarray:
        """The values from a place up to another one, in memory."""
        content = np.empty(max(min(last, self._size) - first, 0), dtype=self._dtype)
        self._file.seek(first * self._dtype.itemsize)
        self._file.readinto(content.data)
        return content

    def array(self) -> np.ndarray:
        """All values so far: few in memory, many mapped, read-only."""
        if self._size * self._dtype.itemsize <= HELD_BYTES:
            return self.read(0, self._size)
        self._file.flush()
        values: np.ndarray = np.memmap(self._file, dtype=self._dtype, mode="r", shape=(self._size,))
        return values

    def closed(self) -> np.ndarray:
        """``array``, after which the column is over."""
        values = self.array()
        self._file.close()
        return values
