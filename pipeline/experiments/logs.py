"""Counts that keyboards logged in a live experiment, read from Parquet and added up by bucket of devices.

Shape legend: B buckets, R rows of a batch, D days.

``SCHEMA`` lists the only columns of a file; docs/experiments.md explains each. Files are read in batches, and only a
sum for each bucket and a mark for each of its days are kept, so memory does not grow with the rows.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pretrain.reading import rows
from pretrain.reading.paths import shown
from pretrain.reading.rows import Column

FIELD = "logs"
CONTROL, TREATMENT = ARMS = ("control", "treatment")
COUNTS = ("shown", "picked", "correct", "triggered", "accepted", "committed", "modified")


SCHEMA = pa.schema(
    [
        *(("arm", pa.string()), ("bucket", pa.string()), ("day", pa.date32())),
        *((name, pa.int64()) for name in COUNTS),
        ("seconds", pa.float64()),
    ]
)
SIMULATED = b"tacit.simulated"
MOST_BUCKETS, MOST_COUNT = 100_000, 10**12
MOST_KEY_BYTES = 200
_TEXT = ("arm", "bucket")
# Impossible counts: the first is a part of the second.
PARTS = (("picked", "correct"), ("correct", "shown"), ("accepted", "triggered"), ("modified", "committed"))
_COLUMNS = tuple(
    Column(name, "id" if name == "bucket" else "text" if name == "arm" else "order") for name in SCHEMA.names
)


@dataclass(frozen=True)
class Logs:
    """Counts of an experiment, over its days.

    Attributes:
      treated_B: bool, buckets that had the candidate.
      sums: ``[B]`` float64 of each column of counts and seconds, by its name.
      missing: days of the window on which an arm has no row, by arm.
      last_day: last day with a row.
      digests: SHA-256 of each file, in the order given.
      simulated: True if any of the files is marked as simulated.
    """

    treated_B: np.ndarray
    sums: Mapping[str, np.ndarray]
    missing: Mapping[str, tuple[date, ...]]
    last_day: date
    digests: tuple[str, ...]
    simulated: bool

    def counts(self, arm: str) -> dict[str, np.ndarray]:
        """Counts for ``evaluation.counts``, of one arm's buckets."""
        chosen_B = self.treated_B == (arm == TREATMENT)
        return {name: values_B[chosen_B] for name, values_B in self.sums.items()}


class _Sums:
    """Sums that grow as buckets appear."""

    def __init__(self, first: date, days: int) -> None:
        self.first, self.days = first, days
        self.place: dict[str, int] = {}
        self.arm_B = np.empty(0, dtype=np.int8)
        self.seen_BD = np.zeros((0, days), dtype=bool)
        self.sums = {name: np.empty(0) for name in (*COUNTS, "seconds")}

    def add(self, batch: pa.RecordBatch, at: str) -> None:
        """Check every row, then add all."""
        arms = batch.column("arm").to_pylist()
        for row, arm in enumerate(arms):
            if arm not in ARMS:
                raise ValueError(f"{_row(at, row)}: arm is neither 'control' nor 'treatment'; write one of them")
        keys = batch.column("bucket").to_pylist()
        self._grow(keys, at)
        bucket_R = np.array([self.place[key] for key in keys], dtype=np.int64)
        day_R = self._days(batch.column("day"), at)
        self._once(bucket_R, day_R, at)
        self._one_arm(bucket_R, np.array([arm == TREATMENT for arm in arms], dtype=np.int8), at)
        values = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in self.sums}
        _check(values, at)
        for name, values_R in values.items():
            self.sums[name] += np.bincount(bucket_R, values_R, len(self.arm_B))

    def _grow(self, keys: list[str], at: str) -> None:
        for row, key in enumerate(keys):
            if key not in self.place:
                if not key or len(key.encode()) > MOST_KEY_BYTES:
                    raise ValueError(
                        f"{_row(at, row)}: bucket is no key of 1 to {MOST_KEY_BYTES} bytes; write a short one"
                    )
                self.place[key] = len(self.place)
        if len(self.place) > MOST_BUCKETS:
            raise ValueError(
                f"{at}: bucket: more than {MOST_BUCKETS:,} of them; a bucket holds many devices: enlarge it"
            )
        more = len(self.place) - len(self.arm_B)
        self.arm_B = np.append(self.arm_B, np.full(more, -1, dtype=np.int8))
        self.seen_BD = np.append(self.seen_BD, np.zeros((more, self.days), dtype=bool), axis=0)
        self.sums = {name: np.append(values_B, np.zeros(more)) for name, values_B in self.sums.items()}

    def _days(self, column: pa.Array, at: str) -> np.ndarray:
        """``[R]`` day of the window, from 0."""
        day_R = column.cast(pa.int32()).to_numpy().astype(np.int64) - (self.first - date(1970, 1, 1)).days
        outside = np.flatnonzero((day_R < 0) | (day_R >= self.days))
        if len(outside):
            last = self.first + timedelta(days=self.days - 1)
            raise ValueError(
                f"{_row(at, outside[0])}: day is outside the experiment, {self.first} to {last}; leave it out"
            )
        return day_R

    def _once(self, bucket_R: np.ndarray, day_R: np.ndarray, at: str) -> None:
        place_R = bucket_R * self.days + day_R
        _, first_R = np.unique(place_R, return_index=True)
        again_R = self.seen_BD[bucket_R, day_R]
        again_R |= ~np.isin(np.arange(len(place_R)), first_R)
        if again_R.any():
            raise ValueError(
                f"{_row(at, np.argmax(again_R))}: its bucket has two rows for its day; give each file once, and one "
                "row to a bucket and day"
            )
        self.seen_BD[bucket_R, day_R] = True

    def _one_arm(self, bucket_R: np.ndarray, arm_R: np.ndarray, at: str) -> None:
        fresh_R = self.arm_B[bucket_R] < 0
        self.arm_B[bucket_R[fresh_R]] = arm_R[fresh_R]
        other_R = self.arm_B[bucket_R] != arm_R
        if other_R.any():
            raise ValueError(
                f"{_row(at, np.argmax(other_R))}: its bucket is in both arms; a bucket stays in one for the whole "
                "experiment, so check the assignment"
            )


