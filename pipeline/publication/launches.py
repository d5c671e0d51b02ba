"""Launches of this machine: state, spend, gain, failed gates and next steps of each."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pipeline.ground.errors import HELD, LedgerMissing
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.database import missing
from pipeline.ledger.entries import Entry
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.statement import Remainder, StageSpend, remainders, spent_by
from pipeline.publication.approvals import standing
from pipeline.publication.gates.words import GATES, GateWords, words_of
from pipeline.run import attempts, named
from pipeline.run.attempts import ActiveStage, Stop, running
from pipeline.run.erasure import erasure_of
from pipeline.run.known import ledger_belief_now
from pipeline.run.run_dir import Belief, RunDir, StageRecord
from pipeline.run.stage import Stages, of_launch

_log = logging.getLogger(__name__)
UNKNOWN = "unknown"  # the state of every launch without a ledger
_READ = "read {run}/public/report/report.html"


@dataclass(frozen=True)
class Row:
    """One launch in a table of launches; a field is None until its stage has finished.

    Attributes:
      state: state by ``approvals.standing``.
      detail: the reason.
      failed: True if its last attempt failed, and none has begun since.
      approvers: accounts that approved it.
      rho, epsilon: loss of one device to all releases of the launch, at ``delta``, rounded up.
      guarantee: that epsilon with its largest part.
      loss: all of it in one line.
      top1_gain: gain in top-1 recall over the starting point, on held-out devices.
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
    guarantee: str | None
    loss: str | None
    top1_gain: float | None
    top1_gain_low: float | None
    top1_gain_high: float | None


@dataclass(frozen=True)
class LaunchSummary(Row):
    """One launch in the list of all, with its running stage."""

    running: str | None


@dataclass(frozen=True)
class FailedGate:
    """A gate that failed.

    Attributes:
      field: field of the launch file that sets the threshold; empty if tacit sets it.
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
    """A finished stage, and its duration."""

    stage: str
    seconds: float


@dataclass(frozen=True)
class RunningStage(ActiveStage):
    """A running stage, and its number among the stages of its launch; 0 of 0 if unknown."""

    number: int = 0
    of: int = 0


@dataclass(frozen=True)
class Status(Row):
    """One launch in full.

    Attributes:
      not_yet: stages that have not finished.
      spent: spends of the launch itself.
      left: remaining budget of its population.
      next: next steps for its owner, the most useful first.
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
    """Running stages of this machine, its newest launch, and the remaining budget of each population.

    Attributes:
      without_ledger: the fix for a missing ledger; empty if there is one.
    """

    running: tuple[RunningStage, ...]
    last: Row | None
    left: tuple[Remainder, ...]
    without_ledger: str


@dataclass(frozen=True)
class _Launch:
    """A launch, from its folder and the ledger.

    Attributes:
      records: records of its finished stages, in the order of the graph.
    """

    run: RunDir
    config: LaunchConfig
    row: Row
    records: Mapping[str, StageRecord]
    stop: Stop | None


def listed(here: Settings, stages: Stages, locale: str | None = None) -> tuple[LaunchSummary, ...]:
    """List the launches of this machine, newest first.

    Args:
      locale: only launches of this locale.
    """
    now = {each.launch_id: each.stage for each in running(here)}
    rows = (launch.row for launch in _launches(here, stages, entries_of(here) is not None, named.begun(here)))
    return tuple(
        LaunchSummary(**vars(row), running=now.get(row.launch_id)) for row in rows if locale in (None, row.locale)
    )


def machine_status(here: Settings, stages: Stages) -> MachineStatus:
    """Return the status of this machine."""
    entries, now = entries_of(here), running(here)
    newest = max(named.begun(here), key=lambda name: (named.began(here, name), name), default=None)
    wanted = dict.fromkeys([*(each.launch_id for each in now), *([newest] if newest else [])])
    by_id = {each.run.launch_id: each for each in _launches(here, stages, entries is not None, wanted)}
    last = by_id.get(newest) if newest else None
    return MachineStatus(
        running=tuple(_numbered(each, by_id.get(each.launch_id), stages) for each in now),
        last=last.row if last else None,
        left=remainders(entries or ()),
        without_ledger=str(missing(here)) if entries is None else "",
    )


