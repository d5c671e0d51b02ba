"""Verify the releases that a launch reused: each has a paying launch, and is that launch's release."""

import json
from collections.abc import Iterator, Mapping

from pipeline.launch.config import LaunchConfig, load_kept_launch
from pipeline.ledger.entries import Entry
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run.cache import commit_of, said
from pipeline.run.known import as_it_lies
from pipeline.run.run_dir import RunDir, StageRecord
from pipeline.stages.graph import STAGES
from pipeline.verify.check import Check


def reused(run: RunDir, records: Mapping[str, StageRecord], ledger: PrivacyLedger) -> Iterator[Check]:
    """Check each reused release against the ledger, and against the launch that made it.

    Guarantee: passes only if the ledger holds the commit of the named launch, before the reuse and on the same
    population, and once held the digest of that launch's record; and this launch has the same result and files.
    """
    entries = ledger.entries()
    for name, record in records.items():
        if STAGES[name].spends and record.reused_from is not None:
            wrong, paid = _problem(run, record, ledger, entries)
            yield Check(id=f"reuse:{name}", passed=not wrong, detail=wrong or paid)


def _problem(run: RunDir, record: StageRecord, ledger: PrivacyLedger, entries: list[Entry]) -> tuple[str, str]:
    """Return the problem of a reuse, or empty; and the launch that paid."""
    release = (run.launch_id, record.stage, "reuse")
    noted = next((entry for entry in entries if (entry.launch_id, entry.stage, entry.kind) == release), None)
    if noted is None:
        return "the ledger has no entry of its reuse", ""
    paid = json.loads(noted.binding)
    commit = commit_of(paid, record.stage, entries)
    if commit is None or commit.seq > noted.seq or commit.population != noted.population:
        return "the reuse names no spend for such a release on this population", ""
    if "audit" not in paid:
        return "the reuse cites no passed audit of the release", ""
    if commit.launch_id != record.reused_from:
        return f"the ledger says that {commit.launch_id} paid for it, the record {record.reused_from}", ""
    if said(record) != paid["said"]:
        return f"differs from the release of launch {commit.launch_id}", ""
    if not ledger.holds_digest(paid["record"]):
        return f"the ledger never held the record of launch {commit.launch_id} that the reuse names", ""
    there = RunDir(run.root, commit.launch_id, as_it_lies).record(record.stage)
    if there is not None and said(there) != paid["said"]:  # The stage may have run again: another record of the same.
        return f"the record of launch {commit.launch_id} was changed", ""
    amount = f"epsilon {commit.epsilon:g} per item" if commit.unit == "item" else f"rho {commit.rho:g}"
    return "", f"released and paid for by launch {commit.launch_id} ({amount}); no new spend"


def origin(run: RunDir, record: StageRecord) -> tuple[LaunchConfig, RunDir, StageRecord] | None:
    """Return the launch that made a release, from this machine; None if it is not here."""
    there = RunDir(run.root, record.reused_from or run.launch_id, as_it_lies)
    made, path = there.record(record.stage), there.path / "public" / "launch" / "launch.json"
    if made is None or not path.is_file():
        return None
    return load_kept_launch(path), there, made
