"""Participation records: who was aggregated in which round. Private.

Kept as a folder of Parquet files, one for the rounds between two checkpoints, so that a checkpoint
writes what is new and nothing twice. The names say which rounds a file holds: rounds-00000010-00000015.parquet
those from 10 up to, not including, 15. Any reader of Parquet takes the folder for one table.

Shape legend: D devices of the population, N participations on record, T rounds.
"""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pretrain.files import PRIVATE, atomic, private_directory

_PART = re.compile(r"rounds-([0-9]{8})-([0-9]{8})\.parquet")


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

    def since(self, round_number: int) -> "Records":
        """The records of this round and later ones; costs what these cost."""
        rounds, devices = [], []
        for rounds_N, devices_N in reversed(self._parts[: self._size]):
            first = int(np.searchsorted(rounds_N, round_number))
            rounds.append(rounds_N[first:])
            devices.append(devices_N[first:])
            if first:
                break
        return Records(np.concatenate(rounds[::-1]), np.concatenate(devices[::-1]))

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


def save_records(records: Records, folder: Path, rounds: int) -> None:
    """Write one more file (mode 0600; columns ``round``, ``device``) of the rounds below ``rounds`` that none holds."""
    private_directory(folder)
    first = max((last for _, last in _parts(folder)), default=0)
    if first >= rounds:
        return
    new = records.since(first)
    with atomic(folder / _name(first, rounds), PRIVATE) as temporary:
        pq.write_table(pa.table({"round": new.rounds_N, "device": new.devices_N}), temporary)


def forget_records(folder: Path, rounds: int) -> None:
    """Remove the files of later rounds, before these are done again: the same devices join, by the same rule."""
    for first, last in _parts(folder):
        if last > rounds:
            (folder / _name(first, last)).unlink()


def load_records(folder: Path, rounds: int | None = None) -> Records:
    """Read what ``save_records`` wrote, up to, not including, the round ``rounds``; None: all there is.

    Raises:
      OSError: a file is missing, cut short or holds other rounds than its name says.
    """
    if not folder.is_dir():
        raise OSError(f"{folder.name}: there is no such folder of records")
    reached, parts = 0, [no_records()]
    for first, last in sorted(_parts(folder)):
        if rounds is not None and reached >= rounds:
            break
        name = _name(first, last)
        if first != reached:
            raise OSError(f"{folder.name}/rounds-{reached:08d}-*.parquet is missing, before {name}; restore it")
        parts.append(_read(folder / name, first, last))
        reached = last
    if rounds is not None and reached < rounds:
        raise OSError(f"{folder.name}/rounds-{reached:08d}-*.parquet is missing, of {rounds} rounds; restore it")
    rounds_N, devices_N = zip(*((part.rounds_N, part.devices_N) for part in parts), strict=True)
    return Records(np.concatenate(rounds_N), np.concatenate(devices_N))


def _parts(folder: Path) -> list[tuple[int, int]]:
    """First round and the one after the last of every file there is."""
    names = [_PART.fullmatch(path.name) for path in folder.iterdir()] if folder.is_dir() else []
    return [(int(name[1]), int(name[2])) for name in names if name]


def _name(first: int, last: int) -> str:
    return f"rounds-{first:08d}-{last:08d}.parquet"


def _read(path: Path, first: int, last: int) -> Records:
    name = f"{path.parent.name}/{path.name}"
    try:
        table = pq.read_table(path)
        rounds_N, devices_N = table["round"].to_numpy(), table["device"].to_numpy()
    except (pa.ArrowInvalid, KeyError, OSError) as error:
        raise OSError(f"{name}: not a readable Parquet file of records; restore it: {error}") from error
    if len(rounds_N) and not (first <= rounds_N.min() and rounds_N.max() < last):
        raise OSError(f"{name}: holds rounds {rounds_N.min()} to {rounds_N.max()}; restore it")
    return Records(rounds_N, devices_N)
