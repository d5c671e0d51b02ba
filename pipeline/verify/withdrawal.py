"""Withdrawal of a person: later launches exclude their devices, and launches that read their text are erased.

A launch is erased whole, finished or not. Text of one device could be removed from a store, but not from the noise
state and the checkpoints that depend on it, and a launch without it could neither be resumed nor derived again.
Earlier releases stay, with their spends: they cannot be undone.

Guarantee: neither the statement of an erasure nor a log line reveals that a person withdrew, who, or how many.
"""

import logging
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from federated.config.population import PopulationKey
from federated.devices import pieces
from federated.devices.withdrawals import Withdrawals
from pipeline.ground.settings import Settings
from pipeline.launch.config import load_kept_launch
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run.bookkeeping import SEAL, TRACES
from pipeline.run.population import read_window
from pipeline.run.run_dir import RunDir
from pretrain.reading import rows
from pretrain.reading.paths import require_file
from pretrain.reading.rows import Column

_FIELD, _FIX = "--ids", "give a file, or - for standard input"
MOST_BYTES = 1 << 30
_log = logging.getLogger(__name__)


def read_ids(path: Path | None) -> frozenset[str]:
    """Read a list of client ids, as ``ingest_private`` reads ids.

    Args:
      path: Parquet, JSON lines or CSV with ``client_id``, or text with one id a line; None for text on standard input.

    Raises:
      ValueError: the list holds no id, is no file, too large, not UTF-8, or damaged.
      OSError: it cannot be read.
    """
    named = path is not None and path.suffix in (".parquet", ".jsonl", ".json", ".gz")
    if path is not None and (named or rows.form(require_file(path, _FIELD, _FIX), _FIELD)):
        batches = rows.batches(path, _FIELD, [Column("client_id", "id")])
        ids = {device for batch in batches for device in batch["client_id"].to_pylist() if device}
    else:
        if path is not None:
            require_file(path, _FIELD, _FIX, MOST_BYTES)
        content = sys.stdin.buffer.read(MOST_BYTES + 1) if path is None else path.read_bytes()
        if len(content) > MOST_BYTES:
            raise ValueError(f"{_FIELD}: more than {MOST_BYTES:,} bytes on standard input; give a shorter list")
        try:
            lines = content.decode("utf-8-sig").split("\n")
        except UnicodeDecodeError as error:
            line = content[: error.start].count(b"\n") + 1
            raise ValueError(f"{_FIELD}: line {line} is not UTF-8; write it in UTF-8") from None
        ids = {line.removesuffix("\r") for line in lines} - {""}
    if not ids:
        raise ValueError(f"{_FIELD}: the list holds no id; write one client id a line")
    return frozenset(ids)


def withdraw(settings: Settings, population: PopulationKey, device_ids: Collection[str]) -> str:
    """Exclude devices permanently, and return whether launches here have text of all, some or none of them.

    Raises:
      PopulationUnknown, LedgerTampered: as of ``PrivacyLedger.withdraw``.
    """
    withdrawn = PrivacyLedger.of(settings).withdraw(population, device_ids)
    runs = (run for run in _runs(settings) if population_of(run) in (None, population))
    seen, asked = (
        {withdrawn.hashed(device) for run in runs for device in _read_ids(run)},
        set(map(withdrawn.hashed, device_ids)),
    )
    there = len(seen & asked)
    return "all" if there == len(asked) else "some" if there else "none"


def holds_text_of(run: RunDir, left_out: Mapping[PopulationKey, Withdrawals]) -> bool:
    """True if a launch may hold text of a person who withdrew.

    Guarantee: False only if all of them were excluded when the text was read, or none of them is in the store. True if
    that is unknown, as for a damaged or unfinished store.
    """
    read_from, noted = population_of(run), read_window(run)
    for population, withdrawn in left_out.items():
        if read_from not in (None, population) or (noted is not None and noted.withdrawn == withdrawn.digest):
            continue
        try:
            ids = _ids(run)
        except ValueError:
            return True
        if withdrawn.any_of(ids):
            return True
    return False


def _ids(run: RunDir) -> list[str]:
    """Ids of the devices whose text a launch holds.

    Raises:
      ValueError: it holds text of unknown devices.
    """
    folder = run.path / "private" / "ingest_private"
    left = {path.name for path in folder.iterdir()} - TRACES - {SEAL} if folder.is_dir() else set()
    if left - {"store"}:
        raise ValueError(f"{folder}: the store is unfinished")
    return pieces.device_ids(folder / "store") if left else []


def _read_ids(run: RunDir) -> list[str]:
    try:
        return _ids(run)
    except ValueError:
        return []


def population_of(run: RunDir) -> PopulationKey | None:
    """Return the population of a launch; None if its launch file cannot be read."""
    try:
        return load_kept_launch(run.path / "public" / "launch" / "launch.json").population
    except ValueError:
        return None


def _runs(settings: Settings) -> Iterator[RunDir]:
    for path in sorted(settings.runs_dir.glob("*/private")):
        try:
            yield RunDir(settings.runs_dir, path.parent.name)
        except ValueError:
            _log.warning("%s: not a launch's folder", path.parent)
