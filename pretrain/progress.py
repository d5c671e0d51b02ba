"""Progress of long work as log records, which a command shows as a bar, or as a line now and then.

Counts of devices and of their text may be private, so a record holds shares of the work and no counts.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from pretrain.files import PRIVATE, write_text

_log = logging.getLogger(__name__)
_log.setLevel(logging.INFO)  # for any log level, so that 'tacit status' of another process sees it
FILE = ".progress"  # of a stage that runs, in its private folder
_SECONDS = 0.5  # between two records
_SECONDS_ON_DISK = 2.0


@dataclass(frozen=True)
class Point:
    """Progress of some work.

    Attributes:
      share: of it that is done, from 0 to 1.
      left: estimated remaining seconds; None before an estimate exists.
    """

    what: str
    share: float
    left: float | None


def reaching(what: str, since: float | None = None) -> Callable[[float, str], None]:
    """A callback that receives the completed share, and numbers to show with it.

    Args:
      since: the share at which this try begins; None where the first call says it, as after a resumption.
    """
    began, last, lock = [(time.monotonic(), since)], [-_SECONDS], threading.Lock()

    def reach(share: float, numbers: str = "") -> None:
        with lock:
            now = time.monotonic()
            start, base = began[0]
            if base is None:
                began[0] = (now, share)
            elif share < 1 and now - last[0] < _SECONDS:
                return
            last[0] = now
        gained = 0.0 if base is None else share - base
        point = Point(what, min(share, 1.0), (now - start) * (1 - share) / gained if gained > 0 else None)
        _log.info("%s", f"{what}: {numbers or f'{point.share:.0%}'}", extra={"progress": point})

    return reach


def along(what: str, total: float) -> Callable[[float], None]:
    """A callback that receives the work done since its last call, of a known total; any thread may call it."""
    reach, done, lock = reaching(what, 0.0), [0.0], threading.Lock()

    def add(amount: float = 1.0) -> None:
        with lock:
            done[0] += amount
        reach(done[0] / total if total else 1.0, "")

    return add


def nothing(_amount: float = 1.0) -> None:
    """A progress callback that does nothing."""


@contextmanager
def kept_in(path: Path) -> Iterator[None]:
    """Store the latest progress point in a file, for other processes."""
    handler = _Keeper(path)
    _log.addHandler(handler)
    try:
        yield
    finally:
        _log.removeHandler(handler)
        path.unlink(missing_ok=True)


def read(path: Path) -> Point | None:
    """The latest point; None if there is none."""
    try:
        return Point(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


class _Keeper(logging.Handler):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path, self._last = path, -_SECONDS_ON_DISK

    def emit(self, record: logging.LogRecord) -> None:
        now = time.monotonic()
        if now - self._last >= _SECONDS_ON_DISK:
            self._last = now
            with suppress(OSError):  # A full disk is for the stage to find.
                write_text(self._path, json.dumps(asdict(record.__dict__["progress"])), PRIVATE)
