"""Attempts at stages on this machine: those under way and how far they are, and how the last failed one ended.

For readers without a stage's log, such as ``tacit runs``. Looking takes no lock and stops nobody.
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
    """The end of a try.

    Attributes:
      error: its class, where it is one that we know.
      exit_code: of the command, which 'tacit explain' explains.
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
    """Keep, in a stage's private folder, how what is done in this block ended; nothing once it ended well.

    Guarantee: of an error its class and exit code alone, as its words may name what lies in somebody's files.
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
    """Stop of the last stage that stopped, or of one stage; None if none did, or if this user may not look."""
    stops = []
    for path in run.glob(f"private/{stage}/{STOPPED}"):
        with suppress(OSError, ValueError, TypeError):
            stops.append(Stop(**json.loads(path.read_text(encoding="utf-8"))))
    return max(stops, key=lambda stop: stop.when, default=None)


@dataclass(frozen=True)
class ActiveStage:
    """A stage under way.

    Attributes:
      process: its id.
      since: when this try of it began.
      progress: of the piece of work that it is at, where that tells.
    """

    launch_id: str
    stage: str
    process: int
    since: datetime
    progress: Point | None = None


def running(here: Settings) -> list[ActiveStage]:
    """Stages whose lock a process of this machine holds, in the order in which they began.

    Not seen from here: what runs in another container, on another machine or as a user whose folders this one may not
    read.
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
    """Process and inode of every ``flock`` that Linux knows; None where nobody can be asked."""
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
    except PermissionError:  # somebody else's
        return True
    return True
