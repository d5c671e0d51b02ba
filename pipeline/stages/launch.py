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
from pipeline.publication.approvals import MAY_PUBLISH, announce, standing
from pipeline.publication.launches import FailedGate, cost, status
from pipeline.run import runner
from pipeline.run.cache import preview
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
      rho, epsilon: loss of one device to all its releases, at ``delta``, rounded up; rho is None if a release has none.
      guarantee: that epsilon with its largest part.
      loss: all of it in one line.
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
    loss: str
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
    last: str = "publish",
    on_stage: Callable[[runner.StageOutcome], None] = lambda outcome: None,
    erase_expired: Callable[[Settings], object] = lambda here: None,
) -> dict[str, runner.StageOutcome]:
    """Check a launch unless its private text was read, then run its stages in order, through ``last``.

    Args:
      on_stage: called with the outcome of each stage.
      erase_expired: erases expired launches, before text is read and when this launch ends.

    Raises:
      ValueError: the launch has no such stage, or preflight refuses it, one line for each problem.
      LedgerMissing: there is no ledger to spend from.
    """
    if last not in (names := of_launch(config, stages)):
        raise ValueError(f"stage: this launch has no {shown(repr(last))}; it has {', '.join(names)}")
    PrivacyLedger.of(here)  # Fails early without a ledger, which every spend needs.
    if not (here.runs_dir / run_id / "public" / "ingest_private" / RESULT).is_file():
        reuse = preview(config, run_id, here, stages)
        for each in reuse:
            _log.info("%s", each)
        readiness.require(config, here, run_id, reuse)
    erase_expired(here)
    tracker = mlflow_tracker.MlflowTracker(here, config, run_id)
    with tracker.failing():
        outcomes = run_stages(config, run_id, here, stages, tracker, last=last, on_stage=on_stage)
    erase_expired(here)
    return outcomes


def run_stages(
    config: LaunchConfig,
    run_id: str,
    here: Settings,
    stages: Stages,
    tracker: runner.Tracker | None = None,
    *,
    last: str = "publish",
    on_stage: Callable[[runner.StageOutcome], None] = lambda outcome: None,
) -> dict[str, runner.StageOutcome]:
    """Run the stages of a launch in order, through ``last``, unless they have finished, and return their outcomes.

    A launch with reviewers is published once they have approved its report. If evidence is missing after the spend,
    the later stages up to ``last`` or the report still run, so that it is held and reported, and then the error is
    raised.
    """
    outcomes: dict[str, runner.StageOutcome] = {}
    failed: Exception | None = None
    evidence = {other for stage in stages.values() for other in stage.evidence}
    names = of_launch(config, stages)
    for name in names[: names.index(last) + 1]:
        if name == "publish" and failed:
            break
        if name == "publish" and config.reviewers:
            run = runner.open_run(config, run_id, here, tracker)
            now = standing(config, run, PrivacyLedger.of(here))
            if now.state not in MAY_PUBLISH:
                _log.warning("publish: skipped, the launch is %s: %s", now.state, now.detail)
                continue
        done = runner.find_done(name, config, run_id, here, tracker)
        try:
            outcomes[name] = done or runner.run_stage(name, config, run_id, here, stages, tracker)
        except (PermanentError, ValueError, ArithmeticError) as error:
            if name not in evidence:
                raise failed or error from error
            _log.error("%s: %s; the launch is held without this evidence, and reported", name, error)
            failed = failed or error
            continue
        on_stage(outcomes[name])
        if tracker:
            _announce(name, config, run_id, here, tracker)
    if failed:
        raise failed
    return outcomes


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
    _announce(name, config, run_id, here, tracker)
    if name == [*stages][-1]:
        erase_expired(here)
    return outcome


def ending_of(config: LaunchConfig, run_id: str, here: Settings, stages: Stages) -> Ending:
    """Return the outcome of a launch whose report was made."""
    ledger, run = PrivacyLedger.of(here), runner.open_run(config, run_id, here)
    now, results = standing(config, run, ledger), {record.stage: record.result for record in run.records()}
    decided, spent = results["decide"], cost(results)
    run_dir = here.runs_dir / run_id
    public = run_dir / "public"
    found = Ending(
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
        loss=spent["loss"],
        run_dir=run_dir,
        report=public / "report" / "report.html",
        bundle=public / "publish" / "bundle" if now.state in ("published", "candidate") else None,
        tracking_uri=here.tracking_uri,
    )
    if now.state != "held":
        return found
    held = status(here, stages, run_id)
    return HeldEnding(**vars(found), failed_gates=held.failed_gates, spent=held.spent, left=held.left, next=held.next)


def _announce(name: str, config: LaunchConfig, run_id: str, here: Settings, tracker: runner.Tracker) -> None:
    """Show the state of a launch beside its report and in MLflow, after a stage that may have changed it."""
    if name in ("report", "publish"):
        announce(config, runner.open_run(config, run_id, here, tracker), here)
