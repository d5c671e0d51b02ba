"""The rounds of a launch: one definition, run by this process, by workers that it starts, or by workers of several
machines whose agents start them.

As a program this module is one of those workers, started through torch.distributed.run. Its arguments: folder of
all runs, launch id, process to end with (the stage, or the host's agent), logging level, attempt. The key of the noise
is no argument, which any user of the machine could read: it is in the run's private folder.
"""

import json
import logging
import os
import select
import subprocess
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
from federated.wire.launcher import launch_command
from federated.workers import ALONE, Worker, joined
from pipeline import settings
from pipeline.config import LaunchConfig
from pipeline.errors import PERMANENT, TEMPORARY, LaunchError, PermanentError, exit_code
from pipeline.hosts import fence, gang, messages
from pipeline.hosts.job import PROGRAMS, Token
from pipeline.run_dir import RunDir
from pipeline.stage import StageContext, stage_key
from pipeline.stages import artifacts
from pipeline.stages.training import audit_trace
from pipeline.telemetry import logs, work
from pretrain import corpus
from pretrain.files import PRIVATE, write_text
from pretrain.model import KeyboardLM
from pretrain.randomness.noise import subkey
from pretrain.vocabulary import TokenStream

FAILED, _PLANTED = ".failed.json", ".planted.json"
# What training reads of the public half: fetched by the stage, once, before workers read it.
_INPUTS = (("build_vocabulary", "vocabulary.json"), ("ingest_public", "corpus"), ("adapt", "model.safetensors"))
_STOP_SECONDS = 30.0
_STAGE = "fine_tune"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trained:
    """The trained model and what the stage saves with it.

    Attributes:
      model: after the last round.
      mechanism: that made the noise.
      planted: the canary devices among the others, as many as ``audit.in_launch`` asks for.
      probe: direction canaries; None without.
      done: of ``federated.train``; private parts included.
    """

    model: KeyboardLM
    mechanism: Mechanism
    planted: canaries.CanarySet
    probe: Directions | None
    done: FineTuneResult


