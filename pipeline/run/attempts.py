"""Attempts at stages on this machine: running ones with their progress, and the end of the last failed one.

For readers without a stage's log, such as ``tacit runs``. Reading takes no lock and stops no stage.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from pipeline.ground.errors import BUG, exit_code
from pipeline.ground.settings import Settings
from pipeline.run.bookkeeping import STOPPED
from pipeline.telemetry.allowed import error_type
from pretrain.files import PRIVATE, write_text
from pretrain.progress import FILE, Point, read

_LOCKS = Path("/proc/locks")


@dataclass(frozen=True)
class Stop:
    """End of a failed attempt.

    Attributes:
      error: class of the error, if it is an expected one.
      exit_code: of the command; 'tacit explain' explains it.
      when: in UTC, as 2026-01-31T12:00:00+00:00.
    """

    stage: str
    error: str
    exit_code: int
    when: str

    def __str__(self) -> str:
        when = self.when[:16].replace("T", " ")
        return f"{self.stage} stopped at {when}Z with exit code {self.exit_code} ({self.error}); its log says why"


@contextmanager
def noted(folder: Path, stage: str) -> Iterator[None]:
    """Record an error of the block in the stage's private folder, and remove the record after a success.

    Guarantee: it holds the error's class and exit code alone, as the message may quote private files.
    """
    path = folder / STOPPED
    try:
        yield
    except Exception as error:
        stop = Stop(stage, error_type(error), exit_code(error) or BUG, datetime.now(UTC).isoformat(timespec="seconds"))
        with suppress(OSError):  # such as a full disk, which is the error already
            write_text(path, json.dumps(asdict(stop)), PRIVATE)
        raise
    path.unlink(missing_ok=True)


def latest(run: Path, stage: str = "*") -> Stop | None:
    """Latest failure of any stage, or of one stage; None if none failed, or if this user may not read it."""
    stops = []
    for path in run.glob(f"private/{stage}/{STOPPED}"):
        with suppress(OSError, ValueError, TypeError):
            stops.append(Stop(**json.loads(path.read_text(encoding="utf-8"))))
    return max(stops, key=lambda stop: stop.when, default=None)


@dataclass(frozen=True)
class ActiveStage:
    """A running stage.

    Attributes:
      process: its id.
      since: when this attempt began.
      progress: of its current piece of work, if that reports any.
    """

    launch_id: str
    stage: str
    process: int
    since: datetime
    progress: Point | None = None


def running(here: Settings) -> list[ActiveStage]:
    """List stages whose lock a process of this machine holds, oldest first.

    The list lacks stages that run in another container, on another machine, or as a user whose folders this user may
    not read.
    """
    held, stages = _held(), list[ActiveStage]()
    for path in here.runs_dir.glob("*/private/*/.lock"):
        try:
            text, about = path.read_text(encoding="utf-8").strip(), path.stat()
        except OSError:
            continue
        process = int(text) if text.isdecimal() else 0
        if process and _alive(process) and (held is None or (process, about.st_ino) in held):
            since = datetime.fromtimestamp(about.st_mtime, UTC)
            progress = read(path.with_name(FILE))
            stages.append(ActiveStage(path.parents[2].name, path.parent.name, process, since, progress))
    return sorted(stages, key=lambda stage: stage.since)


def _held() -> set[tuple[int, int]] | None:
    """Process and inode of every ``flock``, from Linux's list; None on other systems."""
    try:
        lines = _LOCKS.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    words = (line.split() for line in lines if " FLOCK " in line and "->" not in line)
    return {(int(each[4]), int(each[5].rpartition(":")[2])) for each in words}


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True
