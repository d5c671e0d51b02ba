"""Readers of typed text: device by device, each device's texts in the order typed."""

import importlib.util
import itertools
import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from federated.config.population import Retention
from federated.devices.files import EVERYONE, FIELD, Part, first_rows, kept_rows, order_of, taken_rows
from federated.devices.order import in_order
from federated.devices.withdrawals import NOBODY, Withdrawals
from pretrain.reading import rows
from pretrain.text.debris import Debris
from pretrain.text.sources import contents

_LOG_EVERY = 1_000_000
# Files whose first words are looked at before all are read; rows of each, and characters of a row.
_INSPECTED, _FIRST_ROWS, _FIRST_CHARACTERS = 8, 500, 1_000
_NO_CHITCHAT = (
    "private_text.source: 'chitchat' needs the package chitchat-dataset, which is not installed; run `make setup`, or "
    "`pip install 'tacit-keyboard[text]'`"
)
_log = logging.getLogger(__name__)
_log.setLevel(logging.INFO)  # for any log level, as the progress of long work


@dataclass(frozen=True)
class SourceCounts:
    """Counts and schema of the rows read from a source. Private.

    Attributes:
      schema: column -> type, as read.
      other_locales: rows of another locale, left out.
      older: rows outside the retention window, deleted.
      rows: rows used from files.
      part_rows: rows among them of the requested devices.
      unreadable: rows that could not be read, left out.
    """

    schema: dict[str, str]
    other_locales: int = 0
    older: int = 0
    rows: int = 0
    part_rows: int = 0
    unreadable: int = 0


@dataclass(frozen=True)
class DeviceTexts:
    """Texts of a source by device, in their order.

    Attributes:
      devices: ``(client id, texts)`` by ascending client id, each client once.
    """

    read: SourceCounts
    devices: Iterator[tuple[str, Iterable[str]]]


@dataclass(frozen=True)
class FileCounts:
    """Devices and rows in files, found without reading text. Private.

    Attributes:
      clients: devices with a row of the locale inside the retention window.
      rows: of any locale, that can be read.
      other_locales: rows of another locale.
      older: rows of the locale outside the retention window.
      everybody: number of devices in the files.
      of_locale: number of devices with a row of the locale, of any time.
      largest_share: share of the rows used that the device with the most of them has.
      tags: number of devices without a row of the locale, by their tag; None if no file has a column ``locale``.
      unreadable: number of rows that cannot be read, and the most frequent kind.
    """

    clients: frozenset[str]
    rows: int
    other_locales: int
    older: int
    everybody: int
    of_locale: int
    largest_share: float
    tags: Mapping[str, int] | None
    unreadable: tuple[int, str] = (0, "")

    @property
    def devices(self) -> int:
        """Number of devices that a launch would use."""
        return len(self.clients)


