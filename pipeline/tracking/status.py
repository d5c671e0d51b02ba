"""One of MLflow's five statuses for each launch: only what is published has a tick."""

import fcntl
from pathlib import Path

from pipeline.run.run_dir import RESULT, StageRecord

WAITING, DONE, AGAINST, FAILED = "SCHEDULED", "FINISHED", "KILLED", "FAILED"
# Of ``pipeline.publication.approvals``; in every other state a launch goes on or waits for somebody.
_ENDED = {"published": DONE, "held": AGAINST, "rejected": AGAINST, "rolled back": AGAINST}


def of_state(state: str) -> str:
    """The status of a launch in a state."""
    return _ENDED.get(state, WAITING)


def after(record: StageRecord, decision: str | None, before: str) -> str:
    """The status of a launch when one of its stages has ended.

    Args:
      decision: of its gates, as far as it is known.
      before: its status until then. A stage that is made again, or that Airflow runs beside those of the launch, leaves
        a launch that is over as it was: the stages behind it say what became of it.
    """
    if record.stage == "publish":
        return DONE if record.result.get("published") else AGAINST
    if record.stage == "report":
        return AGAINST if decision == "hold" else WAITING
    return before if before in (DONE, AGAINST) else WAITING


def interrupted(launch: Path) -> str | None:
    """A stage of a launch that was begun and ended by nobody; None if there is none.

    The lock itself is asked, as the stage may run in another container or on another host that shares the folder. It is
    asked for a moment and shared, so only who starts that very stage at that moment is told to try again.

    Args:
      launch: its folder.
    """
    for lock in sorted(launch.glob("private/*/.lock")):
        stage = lock.parent.name
        if not (launch / "public" / stage / RESULT).is_file() and not _held(lock):
            return stage
    return None


def _held(lock: Path) -> bool:
    """Return whether a process holds a lock, or nobody here may ask."""
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False
