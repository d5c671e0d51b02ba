"""Participation records: who was aggregated in which round. Private.

Shape legend: D devices of the population, N participations on record, T rounds.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from federated.files import replace_file


class Records:
    """What happened: one entry per (round, device) that was aggregated. Private.

    A value: adding a round makes a new one, which shares the earlier rounds with the old one.

    Attributes:
      rounds_N: int32, ascending.
      devices_N: int32.
    """

    def __init__(self, rounds_N: np.ndarray, devices_N: np.ndarray) -> None:
        self._parts = [(rounds_N, devices_N)]
        self._size = 1

    @property
    def rounds_N(self) -> np.ndarray:
        return self._joined()[0]

    @property
    def devices_N(self) -> np.ndarray:
        return self._joined()[1]

    def add(self, round_number: int, cohort: np.ndarray) -> "Records":
        """These records and one more round; costs what the cohort costs."""
        later = Records.__new__(Records)
        # The list only grows. Two values that part ways no longer share it.
        shared = len(self._parts) == self._size
        later._parts = self._parts if shared else self._parts[: self._size]
        later._parts.append((np.full(len(cohort), round_number, dtype=np.int32), cohort.astype(np.int32)))
        later._size = self._size + 1
        return later

    def before(self, round_number: int) -> "Records":
        """The records of earlier rounds."""
        rounds_N, devices_N = self._joined()
        keep = rounds_N < round_number
        return Records(rounds_N[keep], devices_N[keep])

    def participations(self, num_devices: int) -> np.ndarray:
        """How many rounds each device joined, int64 ``[D]``."""
        return np.bincount(self.devices_N, minlength=num_devices)

    def joined(self, rounds: int, devices: np.ndarray) -> np.ndarray:
        """Bool ``[rounds, devices]``: which of these devices, ascending, joined when."""
        joined_TD = np.zeros((rounds, len(devices)), dtype=bool)
        known = np.isin(self.devices_N, devices)
        joined_TD[self.rounds_N[known], np.searchsorted(devices, self.devices_N[known])] = True
        return joined_TD

    def _joined(self) -> tuple[np.ndarray, np.ndarray]:
        parts = self._parts[: self._size]
        if len(parts) == 1:
            return parts[0]
        rounds_N, devices_N = (np.concatenate(column) for column in zip(*parts, strict=True))
        if len(self._parts) == self._size:
            # Once joined, joined for good: the next call only adds what came since.
            self._parts, self._size = [(rounds_N, devices_N)], 1
        return rounds_N, devices_N


def no_records() -> Records:
    """Before the first round."""
    return Records(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32))


def save_records(records: Records, path: Path) -> None:
    """Replace the Parquet file (columns ``round``, ``device``; mode 0600) in one step."""
    table = pa.table({"round": records.rounds_N, "device": records.devices_N})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    replace_file(path, sink.getvalue())


def load_records(path: Path) -> Records:
    """Read what ``save_records`` wrote; OSError if it cannot be read."""
    try:
        table = pq.read_table(path)
    except pa.ArrowInvalid as error:
        raise OSError(f"{path.name}: not a readable Parquet file: {error}") from error
    return Records(table["round"].to_numpy(), table["device"].to_numpy())
