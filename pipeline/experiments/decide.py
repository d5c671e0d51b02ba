"""Evaluate a live experiment and, once its days are over, decide it: all devices get the model, or none.

The logs stay in their folder. The result holds metrics of both arms with intervals, numbers of buckets, and gates.
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
from pipeline.experiments import compare, entries, logs
from pipeline.experiments.compare import Live
from pipeline.experiments.entries import Experiment, ExperimentEnd
from pipeline.experiments.gate import gates
from pipeline.ground.errors import PermanentError, ReleaseRefused, TemporaryError
from pipeline.ground.settings import Settings, processor
from pipeline.launch.config import AFTER_APPROVAL, LaunchConfig, config_digest
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.publication.approvals import require_approved, standing
from pipeline.publication.registry import Registry, require_compared
from pipeline.run.proof import OUTCOME
from pipeline.run.public_fields import FIELDS, Fields, Source, require_listed
from pipeline.run.run_dir import RESULT, RunDir, StageRecord, read_record, record_text
from pipeline.run.stage import StageResult
from pipeline.telemetry.allowed import this_hour, two_digits
from pipeline.tracking.mlflow_tracker import MlflowTracker, checkpoints_of_locale
from pretrain.files import sha256, write_text
from reports.disclosure.document import GateResult
from reports.disclosure.utility import ArmMetric, Difference

NAME = "experiment"
# Fields that leave, beside those of every launch (``pipeline.run.public_fields``).
LEAVING: Mapping[str, Fields] = FIELDS | {
    "Look": {
        Source.LEDGER: "first_day last_day simulated share",
        Source.LOGGED: "logged_until over treated_buckets buckets split_chance undefined",
    },
    "DecisionResult": {Source.LOGGED: "decision reasons", Source.PERSON: "by"},
}
FINISHED = "_SUCCESS"  # written by Spark and others once a folder is complete
_log = logging.getLogger(__name__)


class TooEarly(TemporaryError):
    """An experiment cannot be decided before its last day is over."""


class Look(StageResult):
    """Results of an experiment's logs."""

    first_day: date
    last_day: date
    logged_until: date = Field(description="last day with a row")
    over: bool = Field(description="all days are over, so the gates decide")
    simulated: bool
    share: float
    treated_buckets: int = Field(description="with the model")
    buckets: int
    split_chance: float
    arms: tuple[ArmMetric, ...]
    differences: tuple[Difference, ...]
    undefined: tuple[str, ...]
    gates: tuple[GateResult, ...]

    @property
    def failed(self) -> tuple[str, ...]:
        """Reasons why devices should not get the model."""
        return tuple(f"{gate.title}: {gate.evidence}" for gate in self.gates if not gate.passed)


class DecisionResult(StageResult):
    """Decision of an experiment."""

    decision: Literal["promote", "roll back"]
    reasons: tuple[str, ...]
    by: str
    look: Look | None = Field(description="evidence of the gates; None if a person stopped it")


@dataclass(frozen=True)
class ExperimentStatus:
    """State of an experiment.

    Attributes:
      versions, controls: version of each registered model in the treatment arm, and in the control arm.
      share: share of devices in the treatment arm.
      over: True if all days are over.
      ended: promote or roll back; None while it is running.
      logs: folder of their export; ``arrived`` once they are marked as complete.
      detail: the state in words.
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


def begin(config: LaunchConfig, run: RunDir, here: Settings) -> ExperimentStatus:
    """Give an approved candidate to its share of devices; repeating the call changes nothing.

    Guarantee: no device gets the model of a launch that is not approved or is void, not even in an experiment.

    Raises:
      ReleaseRefused: the launch is no candidate, another one is in an experiment of the same model, or the champion is
        another one than the launch was compared with.
    """
    ledger = PrivacyLedger.of(here)
    ledger.require_whole(checkpoints_of_locale(here, config.locale))
    with run.lock("publish"):
        if standing(config, run, ledger).state == "candidate":
            require_approved(config, run, ledger)
            registry = Registry(here)
            if entries.of(config, run.launch_id, ledger.entries_of_launch(run.launch_id)) is None:
                require_compared(config, run.launch_id, run.result("ab_test"), registry)
            entries.begin(config, run.launch_id, run.result("publish")["versions"], registry, ledger)
            MlflowTracker(here, config, run.launch_id).keep_checkpoint(ledger.witnessed())
    return status(config, run, here)


def status(config: LaunchConfig, run: RunDir, here: Settings) -> ExperimentStatus:
    """State of an experiment: shares of both arms, the days that count, and missing logs.

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
    """Folder of the exported logs of a launch's experiment."""
    return here.device_logs / launch_id


