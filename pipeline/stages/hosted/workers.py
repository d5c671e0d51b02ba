"""Processes that share the work of a stage: started by it on its own machine, or by the agents of several.

Each is a program (``pipeline.hosts.job.PROGRAMS``) started through torch.distributed.run, whose arguments are: folder
of all runs, launch id, process to end with (the stage, or the host's agent), logging level, attempt. The key of the
noise is no argument, which any user of the machine could read: it is in the run's private folder.
"""

import json
import logging
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from federated.config.training import STAGE_TIMEOUT_MINUTES
from federated.wire.launcher import launch_command
from federated.workers import Worker, joined
from pipeline import settings
from pipeline.bookkeeping import FAILED
from pipeline.covered.spends import SPENDS
from pipeline.errors import PERMANENT, TEMPORARY, LaunchError, PermanentError, exit_code
from pipeline.hosts import fence, gang, messages
from pipeline.hosts.job import PROGRAMS, Token
from pipeline.reuse.kept import read_kept
from pipeline.run.known import as_it_lies
from pipeline.run_dir import RunDir
from pipeline.stage import StageContext, stage_key
from pipeline.telemetry import logs, work
from pretrain.files import PRIVATE, write_text
from pretrain.randomness.noise import subkey

_STOP_SECONDS = 30.0
_log = logging.getLogger(__name__)


def share_out(ctx: StageContext) -> None:
    """Let as many processes as ``runtime.workers`` and ``runtime.hosts`` say do the stage's work, to its end.

    They find configuration, inputs and key in the run's folder and leave there what they have done. They end with
    this process, however it ends.

    Raises:
      PermanentError: what a worker met and would meet again.
      OSError: a worker or a host was lost; the stage, run again, goes on from what is finished.
    """
    failed = ctx.private / FAILED
    failed.unlink(missing_ok=True)
    try:
        if ctx.config.runtime.hosts > 1:
            _run_hosts(ctx)
        else:
            _run_workers(ctx)
    except OSError as error:
        if not failed.exists():
            raise
        why = json.loads(failed.read_text(encoding="utf-8"))["error"]
        raise PermanentError(f"{ctx.stage}: {why}") from error


def _run_hosts(ctx: StageContext) -> None:
    runtime, token = ctx.config.runtime, Token(launch=ctx.run.launch_id, stage=ctx.stage, attempt=ctx.attempt)
    secret = messages.shared_secret(ctx.run.root)
    gang.run(ctx.private, token, ctx.settings.hosts, runtime.hosts, runtime.workers, secret)


def _run_workers(ctx: StageContext) -> None:
    workers = ctx.config.runtime.workers
    fence.hand_over(ctx.private, ctx.attempt)
    level = logging.getLevelName(logging.getLogger().getEffectiveLevel())
    arguments = [str(ctx.run.root), ctx.run.launch_id, str(os.getpid()), level, str(ctx.attempt)]
    command = launch_command(workers, PROGRAMS[ctx.stage], arguments)
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
            "what is finished"
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


def context(root: Path, launch_id: str, stage: str, attempt: int = 0) -> StageContext:
    """What the stage itself was given, from the run's folder; a stage that spends nothing has no key."""
    run = RunDir(root, launch_id, as_it_lies)  # what the stage itself opened, as the ledger knows it, to start this
    config = read_kept(run.public("launch") / "launch.json")
    key = stage_key(config, run, stage) if stage in SPENDS else None
    return StageContext(config, run, settings.load(), stage, key, attempt=attempt)


def serve(stage: str, do: Callable[[StageContext, Worker], object], device: str | None, arguments: list[str]) -> int:
    """Do this process's share; the exit code is as of a stage.

    What is permanent is also told to the stage, which sees only that a worker failed.

    Args:
      device: that sums are made on; None: what the launch file says.
      arguments: of the program.
    """
    settings.let_threads_sleep()
    root, launch_id, ends_with, level, attempt = arguments
    end_with(int(ends_with))
    end_with(os.getppid())
    logs.configure(level, settings.log_form())
    ctx = context(Path(root), launch_id, stage, int(attempt))
    runtime, name = ctx.config.runtime, Token(launch=launch_id, stage=stage, attempt=ctx.attempt)
    device = device or runtime.device
    # GPUs of one machine add up among themselves, and who has no key adds up nothing.
    secret = subkey(ctx.key, "wire") if ctx.key and (device == "cpu" or runtime.hosts > 1) else None
    work.attempt(ctx.attempt)
    try:
        with (
            work.at(launch_id, stage, ctx.config.locale, ctx.config.features),
            joined(device, 60 * STAGE_TIMEOUT_MINUTES, secret, str(name)) as process,
        ):
            if process.rank:
                logging.getLogger().setLevel(logging.WARNING)
            do(ctx, process)
    except (LaunchError, ValueError, ArithmeticError, OSError) as error:
        code = exit_code(error) or TEMPORARY
        _log.error("a worker ended: %s", error)
        if code == PERMANENT:
            write_text(ctx.private / FAILED, json.dumps({"error": str(error)}), PRIVATE)
        return code
    return 0


def main(stage: str, do: Callable[[StageContext, Worker], object], device: str | None = None) -> None:
    """Run ``serve`` as this program, and end."""
    sys.exit(serve(stage, do, device, sys.argv[1:]))
