"""The fence around what an attempt at a stage writes: a newer attempt shuts out those before it.

Attempts are numbered in the stage's private folder, which all hosts of a gang see, so that an attempt that was cut off,
or slept, finds out when it wants to write: its workers no checkpoint, and itself no commit to the ledger.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.ground.errors import StaleAttempt
from pipeline.run.bookkeeping import ATTEMPT, ATTEMPT_LOCK
from pretrain.files import PRIVATE, write_text


def begin(folder: Path) -> int:
    """Number a new attempt: from now on none before it writes."""
    with _held(folder, fcntl.LOCK_EX):
        number = current(folder) + 1
        write_text(folder / ATTEMPT, f"{number}\n", PRIVATE)
        return number


@contextmanager
def standing(folder: Path, number: int) -> Iterator[None]:
    """Around a write of an attempt: no newer one begins meanwhile.

    Guarantee: when the block runs, no newer one had begun, and none begins before the block ends, wherever the folder's
    file system locks files for all hosts.

    Raises:
      StaleAttempt: a newer one has begun; the block is not run.
    """
    with _held(folder, fcntl.LOCK_SH):
        newest = current(folder)
        if newest != number:
            raise StaleAttempt(
                f"{folder.name}: attempt {number} may write no more, as attempt {newest} has begun since"
            )
        yield


def current(folder: Path) -> int:
    """The newest attempt's number; 0 before the first."""
    path = folder / ATTEMPT
    return int(path.read_text(encoding="utf-8")) if path.exists() else 0


@contextmanager
def _held(folder: Path, how: int) -> Iterator[None]:
    # Beside it, as .attempt itself is replaced; open for reading too, without which NFS gives no shared lock.
    with (folder / ATTEMPT_LOCK).open("a+") as file:
        fcntl.flock(file, how)
        yield
