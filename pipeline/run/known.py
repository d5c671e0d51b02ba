"""Believed records of launches: those whose digest the ledger holds as the last of their stage.

A record lies where people write, and a tracking server gives back what anybody put there; both state the digests of
their own files. The ledger is asked instead, for what ``RunDir.record`` found.

Guarantee: a record that no stage under this ledger made, that was changed since, that is another launch's, or in whose
place a later attempt stands, is not known, wherever it came from.
"""

import json
from collections.abc import Mapping
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
    """A launch's folder, whose records count as the ledger knows them.

    Args:
      fetch: brings back what was lost or damaged, as from MLflow.
    """
    return RunDir(settings.runs_dir, launch_id, ledger_belief(settings.ledger_url), fetch)


def ledger_belief(ledger_url: str) -> Belief:
    """True if the ledger holds a record as the last of its stage; it is asked each time."""

    @cache
    def ledger() -> PrivacyLedger:
        return PrivacyLedger(ledger_url)

    def is_known(record: StageRecord) -> bool:
        bound = ledger().bound_results(record.launch_id).get(record.stage)
        return bound is not None and bound[0] == receipt_digest(record)

    return is_known


def ledger_belief_now(ledger_url: str) -> Belief:
    """As ``ledger_belief``, from one look at the ledger, to read the records of many launches and act on none.

    Where there is no ledger, nothing is known.
    """
    try:
        bound: Mapping[tuple[str, str], str] = PrivacyLedger(ledger_url).all_bound_results()
    except LedgerMissing:
        bound = {}
    return lambda record: bound.get((record.launch_id, record.stage)) == receipt_digest(record)


def as_it_lies(record: StageRecord) -> bool:
    """Count every record that is its stage's: for verification, which says itself what is wrong with each."""
    return True


def write_down(record: StageRecord, settings: Settings) -> str:
    """Write a record's digest down in the ledger, as the last of its stage; the receipt."""
    return PrivacyLedger.of(settings).bind_result(record.launch_id, record.stage, receipt_digest(record))


def is_known_bundle(bundle: Path, settings: Settings) -> bool:
    """True if a launch under this ledger registered this bundle, and each file that it names is as it was then."""
    about = bundle / "bundle.json"
    try:
        if not about.is_file() or not PrivacyLedger(settings.ledger_url).holds_digest(sha256(about)):
            return False
    except LedgerMissing:
        return False
    files = json.loads(about.read_text(encoding="utf-8"))["files"]
    return all((bundle / name).is_file() and sha256(bundle / name) == digest for name, digest in files.items())


def changed_inputs(record: StageRecord, run: RunDir) -> list[str]:
    """Inputs of a record whose digest has changed since."""
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
