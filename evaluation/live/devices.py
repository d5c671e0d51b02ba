"""Counts that keyboards logged in a live experiment, added up by device, for a release with noise.

Shape legend: D devices, R rows of a batch, T days.

An error about a value would say something about one device, so no value is an error. A device with an impossible row
contributes nothing, and a row without a device's key or of another day is nobody's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa

from evaluation.live.logs import ARMS, COUNTS, DEVICE_SCHEMA, FIELD, MOST_COUNT, MOST_KEY_BYTES, PARTS, TREATMENT
from pretrain.reading import rows
from pretrain.reading.rows import Column

_COLUMNS = tuple(
    Column(name, "id" if name == "device" else "text" if name == "arm" else "order") for name in DEVICE_SCHEMA.names
)
# Seconds are rounded to this part of a second: their sums are then exact in float64, in any order of the rows, so that
# the rows of one device do not move the last bit of another's sum.
TICKS = 64


@dataclass(frozen=True)
class DeviceLogs:
    """Counts of the devices that contribute, over the days of an experiment. Private.

    Attributes:
      treated_D: bool, devices that had the candidate.
      sums: ``[D]`` float64 of each column of counts and seconds, by its name.
      logged_DT: bool, days on which a device has a row.
    """

    treated_D: np.ndarray
    sums: Mapping[str, np.ndarray]
    logged_DT: np.ndarray


class _Devices:
    """Sums that grow as devices appear."""

    def __init__(self, first: date, days: int) -> None:
        self.first, self.days = (first - date(1970, 1, 1)).days, days
        self.place: dict[str, int] = {}
        self.arm_D = np.empty(0, dtype=np.int8)
        self.possible_D = np.empty(0, dtype=bool)
        self.logged_DT = np.zeros((0, days), dtype=bool)
        self.sums = {name: np.empty(0) for name in (*COUNTS, "seconds")}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the rows of devices within the experiment."""
        days_R = batch.column("day").cast(pa.int32()).to_numpy(zero_copy_only=False) - self.first
        keys = [
            key if 0 <= day < self.days and key and len(key.encode()) <= MOST_KEY_BYTES else None  # NaN is no day
            for key, day in zip(batch.column("device").to_pylist(), days_R.tolist(), strict=True)
        ]
        kept_R = np.array([key is not None for key in keys], dtype=bool)
        named = [key for key in keys if key is not None]
        self._grow(named)
        device_R = np.array([self.place[key] for key in named], dtype=np.int64)
        day_R = days_R[kept_R].astype(np.int64)
        arms = batch.column("arm").to_pylist()
        arm_R = np.array([ARMS.index(arm) if arm in ARMS else -1 for arm in arms], dtype=np.int8)[kept_R]
        values = {
            name: batch.column(name).to_numpy(zero_copy_only=False).astype(np.float64)[kept_R] for name in self.sums
        }
        values["seconds"] = np.rint(values["seconds"] * TICKS) / TICKS
        wrong_R = impossible(values) | (arm_R < 0) | self._again(device_R, day_R) | self._other_arm(device_R, arm_R)
        self.possible_D[device_R[wrong_R]] = False
        self.logged_DT[device_R, day_R] = True
        for name, values_R in values.items():
            self.sums[name] += np.bincount(device_R, np.where(wrong_R, 0.0, values_R), len(self.arm_D))

    def _grow(self, keys: list[str]) -> None:
        for key in keys:
            self.place.setdefault(key, len(self.place))
        more = len(self.place) - len(self.arm_D)
        self.arm_D = np.append(self.arm_D, np.full(more, -1, dtype=np.int8))
        self.possible_D = np.append(self.possible_D, np.ones(more, dtype=bool))
        self.logged_DT = np.append(self.logged_DT, np.zeros((more, self.days), dtype=bool), axis=0)
        self.sums = {name: np.append(values_D, np.zeros(more)) for name, values_D in self.sums.items()}

    def _again(self, device_R: np.ndarray, day_R: np.ndarray) -> np.ndarray:
        """``[R]`` rows of a device and day that has one before."""
        again_R = self.logged_DT[device_R, day_R]
        _, first_R = np.unique(device_R * self.days + day_R, return_index=True)
        again_R[np.setdiff1d(np.arange(len(device_R)), first_R)] = True
        return again_R

    def _other_arm(self, device_R: np.ndarray, arm_R: np.ndarray) -> np.ndarray:
        """``[R]`` rows of a device that is in the other arm, too."""
        fresh_R = self.arm_D[device_R] < 0
        self.arm_D[device_R[fresh_R]] = arm_R[fresh_R]
        return self.arm_D[device_R] != arm_R


def impossible(values: Mapping[str, np.ndarray]) -> np.ndarray:
    """``[R]`` bool: rows with a count that cannot be, by the rules of ``evaluation.live.logs``; a null is NaN."""
    wrong_R = np.zeros(len(values["seconds"]), dtype=bool)
    for values_R in values.values():
        wrong_R |= ~((values_R >= 0) & (values_R <= MOST_COUNT))
    for part, whole in PARTS:
        wrong_R |= values[part] > values[whole]
    return wrong_R | ((values["committed"] > 0) & (values["seconds"] == 0))


def read(paths: Iterable[Path], first: date, days: int) -> DeviceLogs:
    """Add up files of an experiment by device.

    Guarantee: the contribution of a device depends on rows with its key alone, and no value that can be decoded is an
    error.

    Args:
      paths: files that ``logs.require_schema`` let pass.
      first, days: the experiment's window.

    Raises:
      ValueError: a file is damaged.
      OSError: the disk does not answer.
    """
    made = _Devices(first, days)
    for path in paths:
        for batch in rows.batches(path, FIELD, _COLUMNS):
            made.add(batch)
    kept_D = made.possible_D
    return DeviceLogs(
        treated_D=made.arm_D[kept_D] == ARMS.index(TREATMENT),
        sums={name: values_D[kept_D] for name, values_D in made.sums.items()},
        logged_DT=made.logged_DT[kept_D],
    )
