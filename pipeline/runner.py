"""Run a stage once: skip it if done, else reserve, run, commit, track, and only then say done.

Every step may be the last one before a crash. Running the same command again repairs it:
the reservation is free the second time, a finished computation is found in ``outcome.json``,
commit and digest in the ledger are free, tracking starts afresh, and ``result.json`` is written last.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from pipeline import sharing
from pipeline.config import STAGE_NAMES, LaunchConfig, config_digest, launch_id, launch_id_without_reviewers
from pipeline.errors import PermanentError, RefusedUntouched
from pipeline.ledger.known import fetch_known, write_down, written_down
from pipeline.ledger.launch import register_simulation
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.readiness import require_secure
from pipeline.release import standing
from pipeline.run_dir import (
    ABSENT,
    GIVEN,
    RESULT,
    RunDir,
    StageRecord,
    has_private_files,
    note_receipt,
    record_digest,
    record_text,
)
from pipeline.run_dir import receipts as anchors
from pipeline.settings import Settings
from pipeline.stage import PublicStage, Spend, StageContext, StageFunction, StageSpend, binding_of, stage_key
from pretrain.files import PRIVATE, remove_leavings, write_text

_log = logging.getLogger(__name__)
# What is found out about a release: without it a launch is held, but it has been spent, so it is reported.
EVIDENCE = frozenset({"audit", "ab_test"})


class Tracker(sharing.Shelf, Protocol):
    """The part of ``tracking.MlflowTracker`` that the runner needs."""

    def log_stage(self, run: RunDir, record: StageRecord) -> None:
        """Log a finished stage's public files, parameters and numbers; doing it twice leaves one run."""

    def fetch(self, stage: str, filename: str, destination: Path) -> bool:
        """Bring back a public file; False if it was never logged."""


@dataclass(frozen=True)
class StageOutcome:
    """A stage's record and whether this call did the work."""

    record: StageRecord
    skipped: bool

    @property
    def result(self) -> dict:
        """The stage's result as plain JSON values."""
        return self.record.result


@dataclass(frozen=True)
class Stages:
    """The stages there are: ``functions`` by name, ``spends`` for those that release private data, and ``public`` for
    those that a later launch may take over."""

    functions: Mapping[str, StageFunction]
    spends: Mapping[str, StageSpend]
    public: Mapping[str, PublicStage] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sharing.require_public(self.public, self.spends)


def open_run(config: LaunchConfig, run_id: str, settings: Settings, tracker: Tracker | None = None) -> RunDir:
    """The launch's folder, with its configuration beside it.

    Raises:
      ValueError: ``run_id`` belongs to another configuration.
    """
    expected = launch_id(config)
    fetch = fetch_known(tracker.fetch, settings.ledger_url, run_id) if tracker else None
    run = RunDir(settings.runs_dir, run_id, fetch)
    path = run.path / "public" / "launch" / "launch.json"
    begun = set(json.loads(path.read_text(encoding="utf-8")).get("reviewers", ())) if path.exists() else None
    earlier = launch_id_without_reviewers(config)
    if begun is not None and (run_id == earlier or run_id.startswith(earlier + "-")):
        if begun != set(config.reviewers):
            raise ValueError(
                f"reviewers: {', '.join(config.reviewers) or 'none'}, but launch {run_id!r} began with "
                f"{', '.join(sorted(begun)) or 'none'}; put them back, or change 'name' to make it another launch"
            )
        expected = earlier
    if run_id != expected and not run_id.startswith(expected + "-"):
        raise ValueError(
            f"run: {run_id!r} is not a run of this launch file, whose id is {expected!r}; the file was changed since, "
            "and a changed launch is a new launch: run it under its own id"
        )
    for folder in (settings.runs_dir, run.public("launch")):
        remove_leavings(folder, below=False)
    content = json.dumps(config.canonical(), indent=2, sort_keys=True) + "\n"
    if not path.exists() or path.read_text(encoding="utf-8") != content:
        write_text(path, content)
    return run


def find_done(
    name: str, config: LaunchConfig, run_id: str, settings: Settings, tracker: Tracker | None = None
) -> StageOutcome | None:
    """The stage's outcome if it needs no work; asked before the stages, and torch with them, are imported."""
    run = open_run(config, run_id, settings, tracker)
    record = run.record(name)
    if record is None or not _still_true(record, config, run):
        return None
    _outcome_path(run, name).unlink(missing_ok=True)  # left by whoever died after the record
    outcome = StageOutcome(written_down(record, run, settings.ledger_url), skipped=True)
    if tracker and outcome.record is not record:
        tracker.log_stage(run, outcome.record)
    return outcome


