"""Who may still write for a stage: attempts are numbered, and a newer one shuts out those before.

The numbers stand in the stage's private folder, which all hosts see, so that what was cut off, or slept, finds out when
it wants to write. An attempt commits to the ledger; a gang, the workers that an attempt started, writes checkpoints.
They are two numbers because an attempt may go on with the gang of the one before.
"""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from pipeline.bookkeeping import ATTEMPT, ATTEMPT_LOCK
from pipeline.errors import StaleAttempt
from pretrain.files import PRIVATE, write_text

Role = Literal["attempt", "gang"]


def begin(folder: Path) -> int:
    """A new attempt's number: from now on none before it commits."""
    with _held(folder, fcntl.LOCK_EX):
        numbers = current(folder)
        _write(folder, numbers | {"attempt": numbers["attempt"] + 1})
        return numbers["attempt"] + 1


def hand_over(folder: Path, attempt: int) -> None:
    """Let the gang of this attempt write, and no gang before it.

    Raises:
      StaleAttempt: a newer attempt has begun.
    """
    with _held(folder, fcntl.LOCK_EX):
        _require(folder, "attempt", attempt)
        _write(folder, current(folder) | {"gang": attempt})


@contextmanager
def standing(folder: Path, role: Role, number: int) -> Iterator[None]:
    """Around a write: no newer attempt or gang begins meanwhile.

    Guarantee: when the block runs, no newer one had begun, and none begins before the block ends, wherever the folder's
    file system locks files for all hosts.

    Raises:
      StaleAttempt: a newer one has begun; the block is not run.
    """
    with _held(folder, fcntl.LOCK_SH):
        _require(folder, role, number)
        yield


def current(folder: Path) -> dict[str, int]:
    """The newest attempt, and the attempt whose gang may write; 0 before the first."""
    path = folder / ATTEMPT
    return {"attempt": 0, "gang": 0} | (json.loads(path.read_text(encoding="utf-8")) if path.exists() else {})


def _require(folder: Path, role: Role, number: int) -> None:
    newest = current(folder)[role]
    if newest != number:
        raise StaleAttempt(f"{folder.name}: {role} {number} may write no more, as {role} {newest} has begun since")


@contextmanager
def _held(folder: Path, how: int) -> Iterator[None]:
    with (folder / ATTEMPT_LOCK).open("a") as file:  # beside it, as .attempt itself is replaced
        fcntl.flock(file, how)
        yield


def _write(folder: Path, numbers: dict[str, int]) -> None:
    write_text(folder / ATTEMPT, json.dumps(numbers), PRIVATE)
