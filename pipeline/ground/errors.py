"""Errors that stop a launch, and whether a retry can help.

    LaunchError
    ├── PermanentError          exit 65: a retry changes nothing, a person must act
    │   ├── BudgetExceeded        the population's privacy budget has no room for this launch
    │   ├── RulesBroken           the launch file is below what its population's registration asks for
    │   ├── LedgerConflict        a retry differs from the first attempt, so it would be a second release
    │   ├── LedgerTampered        the ledger was altered after it was written
    │   ├── LedgerMissing         no ledger exists at the configured address
    │   ├── KeyUnusable           a key of the installation or of a reviewer is missing or damaged
    │   ├── PopulationUnknown     the population is not registered, so it has no budget
    │   ├── StageInputMissing     an earlier stage's output is neither on disk nor in MLflow
    │   ├── RefusedUntouched      a stage that spends refused before any device took part
    │   └── ReleaseRefused        nothing to publish: the decision is hold, or the version does not exist
    ├── LaunchHeld              exit 3: evidence against the launch while it runs; it is never published
    └── TemporaryError          exit 75: infrastructure, try again later
        ├── StageBusy             another process is running this stage of this launch
        ├── StaleAttempt          a newer attempt at the stage has begun; this one may no longer write
        ├── LedgerNewer           a newer tacit has updated the ledger; this worker was left behind
        └── ServiceUnavailable    the ledger's database or MLflow did not answer

Besides these, ``ValueError`` (the caller's mistake) and ``ArithmeticError`` (numbers gone
wrong) are permanent. ``OSError`` is temporary, unless it concerns a path that only a person can
fix: the path is missing, it may not be opened, or its name is too long. ``MemoryError`` is temporary. Everything else
is a bug in tacit.
"""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pretrain.reading.paths import LASTING

# Codes of SQLite, and words of PostgreSQL, which gives no code before it lets somebody in.
_REFUSED = frozenset((sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH))
_REFUSALS = ("authentication failed", "no pg_hba.conf entry", "permission denied", "does not exist")
DONE, BUG, COMMAND_LINE, HELD = 0, 1, 2, 3
PERMANENT = 65  # EX_DATAERR of sysexits.h
TEMPORARY = 75  # EX_TEMPFAIL of sysexits.h


@dataclass(frozen=True)
class Ending:
    """Meaning of an exit code, and the fix."""

    means: str
    then: str


ENDINGS: Mapping[int, Ending] = MappingProxyType(
    {
        DONE: Ending("Done; a launch was published, or waits for its reviewers.", "Nothing, or as the output says."),
        BUG: Ending(
            "A bug in tacit, shown with its traceback.",
            "Report it with the traceback, which contains no private text. Reservations stay spent; run the command "
            "again to resume from the last checkpoint.",
        ),
        COMMAND_LINE: Ending(
            "A wrong command line: no such command, option or number of arguments.",
            "Read the command's --help, which shows an example. Nothing was started.",
        ),
        HELD: Ending(
            "'tacit launch' completed, but gates hold the launch: it is not published. Its spends stay spent. "
            "Or an audit stopped training in the round in which a fault of noise or participation showed. "
            "Or its published model was taken back: users keep the previous one.",
            "Read which gates failed and how to fix each ('tacit status LAUNCH' repeats it), change the launch file, "
            "which makes another launch, and check the remaining budget before it spends. In Airflow the "
            "stages of a held launch exit with 0, and its task 'launch_or_hold' fails, without a retry. Training that "
            "an audit stopped fails its own task: find the fault that its message names first.",
        ),
        PERMANENT: Ending(
            "Permanent: a retry changes nothing. A bad launch file or bad data, no budget, numbers gone wrong, a "
            "ledger that cannot be relied on, or a failed verification.",
            "Do what the error says, then run the same command again. Airflow fails the task and does not retry it.",
        ),
        TEMPORARY: Ending(
            "Temporary: infrastructure, such as a database that does not answer, a full disk, another process that "
            "runs the same stage, a worker that an update left behind, or data that is not there yet.",
            "Run the same command again later; it resumes from where it stopped. Airflow retries by itself.",
        ),
    }
)


class LaunchError(Exception):
    """Base of the errors of orchestration."""


class PermanentError(LaunchError):
    """A retry changes nothing; a person must act."""


class BudgetExceeded(PermanentError):
    """A reservation would take the population above its budget."""


class RulesBroken(PermanentError):
    """A launch file is below what its population's registration asks for."""


class LedgerConflict(PermanentError):
    """A retry whose amounts, key or inputs are not those of the first attempt."""


class LedgerTampered(PermanentError):
    """The hash chain or the append-only protection of the ledger is broken."""


class LedgerMissing(PermanentError):
    """No ledger exists at its address; one is only ever created on purpose or restored."""


class KeyUnusable(PermanentError):
    """A key of this installation or of a reviewer is missing or damaged; it is made on purpose or restored."""


class PopulationUnknown(PermanentError):
    """The ledger has no registration of the population."""


class StageInputMissing(PermanentError):
    """An earlier stage's output is neither on disk nor in MLflow."""


class RefusedUntouched(PermanentError):
    """A stage that reserved a spend refused before any device took part, so the reservation is given back."""


class ReleaseRefused(PermanentError):
    """A publication or rollback is not allowed."""


class LaunchHeld(LaunchError):
    """Evidence, while the launch runs, that its noise or participation is not what it claims."""


class TemporaryError(LaunchError):
    """Infrastructure; the same command may succeed later."""


class StageBusy(TemporaryError):
    """Another process holds this stage of this launch."""


class StaleAttempt(TemporaryError):
    """A newer attempt at the stage has begun, so this one may no longer write."""


class LedgerNewer(TemporaryError):
    """The ledger has tables of a newer version, which this version could misread; an updated worker can continue."""


class ServiceUnavailable(TemporaryError):
    """A database or the tracking server did not answer."""


def lasts(error: BaseException | None) -> bool:
    """Return whether a driver's error is one that only a person can end: this account may not open or write it."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without the extension
    return code in _REFUSED or any(words in str(error) for words in _REFUSALS)


def exit_code(error: BaseException) -> int | None:
    """The exit status that tells a scheduler whether to retry, or None for a bug.

    A bug keeps its traceback: the caller re-raises and Python exits with 1.
    """
    if isinstance(error, LaunchHeld):
        return HELD
    if isinstance(error, PermanentError | ValueError | ArithmeticError):
        return PERMANENT
    if isinstance(error, OSError) and error.errno in LASTING:
        return PERMANENT
    if isinstance(error, TemporaryError | OSError | MemoryError):
        return TEMPORARY
    return None
