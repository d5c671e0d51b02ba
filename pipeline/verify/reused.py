"""Releases that a launch took over: who paid for them, and that they are what was paid for."""

import json
from collections.abc import Iterator, Mapping

from pipeline.launch.config import LaunchConfig, load_kept_launch
from pipeline.ledger.entries import Entry
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run.cache import commit_of, said
from pipeline.run.known import as_it_lies
from pipeline.run.run_dir import RunDir, StageRecord, receipt_digest
from pipeline.stages.graph import STAGES
from pipeline.verify.check import Check


def reused(run: RunDir, records: Mapping[str, StageRecord], ledger: PrivacyLedger) -> Iterator[Check]:
    """Each release that was taken over, held against the ledger and against the launch that made it.

    Guarantee: passes only if the ledger holds the commit of the launch named, before the re-use and on the same
    population, and binds what that launch said of its release; and this launch says and has the same.
    """
    entries = ledger.entries()
    for name, record in records.items():
        if STAGES[name].spends and record.reused_from is not None:
            wrong, paid = _problem(run, record, ledger, entries)
            yield Check(id=f"reuse:{name}", passed=not wrong, detail=wrong or paid)


def _problem(run: RunDir, record: StageRecord, ledger: PrivacyLedger, entries: list[Entry]) -> tuple[str, str]:
    """Problem of a reuse, or empty; and the launch that paid."""
    release = (run.launch_id, record.stage, "reuse")
    noted = next((entry for entry in entries if (entry.launch_id, entry.stage, entry.kind) == release), None)
    if noted is None:
        return "the ledger holds no re-use of it", ""
    paid = json.loads(noted.binding)
    commit = commit_of(paid, record.stage, entries)
    if commit is None or commit.seq > noted.seq or commit.population != noted.population:
        return "the re-use names no spend of such a release on this population", ""
    if "audit" not in paid:
        return "the re-use cites no audit that the release passed", ""
    if commit.launch_id != record.reused_from:
        return f"the ledger says that {commit.launch_id} paid for it, the record {record.reused_from}", ""
    if said(record) != paid["said"]:
        return f"not what launch {commit.launch_id} said and left of it", ""
    if ledger.bound_results(commit.launch_id).get(record.stage, ("", ""))[0] != paid["record"]:
        return f"the ledger holds another record of launch {commit.launch_id} than the one that was re-used", ""
    there = RunDir(run.root, commit.launch_id, as_it_lies).record(record.stage)
    if there is not None and receipt_digest(there) != paid["record"]:
        return f"the record of launch {commit.launch_id} was changed", ""
    amount = f"epsilon {commit.epsilon:g} per item" if commit.unit == "item" else f"rho {commit.rho:g}"
    return "", f"released and paid for by launch {commit.launch_id} ({amount}); nothing was spent again"


def origin(run: RunDir, record: StageRecord) -> tuple[LaunchConfig, RunDir, StageRecord] | None:
    """The launch that made a release, as it lies on this machine; None if it does not."""
    there = RunDir(run.root, record.reused_from or run.launch_id, as_it_lies)
    made, path = there.record(record.stage), there.path / "public" / "launch" / "launch.json"
    if made is None or not path.is_file():
        return None
    return load_kept_launch(path), there, made
