"""Run a stage once: skip it if done, else reserve, run, commit, track, and only then write its record.

Every step may be the last one before a crash. Running the same command again repairs it: the reservation is free the
second time, a finished computation is found in ``outcome.json`` and counts because the ledger holds its digest, the
commit and the digest in the ledger are free, tracking starts afresh, and ``result.json`` is written last.
"""

import json
import logging
import os
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from federated.config.population import PopulationKey
from pipeline.ground.errors import PermanentError, RefusedUntouched
from pipeline.ground.settings import Settings, processor
from pipeline.launch.config import FOLDER_NAME, LaunchConfig, config_digest, launch_id
from pipeline.ledger.budget import Population
from pipeline.ledger.entries import AS_OF, SPLIT_RULE, Entry, Spend
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.statement import remainders
from pipeline.run import attempts, cache, fence, proof
from pipeline.run.bookkeeping import PROCESSORS
from pipeline.run.finished import (
    interrupted,
    keep_outcome,
    outcome_path,
    require_private,
    require_whole,
    still_true,
)
from pipeline.run.known import run_folder, write_down
from pipeline.run.population import asked, kept, register_simulation
from pipeline.run.public_fields import require_listed
from pipeline.run.run_dir import RESULT, RunDir, StageRecord, has_private_files, record_text
from pipeline.run.stage import StageContext, StageResult, Stages, access, binding_of, release_key, view
from pipeline.telemetry.allowed import this_hour, two_digits
from pipeline.telemetry.signals import budget, watched
from pretrain import progress
from pretrain.access import confined
from pretrain.files import remove_leavings, write_bytes, write_text

_log = logging.getLogger(__name__)


class Tracker(cache.Shelf, Protocol):
    """The part of ``tracking.MlflowTracker`` that the runner needs."""

    def log_stage(self, run: RunDir, record: StageRecord, fields: Collection[str]) -> None:
        """Log a finished stage's public files, given fields and metrics, and the launch's proof so far."""

    def fetch(self, stage: str, filename: str, destination: Path) -> bool:
        """Fetch a public file; False if it was never logged."""

    def checkpoints(self) -> Mapping[str, str]:
        """Checkpoints of the ledger's log that are kept elsewhere, by place."""

    def keep_checkpoint(self, note: str) -> None:
        """Keep the checkpoint of the ledger's log."""


@dataclass(frozen=True)
class StageOutcome:
    """A stage's record, and whether this call ran the stage."""

    record: StageRecord
    skipped: bool

    @property
    def result(self) -> dict:
        """Return the stage's result as plain JSON values."""
        return self.record.result


def open_run(config: LaunchConfig, run_id: str, settings: Settings, tracker: Tracker | None = None) -> RunDir:
    """Open the launch's folder, and write its configuration there, with the folder of the launch file beside it.

    Raises:
      ValueError: ``run_id`` belongs to another configuration.
    """
    expected = launch_id(config)
    run = replace(run_folder(settings, run_id, tracker.fetch if tracker else None), folder=config.folder)
    path = run.path / "public" / "launch" / "launch.json"
    if run_id != expected and not run_id.startswith(expected + "-"):
        raise ValueError(
            f"run: {run_id!r} is not a run of this launch file, whose id is {expected!r}; the file was changed since, "
            "and a changed launch is a new launch: run it under its own id"
        )
    for folder in (settings.runs_dir, run.path / "public", run.public("launch")):
        remove_leavings(folder, below=False)
    content = json.dumps(config.model_dump(mode="json"), indent=2, sort_keys=True) + "\n"
    if not path.exists() or path.read_bytes() != content.encode():
        write_text(path, content)
    named, place = os.fsencode(config.folder or ""), run.path / FOLDER_NAME
    if named and (not place.exists() or place.read_bytes() != named):
        write_bytes(place, named)
    return run


def find_done(
    name: str, config: LaunchConfig, run_id: str, settings: Settings, tracker: Tracker | None = None
) -> StageOutcome | None:
    """Return a finished stage's outcome, else None; called before the stages, and torch with them, are imported."""
    run = open_run(config, run_id, settings, tracker)
    if (record := run.record(name)) is None or not still_true(record, config, run):
        return None
    # Left by an attempt that died after its record was in MLflow.
    outcome_path(run, name).unlink(missing_ok=True)
    remove_leavings(run.public(name), below=False)
    return StageOutcome(record, skipped=True)


