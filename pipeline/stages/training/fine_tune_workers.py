"""The rounds of a launch: one definition, run by this process or by the workers of a gang (``run.gang``).

As a program this module is one of those workers. Its arguments are folder of all runs, launch id, attempt and logging
level. The key of the noise is no argument, which any user of the machine could read: it is in the run's private folder.
"""

import fcntl
import json
import logging
import os
import sys
import threading
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from evaluation.audit import canaries
from evaluation.audit.directions import Directions
from evaluation.config import STRESS_RATE
from federated.config.training import STAGE_TIMEOUT_MINUTES
from federated.mechanisms import Mechanism
from federated.rounds.rule import RoundRule
from federated.train import FineTuneResult, TrainingData, Workplace
from federated.train import fine_tune as train_rounds
from federated.workers.worker import ALONE, Worker, joined
from pipeline.ground import settings
from pipeline.ground.errors import PERMANENT, TEMPORARY, LaunchError, PermanentError, exit_code
from pipeline.launch.config import load_kept_launch
from pipeline.releases.evaluation import EVALUATION
from pipeline.run import artifacts, fence, gang
from pipeline.run.bookkeeping import FAILED, LOCK, PLANTED
from pipeline.run.known import as_it_lies
from pipeline.run.run_dir import RunDir
from pipeline.run.stage import StageContext, stage_key
from pipeline.stages.training import audit_trace
from pipeline.telemetry import logs, work
from pretrain import corpus, processes
from pretrain.files import PRIVATE, write_text
from pretrain.model import KeyboardLM
from pretrain.randomness.noise import subkey
from pretrain.vocabulary import TokenStream

# What training reads of the public half: fetched by the stage, once, before workers read it.
_INPUTS = (("build_vocabulary", "vocabulary.json"), ("ingest_public", "corpus"), ("adapt", "model.safetensors"))
_STAGE = "fine_tune"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingOutput:
    """The trained model and what the stage saves with it.

    Attributes:
      model: after the last round.
      mechanism: that made the noise.
      planted: the canary devices among the others, as many as ``audit.in_launch`` asks for.
      probe: direction canaries.
      done: of ``federated.train``; private parts included.
    """

    model: KeyboardLM
    mechanism: Mechanism
    planted: canaries.CanarySet
    probe: Directions
    done: FineTuneResult


def train(ctx: StageContext, process: Worker = ALONE) -> TrainingOutput:
    """Train the rounds that are still to be done; with none left, the result as the last checkpoint has it.

    Args:
      process: which of the workers this is; every one calls this with the same run folder.

    Raises:
      StaleAttempt: a newer attempt has begun; no checkpoint was written since.
    """
    config = ctx.config
    planted = planted_in(ctx)
    model, mechanism = artifacts.model(ctx, "adapt"), artifacts.mechanism(ctx.run)
    probe = audit_trace.directions(model, config.audit.directions, ctx.noise_key)
    data = training_data(ctx, planted)
    rule = RoundRule(config.mechanism, config.seed, ctx.noise_key, mechanism)
    place = Workplace(
        ctx.private / "rounds",
        config.runtime,
        process=process,
        writing=partial(fence.standing, ctx.private, ctx.attempt) if ctx.attempt else nullcontext,
        on_round=artifacts.progress(ctx),
    )
    done = train_rounds(model, data, rule, config.local_training, config.server, place, probe)
    return TrainingOutput(model, mechanism, planted, probe, done)


def planted_in(ctx: StageContext) -> canaries.CanarySet:
    """The canaries that the launched model is trained on, as the stage noted them for its workers or made anew."""
    config, words, noted = ctx.config, artifacts.vocabulary(ctx, "build_vocabulary"), ctx.private / PLANTED
    if noted.is_file() and (planted := canaries.load(noted)).vocabulary_digest == words.digest:
        return planted
    filler = artifacts.public_streams(ctx, words)[0]
    return canaries.make(config.audit, words, filler, config.seed).of(config.audit.launched)


def training_data(ctx: StageContext, planted: canaries.CanarySet) -> TrainingData:
    """Whose text is trained on: the devices of the train split, then those of the canaries."""
    words, store = artifacts.vocabulary(ctx, "build_vocabulary"), artifacts.store(ctx)
    devices = store.encode(words, "train", planted.devices)
    real = len(devices) - len(planted.devices)
    return TrainingData(
        devices,
        np.arange(len(devices)) >= real,
        watched_on(ctx),
        np.concatenate([np.zeros(real, dtype=bool), planted.stress_D]),
        STRESS_RATE,
    )


