"""Participation records: the devices aggregated in each round. Private.

The records are a folder of Parquet files, one for the rounds between two checkpoints, so that a checkpoint
writes only new rounds. File names state the rounds: rounds-00000010-00000015.parquet holds those from 10 up
to, not including, 15. Any reader of Parquet reads the folder as one table.

Shape legend: D devices of the population, N participations on record, T rounds.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from federated.participation.cohorts import Cohorts, ParticipationState
from federated.participation.secret_sample import SampledCohorts
from pretrain.files import PRIVATE, atomic, private_directory, sha256

_PART = re.compile(r"rounds-([0-9]{8})-([0-9]{8})\.parquet")
# Metadata key of each file's schema: the times of its rounds, by the clock.
_HOURS = b"round, begin and end in hours"


@dataclass(frozen=True)
class Records:
    """Participation records: one entry per (round, device) that was aggregated. Private.

    Attributes:
      cohorts: number and devices of each round, int32, ascending by round.
      hours: by the clock, number, begin and end of each round, in hours since the first one opened; else empty.
    """

    cohorts: tuple[tuple[int, np.ndarray], ...] = ()
    hours: tuple[tuple[int, float, float], ...] = ()

    @property
    def rounds_N(self) -> np.ndarray:
        """Round of each participation, int32, ascending."""
        numbers = np.array([number for number, _ in self.cohorts], dtype=np.int32)
        return np.repeat(numbers, [len(devices) for _, devices in self.cohorts])

    @property
    def devices_N(self) -> np.ndarray:
        """Device of each participation, int32."""
        return np.concatenate([np.empty(0, dtype=np.int32), *(devices for _, devices in self.cohorts)])

    def add(self, round_number: int, cohort: np.ndarray, lasted: tuple[float, float] | None = None) -> "Records":
        """These records and one more round; costs what the cohort costs.

        Args:
          lasted: begin and end of the round by the clock; None without one.
        """
        hours = self.hours if lasted is None else (*self.hours, (round_number, *lasted))
        return Records((*self.cohorts, (round_number, cohort.astype(np.int32))), hours)

    def participations(self, num_devices: int) -> np.ndarray:
        """Rounds that each device joined, int64 ``[D]``."""
        return np.bincount(self.devices_N, minlength=num_devices)

    def joined(self, rounds: int, devices: np.ndarray) -> np.ndarray:
        """Bool ``[rounds, devices]``: participations of these devices, ascending."""
        rounds_N, devices_N = self.rounds_N, self.devices_N
        joined_TD = np.zeros((rounds, len(devices)), dtype=bool)
        asked_N = np.isin(devices_N, devices)
        joined_TD[rounds_N[asked_N], np.searchsorted(devices, devices_N[asked_N])] = True
        return joined_TD

    def since(self, round_number: int) -> "Records":
        """The records of this round and later ones."""
        cohorts = tuple(entry for entry in self.cohorts if entry[0] >= round_number)
        return Records(cohorts, tuple(entry for entry in self.hours if entry[0] >= round_number))


def no_records() -> Records:
    """The records before the first round: none."""
    return Records()


def by_the_rule(cohorts: Cohorts | SampledCohorts, rounds: int) -> tuple[Records, ParticipationState]:
    """Records that the rule gives for the first rounds, drawn again from seed or key, and the timer state after them.

    Guarantee: the result depends on no file of a run, so edited records differ from it.
    """
    state, records = cohorts.init(), no_records()
    for number in range(rounds):
        cohort, state = cohorts.draw(state, number)
        records = records.add(number, cohort, state.lasted)
    return records, state


def require_by_the_rule(records: Records, rounds: int, cohorts: Cohorts | SampledCohorts) -> ParticipationState:
    """Verify records against the rule that picks the devices; return the timer's state after them.

    Raises:
      ValueError: another device joined, or one that should have did not.
    """
    expected, state = by_the_rule(cohorts, rounds)
    recorded = dict(records.cohorts)
    for number, devices in expected.cohorts:
        if not np.array_equal(recorded.pop(number, np.empty(0, dtype=np.int32)), devices):
            raise ValueError(
                f"participation records: round {number} holds other devices than its seed or key picks, so nothing can "
                "be accounted from them; restore the records"
            )
    if recorded:
        raise ValueError(f"participation records: round {min(recorded)} was never run; restore the records")
    if records.hours != expected.hours:
        raise ValueError("participation records: the rounds' hours are not those of their seed; restore the records")
    return state


def segment_digests(folder: Path) -> dict[str, str]:
    """SHA-256 of each file of records, by its name."""
    return {_name(first, last): sha256(folder / _name(first, last)) for first, last in sorted(_parts(folder))}


def save_records(records: Records, folder: Path, rounds: int) -> None:
    """Write one more file (mode 0600; columns ``round``, ``device``) for rounds below ``rounds`` not yet on disk."""
    private_directory(folder)
    first = max((last for _, last in _parts(folder)), default=0)
    if first >= rounds:
        return
    new = records.since(first)
    table = pa.table({"round": new.rounds_N, "device": new.devices_N})
    if new.hours:
        table = table.replace_schema_metadata({_HOURS: json.dumps(new.hours)})
    with atomic(folder / _name(first, rounds), PRIVATE) as temporary:
        pq.write_table(table, temporary)


def forget_records(folder: Path, rounds: int) -> None:
    """Remove the files of later rounds before they are repeated; the rule gives the same devices."""
    for first, last in _parts(folder):
        if last > rounds:
            (folder / _name(first, last)).unlink()


def load_records(folder: Path, rounds: int | None = None) -> Records:
    """Read what ``save_records`` wrote, up to, not including, the round ``rounds``; None: all.

    Raises:
      OSError: a file is missing, cut short or holds other rounds than its name says.
    """
    if not folder.is_dir():
        raise OSError(f"{folder.name}: there is no such folder of records")
    done = 0
    records = no_records()
    for first, last in sorted(_parts(folder)):
        if rounds is not None and done >= rounds:
            break
        name = _name(first, last)
        if first != done:
            raise OSError(f"{folder.name}/rounds-{done:08d}-*.parquet is missing, before {name}; restore it")
        part = _read(folder / name, first, last)
        records = Records(records.cohorts + part.cohorts, records.hours + part.hours)
        done = last
    if rounds is not None and done < rounds:
        raise OSError(f"{folder.name}/rounds-{done:08d}-*.parquet is missing, of {rounds} rounds; restore it")
    return records


def _parts(folder: Path) -> list[tuple[int, int]]:
    """First round, and the round after the last one, of every file."""
    names = [_PART.fullmatch(path.name) for path in folder.iterdir()] if folder.is_dir() else []
    return [(int(name[1]), int(name[2])) for name in names if name]


def _name(first: int, last: int) -> str:
    return f"rounds-{first:08d}-{last:08d}.parquet"


def _read(path: Path, first: int, last: int) -> Records:
    name = f"{path.parent.name}/{path.name}"
    try:
        table = pq.read_table(path)
        rounds_N, devices_N = table["round"].to_numpy(), table["device"].to_numpy()
        written = json.loads((table.schema.metadata or {}).get(_HOURS, b"[]"))
        hours = tuple((int(number), float(begin), float(end)) for number, begin, end in written)
    except (pa.ArrowInvalid, KeyError, OSError, TypeError, ValueError) as error:
        raise OSError(f"{name}: not a readable Parquet file of records; restore it: {error}") from error
    numbers = [*([rounds_N.min(), rounds_N.max()] if len(rounds_N) else []), *(number for number, _, _ in hours)]
    if numbers and not (first <= min(numbers) and max(numbers) < last):
        raise OSError(f"{name}: holds rounds {min(numbers)} to {max(numbers)}; restore it")
    starts = np.flatnonzero(np.diff(rounds_N, prepend=-1))
    parts = zip(rounds_N[starts].tolist(), np.split(devices_N, starts[1:]), strict=True) if len(starts) else ()
    return Records(tuple(parts), hours)
