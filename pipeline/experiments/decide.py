"""A live experiment looked at and, once its days are over, decided: everybody gets the model, or nobody does.

The logs themselves stay where they are. What leaves are metrics of two arms with their intervals, how many buckets
there were, and the gates.
"""

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Literal

from pydantic import Field

from evaluation.comparison.intervals import Estimate
from evaluation.live import compare, logs
from pipeline.experiments.gate import gates
from pipeline.ground.errors import PermanentError, ReleaseRefused, TooEarly
from pipeline.ground.settings import Settings, processor
from pipeline.launch.config import LaunchConfig, config_digest
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication import experiment
from pipeline.publication.approvals import standing
from pipeline.publication.experiment import Experiment, ExperimentEnd
from pipeline.publication.registry import Registry
from pipeline.run.known import write_down
from pipeline.run.run_dir import RESULT, RunDir, StageRecord, record_digest, record_text
from pipeline.run.stage import StageResult
from pipeline.telemetry.allowed import this_hour, two_digits
from pipeline.telemetry.leaving import require_listed
from pipeline.tracking.mlflow_tracker import MlflowTracker, receipts_of_locale
from pretrain.files import write_text
from reports.disclosure.document import GateResult
from reports.disclosure.utility import ArmMetric, Difference

NAME = "experiment"
FINISHED = "_SUCCESS"  # what Spark and others leave in a folder when all files are written
_log = logging.getLogger(__name__)


class Look(StageResult):
    """Results of an experiment's logs."""

    first_day: date
    last_day: date
    logged_until: date
    over: bool = Field(description="all days are over, so that the gates may decide")
    simulated: bool
    share: float
    treated_buckets: int
    buckets: int
    split_chance: float
    arms: tuple[ArmMetric, ...]
    differences: tuple[Difference, ...]
    undefined: tuple[str, ...]
    gates: tuple[GateResult, ...]

    @property
    def failed(self) -> tuple[str, ...]:
        """Why nobody should get the model, in words."""
        return tuple(f"{gate.title}: {gate.evidence}" for gate in self.gates if not gate.passed)


class DecisionResult(StageResult):
    """Decision of an experiment."""

    decision: Literal["promote", "roll back"]
    reasons: tuple[str, ...]
    by: str
    look: Look | None = Field(description="what the gates saw; None where somebody stopped it")


@dataclass(frozen=True)
class ExperimentStatus:
    """State of an experiment.

    Attributes:
      versions, controls: of each registered model, what devices with the model have, and the others.
      share: of devices that have the model.
      over: True if all days are over.
      ended: promote or roll back; None while it goes on.
      logs: where they are exported to; ``arrived`` once they are marked as complete.
      detail: the same in words.
    """

    launch_id: str
    versions: Mapping[str, int]
    controls: Mapping[str, int | None]
    share: float
    first_day: date
    last_day: date
    over: bool
    ended: str | None
    logs: Path
    arrived: bool
    detail: str


def status(config: LaunchConfig, run: RunDir, here: Settings) -> ExperimentStatus:
    """The state of an experiment: shares of both arms, the days that count, and the logs that are missing.

    Raises:
      ReleaseRefused: there is no experiment.
    """
    tried, folder = begun(config, run, PrivacyLedger.of(here)), logs_folder(here, run.launch_id)
    return ExperimentStatus(
        launch_id=run.launch_id,
        versions=tried.began.versions,
        controls=tried.began.controls,
        share=tried.began.share,
        first_day=tried.first,
        last_day=tried.last,
        over=tried.over(),
        ended=None if tried.ended is None else ("promote" if tried.ended.promoted else "roll back"),
        logs=folder,
        arrived=(folder / FINISHED).is_file(),
        detail=tried.said,
    )


def logs_folder(here: Settings, launch_id: str) -> Path:
    """Folder that the logs of a launch's experiment are exported to."""
    return here.experiment_logs / launch_id