def read(patterns: Iterable[str], first: date, days: int) -> Logs:
    """Add up files of an experiment.

    Args:
      patterns: paths or globs.
      first, days: the experiment's window.

    Raises:
      ValueError: no such file, damaged, other columns or types, nulls, impossible counts, a bucket in two arms, two
        rows for one bucket and day, a day outside the window; names file, row, column and fix, never a value.
      OSError: the disk does not answer.
    """
    sums, digests, simulated = _Sums(first, days), [], False
    for path in rows.matching(list(patterns), FIELD):
        simulated |= _require_schema(path)
        for at, batch in rows.placed_batches(path, FIELD, _COLUMNS):
            where = f"{FIELD}: {shown(path)}, {at}"
            for name in SCHEMA.names:
                if batch.column(name).null_count:
                    raise ValueError(f"{where}: {name} is null; write every value, 0 where nothing happened")
            sums.add(batch, where)
        digests.append(digest(path))
    if not len(sums.arm_B):
        raise ValueError(f"{FIELD}: no rows at all; give the files that the experiment logged")
    seen = {arm: sums.seen_BD[sums.arm_B == number].any(axis=0) for number, arm in enumerate(ARMS)}
    every_day = [first + timedelta(days=day) for day in range(days)]
    return Logs(
        treated_B=sums.arm_B == ARMS.index(TREATMENT),
        sums=sums.sums,
        missing={
            arm: tuple(day for day, there in zip(every_day, there_D, strict=True) if not there)
            for arm, there_D in seen.items()
        },
        last_day=every_day[int(np.flatnonzero(sums.seen_BD.any(axis=0))[-1])],
        digests=tuple(digests),
        simulated=simulated,
    )


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write(table: pa.Table, path: Path, *, simulated: bool) -> None:
    """Write a file of the schema.

    Args:
      simulated: mark the file as simulated; such logs decide nothing about people.
    """
    made = table.cast(SCHEMA).replace_schema_metadata({SIMULATED: b"true"} if simulated else None)
    pq.write_table(made, path, compression="zstd")


def _require_schema(path: Path) -> bool:
    """Check that a file has the columns and types of ``SCHEMA``, and return whether it is marked as simulated."""
    if rows.form(path, FIELD) != "Parquet":
        raise ValueError(f"{FIELD}: {shown(path)} is no Parquet file, and logs are; write it as Parquet")
    names = rows.fields(path, FIELD)
    for name in SCHEMA.names:
        if names.count(name) != 1:
            how = "missing" if name not in names else "there twice"
            raise ValueError(f"{FIELD}: {shown(path)}: column {name!r} is {how}; write {', '.join(SCHEMA.names)}")
    extra = [name for name in names if name not in SCHEMA.names]
    if extra:
        raise ValueError(
            f"{FIELD}: {shown(path)}: {len(extra):,} of its columns are not part of the logs, which hold only counts "
            f"of buckets; write {', '.join(SCHEMA.names)}"
        )
    there = pq.read_schema(path)
    for field in SCHEMA:
        kind = there.field(field.name).type
        if field.name not in _TEXT and kind != field.type:
            found = str(kind).partition("<")[0]
            raise ValueError(f"{FIELD}: {shown(path)}: column {field.name!r} is {found}, not {field.type}; cast it")
    return (there.metadata or {}).get(SIMULATED) == b"true"


def _row(at: str, row: int | np.integer) -> str:
    """Place of a row of a batch; the batch's first row is 1."""
    return f"{at}: row {row + 1:,} of these"


def _check(values: Mapping[str, np.ndarray], at: str) -> None:
    """Raise ValueError for an impossible count."""

    def refuse(wrong_R: np.ndarray, said: str) -> None:
        if wrong_R.any():
            raise ValueError(f"{_row(at, np.argmax(wrong_R))}: {said}")

    for name, values_R in values.items():
        fine_R = (values_R >= 0) & (values_R <= MOST_COUNT)  # False for NaN
        refuse(~fine_R, f"{name} is not between 0 and {MOST_COUNT:,}; look at what counts it")
    for part, whole in PARTS:
        said = f"{part} is above {whole}; what is {part} is counted among {whole}, on the same day"
        refuse(values[part] > values[whole], said)
    idle_R = (values["committed"] > 0) & (values["seconds"] == 0)
    refuse(idle_R, "words are committed in seconds 0; log the seconds in which these words were typed")
