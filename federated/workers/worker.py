"""Several processes that train one model: each trains a share of the cohort's chunks, with one sum per round.

Shape legend: P parameters.

Processes are started by ``python -m torch.distributed.run`` and find each other through it. Every one
runs the whole round loop; noise is a function of (key, round) and the server's step one of the sum,
so models stay equal without being sent. What is sent is one vector of integers a round, masked wherever the
workers share a secret.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import torch
from torch import Tensor, distributed

from federated.workers.masked_sum import MaskedSum

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Worker:
    """Rank and size of this process, and the all-reduce between workers.

    Attributes:
      rank: 0 writes checkpoints and tells of progress.
      size: number of workers.
      masked: masked sum over the network; None if all workers are on this machine.
    """

    rank: int = 0
    size: int = 1
    masked: MaskedSum | None = None

    def sum(self, sum_P: Tensor, counts: np.ndarray) -> tuple[Tensor, np.ndarray]:
        """Sum over all workers of int64 ``[P]`` on the CPU and a few int64 numbers: one all-reduce.

        Integers: the same bits for any number of workers, in any order of adding.

        Raises:
          OSError: a worker is gone, or did not answer in time.
        """
        if self.size == 1:
            return sum_P, counts
        flat = self._total(torch.cat([sum_P, torch.from_numpy(counts)]))
        return flat[: len(sum_P)], flat[len(sum_P) :].numpy()

    def first(self, number: int) -> int:
        """The number that worker 0 gave, known to every worker."""
        if self.size == 1:
            return number
        return int(self._total(torch.tensor([number if self.rank == 0 else 0])))

    def agree(self, number: int, what: str) -> None:
        """OSError unless every worker gives the same number; no worker continues before all have."""
        lowest, highest = self.span(number)
        if lowest != highest:
            raise OSError(f"{what}: workers differ, {lowest} to {highest}; do they see the same directory?")

    def span(self, number: int) -> tuple[int, int]:
        """The lowest and the highest number that a worker gives, known to every worker."""
        if self.size == 1:
            return number, number
        numbers = torch.zeros(self.size, dtype=torch.int64)
        numbers[self.rank] = number
        numbers = self._total(numbers)
        return int(numbers.min()), int(numbers.max())

    def _total(self, flat: Tensor) -> Tensor:
        if self.masked is not None:
            return torch.from_numpy(self.masked.add_up(flat.numpy()))
        moved = flat.cuda() if distributed.get_backend() == "nccl" else flat
        with _others_there():
            distributed.all_reduce(moved)
        return moved.cpu()


ALONE = Worker()


@contextmanager
def joined(
    device: str = "cpu", timeout_seconds: float = 600.0, secret: bytes | None = None, attempt: str = ""
) -> Iterator[Worker]:
    """This process among those that ``torch.distributed.run`` started; alone if it was not started so.

    Args:
      device: ``cpu`` (gloo) or ``cuda`` (one GPU a process; NCCL, or gloo where sums are masked).
      timeout_seconds: limit of a wait for others, also within a round: above the time of the slowest share.
      secret: 32 bytes that only the workers know, for masked sums. None: sums are sent unmasked, over loopback.
      attempt: names launch, stage and attempt, where there is a secret.

    Raises:
      OSError: the others are not there in time.
    """
    if not distributed.is_torchelastic_launched():
        yield ALONE
        return
    try:
        distributed.init_process_group(
            "nccl" if device == "cuda" and secret is None else "gloo", timeout=timedelta(seconds=timeout_seconds)
        )
    except (RuntimeError, ValueError) as error:
        raise OSError("workers did not find each other; run the stage again") from error
    rank, size = distributed.get_rank(), distributed.get_world_size()
    masked = None
    _log.info("worker %d of %d", rank, size)
    try:
        if device == "cuda":
            # Each with a GPU of its own: NCCL refuses to share one.
            place = distributed.get_node_local_rank()
            if place >= torch.cuda.device_count():
                raise OSError(
                    f"runtime.workers: {place + 1} or more, but {torch.cuda.device_count()} GPUs are visible here; "
                    "run on a machine with more, or lower it"
                )
            torch.cuda.set_device(place)
        if secret is not None and size > 1:
            masked = MaskedSum(secret, attempt, rank, size, _pass_on)
        yield Worker(rank, size, masked)
    finally:
        if masked is not None:
            masked.close()
        distributed.destroy_process_group()


def _pass_on(sent: np.ndarray, size: int) -> np.ndarray:
    """Bytes of the worker before this one, which sends them as this one sends to the next."""
    rank, workers = distributed.get_rank(), distributed.get_world_size()
    received = torch.empty(size, dtype=torch.uint8)
    with _others_there():
        sending = distributed.isend(torch.tensor(sent), (rank + 1) % workers)
        distributed.recv(received, (rank - 1) % workers)
        if sending is not None:
            sending.wait()
    return received.numpy()


@contextmanager
def _others_there() -> Iterator[None]:
    """OSError for what gloo and NCCL raise when a connection closes or time is up."""
    try:
        yield
    except RuntimeError as error:
        rank, workers = distributed.get_rank(), distributed.get_world_size()
        raise OSError(f"worker {rank} of {workers} lost another one; run the stage again") from error