def train(ctx: StageContext, process: Worker = ALONE, role: fence.Role = "attempt") -> Trained:
    """Train the rounds that are still to be done; with none left, the result as the last checkpoint has it.

    Args:
      process: which of the workers this is; every one calls this with the same run folder.
      role: ``gang`` for workers that an attempt started.

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
        writing=partial(fence.standing, ctx.private, role, ctx.attempt) if ctx.attempt else nullcontext,
        on_round=artifacts.progress(ctx),
    )
    done = train_rounds(model, data, rule, config.local_training, config.server, place, probe)
    return Trained(model, mechanism, planted, probe, done)


def planted_in(ctx: StageContext) -> canaries.CanarySet:
    """The canaries that the launched model is trained on, as the stage noted them for its workers or made anew."""
    config, words, noted = ctx.config, artifacts.vocabulary(ctx, "build_vocabulary"), ctx.private / _PLANTED
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
    if ctx.config.evaluation is not None:
        return artifacts.encode(corpus.open_corpus(ctx.run.input("ingest_public", "corpus")).validation, words)
    return artifacts.store(ctx).encode(words, "validation")


def train_together(ctx: StageContext) -> Trained:
    """``train`` by as many processes as ``runtime.workers`` and ``runtime.hosts`` say; the bits are the same for any.

    Workers find configuration, inputs and key in the run's folder and leave their checkpoints there; what
    they have done is then read from the last one. They end with this process, however it ends.

    Raises:
      PermanentError: what a worker met and would meet again.
      OSError: a worker or a host was lost; the stage, run again, goes on from the last checkpoint.
    """
    runtime = ctx.config.runtime
    if runtime.workers * runtime.hosts > 1:
        with ctx.before_devices():
            gang.require_hosts(runtime.hosts, ctx.settings.hosts)
        for stage, name in _INPUTS:
            ctx.run.input(stage, name)
        artifacts.mechanism(ctx.run)
        # Once for all of them: public text is not read by each, and the devices' tokens are there to be mapped.
        planted = planted_in(ctx)
        canaries.save(planted, ctx.private / _PLANTED)
        (ctx.private / _PLANTED).chmod(PRIVATE)
        training_data(ctx, planted)
        failed = ctx.private / FAILED
        failed.unlink(missing_ok=True)
        try:
            if runtime.hosts > 1:
                _run_hosts(ctx)
            else:
                _run_workers(ctx)
        except OSError as error:
            if not failed.exists():
                raise
            why = json.loads(failed.read_text(encoding="utf-8"))["error"]
            raise PermanentError(f"{ctx.stage}: {why}") from error
    done = train(ctx)
    (ctx.private / _PLANTED).unlink(missing_ok=True)
    return done


def _run_hosts(ctx: StageContext) -> None:
    runtime, token = ctx.config.runtime, Token(launch=ctx.run.launch_id, stage=ctx.stage, attempt=ctx.attempt)
    secret = messages.shared_secret(ctx.run.root)
    gang.run(ctx.private, token, ctx.settings.hosts, runtime.hosts, runtime.workers, secret)


def _run_workers(ctx: StageContext) -> None:
    workers = ctx.config.runtime.workers
    fence.hand_over(ctx.private, ctx.attempt)
    level = logging.getLevelName(logging.getLogger().getEffectiveLevel())
    arguments = [str(ctx.run.root), ctx.run.launch_id, str(os.getpid()), level, str(ctx.attempt)]
    command = launch_command(workers, PROGRAMS[_STAGE], arguments)
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
    if code:
        raise OSError(
            f"{ctx.stage}: one of {workers} workers was lost (exit code {code}); run the stage again, it goes on from "
            "the last checkpoint"
        )


def end_with(pid: int) -> None:
    """End this process, as temporarily failed, as soon as another one has ended, however it did."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        os._exit(TEMPORARY)

    def wait() -> None:
        select.select([descriptor], [], [])
        os._exit(TEMPORARY)

    threading.Thread(target=wait, name="end-with", daemon=True).start()


def context(root: Path, launch_id: str, attempt: int = 0) -> StageContext:
    """What the stage itself was given, from the run's folder."""
    run = RunDir(root, launch_id)
    config = LaunchConfig.model_validate_json((run.public("launch") / "launch.json").read_bytes())
    return StageContext(config, run, settings.load(), _STAGE, stage_key(config, run, _STAGE), attempt=attempt)


def main(root: Path, launch_id: str, ends_with: int, level: str, attempt: int) -> int:
    """Exit code, as of a stage; what is permanent is also told to the stage, which sees only that a worker failed."""
    end_with(ends_with)
    end_with(os.getppid())
    logs.configure(level, settings.log_form())
    ctx = context(root, launch_id, attempt)
    runtime, name = ctx.config.runtime, Token(launch=launch_id, stage=_STAGE, attempt=attempt)
    # GPUs of one machine add up among themselves.
    secret = subkey(ctx.noise_key, "wire") if runtime.device == "cpu" or runtime.hosts > 1 else None
    work.attempt(attempt)
    try:
        with (
            work.at(launch_id, _STAGE, ctx.config.locale, ctx.config.features),
            joined(runtime.device, 60 * STAGE_TIMEOUT_MINUTES, secret, str(name)) as process,
        ):
            if process.rank:
                logging.getLogger().setLevel(logging.WARNING)
            train(ctx, process, "gang")
    except (LaunchError, ValueError, ArithmeticError, OSError) as error:
        code = exit_code(error) or TEMPORARY
        _log.error("a worker ended: %s", error)
        if code == PERMANENT:
            write_text(ctx.private / FAILED, json.dumps({"error": str(error)}), PRIVATE)
        return code
    return 0


if __name__ == "__main__":
    settings.let_threads_sleep()
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4], int(sys.argv[5])))