def begun(config: LaunchConfig, run: RunDir, ledger: PrivacyLedger) -> Experiment:
    """The experiment of a launch.

    Raises:
      ReleaseRefused: it never began one.
    """
    tried = experiment.of(config, run.launch_id, ledger.entries())
    if tried is None:
        now = standing(config, run, ledger.entries())
        how = (
            "it begins when the launch is published" if config.experiment else "its launch file has no block experiment"
        )
        raise ReleaseRefused(f"experiment: {run.launch_id} is in none, it is {now.state}: {now.detail}; {how}")
    return tried


def look(
    config: LaunchConfig, run: RunDir, settings: Settings, patterns: Iterable[str], today: date | None = None
) -> tuple[Look, tuple[str, ...]]:
    """Results of the logs until now, and the digests of their files; nothing is decided.

    Args:
      patterns: paths or globs of the logs.
      today: in UTC.

    Raises:
      ReleaseRefused: there is no experiment.
      ValueError: what ``evaluation.live.logs`` refuses, or logs of a simulator about people.
    """
    tried = begun(config, run, PrivacyLedger.of(settings))
    assert config.experiment is not None, "begun refuses"
    logged = logs.read(patterns, tried.first, tried.began.days)
    if logged.simulated and not config.private_text.simulated:
        raise ValueError(
            f"{logs.FIELD}: a simulator made them, and private_text.source is {config.private_text.source!r}: they say "
            "nothing about people; give what keyboards logged"
        )
    live, registry = compare.compare(logged, tried.began.share), Registry(settings)
    return (
        Look(
            first_day=tried.first,
            last_day=tried.last,
            logged_until=logged.last_day,
            over=tried.over(today),
            simulated=logged.simulated,
            share=tried.began.share,
            treated_buckets=live.ratio.treated,
            buckets=live.ratio.buckets,
            split_chance=live.ratio.chance,
            arms=tuple(
                ArmMetric.model_validate(vars(row) | _interval(row.estimate), extra="ignore") for row in live.arms
            ),
            differences=tuple(
                Difference.model_validate(
                    vars(row)
                    | {"relative": None if row.relative is None else _interval(row.relative)}
                    | _interval(row.absolute),
                    extra="ignore",
                )
                for row in live.differences
            ),
            undefined=live.undefined,
            gates=gates(live, logged, config.experiment, config.features, _replaced(tried, registry)),
        ),
        logged.digests,
    )


def decide(
    config: LaunchConfig,
    run: RunDir,
    settings: Settings,
    patterns: Iterable[str],
    by: str,
    today: date | None = None,
) -> DecisionResult:
    """Ask the gates, once, when all days are over; then the model is everybody's or nobody's.

    What was decided before is carried out again, which changes nothing where nothing was interrupted.

    Args:
      patterns: paths or globs of the logs; none: those in their folder, once they are marked as complete.
      by: who decides, as the ledger shall name them.

    Raises:
      TooEarly: its days are not over.
      ReleaseRefused: there is no experiment, or what would become champion is not what was approved.
      ValueError: as ``look``.
    """
    ledger = PrivacyLedger.of(settings)
    ledger.require_whole(receipts_of_locale(settings, config.locale))
    with run.lock(NAME):
        tried = begun(config, run, ledger)
        if tried.ended is None:
            if not tried.over(today):
                raise TooEarly(
                    f"experiment: {run.launch_id} goes on until the end of {tried.last} (UTC), and is decided once, "
                    "when it is over; look with 'tacit ab --logs', or stop it with 'tacit experiment stop'"
                )
            clock = time.monotonic()
            seen, digests = look(config, run, settings, list(patterns) or _arrived(settings, run.launch_id), today)
            reasons = seen.failed or (f"all {len(seen.gates)} gates of the experiment passed",)
            decision: Literal["promote", "roll back"] = "roll back" if seen.failed else "promote"
            decided = DecisionResult(decision=decision, reasons=reasons, by=by, look=seen)
            _end(config, run, settings, decided, digests, time.monotonic() - clock)
        return _carried_out(config, run, settings, ledger)


