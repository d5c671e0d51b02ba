"""Launches of this machine: state, spend, gain, failed gates and next steps of each."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pipeline.ground.errors import LedgerMissing
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.database import address, missing
from pipeline.ledger.entries import Entry
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.receipts import Receipts
from pipeline.ledger.remainder import Remainder, StageSpend, remainders, spent_by
from pipeline.publication.approvals import standing
from pipeline.publication.gates.words import words_of
from pipeline.run import attempts, named
from pipeline.run.attempts import ActiveStage, Stop, running
from pipeline.run.erasure import erasure_of
from pipeline.run.known import ledger_belief_now
from pipeline.run.run_dir import Belief, RunDir, StageRecord
from pipeline.run.stage import Stages, of_launch

_log = logging.getLogger(__name__)
UNKNOWN = "unknown"  # the state of a launch where there is no ledger to ask
_READ = "read {run}/public/report/report.html"


@dataclass(frozen=True)
class Row:
    """One launch in a table of launches; None where it has not come so far.

    Attributes:
      state: as ``approvals.standing`` decides it.
      detail: why, in words.
      failed: True if its last try failed and nothing came after it.
      approvers: accounts that approved it.
      rho, epsilon: what the launch costs, at ``delta``.
      top1_gain: of the private model over its start on held-out devices, in top-1 recall.
    """

    launch_id: str
    locale: str
    features: tuple[str, ...]
    population: str
    simulated: bool
    seeded: bool
    began: datetime
    state: str
    detail: str
    failed: bool
    approvers: tuple[str, ...]
    decision: str | None
    rho: float | None
    epsilon: float | None
    delta: float
    top1_gain: float | None
    top1_gain_low: float | None
    top1_gain_high: float | None


@dataclass(frozen=True)
class LaunchSummary(Row):
    """One launch in the list of all, with the stage that runs now."""

    running: str | None


@dataclass(frozen=True)
class FailedGate:
    """A gate that failed.

    Attributes:
      field: of the launch file, where the threshold is set; empty where tacit sets it.
      fix: what to do.
    """

    id: str
    title: str
    value: float | None
    threshold: float | None
    evidence: str
    field: str
    fix: str


@dataclass(frozen=True)
class StageTime:
    """A stage that ended, and how long it took."""

    stage: str
    seconds: float


@dataclass(frozen=True)
class RunningStage(ActiveStage):
    """A stage that runs now, and its number among the stages of its launch; 0 of 0 where that is not known."""

    number: int = 0
    of: int = 0


@dataclass(frozen=True)
class Status(Row):
    """One launch in full.

    Attributes:
      not_yet: stages that have not ended.
      spent: by the launch itself.
      left: of its population's budget.
      next: sentences for the person who started it, the most useful first.
    """

    stages: tuple[StageTime, ...]
    not_yet: tuple[str, ...]
    running: tuple[RunningStage, ...]
    failed_gates: tuple[FailedGate, ...]
    spent: tuple[StageSpend, ...]
    left: tuple[Remainder, ...]
    next: tuple[str, ...]


@dataclass(frozen=True)
class MachineStatus:
    """Stages that run on this machine, its newest launch, and the budget that each population has left.

    Attributes:
      without_ledger: the fix where there is no ledger; empty where there is one.
    """

    running: tuple[RunningStage, ...]
    last: Row | None
    left: tuple[Remainder, ...]
    without_ledger: str


@dataclass(frozen=True)
class _Launch:
    """A launch as its folder and the ledger describe it.

    Attributes:
      records: of the stages that ended, in the order of the graph.
    """

    run: RunDir
    config: LaunchConfig
    row: Row
    records: Mapping[str, StageRecord]
    stop: Stop | None


def listed(here: Settings, stages: Stages, locale: str | None = None) -> tuple[LaunchSummary, ...]:
    """The launches of this machine, the newest first.

    Args:
      locale: only launches of this one.
    """
    now = {each.launch_id: each.stage for each in running(here)}
    rows = (launch.row for launch in _launches(here, stages, entries_of(here), named.begun(here)))
    return tuple(
        LaunchSummary(**vars(row), running=now.get(row.launch_id)) for row in rows if locale in (None, row.locale)
    )


def machine_status(here: Settings, stages: Stages) -> MachineStatus:
    """The status of this machine."""
    entries, now = entries_of(here), running(here)
    newest = max(named.begun(here), key=lambda name: (named.began(here, name), name), default=None)
    wanted = dict.fromkeys([*(each.launch_id for each in now), *([newest] if newest else [])])
    by_id = {each.run.launch_id: each for each in _launches(here, stages, entries, wanted)}
    last = by_id.get(newest) if newest else None
    return MachineStatus(
        running=tuple(_numbered(each, by_id.get(each.launch_id), stages) for each in now),
        last=last.row if last else None,
        left=remainders(entries or ()),
        without_ledger=without_ledger(here) if entries is None else "",
    )


def status(here: Settings, stages: Stages, run_id: str) -> Status:
    """The status of one launch of this machine.

    Raises:
      ValueError: its folder cannot be read.
    """
    now = [each for each in running(here) if each.launch_id == run_id]
    entries = entries_of(here)
    (launch,) = _launches(here, stages, entries, [run_id]) or (None,)
    if launch is None:
        raise ValueError(f"launch: {run_id} cannot be read; see the warning above, and restore it from MLflow")
    decided = launch.records.get("decide")
    gates = failed_gates(decided.result.get("gates", ()) if decided else ())
    return Status(
        **vars(launch.row),
        stages=tuple(StageTime(name, record.seconds) for name, record in launch.records.items()),
        not_yet=tuple(name for name in of_launch(launch.config, stages) if name not in launch.records),
        running=tuple(_numbered(each, launch, stages) for each in now),
        failed_gates=gates,
        spent=spent_by(run_id, entries or ()),
        left=remainders(entries or (), [launch.config.population]),
        next=tuple(_next_steps(launch, gates, runs=bool(now))),
    )


def failed_gates(gates: Iterable[Mapping[str, Any]]) -> tuple[FailedGate, ...]:
    """The gates that failed, in the order in which they were asked, each with its fix.

    Args:
      gates: results of gates as JSON values.
    """
    return tuple(
        FailedGate(
            **{name: gate[name] for name in ("id", "title", "value", "threshold", "evidence")},
            field=words_of(gate["id"]).field,
            fix=words_of(gate["id"]).fix,
        )
        for gate in gates
        if not gate["passed"]
    )


def cost(results: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Rho and epsilon that a launch states: training's, or where more was released that of all of it."""
    return results.get("fine_tune", {}) | results.get("decide", {}).get("headline", {})


