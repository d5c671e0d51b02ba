"""Forget what a launch no longer needs: noise keys, client text, noise state and participation records.

They are kept while a launch may still be resumed or verified. Once it is over, and verified, nobody needs them: what
was published stays as it is, and a statement of what was verified and erased stays in their place, its digest in the
ledger. Files are unlinked; what a disk keeps of them is the disk's, so keep ``runs/`` on an encrypted one.
"""

import json
import logging
import shutil
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

from pipeline.config import LaunchConfig
from pipeline.errors import LaunchError, PermanentError
from pipeline.ledger import clock
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.release import standing
from pipeline.reuse.kept import read_kept
from pipeline.run_dir import ERASED, RunDir
from pipeline.settings import Settings
from pipeline.verify.launch import verify
from pretrain.files import sha256, write_text

_log = logging.getLogger(__name__)


def erase(config: LaunchConfig, run: RunDir, settings: Settings, *, unverified: bool = False) -> dict:
    """Erase the private folder of a launch that is over; again, it finishes what an interruption left.

    Guarantee: the launch's noise can no longer be subtracted by whoever gets at this machine, and nothing that anybody
    typed is left in the launch's folder.

    Args:
      unverified: erase a launch that does not verify; from then on nothing can show that it was sound.

    Raises:
      PermanentError: it is not over, or does not verify.
    """
    finished_at(config, run, settings)
    path, private = run.path / "public" / "launch" / ERASED, run.path / "private"
    if not path.exists():
        wrong = [check.id for check in verify(config, run, settings) if check.passed is not True]
        if wrong and not unverified:
            raise PermanentError(
                f"{run.launch_id}: it does not verify ({', '.join(wrong[:4])}), and once erased nobody could tell why; "
                f"see 'tacit verify {run.launch_id}', or erase it all the same with --unverified"
            )
        files = [entry for entry in private.rglob("*") if entry.is_file()] if private.is_dir() else []
        content = {
            "launch_id": run.launch_id,
            "erased_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "verified": not wrong,
            "not_verified": wrong,
            "files": len(files),
        }
        write_text(path, json.dumps(content, indent=2, sort_keys=True) + "\n")
    PrivacyLedger(settings.ledger_url).bind_result(run.launch_id, ERASED, sha256(path))
    if private.is_dir():
        with ExitStack() as held:
            for folder in sorted(entry for entry in private.iterdir() if entry.is_dir() and entry.name[0] != "."):
                held.enter_context(run.lock(folder.name))
            shutil.rmtree(private)
    return json.loads(path.read_text(encoding="utf-8"))


def erase_expired(settings: Settings) -> list[str]:
    """Erase every launch that was over longer ago than the retention time, or whose text is all older than the window
    of its population's budget; their ids.

    One that does not verify is kept, and named in the log.
    """
    erased, days = [], settings.retention_days
    oldest = None if days is None else clock.now() - timedelta(days=days)
    for path in sorted(settings.runs_dir.glob("*/public/launch/launch.json")):
        run = RunDir(settings.runs_dir, path.parents[2].name)
        try:
            outlived = _outlived(run)
            if not (run.path / "private").is_dir() or (oldest is None and not outlived):
                continue
            config = read_kept(path)
            if outlived or (oldest and finished_at(config, run, settings) <= oldest):
                erase(config, run, settings)
                erased.append(run.launch_id)
        except (LaunchError, ValueError, OSError) as error:
            _log.warning("%s: kept for longer than it should be: %s", run.launch_id, error)
    return erased


def _outlived(run: RunDir) -> bool:
    """Whether all text of a launch is older than the days for which its population's is kept."""
    ingested = run.record("ingest_private")
    result = ingested.result if ingested else {}
    if not result.get("as_of"):
        return False
    return clock.now() - clock.start_of(result["as_of"]) > timedelta(days=result["days_kept"] + 1)


def finished_at(config: LaunchConfig, run: RunDir, settings: Settings) -> datetime:
    """When a launch was published, or held or rejected for good.

    Raises:
      PermanentError: it is not over.
    """
    now = standing(config, run, PrivacyLedger(settings.ledger_url).entries())
    last = run.record("publish") or run.record("report")
    if last is None or now.state in ("unfinished", "waiting", "approved"):
        raise PermanentError(
            f"{run.launch_id}: it is not over, and needs what is private to end: 'tacit launch' its file first"
        )
    return datetime.fromisoformat(last.started_at) + timedelta(seconds=last.seconds)
