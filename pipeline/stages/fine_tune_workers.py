"""The rounds of a launch: one definition, run by this process or by workers that it starts."""

import json
import logging
import os
import subprocess
from dataclasses import dataclass

import numpy as np

from evaluation.audit import canaries
from evaluation.audit.directions import Directions
from federated.mechanisms import Mechanism
from federated.train import FineTuneResult
from federated.train import fine_tune as train_rounds
from federated.workers import ALONE, Worker, launch_command
from pipeline.errors import PermanentError
from pipeline.stage import StageContext
from pipeline.stages import artifacts as load
from pipeline.stages import audit_trace as noise_trace
from pretrain.model import KeyboardLM

FAILED = ".failed.json"
_MODULE = "pipeline.fine_tune_worker"
# What training reads of the public half: fetched by the stage, once, before workers read it.
_INPUTS = (("build_vocabulary", "vocabulary.json"), ("ingest_public", "corpus"), ("adapt", "model.safetensors"))
_STOP_SECONDS = 30.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trained:
    """What the rounds left in memory.

    Attributes:
      model: after the last round.
      mechanism: that made the noise.
      planted: the canary devices among the others.
      probe: direction canaries; None without.
      done: of ``federated.train``; private parts included.
    """

    model: KeyboardLM
    mechanism: Mechanism
    planted: canaries.CanarySet
    probe: Directions | None
    done: FineTuneResult


def train(ctx: StageContext, process: Worker = ALONE) -> Trained:
    """All rounds that are still to be done; with none left, the result as the last checkpoint has it.

    Args:
      process: which of the workers this is; every one calls this with the same run folder.
    """
    config = ctx.config
    words = load.vocabulary(ctx, "build_vocabulary")
    store = load.store(ctx)
    devices = store.encode(words, "train")
    planted = canaries.make(config.audit, words, load.public_streams(ctx, words)[0], config.seed)
    model, mechanism = load.model(ctx, "adapt"), load.mechanism(ctx.run)
    probe = noise_trace.directions(model, config.audit.directions, ctx.key)
    done = train_rounds(
        model,
        devices.join(planted.devices),
        np.arange(len(devices) + len(planted.devices)) >= len(devices),
        store.encode(words, "validation"),
        config.mechanism,
        config.local_training,
        config.server,
        config.runtime,
        config.seed,
        ctx.key,
        ctx.private / "rounds",
        load.progress(ctx),
        noise_maker=mechanism,
        probe=probe,
        stress_D=np.concatenate([np.zeros(len(devices), dtype=bool), planted.stress_D]),
        stress_rate=config.audit.stress_rate,
        process=process,
    )
    return Trained(model, mechanism, planted, probe, done)


def train_together(ctx: StageContext) -> Trained:
    """``train`` by as many processes as ``runtime.workers`` says; the bits are the same for any number.

    Workers find configuration, inputs and key in the run's folder and leave their checkpoints there; what
    they have done is then read from the last one. They end with this process, however it ends.

    Raises:
      PermanentError: what a worker met and would meet again.
      OSError: a worker was lost; the stage, run again, goes on from the last checkpoint.
    """
    workers = ctx.config.runtime.workers
    if workers > 1:
        for stage, name in _INPUTS:
            ctx.run.input(stage, name)
        load.mechanism(ctx.run)
        _run_workers(ctx, workers)
    return train(ctx)


def _run_workers(ctx: StageContext, workers: int) -> None:
    failed = ctx.private / FAILED
    failed.unlink(missing_ok=True)
    level = logging.getLevelName(logging.getLogger().getEffectiveLevel())
    command = launch_command(workers, _MODULE, [str(ctx.run.root), ctx.run.launch_id, str(os.getpid()), level])
    _log.info("%s: %d workers", ctx.stage, workers)
    # Standard output is the answer's.
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2)
    try:
        code = process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
    if code and failed.exists():
        raise PermanentError(f"{ctx.stage}: {json.loads(failed.read_text(encoding='utf-8'))['error']}")
    if code:
        raise OSError(
            f"{ctx.stage}: one of {workers} workers was lost (exit code {code}); run the stage again, it goes on from "
            "the last checkpoint"
        )
