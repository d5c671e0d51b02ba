"""State of the database in which an installation last found its ledger whole, so that no operation hashes it all again.

A whole check hashes every entry, verifies its signature and holds every checkpoint against them, which grows with the
ledger. Its answer can change only with the database, so the installation keeps the database's state beside its runs
(``runs/.ledger-checked``, for this user alone). An operation that finds this state goes on from it; in any other state
it checks the whole ledger first. The state of a database is

- for SQLite the file: its number, its size, the times of its last changes, and the count of writing transactions in its
  header; a database with a write-ahead log has none, so it is always checked whole;
- for PostgreSQL the versions of all rows of both chains and of the head (``xmin`` and ``ctid``, which every UPDATE and
  INSERT makes anew), added up without reading the rows' values; the cost grows,
  a fortieth as fast as that of hashes.

Guarantee: whoever changes a row, replaces the file or removes an entry, with any rights on the database, is found out
by the next operation, as by a whole check. Whoever may write to the folder of runs too could put a state of their own
there; whoever may set the clock of the file system could restore its times. Both are found
within a day, after which a state no longer counts, and by `tacit ledger verify`, `tacit verify` and the stage
``decide``, which always check the whole ledger.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from sqlalchemy import Connection, text

from pipeline.ledger import clock
from pipeline.ledger.log.tiles import Log
from pretrain.files import PRIVATE, write_text

FILE = ".ledger-checked"
_ROWS = " UNION ALL ".join(
    f"SELECT '{table}'::regclass::oid::text, count(*), "
    f"coalesce(sum(hashtextextended(ctid::text || ' ' || xmin::text, 0)::numeric), 0)::text FROM {table}"
    for table in ("privacy_ledger", "privacy_ledger_head", "privacy_ledger_results")
)
# Of a SQLite file's header: byte 18 is 2 with a write-ahead log, bytes 24 to 27 count writing transactions.
_HEADER_BYTES = 28


@dataclass(frozen=True)
class State:
    """State of a ledger's database.

    Attributes:
      versions: of the rows, or the count of writing transactions; empty if they cannot be told.
      file: number, size and times of last changes of a SQLite file.
      complete: False within a transaction that wrote to SQLite, which changes the file as it ends.
    """

    versions: str
    file: tuple[int, ...] = ()
    complete: bool = True

    @classmethod
    def of(cls, connection: Connection, *, wrote: bool = False) -> Self:
        """State of a database, within a transaction.

        Args:
          wrote: this transaction wrote, which SQLite counts once it has ended.
        """
        if connection.dialect.name == "postgresql":
            rows = connection.execute(text(_ROWS)).all()
            return cls(json.dumps(sorted(map(list, rows))))
        header, at = _read(str(connection.engine.url.database))
        logged = len(header) < _HEADER_BYTES or header[18] == 2
        count = int.from_bytes(header[24:28], "big") + wrote
        times = (at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns)
        return cls("" if logged else str(count), times, complete=not wrote)


# The file of which the header was read last, by device and number: closing a file within a transaction would end the
# locks of this process on it (POSIX), and two processes could reserve the same room.
_OPEN: dict[tuple[int, int], int] = {}


def _read(path: str) -> tuple[bytes, os.stat_result]:
    """Header of a SQLite file, and what the file system says of it; the file stays open."""
    found = Path(path).stat()
    which = (found.st_dev, found.st_ino)
    if which not in _OPEN:
        while _OPEN:
            os.close(_OPEN.popitem()[1])
        _OPEN[which] = os.open(path, os.O_RDONLY)
    file = _OPEN[which]
    return os.pread(file, _HEADER_BYTES, 0), os.fstat(file)


class LastCheck:
    """The state in which an installation last found its ledger whole.

    Args:
      root: the folder of runs.
      log: the log, which was at one of its checkpoints.
    """

    def __init__(self, root: Path, log: Log) -> None:
        self._file, self._log = root / FILE, log

    def holds(self, connection: Connection) -> bool:
        """True if the database is in the state that was found whole, today."""
        try:
            found = self._file.read_text(encoding="utf-8")
        except (FileNotFoundError, UnicodeDecodeError):
            return False
        return found == self._text(State.of(connection))

    def keep(self, state: State) -> None:
        """Keep the state of a database whose ledger is whole."""
        if state.versions:
            write_text(self._file, self._text(state), mode=PRIVATE)

    def _text(self, state: State) -> str:
        signed = self._log.checkpoint()
        kept = signed.checkpoint.text if signed else ""
        return json.dumps({"day": clock.now().date().isoformat(), **asdict(state), "checkpoint": kept}) + "\n"
