"""The rounds of a launch: one definition, run by this process or by the workers of a gang (``run.gang``).

As a program this module is one of those workers. Its arguments are folder of all runs, launch id, attempt and logging
level. The noise key is in the run's private folder and no argument, as any user of the machine can read arguments.
"""

import copy
import fcntl
import json
import logging
import os
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from evaluation.audit import canaries
from evaluation.audit.directions import Directions
from evaluation.audit.watch import Stopped
from federated.config.training import STAGE_TIMEOUT_MINUTES
from federated.rounds.commitments import Commitment
from federated.rounds.rule import RoundRule
from federated.train import FineTuneResult, Workplace, rerun
from federated.train import fine_tune as train_rounds
from federated.workers.worker import ALONE, Worker, joined
from pipeline.ground import settings
from pipeline.ground.errors import HELD, PERMANENT, TEMPORARY, LaunchError, LaunchHeld, PermanentError, exit_code
from pipeline.launch.config import load_kept_launch
from pipeline.releases import audit_trace
from pipeline.run import artifacts, fence, gang
from pipeline.run.bookkeeping import FAILED, LOCK, PLANTED
from pipeline.run.known import as_it_lies
from pipeline.run.run_dir import RunDir
from pipeline.run.stage import StageContext, access, stage_key
from pipeline.stages.graph import STAGES
from pipeline.stages.training.fine_tune_inputs import TrainingInputs, open_in_worker
from pipeline.telemetry import logs, work
from pretrain import processes
from pretrain.access import confined
from pretrain.files import PRIVATE, write_text
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.randomness.noise import subkey

_STAGE = "fine_tune"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingOutput:
    """The trained model, and further outputs that the stage saves.

    Attributes:
      model: the model after the last round.
      probe: direction canaries.
      done: result of ``federated.train``; private parts included.
    """

    model: KeyboardLM
    probe: Directions
    done: FineTuneResult


def train(ctx: StageContext, inputs: TrainingInputs, process: Worker = ALONE) -> TrainingOutput:
    """Train the remaining rounds; with none left, return the result of the last checkpoint.

    Args:
      inputs: the same in every worker; not modified.
      process: this worker's place in the gang; every worker calls this with the same run folder.

    Raises:
      LaunchHeld: an audit of a round speaks against the run; that round's model is neither kept nor sent.
      StaleAttempt: a newer attempt has begun; this one has written no checkpoint since.
    """
    # Training changes a model in place.
    config, model = ctx.config, copy.deepcopy(inputs.start)
    rule, probe, place = _arguments(ctx, inputs, process)
    watch = audit_trace.watch(rule, probe, inputs.data, ctx.noise_key)
    try:
        done = train_rounds(model, inputs.data, rule, config.local_training, config.server, place, probe, watch)
    except Stopped as stopped:
        if process.rank == 0:
            audit_trace.save_evidence(stopped.state, ctx.private / audit_trace.EVIDENCE)
        raise LaunchHeld(
            f"{ctx.stage}: {stopped}; the launch is held, and this round's model was neither kept nor sent to a "
            "device. Find the fault before any further launch: running this one again meets the same noise"
        ) from stopped
    return TrainingOutput(model, probe, done)


def train_again(ctx: StageContext, inputs: TrainingInputs, rounds: Collection[int]) -> Iterator[tuple[int, Commitment]]:
    """Run rounds of a finished training again, and yield their commitments; see ``federated.train.rerun``."""
    rule, probe, place = _arguments(ctx, inputs, ALONE)
    config = ctx.config
    yield from rerun(inputs.start, inputs.data, rule, config.local_training, config.server, place, probe, rounds)


def _arguments(ctx: StageContext, inputs: TrainingInputs, process: Worker) -> tuple[RoundRule, Directions, Workplace]:
    config = ctx.config
    place = Workplace(
        ctx.private / "rounds",
        config.runtime,
        process=process,
        writing=partial(fence.standing, ctx.private, ctx.attempt) if ctx.attempt else nullcontext,
        on_round=artifacts.progress(ctx),
    )
    probe = audit_trace.directions(inputs.start, config.audit.directions, ctx.noise_key)
    return RoundRule(config.mechanism, config.seed, ctx.noise_key, inputs.mechanism), probe, place


def train_together(ctx: StageContext, inputs: TrainingInputs) -> TrainingOutput:
    """Run ``train`` with the processes of ``runtime.workers`` and ``runtime.hosts``; any number gives the same bits.

    Workers read configuration, inputs and key from the run's folder and write their checkpoints there; the result is
    read from the last one. They end with this process, for any reason.

    Raises:
      LaunchHeld: see ``train``.
      PermanentError: a worker met an error that a retry would meet again.
      OSError: a worker or a host was lost; the stage, run again, resumes from the last checkpoint.
    """
    runtime = ctx.config.runtime
    if runtime.workers * runtime.hosts > 1:
        # Made once for all workers, which then read no public train text.
        canaries.save(inputs.planted, ctx.private / PLANTED)
        (ctx.private / PLANTED).chmod(PRIVATE)
        _run_gang(ctx)
    done = train(ctx, inputs)
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
        ended = json.loads(failed.read_text(encoding="utf-8"))
        if ended["exit_code"] == HELD:
            raise LaunchHeld(ended["error"]) from error
        raise PermanentError(f"{ctx.stage}: {ended['error']}") from error


def main(root: Path, launch_id: str, attempt: int, level: str) -> int:
    """Train as one worker, and return a stage's exit code.

    A permanent error is also written to a file for the stage, which otherwise sees only that a worker failed.
    """
    settings.let_threads_sleep()
    logs.configure(level, settings.log_form())
    # The stage has already checked the records against the ledger before it started the workers.
    run = RunDir(root, launch_id, as_it_lies)
    config = load_kept_launch(run.public("launch") / "launch.json")
    ctx = StageContext(config, run, settings.load(), _STAGE, stage_key(config, run, _STAGE), attempt=attempt)
    _end_with_stage(ctx.private)
    device = config.runtime.device
    # GPUs of one machine sum among themselves.
    secret = subkey(ctx.noise_key, "wire") if device == "cpu" or config.runtime.hosts > 1 else None
    work.attempt(attempt)
    try:
        with (
            confined(access(config, run, ctx.settings, _STAGE, STAGES)),
            work.at(launch_id, _STAGE, config.locale, config.features),
            joined(device, 60 * STAGE_TIMEOUT_MINUTES, secret, f"{launch_id}|{_STAGE}|{attempt}") as process,
        ):
            if process.rank:
                logging.getLogger().setLevel(logging.WARNING)
            train(ctx, open_in_worker(ctx), process)
    except (LaunchError, ValueError, ArithmeticError, OSError) as error:
        code = exit_code(error) or TEMPORARY
        _log.error("a worker failed: %s", error)
        if code in (HELD, PERMANENT):
            write_text(ctx.private / FAILED, json.dumps({"error": str(error), "exit_code": code}), PRIVATE)
        return code
    return 0


def _end_with_stage(folder: Path) -> None:
    """End this process with a temporary failure as soon as the stage that started the gang ends, on any host.

    The stage holds its lock for as long as it lives, and the operating system releases it.
    """
    processes.end_with(os.getppid(), TEMPORARY)  # this host's torchrun

    def wait() -> None:
        with (folder / LOCK).open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            os._exit(TEMPORARY)

    threading.Thread(target=wait, name="end-with-stage", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]))
