"""A small run by workers of several hosts, in the place of fine-tuning's workers, whose arguments it takes.

Every worker leaves what it adds in ``addends``. Files in the folder of runs say what is to go wrong in round 5:
``kill-WHEN-RANK`` ends that worker before, in or after the exchange of sums; ``hold`` makes worker 0 wait while it is
there.
"""

import itertools
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from torch import Tensor, distributed

from federated.workers import Worker, joined
from pipeline.hosts import fence
from pipeline.run_dir import RunDir
from pipeline.stages.hosted.workers import end_with
from pretrain.randomness.noise import seeded_key
from tests.helpers.launches.small_run import Launch, run

STAGE, ROUND = "fine_tune", 5
LAUNCH = Launch()
SUMS = itertools.count(1)  # one a round, in the first attempt


class Watched(Worker):
    """A worker whose addends are written down, and that may be told to die."""

    def sum(self, sum_P: Tensor, counts: np.ndarray) -> tuple[Tensor, np.ndarray]:
        folder = RUNS / "addends"
        folder.mkdir(exist_ok=True)
        number = next(SUMS)
        np.save(folder / f"{ATTEMPT}-{number}-{self.rank}.npy", sum_P.numpy())
        due = number == ROUND
        if due and self.rank == 0:
            while (RUNS / "hold").exists():
                (RUNS / "holding").touch()
                time.sleep(0.02)
        if due:
            self.die_if_told("before")
        if due and self.told("in"):
            distributed.recv = lambda *_: self.die_if_told("in")
        total = super().sum(sum_P, counts)
        if due:
            self.die_if_told("after")
        return total

    def told(self, when: str) -> bool:
        return (RUNS / f"kill-{when}-{self.rank}").exists()

    def die_if_told(self, when: str) -> None:
        if self.told(when):
            (RUNS / f"kill-{when}-{self.rank}").unlink()
            os.kill(os.getpid(), signal.SIGKILL)


def main(folder: Path) -> int:
    """Exit code, as of a worker of fine-tuning."""
    try:
        with joined("cpu", 60, seeded_key(9), f"launch-1|{STAGE}|{ATTEMPT}") as process:
            watched = Watched(process.rank, process.size, process.masked)
            writing = partial(fence.standing, folder, "gang", ATTEMPT)
            weights_P, _ = run(LAUNCH, folder / "rounds", process=watched, writing=writing)
            if process.rank == 0:
                (folder / f"weights-{process.size}").write_bytes(weights_P.tobytes())
    except OSError as error:
        sys.stderr.write(f"a worker ended: {error}\n")
        return 75
    return 0


if __name__ == "__main__":
    RUNS, ATTEMPT = Path(sys.argv[1]), int(sys.argv[5])
    end_with(int(sys.argv[3]))
    sys.exit(main(RunDir(RUNS, sys.argv[2]).private(STAGE)))