def watched_on(ctx: StageContext) -> TokenStream:
    """Text that training is watched on and that trains nothing: of validation devices, or public under a budget.

    Guarantee: where the launch has a budget for evaluation, validation devices are not read.
    """
    words = artifacts.vocabulary(ctx, "build_vocabulary")
    if EVALUATION.asked(ctx.config):
        return artifacts.encode(corpus.open_corpus(ctx.run.input("ingest_public", "corpus")).validation, words)
    return artifacts.store(ctx).encode(words, "validation")


def train_together(ctx: StageContext) -> TrainingOutput:
    """``train`` by as many processes as ``runtime.workers`` and ``runtime.hosts`` say; the bits are the same for any.

    Workers find configuration, inputs and key in the run's folder and leave their checkpoints there; what they have
    done is then read from the last one. They end with this process, however it ends.

    Raises:
      PermanentError: what a worker met and would meet again.
      OSError: a worker or a host was lost; the stage, run again, resumes from the last checkpoint.
    """
    runtime = ctx.config.runtime
    if runtime.workers * runtime.hosts > 1:
        with ctx.before_devices():
            gang.require(runtime.hosts, ctx.settings.gang)
        for stage, name in _INPUTS:
            ctx.run.input(stage, name)
        artifacts.mechanism(ctx.run)
        # Once for all of them: public text is not read by each, and the devices' tokens are there to be mapped.
        planted = planted_in(ctx)
        canaries.save(planted, ctx.private / PLANTED)
        (ctx.private / PLANTED).chmod(PRIVATE)
        training_data(ctx, planted)
        _run_gang(ctx)
    done = train(ctx)
    (ctx.private / PLANTED).unlink(missing_ok=True)
    return done


def _run_gang(ctx: StageContext) -> None:
    runtime, failed = ctx.config.runtime, ctx.private / FAILED
    failed.unlink(missing_ok=True)
    level = logging.getLevelName(logging.getLogger().getEffectiveLevel())
    program = [__name__, str(ctx.run.root), ctx.run.launch_id, str(ctx.attempt), level]
    _log.info("%s: %d workers on each of %d hosts", ctx.stage, runtime.workers, runtime.hosts)
    try:
        gang.run(runtime.hosts, runtime.workers, ctx.settings.gang, program, ctx.private / str(ctx.attempt))
    except OSError as error:
        if not failed.exists():
            raise
        why = json.loads(failed.read_text(encoding="utf-8"))["error"]
        raise PermanentError(f"{ctx.stage}: {why}") from error


def main(root: Path, launch_id: str, attempt: int, level: str) -> int:
    """Train as one worker; the exit code is as of a stage.

    What is permanent is also left for the stage, which sees only that a worker failed.
    """
    settings.let_threads_sleep()
    logs.configure(level, settings.log_form())
    # The stage itself asked the ledger about the records that it opened, to start this.
    run = RunDir(root, launch_id, as_it_lies)
    config = load_kept_launch(run.public("launch") / "launch.json")
    ctx = StageContext(config, run, settings.load(), _STAGE, stage_key(config, run, _STAGE), attempt=attempt)
    _end_with_stage(ctx.private)
    device = config.runtime.device
    # GPUs of one machine add up among themselves.
    secret = subkey(ctx.noise_key, "wire") if device == "cpu" or config.runtime.hosts > 1 else None
    work.attempt(attempt)
    try:
        with (
            work.at(launch_id, _STAGE, config.locale, config.features),
            joined(device, 60 * STAGE_TIMEOUT_MINUTES, secret, f"{launch_id}|{_STAGE}|{attempt}") as process,
        ):
            if process.rank:
                logging.getLogger().setLevel(logging.WARNING)
            train(ctx, process)
    except (LaunchError, ValueError, ArithmeticError, OSError) as error:
        code = exit_code(error) or TEMPORARY
        _log.error("a worker ended: %s", error)
        if code == PERMANENT:
            write_text(ctx.private / FAILED, json.dumps({"error": str(error)}), PRIVATE)
        return code
    return 0


def _end_with_stage(folder: Path) -> None:
    """End this process, as temporarily failed, as soon as the stage that started the gang has ended, on any host.

    The stage holds its lock for as long as it lives, and the operating system lets go of it.
    """
    processes.end_with(os.getppid(), TEMPORARY)  # this host's torchrun

    def wait() -> None:
        with (folder / LOCK).open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            os._exit(TEMPORARY)

    threading.Thread(target=wait, name="end-with-stage", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]))
