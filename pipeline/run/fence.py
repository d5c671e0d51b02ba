"""Fencing of attempts at a stage: once a newer attempt begins, older ones can no longer write.

Attempts are numbered in the stage's private folder, which all hosts of a gang share, so that an attempt that was cut
off or suspended is refused when it writes: neither a checkpoint by its workers nor a commit to the ledger.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.ground.errors import StaleAttempt
from pipeline.run.bookkeeping import ATTEMPT, ATTEMPT_LOCK
from pretrain.files import PRIVATE, write_text


def begin(folder: Path) -> int:
    """Begin a new attempt and return its number; earlier attempts can no longer write."""
    with _held(folder, fcntl.LOCK_EX):
        number = current(folder) + 1
        write_text(folder / ATTEMPT, f"{number}\n", PRIVATE)
        return number


@contextmanager
def standing(folder: Path, number: int) -> Iterator[None]:
    """Guard a write of an attempt: no newer attempt begins while the block runs.

    Guarantee: when the block runs, no newer attempt has begun, and none begins before the block ends, if the folder's
    file system locks files for all hosts.

    Raises:
      StaleAttempt: a newer attempt has begun; the block does not run.
    """
    with _held(folder, fcntl.LOCK_SH):
        newest = current(folder)
        if newest != number:
            raise StaleAttempt(
                f"{folder.name}: attempt {number} may no longer write, as attempt {newest} has begun since"
            )
        yield


def current(folder: Path) -> int:
    """Number of the newest attempt; 0 before the first."""
    path = folder / ATTEMPT
    return int(path.read_text(encoding="utf-8")) if path.exists() else 0


@contextmanager
def _held(folder: Path, how: int) -> Iterator[None]:
    # A file of its own, as .attempt is replaced; opened for reading too, as NFS otherwise gives no shared lock.
    with (folder / ATTEMPT_LOCK).open("a+") as file:
        fcntl.flock(file, how)
        yield
