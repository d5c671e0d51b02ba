"""Run stages again from the same inputs and keys in a separate folder, and compare their results and files.

This is no new release: the same key gives the same noise, and the outputs are compared and deleted. Public training,
ingestion and the rounds of private training are repeated only on request (``trained``), as they take as long as before;
otherwise their models are evaluated, and private training is resumed from its last checkpoint.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pipeline.ground.errors import LaunchError, ServiceUnavailable
from pipeline.ground.settings import Settings, processor
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.run.known import as_it_lies
from pipeline.run.run_dir import KEY, RunDir, StageRecord
from pipeline.run.second_run import made_again
from pipeline.run.stage import Replay, Stage, StageContext, imported, kept, stage_key
from pipeline.stages.graph import STAGES
from pipeline.verify.check import Check, in_words
from pipeline.verify.files import is_gone, missing
from pipeline.verify.report import of_this_code as made_by_this_code
from pipeline.verify.reused import origin
from pretrain.files import scratch


def replay(
    config: LaunchConfig, run: RunDir, settings: Settings, records: Mapping[str, StageRecord], of_this_code: bool
) -> Iterator[Check]:
    """Run or evaluate each finished stage again.

    Args:
      of_this_code: True if the running code made the launch; other code may give other results.
    """
    for name, stage in STAGES.items():
        if stage.replay and name in records:
            yield replay_one(name, config, run, settings, records[name], of_this_code)


def trained(
    config: LaunchConfig, run: RunDir, settings: Settings, records: Mapping[str, StageRecord], of_this_code: bool
) -> Iterator[Check]:
    """Repeat ingestion, public training and all rounds of private training, from their first step."""
    for name, stage in STAGES.items():
        if stage.replay and stage.replay.in_full(config) and name in records:
            yield replay_one(name, config, run, settings, records[name], of_this_code, from_nothing=True)


def replay_one(
    name: str,
    config: LaunchConfig,
    run: RunDir,
    settings: Settings,
    record: StageRecord,
    of_this_code: bool,
    from_nothing: bool = False,
) -> Check:
    """Run or evaluate one stage again; a reused release in the launch that made it.

    A difference from results of other code or another type of processor is neither verified nor an error.
    """
    check_id, stage = f"trained:{name}" if from_nothing else f"again:{name}", STAGES[name]
    how = stage.replay or Replay()
    if stage.spends and record.reused_from is not None:
        made = origin(run, record)
        if made is None:
            return Check(
                id=check_id, passed=None, detail=f"launch {record.reused_from}, which made it, is not on this machine"
            )
        of_this_code = made_by_this_code(made[1], settings, PrivacyLedger.of(settings))
        return replay_one(name, *made[:2], settings, made[2], of_this_code, from_nothing)
    if any(is_gone(run, each) for each in _private(config, run, name, record)):
        passed, detail = missing(run, PrivacyLedger.of(settings))
        return Check(id=check_id, passed=passed, detail=detail)
    with beside(config, run, settings, stage) as ctx:
        try:
            wrong = sorted(second_run_differences(stage, how, ctx, record, run, from_nothing))
        except ServiceUnavailable as error:
            return Check(id=check_id, passed=None, detail=str(error))
        except (LaunchError, ValueError, ArithmeticError, OSError, KeyError) as error:
            wrong = [f"it cannot be run again: {error}"]
    excuse = None if of_this_code else "other code made it, and the running code gives another result"
    if not how.anywhere and record.processor != (here := processor()):
        excuse = excuse or f"made on {record.processor}; this is {here}, whose last digits may differ"
    if wrong and excuse:
        return Check(id=check_id, passed=None, detail=f"{excuse}: {in_words(wrong)}")
    detail = f"differs: {in_words(wrong)}" if wrong else "equal"
    return Check(id=check_id, passed=not wrong, detail=detail)


def second_run_differences(
    stage: Stage, how: Replay, ctx: StageContext, record: StageRecord, run: RunDir, from_nothing: bool
) -> Iterator[str]:
    """Yield differences of a stage's second run, or of a cheap check of its outputs, from its record and files."""
    if from_nothing:
        _keep_only_the_key(ctx.private)
    elif how.again:
        return imported(how.again)(ctx, record, run)
    return made_again(stage, ctx, record, run)


def _keep_only_the_key(folder: Path) -> None:
    """Remove all files but the noise key, so that every round is repeated with the original noise."""
    for left in folder.iterdir():
        if left.is_dir():
            shutil.rmtree(left)
        elif left.name != KEY:
            left.unlink()


def _private(config: LaunchConfig, run: RunDir, name: str, record: StageRecord) -> Iterator[str]:
    """Yield stages whose private folders a second run reads: those that the stage opened, and its own."""
    for other in (*STAGES[name].needs, *STAGES[name].may_need):
        opened = any(path.startswith(f"{other}/") for path in record.inputs)
        if opened and kept(other, STAGES) and (made := run.record(other)) and made.private_outputs:
            yield other
    # A seeded key has no file.
    keyed = "reserve" in record.ledger and config.mechanism.randomness != "seeded"
    if keyed or record.private_outputs:
        yield name


@contextmanager
def beside(config: LaunchConfig, run: RunDir, settings: Settings, stage: Stage) -> Iterator[StageContext]:
    """Create a copy of the launch's folder with one stage empty, and yield that stage's context.

    It is in the private half, as the second run's outputs are as private as the first's.
    """
    name, private = stage.name, run.path / "private"
    with scratch(private if private.is_dir() else Path(tempfile.gettempdir()), "again") as folder:
        there = RunDir(folder, run.launch_id, as_it_lies)
        for half in ("public", "private"):
            (there.path / half).mkdir(parents=True)
            for other in sorted((run.path / half).iterdir()) if (run.path / half).is_dir() else ():
                if other.name != name and not other.name.startswith("."):
                    (there.path / half / other.name).symlink_to(other.resolve(), target_is_directory=True)
        if not (stage.replay and stage.replay.afresh) and (private / name).is_dir():
            # Files such as checkpoints are only ever replaced whole, so hard links are safe.
            shutil.copytree(private / name, there.path / "private" / name, copy_function=os.link)
        alone = config.model_copy(update={"runtime": config.runtime.model_copy(update={"workers": 1, "hosts": 1})})
        # A stage without a key file, which only spending stages have, draws none.
        has_key = stage.spends and (config.mechanism.randomness == "seeded" or (private / name / KEY).is_file())
        key = stage_key(config, run, name) if has_key else None
        yield StageContext(alone, there, settings, name, key)