def status(here: Settings, stages: Stages, run_id: str) -> Status:
    """Return the status of one launch of this machine.

    Raises:
      ValueError: its folder cannot be read.
    """
    now = [each for each in running(here) if each.launch_id == run_id]
    entries = entries_of(here)
    (launch,) = _launches(here, stages, entries is not None, [run_id]) or (None,)
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


def failed_gates(gates: Iterable[Mapping[str, Any]], among: Mapping[str, GateWords] = GATES) -> tuple[FailedGate, ...]:
    """Return the failed gates, in order, each with its fix.

    Args:
      gates: results of gates as JSON values.
      among: texts of all such gates.
    """
    return tuple(
        FailedGate(
            **{name: gate[name] for name in ("id", "title", "value", "threshold", "evidence")},
            field=words_of(gate["id"], among).field,
            fix=words_of(gate["id"], among).fix,
        )
        for gate in gates
        if not gate["passed"]
    )


def cost(results: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Loss of one device to all releases of a decided launch; before the decision no number covers all of them."""
    return results.get("decide", {}).get("headline", {})


def entries_of(here: Settings) -> list[Entry] | None:
    """Return the entries of the ledger; None without a ledger."""
    try:
        return PrivacyLedger.of(here).entries()
    except LedgerMissing:
        return None


def _launches(here: Settings, stages: Stages, has_ledger: bool, ids: Iterable[str]) -> list[_Launch]:
    """Read the launches, newest first; unreadable ones are left out with a warning.

    Args:
      has_ledger: whether there is a ledger; without one no state is known.
    """
    believes = ledger_belief_now(here.ledger_url)
    ledger = PrivacyLedger.of(here) if has_ledger else None
    read = [launch for run_id in ids if (launch := _launch(here, stages, run_id, ledger, believes))]
    return sorted(read, key=lambda launch: (launch.row.began, launch.row.launch_id), reverse=True)


def _launch(
    here: Settings, stages: Stages, run_id: str, ledger: PrivacyLedger | None, believes: Belief
) -> _Launch | None:
    run = RunDir(here.runs_dir, run_id, believes)
    state, detail, approvers = UNKNOWN, "there is no privacy ledger", tuple[str, ...]()
    try:
        config = named.kept_config(here, run_id)
        records = {name: record for name in stages if (record := run.record(name))}
        if ledger is not None:
            now = standing(config, run, ledger)
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
        guarantee=spent.get("guarantee"),
        loss=spent.get("loss"),
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
    """List the next steps for a launch, by its state.

    Args:
      runs: True if one of its stages is running.
    """
    run_id, path, state = launch.run.launch_id, launch.run.path, launch.row.state
    read, erasure = _READ.format(run=path), erasure_of(launch.run)
    erased = [] if erasure is None else [str(erasure)]
    if state == "unfinished" and erased:
        return [*erased, "it cannot resume: launch for a later date, or under another name"]
    if state == "unfinished":
        if runs:
            return ["wait, or see its progress with 'tacit status'"]
        code = launch.stop.exit_code if launch.stop else None
        look = [f"see the fix for exit code {code}: tacit explain {code}"] if code else []
        if code == HELD:
            return [*look, "find the fault that the stage's log names; a launch without it is another launch"]
        return [*look, f"resume it: tacit launch {run_id}"]
    if state == "held":
        fixes = dict.fromkeys(gate.fix for gate in gates)
        return [*erased, *fixes, f"{read}; a changed launch file is another launch, with a spend of its own"]
    if state == "waiting":
        return [f"{read}, see its main concerns: tacit review {run_id}, then answer with --answer"]
    if state == "approved":
        return [f"publish it: tacit launch {run_id}"]
    if state == "candidate":
        by = launch.config.tried_by
        return [
            f"try it on some devices: {by} begin {run_id}",
            f"once it began: see it with {by} status {run_id}, and decide it with {by} decide {run_id}",
        ]
    if state == "published":
        return [
            f'try it: tacit predict {run_id} "see you"',
            f"derive it again: tacit verify {run_id}",
        ]
    if state == UNKNOWN:
        return ["create the ledger (tacit ledger init), or set TACIT_LEDGER_URL to its address"]
    return erased or [f"it is over; erase its private files: tacit erase {run_id}"]
