"""Run a whole launch in this process: preflight, every stage in order, and the outcome."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipeline.ground.errors import PermanentError
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.statement import Remainder, StageSpend
from pipeline.preflight import readiness
from pipeline.publication.approvals import MAY_PUBLISH, announce, show, standing
from pipeline.publication.launches import FailedGate, cost, status
from pipeline.run import runner
from pipeline.run.cache import preview, reused_stages
from pipeline.run.run_dir import RESULT
from pipeline.run.stage import Stages, of_launch
from pipeline.tracking import mlflow_tracker
from pretrain.reading.paths import shown

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ending:
    """Outcome of a launch: its decision, its privacy loss, and its files.

    Attributes:
      state: state of the launch by ``approvals.standing``; ``detail`` gives the reason.
      rho, epsilon: loss of one device to all its releases, at ``delta``; rho is None if a release has none.
      guarantee: that epsilon, rounded up, with its largest part.
      bundle: folder of a published launch's bundle.
    """

    launch_id: str
    decision: str
    state: str
    detail: str
    ledger: str
    reasons: tuple[str, ...]
    rho: float | None
    epsilon: float
    delta: float
    guarantee: str
    run_dir: Path
    report: Path
    bundle: Path | None
    tracking_uri: str


@dataclass(frozen=True)
class HeldEnding(Ending):
    """A held launch: the failed gates, its spends, and the next steps."""

    failed_gates: tuple[FailedGate, ...]
    spent: tuple[StageSpend, ...]
    left: tuple[Remainder, ...]
    next: tuple[str, ...]


def launch(
    config: LaunchConfig,
    run_id: str,
    here: Settings,
    stages: Stages,
    *,
    on_stage: Callable[[runner.StageOutcome], None] = lambda outcome: None,
    erase_expired: Callable[[Settings], object] = lambda here: None,
) -> Ending:
    """Run every stage of a launch that has not finished.

    Args:
      on_stage: called with the outcome of each stage.
      erase_expired: erases expired launches, before text is read and when this launch ends.

    Raises:
      ValueError: preflight refuses the launch, one line for each problem.
      LedgerMissing: there is no ledger to spend from.
    """
    _require_ready(config, run_id, here, stages)
    erase_expired(here)
    tracker = mlflow_tracker.MlflowTracker(here, config, run_id)
    with tracker.failing():
        outcomes = run_launch(config, run_id, here, stages, tracker, on_stage)
    erase_expired(here)
    ledger, run = PrivacyLedger.of(here), runner.open_run(config, run_id, here)
    now = standing(config, run, ledger)
    # Also of a launch that had ended: the command that ended it may have died before this.
    show(run, now)
    tracker.show_state(now.state, ", ".join(now.approvers))
    results = {name: outcome.result for name, outcome in outcomes.items()}
    decided, spent = results["decide"], cost(results)
    run_dir = here.runs_dir / run_id
    public = run_dir / "public"
    ending = Ending(
        launch_id=run_id,
        decision=decided["decision"],
        state=now.state,
        detail=now.detail,
        ledger=ledger.address,
        reasons=tuple(decided["reasons"]),
        rho=spent.get("rho"),
        epsilon=spent["epsilon"],
        delta=config.mechanism.delta,
        guarantee=spent["guarantee"],
        run_dir=run_dir,
        report=public / "report" / "report.html",
        bundle=public / "publish" / "bundle" if results.get("publish", {}).get("published") else None,
        tracking_uri=here.tracking_uri,
    )
    if now.state != "held":
        return ending
    held = status(here, stages, run_id)
    return HeldEnding(**vars(ending), failed_gates=held.failed_gates, spent=held.spent, left=held.left, next=held.next)


def _require_ready(config: LaunchConfig, run_id: str, here: Settings, stages: Stages) -> None:
    """Refuse a launch that cannot spend, until its private text was read.

    Raises:
      ValueError: preflight refuses the launch, one line for each problem.
      LedgerMissing: there is no ledger to spend from.
    """
    PrivacyLedger.of(here)  # Fails early without a ledger, which every spend needs.
    if not (here.runs_dir / run_id / "public" / "ingest_private" / RESULT).is_file():
        reuse = preview(config, run_id, here, stages)
        for each in reuse:
            _log.info("%s", each)
        readiness.require(config, here, run_id, reused_stages(reuse))


def run_through(
    last: str,
    config: LaunchConfig,
    run_id: str,
    here: Settings,
    stages: Stages,
    *,
    erase_expired: Callable[[Settings], object] = lambda here: None,
) -> runner.StageOutcome:
    """Run the stages of a launch in order, through ``last``; a finished stage does not run again.

    Args:
      erase_expired: as ``launch``.

    Returns:
      The outcome of ``last``.

    Raises:
      ValueError: the launch has no such stage, or as ``_require_ready``.
      LedgerMissing: as ``_require_ready``.
    """
    names = of_launch(config, stages)
    if last not in names:
        raise ValueError(f"stage: this launch has no {shown(repr(last))}; it has {', '.join(names)}")
    _require_ready(config, run_id, here, stages)
    outcome = None
    for name in names[: names.index(last) + 1]:
        outcome = run_stage(name, config, run_id, here, stages, erase_expired=erase_expired)
    assert outcome is not None, "there is at least one stage"
    return outcome


def run_stage(
    name: str,
    config: LaunchConfig,
    run_id: str,
    here: Settings,
    stages: Stages,
    *,
    erase_expired: Callable[[Settings], object] = lambda here: None,
) -> runner.StageOutcome:
    """Run one stage of a launch, unless it has finished.

    Args:
      run_id: id from ``preflight``; a configuration that has since changed is refused.
      erase_expired: as ``launch``.

    Raises:
      ValueError: there is no such stage.
    """
    if name not in stages:
        raise ValueError(f"stage: {shown(repr(name))} does not exist; choose one of {', '.join(stages)}")
    if name == "ingest_private":
        erase_expired(here)
    tracker = mlflow_tracker.MlflowTracker(here, config, run_id)
    outcome = runner.find_done(name, config, run_id, here, tracker)
    with tracker.failing():
        outcome = outcome or runner.run_stage(name, config, run_id, here, stages, tracker)
    if name in ("report", "publish"):
        announce(config, runner.open_run(config, run_id, here, tracker), here)
    if name == [*stages][-1]:
        erase_expired(here)
    return outcome


def run_launch(
    config: LaunchConfig,
    run_id: str,
    settings: Settings,
    stages: Stages,
    tracker: runner.Tracker | None = None,
    on_stage: Callable[[runner.StageOutcome], None] = lambda outcome: None,
) -> dict[str, runner.StageOutcome]:
    """Run every stage in order in this process, and call ``on_stage`` with the outcome of each.

    A launch with reviewers is published once they have approved its report. If evidence is missing after
    the spend, the launch is held for it, its report is still written, and then the error is raised.
    """
    outcomes: dict[str, runner.StageOutcome] = {}
    failed: Exception | None = None
    evidence = {other for stage in stages.values() for other in stage.evidence}
    for name in of_launch(config, stages):
        if name == "publish" and failed:
            raise failed
        if name == "publish" and config.reviewers:
            run = runner.open_run(config, run_id, settings, tracker)
            now = standing(config, run, PrivacyLedger.of(settings))
            if now.state not in MAY_PUBLISH:
                _log.warning("publish: skipped, the launch is %s: %s", now.state, now.detail)
                continue
        done = runner.find_done(name, config, run_id, settings, tracker)
        try:
            outcomes[name] = done or runner.run_stage(name, config, run_id, settings, stages, tracker)
        except (PermanentError, ValueError, ArithmeticError) as error:
            if name not in evidence:
                raise failed or error from error
            _log.error("%s: %s; the launch is held without this evidence, and reported", name, error)
            failed = failed or error
            continue
        on_stage(outcomes[name])
    return outcomes
