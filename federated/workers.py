"""Several processes that train one model: each a share of the cohort's chunks, one sum a round.

Shape legend: P parameters.

Processes are started by ``python -m torch.distributed.run`` and find each other through it. Every one
runs the whole round loop; noise is a function of (key, round) and the server's step one of the sum,
so models stay equal without being sent. What is sent is one vector of integers a round.
"""

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import torch
from torch import Tensor, distributed

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Worker:
    """Rank and size of this process, and the all-reduce between workers.

    Attributes:
      rank: 0 writes checkpoints and tells of progress.
      size: how many there are.
    """

    rank: int = 0
    size: int = 1

    def sum(self, sum_P: Tensor, counts: np.ndarray) -> tuple[Tensor, np.ndarray]:
        """Sum over all workers of int64 ``[P]`` on the CPU and a few int64 numbers: one all-reduce.

        Integers: the same bits for any number of workers, in any order of adding.

        Raises:
          OSError: a worker is gone, or did not answer in time.
        """
        if self.size == 1:
            return sum_P, counts
        flat = torch.cat([sum_P, torch.from_numpy(counts)])
        self._all_reduce(flat)
        return flat[: len(sum_P)], flat[len(sum_P) :].numpy()

    def first(self, number: int) -> int:
        """The number that worker 0 gave, known to every worker."""
        if self.size == 1:
            return number
        flat = torch.tensor([number if self.rank == 0 else 0])
        self._all_reduce(flat)
        return int(flat)

    def agree(self, number: int, what: str) -> None:
        """OSError unless every worker gives the same number; nobody goes on before all have."""
        if self.size == 1:
            return
        bounds = torch.tensor([number, -number])
        self._all_reduce(bounds, distributed.ReduceOp.MAX)
        if bounds[0] != -bounds[1]:
            raise OSError(
                f"{what}: workers differ, {-int(bounds[1])} to {int(bounds[0])}; do they see the same directory?"
            )

    def _all_reduce(self, flat: Tensor, operation: distributed.ReduceOp.RedOpType = distributed.ReduceOp.SUM) -> None:
        moved = flat.cuda() if distributed.get_backend() == "nccl" else flat
        try:
            distributed.all_reduce(moved, operation)
        except RuntimeError as error:
            # What gloo and NCCL raise when a connection closes or time is up.
            raise OSError(f"worker {self.rank} of {self.size} lost another one; run the stage again") from error
        flat.copy_(moved)


ALONE = Worker()


@contextmanager
def joined(device: str = "cpu", timeout_seconds: float = 600.0) -> Iterator[Worker]:
    """This process among those that ``torch.distributed.run`` started; alone if it was not started so.

    Args:
      device: ``cpu`` (gloo) or ``cuda`` (NCCL, one GPU a process).
      timeout_seconds: how long to wait for others, in a round too: more than the slowest share takes.

    Raises:
      OSError: the others are not there in time.
    """
    if not distributed.is_torchelastic_launched():
        yield ALONE
        return
    try:
        distributed.init_process_group(
            "nccl" if device == "cuda" else "gloo", timeout=timedelta(seconds=timeout_seconds)
        )
    except (RuntimeError, ValueError) as error:
        raise OSError("workers did not find each other; run the stage again") from error
    worker = Worker(distributed.get_rank(), distributed.get_world_size())
    _log.info("worker %d of %d", worker.rank, worker.size)
    try:
        if device == "cuda":
            # All on this machine, each with a GPU of its own: NCCL refuses to share one.
            if worker.size > torch.cuda.device_count():
                raise OSError(
                    f"runtime.workers: {worker.size}, but {torch.cuda.device_count()} GPUs are visible here; "
                    "run on a machine with more, or lower it"
                )
            torch.cuda.set_device(worker.rank)
        yield worker
    finally:
        distributed.destroy_process_group()


def launch_command(workers: int, module: str, arguments: Sequence[str]) -> list[str]:
    """Command that starts the workers on this machine, over loopback.

    Its exit code is not 0 if any worker's was not; the others are stopped then.
    """
    # Sums of devices travel between workers: never over a network. One thread, as ``one_torch_thread`` has it.
    settings = ["GLOO_SOCKET_IFNAME=lo", "NCCL_SOCKET_IFNAME=lo", "OMP_NUM_THREADS=1"]
    run = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1", f"--nproc-per-node={workers}"]
    # Port 0: any free one. No restarts: the stage's own retry goes on from the last checkpoint.
    meeting = ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1", "--max-restarts=0"]
    return ["env", *settings, *run, *meeting, "-m", module, *arguments]
