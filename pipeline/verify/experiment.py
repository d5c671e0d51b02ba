"""Verify the end of a live experiment: the ledger holds its record, and the outcome follows from its gates."""

from collections.abc import Iterator

from pipeline.launch.config import LaunchConfig
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication import experiment
from pipeline.run.run_dir import RunDir, StageRecord, record_digest
from pipeline.verify.check import Check

NAME = "experiment"


def record(run: RunDir) -> dict[str, StageRecord]:
    """The record of how it ended, by its name; empty while it goes on."""
    ended = run.record(NAME)
    return {} if ended is None else {NAME: ended}


def ended(config: LaunchConfig, run: RunDir, ledger: PrivacyLedger) -> Iterator[Check]:
    """The record is the one whose digest the ledger holds. The logs are not kept, so metrics are not derived again."""
    tried, ending = experiment.of(config, run.launch_id, ledger.entries()), record(run).get(NAME)
    if tried is None or tried.ended is None:
        if ending is not None:
            yield Check(id=NAME, passed=False, detail="there is a record of its end, and the ledger knows of none")
        elif tried is not None:
            yield Check(id=NAME, passed=True, detail=f"goes on: {tried.said}")
        return
    if ending is None or record_digest(ending) != tried.ended.result:
        yield Check(id=NAME, passed=False, detail="its record is lost, or another than the ledger's")
        return
    look = ending.result["look"]
    passed = look is not None and all(gate["passed"] for gate in look["gates"])
    same = (ending.result["decision"] == "promote") == tried.ended.promoted == passed
    yield Check(id=NAME, passed=same, detail=f"{ending.result['decision']} {tried.said}")
