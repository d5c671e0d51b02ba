"""Check that a stage's earlier record still holds, and recover a finished computation after a crash."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path

from pipeline.ground.errors import PermanentError, StageInputMissing
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, config_digest
from pipeline.run.bookkeeping import OUTCOME, SEAL, is_same
from pipeline.run.known import changed_inputs, write_down
from pipeline.run.run_dir import ERASED, GIVEN, RunDir, StageRecord, has_private_files, record_text
from pipeline.run.stage import Stage, Stages, concludes, kept
from pretrain.files import PRIVATE, write_text

_NOT_LEFT = "damaged or gone, so nothing was reserved"
_log = logging.getLogger(__name__)


def still_true(record: StageRecord, config: LaunchConfig, run: RunDir, *, released: bool | None = None) -> bool:
    """Return whether a record still holds: same configuration, same inputs, outputs with the recorded digests.

    Private files are those of the record if their seal is: an attempt that writes others removes the seal first.
    """
    if record.config_digest != config_digest(config):
        return False
    # A release still holds when its private folder is gone; other stages make theirs again.
    released = not record.ledger.keys().isdisjoint(("reserve", "reuse")) if released is None else released
    if record.private_outputs and not run.erased:
        if not has_private_files(run, record.stage):
            if not released:
                return False
        elif not is_same(run.path / "private" / record.stage / SEAL, str(record.private_digest)):
            return False
    names = (path.partition("/")[2] for path in record.inputs if path.startswith(f"{GIVEN}/"))
    if any(run.given_digest(name) != record.inputs[f"{GIVEN}/{name}"] for name in names) or changed_inputs(record, run):
        return False
    return all(run.available(record.stage, name, digest) for name, digest in record.outputs.items())


def require_private(run: RunDir, name: str, stages: Stages) -> None:
    """Check that the launch's private files were not erased, before a stage that needs them.

    Raises:
      PermanentError: they were erased.
    """
    if run.erased and not concludes(name, stages):
        raise PermanentError(
            f"{name}: the private files of {run.launch_id} were erased (public/launch/{ERASED} says when and why), and "
            "this stage needs them; launch for a later date, or under another name"
        )


def require_whole(run: RunDir, spending: Stage, stages: Stages) -> None:
    """Check that the files of earlier stages are unchanged, before a stage reserves a spend.

    An unreadable file is found before the reservation, which would otherwise stay.

    Args:
      spending: the stage that is about to reserve.
      stages: all stages, by name.

    Raises:
      StageInputMissing: a file was changed or lost.
    """
    for stage in (name for name in stages if name in spending.opens or stages[name].cached):
        record = run.record(stage)
        if record is None:
            continue
        for name, digest in record.outputs.items():
            if not run.available(stage, name, digest):
                raise StageInputMissing(f"{run.public(stage) / name}: {_NOT_LEFT}; run stage {stage!r} again")
        folder, files = run.private(stage), kept(stage, stages) if stage in spending.opens else ()
        if not files or record.private_digest is None:
            continue
        left = {SEAL: record.private_digest}
        if is_same(folder / SEAL, record.private_digest):
            left |= run.sealed(stage, files)
        if changed := [folder / name for name, digest in left.items() if not is_same(folder / name, digest)]:
            raise StageInputMissing(
                f"{changed[0]}: {_NOT_LEFT}; restore it, or delete {folder} and run stage {stage!r} again"
            )


def outcome_path(run: RunDir, name: str) -> Path:
    """Path of a finished computation until its record is written."""
    return run.private(name) / OUTCOME


def keep_outcome(record: StageRecord, run: RunDir, settings: Settings, binding: Mapping[str, str] | None) -> None:
    """Save a finished computation so that a retry can resume from it: the file, then its digest in the ledger."""
    content = json.dumps({"record": json.loads(record_text(record)), "binding": binding})
    write_text(outcome_path(run, record.stage), content, PRIVATE)
    write_down(record, settings)


def interrupted(run: RunDir, name: str, config: LaunchConfig, binding: Mapping[str, str] | None) -> StageRecord | None:
    """Return the record of a computation that finished just before a crash, if it still holds and the ledger has it."""
    path = outcome_path(run, name)
    if not path.exists():
        return None
    content = json.loads(path.read_text(encoding="utf-8"))
    record = StageRecord.model_validate(content["record"])
    if content["binding"] != binding or not run.counts(name, record):
        return None
    if not still_true(record, config, run, released=binding is not None):
        return None
    _log.info("%s: computed before an interruption, finishing now", name)
    return record