def from_files(
    patterns: Sequence[str],
    locale: str,
    retention: Retention | None = None,
    folder: Path | None = None,
    part: Part = EVERYONE,
    withdrawn: Withdrawals = NOBODY,
) -> DeviceTexts:
    """Parquet, JSON lines or CSV with ``client_id, text[, locale, ts]``; other columns are ignored.

    Rows of another locale are skipped, and those outside the retention window are dropped before anything reads them.
    Texts go in order of ``ts`` (a time, or a number), rows without one after those with one; ties and files without
    ``ts`` in the order of the files. A row that repeats text and ``ts`` of its client is a duplicate upload, and is
    dropped. A row that cannot be read is left out; too many are refused. For any number of rows, few are in memory at a
    time (``order``).

    Args:
      folder: folder for sorting rows.
      part: the requested devices; rows of all devices are read and checked.
      withdrawn: devices that are left out.

    Raises:
      ValueError: no such file, damaged, missing column, wrong type, too many bad rows; names file, row, column, fix.
      OSError: the disk does not answer.
    """
    schema, others, older, count, rows_taken, part_rows = {"client_id": "string", "text": "string"}, 0, 0, 0, 0, 0

    bad, debris = rows.BadRows(), Debris()

    def tables() -> Iterator[pa.Table]:
        nonlocal others, older, count, rows_taken, part_rows
        for taken in taken_rows(patterns, locale, retention, withdrawn, bad):
            schema.update(taken.shown)
            others, older = others + taken.other_locales, older + taken.older
            if (count + taken.rows) // _LOG_EVERY > count // _LOG_EVERY:
                _log.info("private text: %d rows read", (count + taken.rows) // _LOG_EVERY * _LOG_EVERY)
            count += taken.rows
            mine = part.of(taken.table)
            rows_taken, part_rows = rows_taken + len(taken.table), part_rows + len(mine)
            debris.look(mine["text"])
            yield mine
        _require_decoded(debris)

    ordered = in_order(tables(), folder)
    read = SourceCounts(schema, others, older, rows_taken, part_rows, bad.kinds.total())
    return DeviceTexts(read, _by_device(ordered))


def from_chitchat(locale: str, folder: Path | None = None) -> DeviceTexts:
    """Every message with sender and time of the chitchat-dataset package (real typed chat, MIT).

    Raises:
      ValueError: not an English locale, or the package is not installed.
    """
    if locale.split("-")[0] != "en":
        raise ValueError(f"private_text.source: 'chitchat' is English text, but locale is {locale!r}; use en-US")
    package = importlib.util.find_spec("chitchat_dataset")
    if package is None or package.origin is None:
        raise ValueError(_NO_CHITCHAT)
    conversations = json.loads(Path(package.origin).with_name("dataset.json").read_text(encoding="utf-8"))
    messages = [
        message for conversation in conversations.values() for turn in conversation["messages"] for message in turn
    ]
    raw = pa.table(
        {
            "client_id": pa.array([message["sender"] for message in messages], pa.large_string()),
            "text": pa.array([message["text"] for message in messages], pa.large_string()),
            "ts": pa.array([message["timestamp"] for message in messages]),
        }
    )
    table = raw.set_column(2, "ts", order_of(raw["ts"], "dataset.json"))
    schema = {"sender": "string", "text": "string", "timestamp": "time"}
    return DeviceTexts(SourceCounts(schema), _by_device(in_order([table], folder)))


def chitchat_version() -> str:
    """The installed version of the chitchat-dataset package.

    Raises:
      ValueError: the package is not installed.
    """
    try:
        return metadata.version("chitchat-dataset")
    except metadata.PackageNotFoundError as error:
        raise ValueError(_NO_CHITCHAT) from error


def identity(patterns: Sequence[str]) -> list[tuple[str, str]]:
    """Name and SHA-256 of each file, in order. Private.

    Raises:
      ValueError: nothing matches, or no ordinary file.
      OSError: the disk does not answer.
    """
    return contents(rows.stored(patterns, FIELD))


def copies(patterns: Sequence[str]) -> list[tuple[str, str]]:
    """Files with the same bytes as an earlier one, each with that one. Private.

    Raises:
      ValueError: nothing matches, or no ordinary file.
      OSError: the disk does not answer.
    """
    files = rows.stored(patterns, FIELD)
    sizes = Counter(path.stat().st_size for path in files)
    alike = [path for path in files if sizes[path.stat().st_size] > 1]
    first: dict[str, str] = {}
    named = [(str(path), digest) for path, (_, digest) in zip(alike, contents(alike), strict=True)]
    return [(name, first[digest]) for name, digest in named if first.setdefault(digest, name) != name]


def inspect(patterns: Sequence[str], retention: Retention | None = None) -> None:
    """Check files before their text is read: columns and first rows of all, and debris of wrong decoding in these.

    Raises:
      ValueError: nothing matches, not a regular file, damaged at its ends or in its first rows, a column missing or of
        another type; names file, column and fix.
      OSError: the disk does not answer.
    """
    files = rows.stored(patterns, FIELD)
    for path in files:
        # A later JSON line may have a time; of other forms the columns are known.
        if retention and rows.form(path, FIELD) in ("Parquet", "CSV") and "ts" not in rows.fields(path, FIELD):
            kept_rows(pa.table({"ts": pa.nulls(1)}), retention, path.name)
    debris = Debris()
    for batch in first_rows(files):
        debris.look(batch["text"])
    _require_decoded(debris)


def first_texts(
    patterns: Sequence[str], locale: str, retention: Retention | None = None, withdrawn: Withdrawals = NOBODY
) -> Iterator[str]:
    """Beginnings of the first texts that ``from_files`` would use, of some files. Private.

    Raises:
      ValueError, OSError: as of ``count``.
    """
    for path in rows.stored(patterns, FIELD)[:_INSPECTED]:
        for taken in itertools.islice(taken_rows([str(path)], locale, retention, withdrawn, rows.BadRows()), 1):
            begins = pc.utf8_slice_codeunits(taken.table["text"].slice(0, _FIRST_ROWS), 0, _FIRST_CHARACTERS)
            yield from filter(None, begins.to_pylist())


def _require_decoded(debris: Debris) -> None:
    if debris.said:
        raise ValueError(f"{FIELD}: {debris.said}")


def count(
    patterns: Sequence[str], locale: str, retention: Retention | None = None, withdrawn: Withdrawals = NOBODY
) -> FileCounts:
    """Count the devices and rows that ``from_files`` would use, without reading text.

    Raises:
      ValueError: no such file, damaged, missing column, wrong type; names file, row group, column and fix.
      OSError: the disk does not answer.
    """
    total = others = older = 0
    clients, mine = Counter[str](), set[str]()
    tags: dict[str, set[str]] | None = None
    bad = rows.BadRows()
    for taken in taken_rows(patterns, locale, retention, withdrawn, bad, read_text=False):
        total, others, older = total + taken.rows, others + taken.other_locales, older + taken.older
        counts = pc.value_counts(taken.table["client_id"])
        clients.update(dict(zip(*(counts.field(place).to_pylist() for place in (0, 1)), strict=True)))
        mine |= {*pc.unique(taken.of_locale).to_pylist()}
        if taken.tags is None:
            continue
        tags = tags or {}
        # Arrow's own grouping imports pandas.
        for client, tag in set(zip(*(taken.tags[name].to_pylist() for name in ("client_id", "locale")), strict=True)):
            tags.setdefault(tag or "", set()).add(client)
    largest = max(clients.values(), default=0) / max(clients.total(), 1)
    everybody = mine.union(*(tags or {}).values())
    left_out = {tag: len(devices - mine) for tag, devices in (tags or {}).items() if devices - mine}
    return FileCounts(
        clients=frozenset(clients),
        rows=total,
        other_locales=others,
        older=older,
        everybody=len(everybody),
        of_locale=len(mine),
        largest_share=largest,
        tags=None if tags is None else left_out,
        unreadable=(bad.kinds.total(), bad.usual) if bad.kinds else (0, ""),
    )


def tens(devices: int) -> int:
    """A count of devices rounded down to tens, for publication."""
    return devices // 10 * 10


def hundreds(rows: int) -> int:
    """A count of rows rounded down to hundreds, for publication."""
    return rows // 100 * 100


def _by_device(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, Iterable[str]]]:
    for client, typed in itertools.groupby(_rows(batches), key=lambda row: row[0]):
        yield client, _texts(typed)


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, str | None, float | None]]:
    for batch in batches:
        yield from zip(*(batch[name].to_pylist() for name in ("client_id", "text", "ts")), strict=True)


def _texts(typed: Iterable[tuple[str, str | None, float | None]]) -> Iterator[str]:
    now: float | None = None
    seen: set[str] = set()
    for _, text, time in typed:
        if time != now:
            now = time
            seen.clear()
        if not text or text in seen:
            continue
        if time is not None:
            seen.add(text)
        yield text