def run_stage(
    name: str,
    config: LaunchConfig,
    run_id: str,
    settings: Settings,
    stages: Stages,
    tracker: Tracker | None = None,
) -> StageOutcome:
    """Run one stage of one launch, or find that it is done.

    Raises:
      ValueError: unknown stage, or a run id of another configuration.
      StageBusy: another process is running it.
      BudgetExceeded, LedgerConflict: the ledger refuses; nothing was run.
      StageInputMissing: an earlier stage has not finished.
    """
    if name not in stages.functions:
        raise ValueError(f"stage: {name!r} does not exist; choose one of {', '.join(stages.functions)}")
    run = open_run(config, run_id, settings, tracker)
    with run.lock(name):
        if left := [*remove_leavings(run.public(name)), *remove_leavings(run.private(name))]:
            _log.info("%s: removed what an interrupted attempt left: %s", name, ", ".join(left))
        record = run.record(name)
        if record and _still_true(record, config, run):
            _outcome_path(run, name).unlink(missing_ok=True)
            return StageOutcome(record, skipped=True)
        return StageOutcome(_run_held(name, config, run, settings, stages, tracker), skipped=False)


def run_launch(
    config: LaunchConfig,
    run_id: str,
    settings: Settings,
    load_stages: Callable[[], Stages],
    tracker: Tracker | None = None,
    on_stage: Callable[[StageOutcome], None] = lambda outcome: None,
) -> dict[str, StageOutcome]:
    """Every stage in order in this process; ``on_stage`` hears of each as it ends.

    Where the launch names reviewers it is published once one of them has approved its report. Where
    evidence cannot be had after the spend, the launch is held for it, its report is written all the
    same, and then the error is raised.
    """
    outcomes: dict[str, StageOutcome] = {}
    failed: Exception | None = None
    for name in STAGE_NAMES:
        if name == "publish" and failed:
            raise failed
        if name == "publish" and config.reviewers:
            run = open_run(config, run_id, settings, tracker)
            now = standing(config, run, PrivacyLedger(settings.ledger_url).entries())
            if now.state not in ("approved", "published"):
                _log.warning("publish: left out, the launch is %s: %s", now.state, now.detail)
                continue
        if name == "count" and config.counts is None:
            continue  # Not asked for; under Airflow the stage is a task all the same, and says so.
        done = find_done(name, config, run_id, settings, tracker)
        try:
            outcomes[name] = done or run_stage(name, config, run_id, settings, load_stages(), tracker)
        except (PermanentError, ValueError, ArithmeticError) as error:
            if name not in EVIDENCE:
                raise failed or error from error
            _log.error("%s: %s; the launch is held without it, and reported", name, error)
            failed = failed or error
            continue
        on_stage(outcomes[name])
    return outcomes


def _still_true(record: StageRecord, config: LaunchConfig, run: RunDir, *, released: bool | None = None) -> bool:
    """Whether a record holds: same configuration, same inputs, outputs with the digests it names."""
    if record.config_digest != config_digest(config):
        return False
    # A release stays what it was when its private folder is gone; other stages make theirs again.
    released = "reserve" in record.ledger if released is None else released
    if record.private_outputs and not (released or run.erased or has_private_files(run, record.stage)):
        return False
    for path, digest in record.inputs.items():
        stage, _, name = path.partition("/")
        if stage == GIVEN:
            if run.given_digest(name) != digest:
                return False
            continue
        source = run.record(stage)
        if digest == ABSENT:
            if source is None:
                continue
            return False
        if source is None:
            return False
        if digest != (record_digest(source) if name == RESULT else source.outputs.get(name)):
            return False
    return all(run.available(record.stage, name, digest) for name, digest in record.outputs.items())


