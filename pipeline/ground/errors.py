"""Errors that stop a launch, and whether trying again can help.

    LaunchError
    ├── PermanentError          exit 65: trying again changes nothing, a person must act
    │   ├── BudgetExceeded        the population's privacy budget has no room for this launch
    │   ├── LedgerConflict        a retry that is not the same release
    │   ├── LedgerTampered        the ledger is not what was written to it
    │   ├── LedgerMissing         there is no ledger where it should be
    │   ├── PopulationUnknown     nobody registered the population, so it has no budget
    │   ├── StageInputMissing     an earlier stage's output is neither on disk nor in MLflow
    │   ├── RefusedUntouched      a stage that spends refused before any device took part
    │   └── ReleaseRefused        nothing to publish: the decision is hold, or there is no such version
    └── TemporaryError          exit 75: infrastructure, try again later
        ├── TooEarly              an experiment's days are not over, so nothing is decided yet
        ├── StageBusy             another process is running this stage of this launch
        ├── StaleAttempt          a newer attempt at the stage has begun; this one may write no more
        └── ServiceUnavailable    the ledger's database or MLflow did not answer

Besides these, ``ValueError`` (the caller's mistake) and ``ArithmeticError`` (numbers gone
wrong) are permanent. ``OSError`` is temporary, unless it says something of a path that only a
person can change: nothing is there, it may not be opened, its name is too long. Everything else
is a bug of ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pretrain.reading.paths import LASTING

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
        DONE: Ending("Done; a launch was published, or waits for its reviewers.", "Nothing, or what the answer says."),
        BUG: Ending(
            "A bug of tacit's own, with its traceback.",
            "Report it with the traceback, which holds no text of anybody's. What was reserved stays spent; the same "
            "command again goes on from the last checkpoint.",
        ),
        COMMAND_LINE: Ending(
            "A wrong command line: no such command, option or number of arguments.",
            "Read the command's --help, which shows an example. Nothing was begun.",
        ),
        HELD: Ending(
            "'tacit launch' ran to its end, and gates hold the launch: it is not published. What it spent stays spent. "
            "Or its live experiment was rolled back: users keep what they had.",
            "Read which gates failed and what to do about each ('tacit status LAUNCH' says it again), change the "
            "launch file, which makes another launch, and look at what is left of the budget before it spends. To "
            "Airflow a held launch is no failure: its stages end with 0, and publication is skipped.",
        ),
        PERMANENT: Ending(
            "Permanent: trying again changes nothing. A bad launch file or bad data, no budget, numbers gone wrong, a "
            "ledger that cannot be relied on, or something that did not verify.",
            "Do what the error says, then run the same command again. Airflow fails the task and tries no more.",
        ),
        TEMPORARY: Ending(
            "Temporary: infrastructure, such as a database that does not answer, a full disk, or another process that "
            "runs the same stage; or a live experiment whose days are not over, or whose logs are not there.",
            "Run the same command again later; it goes on where it was. Airflow tries again by itself.",
        ),
    }
)


class LaunchError(Exception):
    """Base of the errors of orchestration."""


class PermanentError(LaunchError):
    """Trying again changes nothing."""


class BudgetExceeded(PermanentError):
    """A reservation would take the population above its budget."""


class LedgerConflict(PermanentError):
    """A retry whose amounts, key or inputs are not those of the first attempt."""


class LedgerTampered(PermanentError):
    """The hash chain or the append-only protection of the ledger is broken."""


class LedgerMissing(PermanentError):
    """No ledger where it should be; one is made on purpose or restored, never in passing."""


class PopulationUnknown(PermanentError):
    """A population that nobody registered."""


class StageInputMissing(PermanentError):
    """A stage needs the output of an earlier one that is nowhere to be found."""


class RefusedUntouched(PermanentError):
    """A stage that reserved a spend refused before any device took part, so the reservation is given back."""


class ReleaseRefused(PermanentError):
    """A publication or rollback that must not happen."""


class TemporaryError(LaunchError):
    """Infrastructure; the same command may succeed later."""


class TooEarly(TemporaryError):
    """An experiment is decided once, when all its days are over."""


class StageBusy(TemporaryError):
    """Another process holds this stage of this launch."""


class StaleAttempt(TemporaryError):
    """An attempt at a stage that a newer one has shut out."""


class ServiceUnavailable(TemporaryError):
    """A database or the tracking server did not answer."""


def exit_code(error: BaseException) -> int | None:
    """The exit status that tells a scheduler whether to retry, or None for a bug.

    A bug keeps its traceback: the caller re-raises and Python exits with 1.
    """
    if isinstance(error, PermanentError | ValueError | ArithmeticError):
        return PERMANENT
    if isinstance(error, OSError) and error.errno in LASTING:
        return PERMANENT
    if isinstance(error, TemporaryError | OSError):
        return TEMPORARY
    return None
