"""Known launches of this machine: the state, spend and gain of each."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pipeline.cli.launches import named
from pipeline.ground.errors import LedgerMissing
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.receipts import Receipts
from pipeline.run import attempts
from pipeline.run.attempts import Stop, running
from pipeline.run.run_dir import Belief, RunDir, StageRecord
from pipeline.stages.graph import STAGES

if TYPE_CHECKING:
    from pipeline.ledger.entries import Entry

_log = logging.getLogger(__name__)
UNKNOWN = "unknown"  # the state of a launch that nobody can say anything of


@dataclass(frozen=True)
class Launch:
    """One launch of this machine.

    Attributes:
      state: as ``pipeline.publication.approvals`` decides it.
      detail: why, in words.
      records: of the stages that ended.
      approvers: who approved it.
      stop: how its last try ended, where that failed and nothing came after it.
    """

    run: RunDir
    config: LaunchConfig
    began: datetime
    state: str
    detail: str
    records: Mapping[str, StageRecord]
    approvers: tuple[str, ...] = ()
    stop: Stop | None = None

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        return {name: record.result for name, record in self.records.items()}

    @property
    def row(self) -> dict[str, Any]:
        """Row of a launch in a table of launches; None where it has not come so far."""
        results = self.results
        spent, compared = cost(results), results.get("ab_test", {})
        return {
            "launch_id": self.run.launch_id,
            "locale": self.config.locale,
            "features": list(self.config.features),
            "population": self.config.population,
            "simulated": self.config.private_text.simulated,
            "seeded": self.config.mechanism.randomness == "seeded",
            "began": self.began.isoformat(timespec="seconds"),
            "state": self.state,
            "detail": self.detail,
            "failed": self.stop is not None,
            "approvers": list(self.approvers),
            "decision": results.get("decide", {}).get("decision"),
            "rho": spent.get("rho"),
            "epsilon": spent.get("epsilon"),
            "delta": self.config.mechanism.delta,
            "top1_gain": compared.get("top1_gain"),
            "top1_gain_low": compared.get("top1_gain_low"),
            "top1_gain_high": compared.get("top1_gain_high"),
        }


def cost(results: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Rho and epsilon that a launch states: training's, or where more was released that of all of it."""
    return results.get("fine_tune", {}) | results.get("decide", {}).get("headline", {})


def entries_of(here: Settings) -> "list[Entry] | None":
    """The ledger's; None where there is none to ask."""
    from pipeline.ledger.ledger import PrivacyLedger

    try:
        return PrivacyLedger.of(here).entries()
    except LedgerMissing:
        return None


def without_ledger(here: Settings) -> str:
    """Fix where there is no ledger: make one, or restore that of which launches here hold receipts."""
    from pipeline.ledger.database import address, missing

    return str(missing(address(here.ledger_url), len(Receipts(here.runs_dir).read())))


def lost_ledger(here: Settings) -> tuple[str, ...]:
    """A line where launches here hold receipts of a ledger that is not there."""
    return (without_ledger(here),) if entries_of(here) is None and Receipts(here.runs_dir).read() else ()


def launches(here: Settings, entries: "Sequence[Entry] | None", only: Iterable[str] | None = None) -> list[Launch]:
    """The launches that were begun on this machine, the newest first.

    Args:
      entries: of the ledger; None where there is none, and then no state is known.
      only: ids to look at; by default all.
    """
    from pipeline.run.known import ledger_belief_now

    ids, believes = named.begun(here) if only is None else list(only), ledger_belief_now(here.ledger_url)
    shown = [launch for run_id in ids if (launch := _launch(here, run_id, entries, believes))]
    return sorted(shown, key=lambda launch: (launch.began, launch.run.launch_id), reverse=True)


def rows(here: Settings, entries: "Sequence[Entry] | None") -> list[dict[str, Any]]:
    """Rows of the table of launches of this machine, the newest first: each launch's row, and its running stage."""
    now = {each.launch_id: each.stage for each in running(here)}
    return [each.row | {"running": now.get(each.run.launch_id)} for each in launches(here, entries)]


def _launch(here: Settings, run_id: str, entries: "Sequence[Entry] | None", believes: Belief) -> Launch | None:
    from pipeline.publication.approvals import standing

    run, records = RunDir(here.runs_dir, run_id, believes), dict[str, StageRecord]()
    try:
        config = named.kept_config(here, run_id)
        for name in STAGES:
            if record := run.record(name):
                records[name] = record
        state, detail = UNKNOWN, "there is no privacy ledger to ask"
        approved: tuple[str, ...] = ()
        if entries is not None:
            now = standing(config, run, entries)
            state, detail, approved = now.state, now.detail, now.approvers
    except (ValueError, OSError) as error:
        _log.warning("%s: its state is unknown: %s", run_id, error)
        return None
    stop = attempts.latest(run.path) if state in (UNKNOWN, "unfinished") else None
    detail = str(stop) if stop else detail
    return Launch(run, config, named.began(here, run_id), state, detail, records, approved, stop)