def begun(config: LaunchConfig, run: RunDir, ledger: PrivacyLedger) -> Experiment:
    """Return the experiment of a launch.

    Raises:
      ReleaseRefused: the launch never began one.
    """
    tried = entries.of(config, run.launch_id, ledger.entries_of_launch(run.launch_id))
    if tried is None:
        now = standing(config, run, ledger)
        how = f"'{config.tried_by} begin' begins it after publication" if config.experiment else "its file names none"
        raise ReleaseRefused(f"experiment: {run.launch_id} has none, it is {now.state}: {now.detail}; {how}")
    return tried


def look(
    config: LaunchConfig, run: RunDir, settings: Settings, patterns: Iterable[str], today: date | None = None
) -> tuple[Look, tuple[str, ...]]:
    """Evaluate the logs up to now, and return the digests of their files; decides nothing.

    Args:
      patterns: paths or globs of the logs; empty: those in their folder, once they are marked as complete.
      today: in UTC.

    Raises:
      ReleaseRefused: there is no experiment.
      TooEarly: no logs are named, and those in the folder are not complete.
      ValueError: ``pipeline.experiments.logs`` refuses them, or simulated logs are given for real people.
    """
    tried = begun(config, run, PrivacyLedger.of(settings))
    assert config.experiment is not None, "begun refuses"
    logged = logs.read(list(patterns) or _arrived(settings, run.launch_id), tried.first, tried.began.days)
    if logged.simulated and not config.private_text.simulated:
        raise ValueError(
            f"{logs.FIELD}: a simulator made them, but private_text.source is {config.private_text.source!r}, and "
            "simulated logs say nothing about people; give the logs of keyboards"
        )
    live = compare.compare(logged, tried.began.share)
    judged = gates(live, logged.missing, config.experiment, config.features, _replaced(tried, Registry(settings)))
    return _look(tried, today, live, judged, logged), logged.digests


def _look(tried: Experiment, today: date | None, live: Live, judged: tuple[GateResult, ...], logged: logs.Logs) -> Look:
    return Look(
        first_day=tried.first,
        last_day=tried.last,
        logged_until=logged.last_day,
        over=tried.over(today),
        simulated=logged.simulated,
        share=tried.began.share,
        treated_buckets=live.ratio.treated,
        buckets=live.ratio.units,
        split_chance=live.ratio.chance,
        arms=tuple(ArmMetric.model_validate(vars(row) | _interval(row.estimate), extra="ignore") for row in live.arms),
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
        gates=judged,
    )


def decide(
    config: LaunchConfig,
    run: RunDir,
    settings: Settings,
    patterns: Iterable[str],
    by: str,
    today: date | None = None,
) -> DecisionResult:
    """Evaluate the gates, once, when all days are over; then all devices get the model, or none.

    An earlier decision is carried out again, which changes nothing unless it was interrupted.

    Args:
      patterns: paths or globs of the logs; empty: those in their folder, once they are marked as complete.
      by: account that decides, for the ledger's entry.

    Raises:
      TooEarly: the days of the experiment are not over.
      ReleaseRefused: there is no experiment, or the next champion would not be the approved bundle.
      ValueError: as ``look``.
    """
    ledger = PrivacyLedger.of(settings)
    ledger.require_whole(checkpoints_of_locale(settings, config.locale))
    with run.lock("publish"):
        tried = begun(config, run, ledger)
        if tried.ended is None:
            if not tried.over(today):
                raise TooEarly(
                    f"experiment: {run.launch_id} runs until the end of {tried.last} (UTC), and is decided once, when "
                    "it is over; see its logs with 'tacit experiment look', or stop it with 'tacit experiment stop'"
                )
            clock = time.monotonic()
            seen, digests = look(config, run, settings, patterns, today)
            reasons = seen.failed or (f"all {len(seen.gates)} gates of the experiment passed",)
            decision: Literal["promote", "roll back"] = "roll back" if seen.failed else "promote"
            decided = DecisionResult(decision=decision, reasons=reasons, by=by, look=seen)
            _end(config, run, settings, decided, digests, time.monotonic() - clock)
        return _carried_out(config, run, settings, ledger)


