"""The audit of a live experiment under a budget: rows, bounded vectors, sum and noise, each made again from the logs.

Written independently of the reader of the logs and of the release. Shape legend: R rows of all files, D devices, L sums
of the questions, T days, M cells of one arm, U cells.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evaluation.audit.released.bounded import sum_audit
from evaluation.audit.verdict import Verdict

STREAM = "experiment"
COUNTS = ("shown", "picked", "correct", "triggered", "accepted", "committed", "modified")
_PARTS = {"picked": "correct", "correct": "shown", "accepted": "triggered", "modified": "committed"}
_MOST, _TICKS = 1e12, 64
_ARMS = 2


@dataclass(frozen=True)
class Rows:
    """Rows of all log files that name a device and a day of the experiment. Private.

    Attributes:
      device_R: number of the device, from 0.
      day_R: day of the experiment, from 0.
      arm_R: 0 for the control, 1 for the treatment, any other number for neither.
      values: ``[R]`` float64 of each column of ``COUNTS`` and of ``seconds``; NaN for a null.
    """

    device_R: np.ndarray
    day_R: np.ndarray
    arm_R: np.ndarray
    values: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class LiveCells:
    """Cells of one arm; they follow from the launch file.

    Attributes:
      sums: for each of the L sums the column that it adds up, a factor, the number of the sum that counts its words,
        and the weight of its cell; without a column it is the factor for each device.
      products: numbers of two sums, and the weight of the cell of their product.
      days: number of days T.
      day_weight: weight of the cell of a day.
      most_words: largest number of words as which a device counts.
    """

    sums: Sequence[tuple[str, float, int, float]]
    products: Sequence[tuple[int, int, float]]
    days: int
    day_weight: float
    most_words: float

    @property
    def size(self) -> int:
        """Number M of cells."""
        return len(self.sums) + len(self.products) + self.days


def live_audit(
    released_U: np.ndarray,
    rows: Rows,
    cells: LiveCells,
    noise_multiplier: float,
    clip_norm: float,
    key: bytes,
    read: str,
    bound: str,
) -> tuple[Verdict, ...]:
    """Verdicts ``logs``, ``sum`` and ``digits`` (``bounded.sum_audit``).

    Guarantee: ``logs`` fails unless the files that were read have the digest to which the ledger's reservation is
    bound. ``sum`` fails also if a device was left out, counted twice, counted in spite of an impossible row, or above
    its bound. Exact: an honest release passes.

    Args:
      read, bound: digest of all files that were read, and that of the reservation.
    """
    same = read == bound
    logs = Verdict(
        "logs",
        "the logs are the files to which the reservation is bound",
        "one bit of one file",
        same,
        "" if same else "the logs are not the files to which the reservation is bound",
    )
    made = _contributions(rows, cells)
    return (logs, *sum_audit(released_U, made, _ARMS * cells.size, noise_multiplier, clip_norm, key, STREAM))


def _contributions(rows: Rows, cells: LiveCells) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Each possible device's cells and weighted values."""
    devices = int(rows.device_R.max()) + 1 if len(rows.device_R) else 0
    faulty_R = _impossible(rows)
    faults_D = np.bincount(rows.device_R, faulty_R, devices)
    place_R = rows.device_R * cells.days + rows.day_R
    logged_DT = np.bincount(place_R, minlength=devices * cells.days).reshape(devices, cells.days)
    treated_D = np.bincount(rows.device_R, rows.arm_R == 1, devices)
    one_arm_D = (treated_D == 0) | (treated_D == logged_DT.sum(axis=1))
    fine_D = (faults_D == 0) & (logged_DT.max(axis=1, initial=0) <= 1) & one_arm_D
    added = {
        name: np.bincount(rows.device_R, np.where(faulty_R, 0.0, values_R), devices)
        for name, values_R in _ticked(rows).items()
    }
    raw_DL = np.stack([added[name] * by if name else np.full(devices, by) for name, by, _, _ in cells.sums], axis=1)
    unit_L = np.array([unit for _, _, unit, _ in cells.sums])
    own_DL = raw_DL / np.maximum(raw_DL[:, unit_L], cells.most_words)
    first, second = (np.array([pair[side] for pair in cells.products], dtype=np.int64) for side in (0, 1))
    weights_M = np.array([weight for *_, weight in (*cells.sums, *cells.products)])
    asked_DM = np.hstack([own_DL, own_DL[:, first] * own_DL[:, second]]) * weights_M
    vector_DM = np.hstack([asked_DM, cells.day_weight * logged_DT])
    place_M = np.arange(cells.size)
    for device in np.flatnonzero(fine_D):
        yield place_M + (cells.size if treated_D[device] else 0), vector_DM[device]


def _ticked(rows: Rows) -> dict[str, np.ndarray]:
    """The values, with seconds in whole parts of a second."""
    return dict(rows.values) | {"seconds": np.rint(rows.values["seconds"] * _TICKS) / _TICKS}


def _impossible(rows: Rows) -> np.ndarray:
    """``[R]`` bool: rows of neither arm, or with a count that cannot be."""
    values = _ticked(rows)
    fine_R = np.isin(rows.arm_R, (0, 1))
    for values_R in values.values():
        fine_R &= (values_R >= 0) & (values_R <= _MOST)
    for part, whole in _PARTS.items():
        fine_R &= ~(values[part] > values[whole])
    return ~fine_R | ((values["committed"] > 0) & ~(values["seconds"] > 0))