def entries_of(here: Settings) -> list[Entry] | None:
    """Entries of the ledger; None where there is no ledger."""
    try:
        return PrivacyLedger.of(here).entries()
    except LedgerMissing:
        return None


def without_ledger(here: Settings) -> str:
    """Fix where there is no ledger: make one, or restore that of which launches here hold receipts."""
    return str(missing(address(here.ledger_url), len(Receipts(here.runs_dir).read())))


def _launches(here: Settings, stages: Stages, entries: Sequence[Entry] | None, ids: Iterable[str]) -> list[_Launch]:
    """Launches that can be read, the newest first.

    Args:
      entries: of the ledger; None where there is none, and then no state is known.
    """
    believes = ledger_belief_now(here.ledger_url)
    read = [launch for run_id in ids if (launch := _launch(here, stages, run_id, entries, believes))]
    return sorted(read, key=lambda launch: (launch.row.began, launch.row.launch_id), reverse=True)


def _launch(
    here: Settings, stages: Stages, run_id: str, entries: Sequence[Entry] | None, believes: Belief
) -> _Launch | None:
    run = RunDir(here.runs_dir, run_id, believes)
    state, detail, approvers = UNKNOWN, "there is no privacy ledger to ask", tuple[str, ...]()
    try:
        config = named.kept_config(here, run_id)
        records = {name: record for name in stages if (record := run.record(name))}
        if entries is not None:
            now = standing(config, run, entries)
            state, detail, approvers = now.state, now.detail, now.approvers
    except (ValueError, OSError) as error:
        _log.warning("%s: its state is unknown: %s", run_id, error)
        return None
    stop = attempts.latest(run.path) if state in (UNKNOWN, "unfinished") else None
    results = {name: record.result for name, record in records.items()}
    spent, compared = cost(results), results.get("ab_test", {})
    row = Row(
        launch_id=run_id,
        locale=config.locale,
        features=tuple(config.features),
        population=config.population,
        simulated=config.private_text.simulated,
        seeded=config.mechanism.randomness == "seeded",
        began=named.began(here, run_id),
        state=state,
        detail=str(stop) if stop else detail,
        failed=stop is not None,
        approvers=approvers,
        decision=results.get("decide", {}).get("decision"),
        rho=spent.get("rho"),
        epsilon=spent.get("epsilon"),
        delta=config.mechanism.delta,
        top1_gain=compared.get("top1_gain"),
        top1_gain_low=compared.get("top1_gain_low"),
        top1_gain_high=compared.get("top1_gain_high"),
    )
    return _Launch(run, config, row, records, stop)


def _numbered(now: ActiveStage, launch: _Launch | None, stages: Stages) -> RunningStage:
    names = of_launch(launch.config, stages) if launch else ()
    place = (names.index(now.stage) + 1, len(names)) if now.stage in names else (0, 0)
    return RunningStage(**vars(now), number=place[0], of=place[1])


def _next_steps(launch: _Launch, gates: Sequence[FailedGate], *, runs: bool) -> list[str]:
    """Next steps for a launch, by its state.

    Args:
      runs: True if a stage of it runs now.
    """
    run_id, path, state = launch.run.launch_id, launch.run.path, launch.row.state
    read, erasure = _READ.format(run=path), erasure_of(launch.run)
    erased = [] if erasure is None else [str(erasure)]
    if state == "unfinished" and erased:
        return [*erased, "it cannot go on: launch for a later date, or under another name"]
    if state == "unfinished":
        if runs:
            return ["wait, or see how far it is with 'tacit status'"]
        code = launch.stop.exit_code if launch.stop else None
        look = [f"see what exit code {code} asks for: tacit explain {code}"] if code else []
        return [*look, f"go on with it: tacit launch {run_id}"]
    if state == "held":
        fixes = dict.fromkeys(gate.fix for gate in gates)
        return [*erased, *fixes, f"{read}; a changed launch file is another launch, with a spend of its own"]
    if state == "waiting":
        return [f"{read}, see its main concerns: tacit review {run_id}, then answer with --answer"]
    if state == "approved":
        return [f"publish it: tacit launch {run_id}"]
    if state == "in experiment":
        return [
            f"look at its logs: tacit ab {run_id} --logs FILES",
            f"decide it when its days are over: tacit experiment decide {run_id}; or stop it: tacit experiment stop",
        ]
    if state == "published":
        return [
            f'try it: tacit predict {path}/public/publish/bundle "see you"',
            f"derive it again: tacit verify {run_id}",
        ]
    if state == UNKNOWN:
        return ["make the ledger (tacit ledger init), or set TACIT_LEDGER_URL to where it is"]
    return erased or [f"it is over; erase what is private of it: tacit erase {run_id}"]
