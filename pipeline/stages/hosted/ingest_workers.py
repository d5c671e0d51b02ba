"""Client text read by workers of several machines: each cuts its part of the devices' text into words.

As a program this module is one of those workers. They tell each other nothing: what they leave for the stage to join
lies in its private folder.
"""

import logging
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

from federated.config.population import Files, Kept, PopulationConfig
from federated.devices import parts, store
from federated.devices.store import StoreSummary
from federated.devices.withdrawn import Withdrawn
from federated.workers import Worker
from pipeline.bookkeeping import PARTS
from pipeline.config import LaunchConfig
from pipeline.hosts import fence
from pipeline.stage import StageContext
from pipeline.stages.hosted.workers import main, share_out

# Files that are read before workers have started.
SMALL_BYTES = 1 << 24
_STAGE = "ingest_private"
_log = logging.getLogger(__name__)


def worth_sharing(config: LaunchConfig) -> bool:
    """Whether a launch has several processes for text of which there is much."""
    several, population = config.runtime.workers * config.runtime.hosts > 1, config.private_text
    return several and isinstance(population, Files) and parts.size(population.paths) >= SMALL_BYTES


def build_together(
    ctx: StageContext, target: Path, key: bytes, kept: Kept | None, withdrawn: Withdrawn
) -> StoreSummary:
    """The store that ``store.build_store`` writes, bit for bit, by workers of as many hosts as the launch wants.

    Whatever an earlier try left is done anew: its text, or the days that are kept, may have been others.

    Guarantee: nothing of a device is sent. Whoever was shut out by a newer attempt adds no piece and writes no store.

    Raises:
      PermanentError, OSError: as of ``share_out``.
      ValueError: as of ``build_store``.
      StaleAttempt: a newer attempt has begun.
    """
    config, folder, population = ctx.config, ctx.private / PARTS, _files(ctx.config.private_text)
    store.require_readable(population, config.locale)
    ctx = replace(ctx, attempt=fence.begin(ctx.private))
    fence.hand_over(ctx.private, ctx.attempt)  # Workers of an earlier try are not gone on with.
    standing, task = partial(fence.standing, ctx.private, "attempt", ctx.attempt), folder / str(ctx.attempt)
    with standing():
        shutil.rmtree(folder, ignore_errors=True)
        parts.write_task(task, population, config.locale, kept, withdrawn)
    share_out(ctx)
    with standing():
        _log.info("device store: workers have read all, and their pieces are joined")
        try:
            return store.build_store(population, config.locale, config.seed, target, key, kept, task, withdrawn)
        finally:
            shutil.rmtree(folder)


def read_part(ctx: StageContext, process: Worker) -> None:
    """One worker's part of the text, into a piece that counts if the gang still stands when it is done.

    Raises:
      StaleAttempt: a newer gang has begun.
      ValueError, OSError: as of ``parts.write_part``.
    """
    task, writing = ctx.private / PARTS / str(ctx.attempt), partial(fence.standing, ctx.private, "gang", ctx.attempt)
    population = _files(ctx.config.private_text)
    parts.write_part(task, population, ctx.config.locale, process.rank, process.size, writing)


def _files(population: PopulationConfig) -> Files:
    assert isinstance(population, Files), "nothing else is worth sharing"
    return population


if __name__ == "__main__":
    main(_STAGE, read_part, "cpu")
