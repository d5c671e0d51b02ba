"""Erase what is private of a launch: noise keys, client text, noise state, participation records, discovered words.

All of it goes at once, as a key without the text still takes the noise off what was published. A statement of what was
erased, when and why stands in its place, its digest in the ledger; what was published, MLflow and the ledger stay.
Files are unlinked; what a disk keeps of them is the disk's, so keep ``runs/`` on an encrypted one.

Each step may be the last one before a crash. The statement is written first and the private folder goes last, so
that a launch that has both is one whose erasure is to be finished.
"""

import logging
import shutil
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pipeline.ground.errors import PermanentError
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication.approvals import standing
from pipeline.run import named
from pipeline.run.erasure import Erasure, read_erasure, write_erasure
from pipeline.run.known import run_folder
from pipeline.run.run_dir import ERASED, RunDir
from pretrain.files import sha256

ASKED = "somebody asked for it"
# What a statement names of a launch that nobody verified, in place of checks.
UNTRIED = ("nothing was verified before",)
_log = logging.getLogger(__name__)


def erase(
    config: LaunchConfig, run: RunDir, settings: Settings, *, because: str = ASKED, unverified: bool = False
) -> Erasure:
    """Erase the private folder of a launch that is over; again, it finishes what an interruption left.

    Guarantee: the launch's noise can no longer be subtracted by whoever gets at this machine, and nothing that anybody
    typed is left in the launch's folder.

    Args:
      because: why, in words that may be shown.
      unverified: erase a launch that does not verify; from then on nothing can show that it was sound.

    Raises:
      PermanentError: it is not over, or does not verify.
    """
    from pipeline.verify.launch import verify  # Slow to import.

    wrong: list[str] = []
    if not run.erased:
        if ended_at(config, run, settings) is None:
            raise PermanentError(
                f"{run.launch_id}: it is not over, and needs what is private to end: 'tacit launch' its file first"
            )
        wrong = [check.id for check in verify(config, run, settings) if check.passed is not True]
        if wrong and not unverified:
            raise PermanentError(
                f"{run.launch_id}: it does not verify ({', '.join(wrong[:4])}), and once erased nobody could tell why; "
                f"see 'tacit verify {run.launch_id}', or erase it all the same with --unverified"
            )
    return forget(run, settings, because, wrong)


def erase_named(name: str, settings: Settings, *, unverified: bool = False) -> Erasure:
    """Erase a launch as people name it; one whose configuration is gone or damaged only with ``unverified``.

    Raises:
      ValueError: there is no such launch, or its configuration cannot be read.
      PermanentError: see ``erase``.
    """
    # A launch whose file is gone has no other name than its folder's.
    is_folder = unverified and (settings.runs_dir / name / "private").is_dir()
    run = run_folder(settings, name if is_folder else named.begun_id(name, settings))
    try:
        config = named.kept_config(settings, run.launch_id)
    except ValueError:
        if not unverified:
            raise
        return forget(run, settings, ASKED)
    return erase(config, run, settings, unverified=unverified)


def forget(run: RunDir, settings: Settings, because: str, not_verified: Sequence[str] = UNTRIED) -> Erasure:
    """Erase the private folder of a launch whatever its state; the statement of it.

    Guarantee: needs no record, no launch file and no ledger, and what cannot be written down does not keep text:
    where the statement cannot be written, or not be bound in the ledger, the files are unlinked before that is said.

    Raises:
      StageBusy: a stage of it is being run; nothing was erased.
      LaunchError, ValueError, OSError: the files are gone, but the ledger could not be told; the same call again does.
    """
    private, again = run.path / "private", run.erased
    files = sum(entry.is_file() for entry in private.rglob("*"))
    with ExitStack() as held:
        for folder in sorted(entry for entry in _entries(run) if entry.is_dir() and entry.name[0] != "."):
            held.enter_context(run.lock(folder.name))
        erasure = Erasure(
            launch_id=run.launch_id,
            erased_at=datetime.now(UTC).isoformat(timespec="seconds"),
            because=because,
            verified=not not_verified,
            not_verified=tuple(not_verified),
            files=files,
        )
        with suppress(OSError):  # A full disk, on which there is room once the files are gone.
            write_erasure(run, erasure)
        for entry in _entries(run):
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    write_erasure(run, erasure)
    if not again:
        _log.warning("%s", erasure)
    path = run.path / "public" / "launch" / ERASED
    PrivacyLedger.of(settings).bind_result(run.launch_id, ERASED, sha256(path))
    # Last, so that what was not written down is found again.
    if private.is_dir():
        private.rmdir()
    return read_erasure(path)


def _entries(run: RunDir) -> list[Path]:
    private = run.path / "private"
    return sorted(private.iterdir()) if private.is_dir() else []


def ended_at(config: LaunchConfig, run: RunDir, settings: Settings) -> datetime | None:
    """Time at which a launch was published, or held or rejected for good; None if it is not over."""
    now = standing(config, run, PrivacyLedger.of(settings).entries())
    last = run.record("publish") or run.record("report")
    if last is None or now.state in ("unfinished", "waiting", "approved"):
        return None
    return datetime.fromisoformat(last.started_at) + timedelta(seconds=last.seconds)
