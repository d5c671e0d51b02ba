"""Stages run once more, from the same inputs and keys, in a folder of their own: they must say and write the same.

Nothing is released by that: the same noise is drawn by the same key, and what comes out is compared and thrown away.
Public training, ingestion and the rounds of private training are done again only if asked for (``trained``), as they
take as long as they took; else their models are measured, and private training is taken up from its last checkpoint.
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
from pipeline.run.stage import Replay, Stage, StageContext, imported, stage_key
from pipeline.stages.graph import STAGES
from pipeline.verify.check import Check, in_words
from pipeline.verify.files import is_gone, missing
from pipeline.verify.report import of_this_code as made_by_this_code
from pipeline.verify.reused import origin
from pretrain.files import scratch


def replay(
    config: LaunchConfig, run: RunDir, settings: Settings, records: Mapping[str, StageRecord], of_this_code: bool
) -> Iterator[Check]:
    """Each finished stage made or measured again.

    Args:
      of_this_code: whether the launch was made by the code that is running; other code need not say the same.
    """
    for name, stage in STAGES.items():
        if stage.replay and name in records:
            yield replay_one(name, config, run, settings, records[name], of_this_code)


def trained(
    config: LaunchConfig, run: RunDir, settings: Settings, records: Mapping[str, StageRecord], of_this_code: bool
) -> Iterator[Check]:
    """Public text read, public models trained and all rounds of private training done again, from their first step."""
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
    """One stage made or measured again; a release that was taken over, where it was made.

    What other code or another kind of processor made may not come out here: then it is neither verified nor wrong.
    """
    check_id, stage = f"trained:{name}" if from_nothing else f"again:{name}", STAGES[name]
    how = stage.replay or Replay()
    if stage.spends and record.reused_from is not None:
        made = origin(run, record)
        if made is None:
            return Check(id=check_id, passed=None, detail=f"{record.reused_from}, which made it, is not here")
        of_this_code = made_by_this_code(made[1], settings, PrivacyLedger.of(settings))
        return replay_one(name, *made[:2], settings, made[2], of_this_code, from_nothing)
    if any(is_gone(run, each) for each in _private(config, run, name, record)):
        passed, detail = missing(run, PrivacyLedger.of(settings))
        return Check(id=check_id, passed=passed, detail=detail)
    with _beside(config, run, settings, stage) as ctx:
        try:
            wrong = sorted(second_run_differences(stage, how, ctx, record, run, from_nothing))
        except ServiceUnavailable as error:
            return Check(id=check_id, passed=None, detail=str(error))
        except (LaunchError, ValueError, ArithmeticError, OSError, KeyError) as error:
            wrong = [f"it cannot be made again: {error}"]
    excuse = None if of_this_code else "other code made it, and the code that is running does not say the same"
    if not how.anywhere and record.processor != (here := processor()):
        excuse = excuse or f"made on {record.processor}; this is {here}, whose last digits may differ"
    if wrong and excuse:
        return Check(id=check_id, passed=None, detail=f"{excuse}: {in_words(wrong)}")
    detail = f"not the same: {in_words(wrong)}" if wrong else "the same again"
    return Check(id=check_id, passed=not wrong, detail=detail)


def second_run_differences(
    stage: Stage, how: Replay, ctx: StageContext, record: StageRecord, run: RunDir, from_nothing: bool
) -> Iterator[str]:
    """Differences of a stage's second run, or of a cheap look at what it left, from its record and files."""
    if from_nothing and not how.full:
        _keep_only_the_key(ctx.private)
    place = how.full if from_nothing else how.again
    return imported(place)(ctx, record, run) if place else made_again(stage, ctx, record, run)


def _keep_only_the_key(folder: Path) -> None:
    """Let every round be done again under the key of then."""
    for left in folder.iterdir():
        if left.is_dir():
            shutil.rmtree(left)
        elif left.name != KEY:
            left.unlink()


def _private(config: LaunchConfig, run: RunDir, name: str, record: StageRecord) -> Iterator[str]:
    """Stages whose private folders are read where a stage is made again: those that it opened, and its own."""
    for other in (*STAGES[name].needs, *STAGES[name].may_need):
        opened = any(path.startswith(f"{other}/") for path in record.inputs)
        if opened and STAGES[other].private and (made := run.record(other)) and made.private_outputs:
            yield other
    # A seeded key is no file.
    keyed = "reserve" in record.ledger and config.mechanism.randomness != "seeded"
    if keyed or record.private_outputs:
        yield name


@contextmanager
def _beside(config: LaunchConfig, run: RunDir, settings: Settings, stage: Stage) -> Iterator[StageContext]:
    """A folder like the launch's, in which one stage is empty and the others are the launch's own.

    It lies in the private half, because what a stage makes again there is as private as what it made before.
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
            # Checkpoints, sheets: files are only ever replaced whole, so a second name for each costs nothing.
            shutil.copytree(private / name, there.path / "private" / name, copy_function=os.link)
        alone = config.model_copy(update={"runtime": config.runtime.model_copy(update={"workers": 1, "hosts": 1})})
        # Without its key, which only a stage that spends has, none is drawn.
        has_key = stage.spends and (config.mechanism.randomness == "seeded" or (private / name / KEY).is_file())
        key = stage_key(config, run, name) if has_key else None
        yield StageContext(alone, there, settings, name, key)
