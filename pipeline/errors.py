"""What can stop a launch, and whether trying again can help.

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
        ├── StageBusy             another process is running this stage of this launch
        ├── StaleAttempt          a newer attempt at the stage has begun; this one may write no more
        └── ServiceUnavailable    the ledger's database or MLflow did not answer

Besides these, ``ValueError`` (the caller's mistake) and ``ArithmeticError`` (numbers gone
wrong) are permanent. ``OSError`` is temporary, unless it says something of a path that only a
person can change: nothing is there, it may not be opened, its name is too long. Everything else
is a bug of ours.
"""

from pretrain.reading.paths import LASTING

PERMANENT = 65  # EX_DATAERR of sysexits.h
TEMPORARY = 75  # EX_TEMPFAIL of sysexits.h


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
