"""Take over what an identical stage of another launch made of private data, and say so in the ledger."""

import logging
import shutil
import time
from functools import partial
from pathlib import Path

from pipeline.launch.config import LaunchConfig, config_digest
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.spend import Spend
from pipeline.run import sharing
from pipeline.run.bookkeeping import CONTENT, WINDOW
from pipeline.run.population import require_population
from pipeline.run.reuse.sources import Source, content_key, is_same, sealed, sources
from pipeline.run.run_dir import GIVEN, RESULT, RunDir, StageRecord, record_digest
from pipeline.run.stage import Stage, StageContext
from pipeline.telemetry.allowed import this_hour, two_digits
from pretrain.files import PRIVATE, private_directory, scratch, write_text

_log = logging.getLogger(__name__)


def take_over(ctx: StageContext, config: LaunchConfig, stage: Stage, planned: Spend | None) -> StageRecord | None:
    """Reuse the outputs of an identical stage: copy them, and return this launch's record; None if it is to be run.

    Guarantee: nothing is released. What is taken over was released by a launch whose commit the ledger holds for the
    same amounts, or releases nothing; the record is the one that the ledger knows, and every file has the digest that
    the stage sealed. No key is copied. A stage that has a standing reservation of its own goes on with it.

    Args:
      ctx: of the whole configuration, without a key.
      planned: what the stage would spend; None if it releases nothing.

    Raises:
      PopulationUnknown, BudgetExceeded: the launch asks for more than its population has.
    """
    started, clock = this_hour(), time.monotonic()
    ledger = PrivacyLedger.of(ctx.settings)
    require_population(config, ledger)
    if ledger.reserved(ctx.run.launch_id, ctx.stage):
        return None
    content = content_key(ctx, config, stage)
    for source in sources(ctx, content, stage, planned is not None, planned) if content else ():
        record = source.record
        inputs = None if source.problem else _inputs(record, ctx.run)
        if inputs is None or not _brought(source, ctx, stage):
            why = source.problem or "what it was made of is not what is here"
            _log.warning("%s: launch %s made the same, but it is not used: %s", ctx.stage, record.launch_id, why)
            continue
        receipts = {}
        if source.paid is not None:
            noted = ledger.note("reuse", ctx.population, ctx.run.launch_id, ctx.stage, source.paid)
            receipts["reuse"] = noted.hash
        _log.info("%s: the same as %s's, taken over", ctx.stage, record.launch_id)
        return record.model_copy(
            update={
                "launch_id": ctx.run.launch_id,
                "config_digest": config_digest(config),
                "inputs": inputs,
                "private_outputs": bool(stage.private),
                "private_digest": ctx.run.seal_private(ctx.stage) if stage.private else None,
                "ledger": receipts,
                "started_at": started,
                "seconds": two_digits(time.monotonic() - clock),
                # This launch spends nothing on it.
                "result": record.result | ({"spend": None} if "spend" in record.result else {}),
                "reused_from": record.reused_from or record.launch_id,
            }
        )
    return None


def _inputs(record: StageRecord, run: RunDir) -> dict[str, str] | None:
    """The inputs of a source as this launch has them; None if one of them has other bytes here."""
    here = {}
    for path, digest in record.inputs.items():
        stage, _, name = path.partition("/")
        if stage == GIVEN:
            here[path] = run.given_digest(name) or ""
        elif (made := run.record(stage)) is None:
            return None
        elif name == RESULT:
            # What it said of its spend, or of its time, is another launch's; what counts of it is in the content key.
            here[path] = record_digest(made)
            continue
        else:
            here[path] = made.outputs.get(name, "")
        if here[path] != digest:
            return None
    return here


def _brought(source: Source, ctx: StageContext, stage: Stage) -> bool:
    """Bring the files into this launch's folders, with the digests of the source; True for all, False for none."""
    staged = ctx.public.with_name(f".{ctx.stage}.taken")
    try:
        if not sharing.bring(source.record, partial(sharing.copy, source.run.public(ctx.stage)), staged):
            return False
        if stage.private and not _brought_private(source.run, ctx, stage.private):
            return False
        write_text(staged / CONTENT, source.record.content or "")
        sharing.put(staged, ctx.public)
        return True
    except OSError as error:
        _log.warning("%s: %s", ctx.stage, error)
        return False
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _brought_private(there: RunDir, ctx: StageContext, names: tuple[str, ...]) -> bool:
    """Copy the private files and folders named, in place of an interrupted attempt's; return whether that worked."""
    files = sealed(there, ctx.stage, names)
    if not files:
        return False
    if (window := there.path / "private" / ctx.stage / WINDOW).is_file():  # Before the text for which it is.
        for name in names:
            shutil.rmtree(ctx.private / name, ignore_errors=True)
        write_text(ctx.private / WINDOW, window.read_text(encoding="utf-8"), PRIVATE)
    with scratch(ctx.private, "taken") as folder:
        for name, digest in files.items():
            target = folder / name
            private_directory(target.parent)
            if not sharing.copy(there.path / "private" / ctx.stage, name, target) or not is_same(target, digest):
                return False
            target.chmod(0o600)
        for name in names:
            _replace(folder / name, ctx.private / name)
    return True


def _replace(made: Path, target: Path) -> None:
    if target.is_dir():
        shutil.rmtree(target)
    made.replace(target)