def _run_held(
    name: str, config: LaunchConfig, run: RunDir, settings: Settings, stages: Stages, tracker: Tracker | None
) -> StageRecord:
    run.used.clear()
    spend = stages.spends.get(name)
    planned = spend.planned(config, run) if spend else None
    key = binding = ledger = None
    receipts: dict[str, str] = {}
    if spend and planned:
        key = stage_key(config, run, name)
        binding = binding_of(config, run, key, spend)
        ledger = PrivacyLedger(settings.ledger_url)
        _log.info("%s: spends from the privacy ledger %s", name, ledger.address)
        register_simulation(config, ledger)
        require_secure(config, ledger.registered(config.private_text.name))
        reserved = ledger.reserve(
            population=config.private_text.name,
            launch_id=run.launch_id,
            stage=name,
            spend=planned,
            budget_rho=config.policy.population_max_rho,
            budget_discovery_epsilon=config.policy.population_max_discovery_epsilon,
            binding=binding,
            anchors=anchors(settings.runs_dir),
        )
        note_receipt(run, name, reserved.hash)
        receipts["reserve"] = reserved.hash

    record = _outcome(run, name, config, binding)
    if record is None:
        public = stages.public.get(name)
        seen = sharing.restricted(config, public) if public else config
        ctx = StageContext(seen, run, settings, name, key, config.private_text.name)
        if public:
            record = _share(ctx, config, stages.functions[name], public, tracker)
        else:
            try:
                record = _compute(ctx, config, stages.functions[name])
            except RefusedUntouched as error:
                if ledger and not run.left_by_devices(name):
                    ledger.release(run.launch_id, name, str(error))
                raise
        write_text(_outcome_path(run, name), _outcome_text(record, binding), PRIVATE)

    if ledger:
        if record.result.get("spend") is None:
            raise PermanentError(f"{name}: the stage reserved a spend but its result states none; this launch is held")
        receipts["commit"] = ledger.commit(run.launch_id, name, Spend.model_validate(record.result["spend"])).hash
    record = record.model_copy(update={"ledger": receipts | write_down(record, settings.ledger_url)})
    if tracker:
        tracker.log_stage(run, record)
    write_text(run.public(name) / RESULT, record_text(record))
    _outcome_path(run, name).unlink()
    return record


def _compute(ctx: StageContext, config: LaunchConfig, function: StageFunction) -> StageRecord:
    """Call the stage and take stock of what it left."""
    started, clock = _now(), time.monotonic()
    _log.info("%s: started", ctx.stage)
    result = function(ctx)
    record = StageRecord(
        launch_id=ctx.run.launch_id,
        stage=ctx.stage,
        config_digest=config_digest(config),
        inputs=dict(sorted(ctx.run.used.items())),
        outputs=ctx.run.manifest(ctx.stage),
        private_outputs=has_private_files(ctx.run, ctx.stage),
        private_digest=ctx.run.seal_private(ctx.stage),
        started_at=started,
        seconds=round(time.monotonic() - clock, 3),
        result=result.model_dump(mode="json"),
    )
    _log.info("%s: done in %.1f s", ctx.stage, record.seconds)
    return record


def _share(
    ctx: StageContext, config: LaunchConfig, function: StageFunction, public: PublicStage, tracker: Tracker | None
) -> StageRecord:
    """Take over what an identical stage of another launch made, or else compute, for others to take over."""
    started, clock = _now(), time.monotonic()
    content = sharing.content_key(ctx, config, public)
    if content is None:
        return _compute(ctx, config, function)
    if source := sharing.take_over(ctx, content, tracker):
        return source.model_copy(
            update={
                "launch_id": ctx.run.launch_id,
                "config_digest": config_digest(config),
                "started_at": started,
                "seconds": round(time.monotonic() - clock, 3),
                "reused_from": source.reused_from or source.launch_id,
            }
        )
    sharing.begin(ctx, content)
    record = _compute(ctx, config, function)
    undeclared = {path.partition("/")[0] for path in record.inputs} - set(public.after)
    assert not undeclared, f"{ctx.stage}: it used {undeclared}, which its content key leaves out"
    # What changed meanwhile, or between this attempt and an earlier one, may have been read both ways.
    same = sharing.was_begun_as(ctx, content) and sharing.content_key(ctx, config, public) == content
    return record.model_copy(update={"content": content if same and not record.private_outputs else None})


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _outcome_path(run: RunDir, name: str) -> Path:
    return run.private(name) / ".outcome.json"


def _outcome_text(record: StageRecord, binding: Mapping[str, str] | None) -> str:
    return json.dumps({"record": json.loads(record_text(record)), "binding": binding})


def _outcome(run: RunDir, name: str, config: LaunchConfig, binding: Mapping[str, str] | None) -> StageRecord | None:
    """The record of a computation that ended just before a crash, if it still holds."""
    path = _outcome_path(run, name)
    if not path.exists():
        return None
    content = json.loads(path.read_text(encoding="utf-8"))
    record = StageRecord.model_validate(content["record"])
    if content["binding"] != binding or not _still_true(record, config, run, released=binding is not None):
        return None
    _log.info("%s: was computed before an interruption, finishing it", name)
    return record