def stop(config: LaunchConfig, run: RunDir, settings: Settings, by: str, reason: str) -> DecisionResult:
    """End an experiment early: users keep the baseline, whatever the logs would show.

    Raises:
      ReleaseRefused: there is no running experiment, or the reason is empty.
    """
    ledger = PrivacyLedger.of(settings)
    ledger.require_whole(checkpoints_of_locale(settings, config.locale))
    if not reason.strip():
        raise ReleaseRefused(f"experiment: say why {run.launch_id} is stopped: --reason ...")
    with run.lock("publish"):
        tried = begun(config, run, ledger)
        if tried.ended is not None and tried.ended.promoted:
            raise ReleaseRefused(
                f"experiment: {run.launch_id} ended, {tried.said}; 'tacit rollback' restores the users' earlier version"
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
    """Return the exported logs.

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
    """Save the evidence and its duration, then record the decision in the ledger, whose entry is authoritative."""
    require_listed(how, fields=LEAVING)
    record = StageRecord(
        launch_id=run.launch_id,
        stage=NAME,
        config_digest=config_digest(config),
        inputs={f"{logs.FIELD}/{number}": digest for number, digest in enumerate(digests)},
        outputs={},
        private_outputs=False,
        private_digest=None,
        ledger={},
        started_at=this_hour(),
        seconds=two_digits(seconds),
        processor=processor(),
        result=how.model_dump(mode="json"),
    )
    path = run.public("launch") / OUTCOME
    write_text(path, record_text(record))
    promoted = how.decision == "promote"
    ended = ExperimentEnd(promoted=promoted, reasons=how.reasons, by=how.by, logs=digests, result=sha256(path))
    entries.end(config, run.launch_id, ended, PrivacyLedger.of(settings))


def _carried_out(config: LaunchConfig, run: RunDir, settings: Settings, ledger: PrivacyLedger) -> DecisionResult:
    """Move the aliases by the ledger's entry, and show the result in MLflow."""
    tried = begun(config, run, ledger)
    assert tried.ended is not None, "the experiment has ended"
    entries.carry_out(config, run.launch_id, tried, Registry(settings), ledger)
    path, tracker = run.public("launch") / OUTCOME, MlflowTracker(settings, config, run.launch_id)
    if not path.is_file():
        tracker.fetch(NAME, RESULT, path)
    if not path.is_file() or sha256(path) != tried.ended.result:
        raise PermanentError(
            f"experiment: {run.launch_id} ended {tried.said}, and its aliases are set; but public/launch/{OUTCOME} "
            "is not the ledger's, or lost here and in MLflow: delete it and repeat this, or restore a backup"
        )
    record = read_record(path)
    tracker.log_stage(run, record, AFTER_APPROVAL)
    tracker.keep_checkpoint(ledger.witnessed())
    _log.info("experiment of %s: %s", run.launch_id, record.result["decision"])
    return DecisionResult.model_validate(record.result)


def _replaced(tried: Experiment, registry: Registry) -> dict[str, str]:
    """Messages for models whose champion is no longer the version of the control arm."""
    now = {name: registry.alias(name, "champion") for name in tried.began.controls}
    return {
        name: f"{name}: the control had version {then or 'none'}, and users have {now[name] or 'none'} by now"
        for name, then in tried.began.controls.items()
        if now[name] != then
    }


def _interval(estimate: Estimate) -> dict[str, float]:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}