def run_stage(
    name: str,
    config: LaunchConfig,
    run_id: str,
    settings: Settings,
    stages: Stages,
    tracker: Tracker | None = None,
) -> StageOutcome:
    """Run one stage of one launch, unless it is already done.

    Raises:
      ValueError: unknown stage, or a run id of another configuration.
      BudgetExceeded, LedgerConflict: the ledger refuses; the stage did not run.
      StageBusy, StageInputMissing: another process is running it; an earlier stage has not finished.
    """
    if name not in stages:
        raise ValueError(f"stage: {name!r} does not exist; choose one of {', '.join(stages)}")
    run = open_run(config, run_id, settings, tracker)
    mechanism = config.mechanism if config.trains else None
    watching = watched(run_id, name, config.locale, config.features, mechanism)
    with watching as finished, run.lock(name), attempts.noted(run.private(name), name):
        if left := [*remove_leavings(run.public(name)), *remove_leavings(run.private(name))]:
            _log.info("%s: removed files of an interrupted attempt: %s", name, ", ".join(left))
        record = run.record(name)
        if record and still_true(record, config, run):
            outcome_path(run, name).unlink(missing_ok=True)
            finished(record.result, reused=record.reused_from is not None)
            return StageOutcome(record, skipped=True)
        record = _run_held(name, config, run, settings, stages, tracker)
        finished(record.result, reused=record.reused_from is not None)
        return StageOutcome(record, skipped=False)


def _run_held(
    name: str, config: LaunchConfig, run: RunDir, settings: Settings, stages: Stages, tracker: Tracker | None
) -> StageRecord:
    run.used.clear()
    require_private(run, name, stages)
    ledger = PrivacyLedger.of(settings)
    proof.require_keys(settings)
    ledger.require_whole(tracker.checkpoints() if tracker else {})
    _log.info("%s: started", name)
    stage = stages[name]
    planned = stage.planned(config, run) if stage.planned else None
    ctx = StageContext(config, run, settings, name, None, config.population)
    record = None if planned else interrupted(run, name, config, None)
    if record is None and stage.cached:
        record = cache.reuse(ctx, stages, planned, tracker)
    if record is None:
        record = _released(ctx, stages, planned) if planned else _computed(ctx, stages, None)
    record = record.model_copy(update={"ledger": record.ledger | {"result": write_down(record, settings)}})
    proof.add(run, record, stages, settings)
    if tracker:
        tracker.log_stage(run, record, stage.fields(config))
        tracker.keep_checkpoint(ledger.checkpoint())
    write_text(run.public(name) / RESULT, record_text(record))
    outcome_path(run, name).unlink(missing_ok=True)
    _log.info("%s: done in %.1f s", name, record.seconds)
    return record


def _released(ctx: StageContext, stages: Stages, planned: Spend) -> StageRecord:
    """Reserve the planned spend, run the stage, and commit the actual spend."""
    config, run, name, ledger = ctx.config, ctx.run, ctx.stage, PrivacyLedger.of(ctx.settings)
    stage = stages[name]
    key = release_key(config, run, name)
    _log.info("%s: spends from the budget in the privacy ledger %s", name, ledger.address)
    register_simulation(config, ledger)
    population = ledger.registered(ctx.population)
    before = ledger.reserved(run.launch_id, name)
    if before is None:
        require_whole(run, stage, stages)
    binding = binding_of(config, run, key, stage, None if before is None else before.content)
    reserved = ledger.reserve(
        population=ctx.population,
        launch_id=run.launch_id,
        stage=name,
        spend=planned,
        asked=asked(config),
        binding=binding | _counted_by(ctx, population, before),
    )
    ledger.witnessed()  # A reservation that nobody saw could be taken back once its noise is drawn.
    attempt = fence.begin(run.private(name))
    record = interrupted(run, name, config, binding)
    if record is None:
        try:
            record = _computed(replace(ctx, key=key, attempt=attempt), stages, binding)
        except RefusedUntouched as error:
            if not run.left_by_devices(name):
                ledger.release(run.launch_id, name, str(error))
            raise
    if record.result.get("spend") is None:
        raise PermanentError(f"{name}: the stage reserved a spend but its result states none; this launch is held")
    with fence.standing(run.private(name), attempt):
        commit = ledger.commit(run.launch_id, name, Spend.model_validate(record.result["spend"]))
    budget(ctx.population, lambda: budget_left(ledger, ctx.population))
    return record.model_copy(update={"ledger": {"reserve": reserved.hash, "commit": commit.hash}})


