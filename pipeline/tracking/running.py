"""Stages that run on this machine, and how far they are; looking takes no lock and stops nobody."""

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pipeline.ground.settings import Settings
from pretrain.progress import FILE, Point, read

_LOCKS = Path("/proc/locks")


@dataclass(frozen=True)
class Running:
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


def running(here: Settings) -> list[Running]:
    """Stages whose lock a process of this machine holds, in the order in which they began.

    Not seen from here: what runs in another container, on another machine or as a user whose folders this one may not
    read.
    """
    held, stages = _held(), list[Running]()
    for path in here.runs_dir.glob("*/private/*/.lock"):
        try:
            text, about = path.read_text(encoding="utf-8").strip(), path.stat()
        except OSError:
            continue
        process = int(text) if text.isdecimal() else 0
        if process and _alive(process) and (held is None or (process, about.st_ino) in held):
            since = datetime.fromtimestamp(about.st_mtime, UTC)
            progress = read(path.with_name(FILE))
            stages.append(Running(path.parents[2].name, path.parent.name, process, since, progress))
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
