"""Erase a launch's private files: noise keys, client text, noise state, participation records, discovered words.

All files are erased together, as a key alone still allows the noise to be subtracted from published models. A statement
of the erased files, time and reason replaces them, with its digest in the ledger; public files, MLflow and the ledger
stay. Files are unlinked, not overwritten on the disk, so keep ``runs/`` on an encrypted one.

Each step may be the last one before a crash. The statement is written first and the private folder is removed last, so
a launch with both has an unfinished erasure.
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

ASKED = "on request"
# Entry of a statement for a launch without a verification.
UNTRIED = ("no verification was run",)
_log = logging.getLogger(__name__)


def erase(
    config: LaunchConfig, run: RunDir, settings: Settings, *, because: str = ASKED, unverified: bool = False
) -> Erasure:
    """Erase the private folder of a finished launch; a second call completes an interrupted erasure.

    Guarantee: an attacker with access to this machine can no longer subtract the launch's noise, and the launch's
    folder holds no typed text.

    Args:
      because: the reason, in public words.
      unverified: erase a launch that does not verify; afterwards it can never be verified.

    Raises:
      PermanentError: the launch has not ended, or does not verify.
    """
    from pipeline.verify.launch import verify  # Slow to import.

    wrong: list[str] = []
    if not run.erased:
        if ended_at(config, run, settings) is None:
            raise PermanentError(
                f"{run.launch_id}: has not ended, and needs its private files to end: 'tacit launch' its file first"
            )
        wrong = [check.id for check in verify(config, run, settings) if check.passed is not True]
        if wrong and not unverified:
            raise PermanentError(
                f"{run.launch_id}: does not verify ({', '.join(wrong[:4])}), and the cause cannot be found after an "
                f"erasure; see 'tacit verify {run.launch_id}', or erase it anyway with --unverified"
            )
    return forget(run, settings, because, wrong)


def erase_named(name: str, settings: Settings, *, unverified: bool = False) -> Erasure:
    """Erase a launch by its name; one with a missing or damaged configuration only with ``unverified``.

    Raises:
      ValueError: there is no such launch, or its configuration cannot be read.
      PermanentError: see ``erase``.
    """
    # Without its configuration, a launch is known only by its folder's name.
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
    """Erase the private folder of a launch in any state, and return the statement.

    Guarantee: needs no record, no launch file and no ledger: if the statement cannot be written, or its digest cannot
    be recorded in the ledger, the files are unlinked before the error is raised.

    Raises:
      StageBusy: a stage of the launch is running; nothing was erased.
      LaunchError, ValueError, OSError: the files are gone, but the ledger has no entry; call again to write it.
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
        with suppress(OSError):  # A full disk has room once the files are gone.
            write_erasure(run, erasure)
        for entry in _entries(run):
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    write_erasure(run, erasure)
    if not again:
        _log.warning("%s", erasure)
    path = run.path / "public" / "launch" / ERASED
    PrivacyLedger.of(settings).bind_result(run.launch_id, ERASED, sha256(path))
    # Last, so that an interrupted erasure is found again.
    if private.is_dir():
        private.rmdir()
    return read_erasure(path)


def _entries(run: RunDir) -> list[Path]:
    private = run.path / "private"
    return sorted(private.iterdir()) if private.is_dir() else []


def ended_at(config: LaunchConfig, run: RunDir, settings: Settings) -> datetime | None:
    """Time at which a launch was published, or finally held or rejected; None if it has not ended."""
    now = standing(config, run, PrivacyLedger.of(settings))
    last = run.record("publish") or run.record("report")
    if last is None or now.state in ("unfinished", "waiting", "approved"):
        return None
    return datetime.fromisoformat(last.started_at) + timedelta(seconds=last.seconds)
