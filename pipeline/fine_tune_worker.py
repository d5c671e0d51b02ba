"""One of the processes that train together, started by ``pipeline.stages.fine_tune_workers``
through torch.distributed.run.

Arguments: folder of all runs, launch id, process id of the stage, logging level. The key of the noise is no
argument, which any user of the machine could read: it is in the run's private folder.
"""

import json
import logging
import os
import select
import sys
import threading
from pathlib import Path

from federated.workers import joined
from pipeline import settings
from pipeline.config import LaunchConfig
from pipeline.errors import PERMANENT, TEMPORARY, LaunchError, exit_code
from pipeline.run_dir import RunDir
from pipeline.runner import stage_key
from pipeline.stage import StageContext
from pipeline.stages import fine_tune_workers as fine_tuning
from pretrain.files import PRIVATE, write_text

_STAGE = "fine_tune"
_log = logging.getLogger(__name__)


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


def context(root: Path, launch_id: str) -> StageContext:
    """What the stage itself was given, from the run's folder."""
    run = RunDir(root, launch_id)
    config = LaunchConfig.model_validate_json((run.public("launch") / "launch.json").read_bytes())
    return StageContext(config, run, settings.load(), _STAGE, stage_key(config, run, _STAGE))


def main(root: Path, launch_id: str, stage_pid: int, level: str) -> int:
    """Exit code, as of a stage; what is permanent is also told to the stage, which sees only that a worker failed."""
    end_with(stage_pid)
    end_with(os.getppid())
    logging.basicConfig(
        level=level, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s", datefmt="%H:%M:%S", stream=sys.stderr
    )
    ctx = context(root, launch_id)
    runtime = ctx.config.runtime
    try:
        with joined(runtime.device, 60 * runtime.stage_timeout_minutes) as process:
            if process.rank:
                logging.getLogger().setLevel(logging.WARNING)
            fine_tuning.train(ctx, process)
    except (LaunchError, ValueError, ArithmeticError, OSError) as error:
        code = exit_code(error) or TEMPORARY
        _log.error("a worker ended: %s", error)
        if code == PERMANENT:
            write_text(ctx.private / fine_tuning.FAILED, json.dumps({"error": str(error)}), PRIVATE)
        return code
    return 0


if __name__ == "__main__":
    settings.let_threads_sleep()
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]))