def stop(config: LaunchConfig, run: RunDir, settings: Settings, by: str, reason: str) -> DecisionResult:
    """End an experiment early: users keep what they have, whatever the logs would say.

    Raises:
      ReleaseRefused: there is no experiment that goes on, or no reason.
    """
    ledger = PrivacyLedger.of(settings)
    ledger.require_whole(receipts_of_locale(settings, config.locale))
    if not reason.strip():
        raise ReleaseRefused(f"experiment: say why {run.launch_id} is stopped: --reason ...")
    with run.lock(NAME):
        tried = begun(config, run, ledger)
        if tried.ended is not None and tried.ended.promoted:
            raise ReleaseRefused(
                f"experiment: {run.launch_id} ended, {tried.said}; 'tacit rollback' gives users back what they had"
            )
        if tried.ended is None:
            _end(
                config,
                run,
                settings,
                DecisionResult(decision="roll back", reasons=(f"stopped: {reason}",), by=by, look=None),
            )
        return _carried_out(config, run, settings, ledger)


def _arrived(here: Settings, launch_id: str) -> list[str]:
    """The logs where they are exported to.

    Raises:
      TooEarly: they are not complete.
    """
    folder = logs_folder(here, launch_id)
    if not (folder / FINISHED).is_file():
        raise TooEarly(
            f"logs: {folder} holds no file {FINISHED}, so they are not complete; write it when all days are there, or "
            "name files by --logs"
        )
    return [f"{folder}/*.parquet"]


def _end(
    config: LaunchConfig,
    run: RunDir,
    settings: Settings,
    how: DecisionResult,
    digests: tuple[str, ...] = (),
    seconds: float = 0.0,
) -> None:
    """Keep what was seen, and how long looking took, then let the ledger decide: its entry is what counts."""
    require_listed(how)
    record = StageRecord(
        launch_id=run.launch_id,
        stage=NAME,
        config_digest=config_digest(config),
        inputs={f"{logs.FIELD}/{number}": digest for number, digest in enumerate(digests)},
        outputs={},
        private_outputs=False,
        started_at=this_hour(),
        seconds=two_digits(seconds),
        processor=processor(),
        result=how.model_dump(mode="json"),
    )
    write_down(record, settings)
    write_text(run.public(NAME) / RESULT, record_text(record))
    promoted = how.decision == "promote"
    digest = record_digest(record)
    ended = ExperimentEnd(promoted=promoted, reasons=how.reasons, by=how.by, logs=digests, result=digest)
    experiment.end(config, run.launch_id, ended, PrivacyLedger.of(settings))


def _carried_out(config: LaunchConfig, run: RunDir, settings: Settings, ledger: PrivacyLedger) -> DecisionResult:
    """Move the aliases as the ledger says, and show it in MLflow."""
    tried = begun(config, run, ledger)
    assert tried.ended is not None, "it has ended"
    experiment.carry_out(config, tried, Registry(settings))
    record = run.record(NAME)
    if record is None or record_digest(record) != tried.ended.result:
        raise PermanentError(
            f"experiment: {run.launch_id} ended {tried.said}, and its aliases stand so; but public/{NAME}/{RESULT} is "
            "not what was written then: restore it from MLflow"
        )
    tracker = MlflowTracker(settings, config, run.launch_id)
    tracker.log_stage(run, record)
    tracker.keep_receipts(ledger.heads())
    _log.info("experiment of %s: %s", run.launch_id, record.result["decision"])
    return DecisionResult.model_validate(record.result)


def _replaced(tried: Experiment, registry: Registry) -> dict[str, str]:
    """Models whose champion is no longer the one that the control had, in words."""
    now = {name: registry.alias(name, "champion") for name in tried.began.controls}
    return {
        name: f"{name}: they had version {then or 'none'}, and users have {now[name] or 'none'} by now"
        for name, then in tried.began.controls.items()
        if now[name] != then
    }


def _interval(estimate: Estimate) -> dict[str, float]:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}
