"""Accept records of launches only if the ledger holds their digest as the latest of their stage.

A record is a file that people can edit, or comes from a tracking server that anyone may have written to; both state the
digests of their own files. So each record that ``RunDir.record`` finds is checked against the ledger.

Guarantee: a record is refused, from any source, if no stage under this ledger wrote it, if it was changed since, if it
belongs to another launch, or if a later attempt has replaced it.
"""

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from pipeline.ground.errors import LedgerMissing
from pipeline.ground.settings import Settings
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run.run_dir import (
    ABSENT,
    GIVEN,
    RESULT,
    Belief,
    Fetch,
    RunDir,
    StageRecord,
    receipt_digest,
    record_digest,
)
from pretrain.files import sha256


def run_folder(settings: Settings, launch_id: str, fetch: Fetch | None = None) -> RunDir:
    """Open a launch's folder, where a record counts only if the ledger holds its digest.

    Args:
      fetch: restores lost or damaged files, as from MLflow. It is asked only for stages of which the ledger holds a
        record, as nothing else would count.
    """
    bound = _bound_results(settings.ledger_url)

    def fetch_bound(stage: str, name: str, to: Path) -> bool:
        return fetch is not None and stage in bound(launch_id) and fetch(stage, name, to)

    return RunDir(settings.runs_dir, launch_id, ledger_belief(settings.ledger_url), fetch and fetch_bound)


def ledger_belief(ledger_url: str) -> Belief:
    """Return a check that a record is the latest of its stage in the ledger; it reads the ledger at each call."""
    bound = _bound_results(ledger_url)

    def is_known(record: StageRecord) -> bool:
        latest = bound(record.launch_id).get(record.stage)
        return latest is not None and latest[0] == receipt_digest(record)

    return is_known


def _bound_results(ledger_url: str) -> Callable[[str], Mapping[str, tuple[str, str]]]:
    """Function from a launch to what the ledger binds of each stage, as ``PrivacyLedger.bound_results``."""

    @cache
    def ledger() -> PrivacyLedger:
        return PrivacyLedger(ledger_url)

    return lambda launch_id: ledger().bound_results(launch_id)


def ledger_belief_now(ledger_url: str) -> Belief:
    """Like ``ledger_belief``, from one read of the ledger: for displaying many launches, not for acting on them.

    Without a ledger, no record counts.
    """
    try:
        bound: Mapping[tuple[str, str], str] = PrivacyLedger(ledger_url).all_bound_results()
    except LedgerMissing:
        bound = {}
    return lambda record: bound.get((record.launch_id, record.stage)) == receipt_digest(record)


def as_it_lies(record: StageRecord) -> bool:
    """Accept every record: for verification, which reports the problems of each itself."""
    return True


def write_down(record: StageRecord, settings: Settings) -> str:
    """Append a record's digest to the ledger as the latest of its stage, and return the receipt."""
    return PrivacyLedger.of(settings).bind_result(record.launch_id, record.stage, receipt_digest(record))


def is_known_bundle(bundle: Path, settings: Settings) -> bool:
    """True if a launch under this ledger registered this bundle, and none of its files has changed."""
    about = bundle / "bundle.json"
    try:
        if not about.is_file() or not PrivacyLedger(settings.ledger_url).holds_digest(sha256(about)):
            return False
    except LedgerMissing:
        return False
    files = json.loads(about.read_text(encoding="utf-8"))["files"]
    return all((bundle / name).is_file() and sha256(bundle / name) == digest for name, digest in files.items())


def changed_inputs(record: StageRecord, run: RunDir) -> list[str]:
    """List inputs of a record whose digest has changed since."""
    changed = []
    for path, digest in record.inputs.items():
        stage, _, name = path.partition("/")
        if stage == GIVEN:
            continue
        if (source := run.record(stage)) is None:
            now = ABSENT
        elif name == RESULT:
            now = record_digest(source)
        else:
            now = source.outputs.get(name, "")
        if digest != now:
            changed.append(path)
    return changed