def budget_left(ledger: PrivacyLedger, population: PopulationKey) -> float:
    """Share that is left of the scarcest part of a population's budget."""
    shares = [each.left / each.amount for each in remainders(ledger.entries(population), [population]) if each.amount]
    return min(shares, default=0.0)


def _counted_by(ctx: StageContext, population: Population | None, before: Entry | None) -> dict[str, str]:
    """Split rule and last day of text of a spend, by which the ledger decides which spends count together."""
    ingested = ctx.run.record("ingest_private")
    as_of = ingested.result.get("as_of") if ingested else None
    if as_of and population and not before:
        kept(ctx.config, population, ctx.run.launch_id, as_of)  # Refuses a launch whose text has expired.
    rule = population.split_rule(ctx.config.private_text.test_fraction) if population else None
    return {name: value for name, value in ((SPLIT_RULE, rule), (AS_OF, as_of)) if value}


def _computed(ctx: StageContext, stages: Stages, binding: Mapping[str, str] | None) -> StageRecord:
    """Run the stage with its declared fields of the launch file, and save its record against a crash."""
    config, stage = ctx.config, stages[ctx.stage]
    compute = partial(_compute, replace(ctx, config=view(config, ctx.stage, stages)), config, stages)
    record = cache.marked(ctx, stages, compute) if stage.cached else compute()
    keep_outcome(record, ctx.run, ctx.settings, binding)
    return record


def _compute(ctx: StageContext, config: LaunchConfig, stages: Stages) -> StageRecord:
    """Call the stage, and record its outputs."""
    started, clock, ran_on = this_hour(), time.monotonic(), _attempted_on(ctx.public, processor())
    ctx.run.unseal_private(ctx.stage)
    with progress.kept_in(ctx.private / progress.FILE):
        result = _confined(ctx, config, stages)
    outputs = ctx.run.manifest(ctx.stage)
    require_listed(result, outputs)
    return StageRecord(
        launch_id=ctx.run.launch_id,
        stage=ctx.stage,
        config_digest=config_digest(config),
        inputs=dict(sorted(ctx.run.used.items())),
        outputs=outputs,
        private_outputs=has_private_files(ctx.run, ctx.stage),
        private_digest=ctx.run.seal_private(ctx.stage),
        started_at=started,
        seconds=two_digits(time.monotonic() - clock),
        processor=ran_on,
        result=result.model_dump(mode="json"),
    )


def _confined(ctx: StageContext, config: LaunchConfig, stages: Stages) -> StageResult:
    """Call the stage with the files that it declares.

    Raises:
      PermanentError: it opened another file, even if it caught the refusal.
    """
    function, allowed = stages[ctx.stage].function, access(config, ctx.run, ctx.settings, ctx.stage, stages)
    try:
        with confined(allowed):
            return function(ctx)
    finally:
        if allowed.refused:
            raise PermanentError(
                f"{ctx.stage}: it opens {allowed.refused[0]}, which it does not declare; keep the launch, and correct "
                "the stage's code, or its fields 'needs', 'may_need' and 'private' in pipeline/stages/graph.py"
            )


def _attempted_on(folder: Path, here: str) -> str:
    """Processors of all attempts at a stage, this one included, as training resumes from another attempt's checkpoint.

    Args:
      folder: public folder of the stage, which stores them.
    """
    path = folder / PROCESSORS
    before = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    if here not in before:
        write_text(path, "".join(f"{line}\n" for line in [*before, here]))
    return "; ".join([*before, *([] if here in before else [here])])
