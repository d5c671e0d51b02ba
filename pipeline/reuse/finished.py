"""Whether what a stage of this launch made before still holds, and what it computed just before a crash."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path

from pipeline.config import LaunchConfig, config_digest
from pipeline.run_dir import (
    ABSENT,
    GIVEN,
    RESULT,
    RunDir,
    StageRecord,
    has_private_files,
    record_digest,
    record_text,
)
from pretrain.files import PRIVATE, write_text

_log = logging.getLogger(__name__)


def still_true(record: StageRecord, config: LaunchConfig, run: RunDir, *, released: bool | None = None) -> bool:
    """Whether a record holds: same configuration, same inputs, outputs with the digests it names."""
    if record.config_digest != config_digest(config):
        return False
    # A release stays what it was when its private folder is gone; other stages make theirs again.
    released = not record.ledger.keys().isdisjoint(("reserve", "reuse")) if released is None else released
    if record.private_outputs and not (released or run.erased or has_private_files(run, record.stage)):
        return False
    for path, digest in record.inputs.items():
        stage, _, name = path.partition("/")
        if stage == GIVEN:
            if run.given_digest(name) != digest:
                return False
            continue
        source = run.record(stage)
        if digest == ABSENT:
            if source is None:
                continue
            return False
        if source is None:
            return False
        if digest != (record_digest(source) if name == RESULT else source.outputs.get(name)):
            return False
    return all(run.available(record.stage, name, digest) for name, digest in record.outputs.items())


def outcome_path(run: RunDir, name: str) -> Path:
    """Where a computation is kept until its record is written."""
    return run.private(name) / ".outcome.json"


def keep_outcome(record: StageRecord, run: RunDir, binding: Mapping[str, str] | None) -> None:
    """Keep a computation that ended, for whoever goes on after a crash."""
    content = json.dumps({"record": json.loads(record_text(record)), "binding": binding})
    write_text(outcome_path(run, record.stage), content, PRIVATE)


def interrupted(run: RunDir, name: str, config: LaunchConfig, binding: Mapping[str, str] | None) -> StageRecord | None:
    """The record of a computation that ended just before a crash, if it still holds."""
    path = outcome_path(run, name)
    if not path.exists():
        return None
    content = json.loads(path.read_text(encoding="utf-8"))
    record = StageRecord.model_validate(content["record"])
    if content["binding"] != binding or not still_true(record, config, run, released=binding is not None):
        return None
    _log.info("%s: was computed before an interruption, finishing it", name)
    return record
