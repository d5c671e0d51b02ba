"""Parallel ingest of a population's files: each reader writes the devices of one part, and the pieces are joined.

Parts are ranges of ids, so that the joined pieces of a store equal the store of one reader, bit for bit. Each reader
reads all rows, on Parquet a thirtieth of the work, and tokenises those of its own devices. Readers exchange no data,
and all of them report a fault of a file in the same words.
"""

import json
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict

from federated.config.population import Files, Retention
from federated.devices.files import FIELD, Part, taken_rows
from federated.devices.pieces import Piece, open_piece, write_piece
from federated.devices.readers import SourceCounts, from_files
from federated.devices.withdrawals import NOBODY, Withdrawals
from pretrain import processes
from pretrain.files import PRIVATE, private_directory, write_text
from pretrain.reading import rows
from pretrain.reading.rows import BadRows

_TASK_FILE, _PART_FILE = "task.json", "part.json"
# Number of candidate bounds, and ids sampled per batch of rows.
_BOUNDS, _LOOKED_AT = 1023, 64


class Task(BaseModel):
    """Work order for all readers: the files and rows to read, and the bounds of parts. Private.

    Attributes:
      files: path or address, and size, of each, in order.
      retention: window of the rows to read; None for all.
      withdrawn: devices whose rows are left out.
      bounds: ids, ascending, that divide the rows into equal shares.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    files: tuple[tuple[str, int], ...]
    retention: Retention | None
    withdrawn: Withdrawals
    bounds: tuple[str, ...]

    def part(self, number: int, of: int) -> Part:
        """The devices of one reader; each device is in exactly one part."""
        first, end = (
            self.bounds[len(self.bounds) * place // of] if 0 < place < of else None for place in (number, number + 1)
        )
        return Part(first, end)


def size(patterns: Sequence[str]) -> int:
    """Bytes of all files.

    Raises:
      ValueError: nothing matches, or no ordinary file.
      OSError: the disk does not answer.
    """
    return sum(path.stat().st_size for path in rows.stored(patterns, FIELD))


def write_task(
    folder: Path, config: Files, locale: str, retention: Retention | None, withdrawn: Withdrawals = NOBODY
) -> None:
    """Write the readers' task; its bounds, from a sample of ids, give all of them about the same work."""
    files = tuple((str(path), path.stat().st_size) for path in rows.stored(config.paths, FIELD))
    task = Task(
        files=files,
        retention=retention,
        withdrawn=withdrawn,
        bounds=_bounds(config.paths, locale, retention, withdrawn),
    )
    write_text(private_directory(folder) / _TASK_FILE, task.model_dump_json(), PRIVATE)


def _bounds(
    patterns: Sequence[str], locale: str, retention: Retention | None, withdrawn: Withdrawals
) -> tuple[str, ...]:
    seen: list[str] = []
    with suppress(ValueError):  # The reader of the text reports its faults.
        for taken in taken_rows(patterns, locale, retention, withdrawn, BadRows(), read_text=False):
            ids = taken.table["client_id"]
            chosen = ids.take(np.arange(0, len(ids), max(1, len(ids) // _LOOKED_AT)))
            seen += chosen.to_pylist()
    seen.sort()
    # The empty id is the smallest.
    return tuple(seen[len(seen) * place // (_BOUNDS + 1)] for place in range(1, _BOUNDS + 1)) if seen else ("",)


def write_parts(folder: Path, config: Files, locale: str, readers: int) -> None:
    """Run the task of a folder in ``readers`` processes.

    Raises:
      ValueError, OSError: as of ``write_part``; a process was killed.
    """
    with processes.pool(readers) as pool:
        done = [pool.submit(write_part, folder, config, locale, number, readers) for number in range(readers)]
        try:
            for part in done:
                part.result()
        except BrokenProcessPool as error:
            raise OSError("private text: a process that read it was killed; run the stage again") from error


def write_part(folder: Path, config: Files, locale: str, number: int, of: int) -> None:
    """Write one reader's piece of the task; the piece is complete once its last file is there.

    Raises:
      ValueError: as of ``readers.from_files``.
      OSError: a file has changed since the task was written.
    """
    task = Task.model_validate_json((folder / _TASK_FILE).read_bytes())
    patterns = [path for path, _ in task.files]
    for path, (_, length) in zip(rows.stored(patterns, FIELD), task.files, strict=True):
        if path.stat().st_size != length:
            raise OSError(f"{path.name}: not the file that others read; run the stage again")
    directory = private_directory(folder / str(number))
    typed = from_files(patterns, locale, task.retention, directory, task.part(number, of), task.withdrawn)
    write_piece(directory, typed.devices, locale, config.max_words_per_device)
    content = json.dumps({"number": number, "of": of, "read": asdict(typed.read)})
    write_text(directory / _PART_FILE, content, PRIVATE)


def pieces_of(folder: Path) -> tuple[list[Piece], SourceCounts]:
    """The pieces of a finished task in order, and the counts of all rows read.

    Raises:
      OSError: some are missing, or the readers did not read the same rows, each exactly once.
      ValueError: damaged.
    """
    parts = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob(f"*/{_PART_FILE}")]
    parts.sort(key=lambda part: part["number"])
    expected = [(number, len(parts)) for number in range(len(parts))]
    if not parts or [(part["number"], part["of"]) for part in parts] != expected:
        raise OSError("private text: pieces of some workers are missing; run the stage again")
    read = [SourceCounts(**part["read"]) for part in parts]
    whole = replace(read[0], part_rows=sum(each.part_rows for each in read))
    if any(replace(each, part_rows=each.rows) != whole for each in read):
        raise OSError("private text: workers have not read the same rows, each of them once; run the stage again")
    return [open_piece(folder / str(part["number"])) for part in parts], whole
