"""A small run by the workers of a gang. Arguments: folder, attempt.

Every worker leaves what it adds in ``addends``. Files in the folder say what is to go wrong in round 5:
``kill-WHEN-RANK`` ends that worker before, in or after the exchange of sums, ``kill-host-RANK`` its ``torchrun``.
``other-kind`` gives workers of host 1 the low bits of another kind of processor. ``stop-writing-0`` suspends worker 0
before it writes its first checkpoint, and ``stopped`` then holds its process id.
"""

import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from torch import Tensor, distributed

from federated.local_training import low_bits
from federated.workers.worker import Worker, joined
from pipeline.ground.errors import StaleAttempt
from pipeline.run import fence
from pretrain import processes
from pretrain.randomness.noise import seeded_key
from tests.helpers.launches.small_run import Launch, run

ROUND = 5
LAUNCH = Launch()
SUMS = itertools.count(1)  # one a round, in the first attempt


class Watched(Worker):
    """A worker whose addends are written down, and that may be told to die."""

    def sum(self, sum_P: Tensor, counts: np.ndarray) -> tuple[Tensor, np.ndarray]:
        folder = FOLDER / "addends"
        folder.mkdir(exist_ok=True)
        number = next(SUMS)
        np.save(folder / f"{ATTEMPT}-{number}-{self.rank}.npy", sum_P.numpy())
        due = number == ROUND
        if due:
            self.die_if_told("before")
            self.die_if_told("host", torchrun)
        if due and self.told("in"):
            distributed.recv = lambda *_: self.die_if_told("in")
        total = super().sum(sum_P, counts)
        if due:
            self.die_if_told("after")
        return total

    def told(self, when: str) -> bool:
        return (FOLDER / f"kill-{when}-{self.rank}").exists()

    def die_if_told(self, when: str, who: Callable[[], int] = os.getpid) -> None:
        if self.told(when):
            (FOLDER / f"kill-{when}-{self.rank}").unlink()
            os.kill(who(), signal.SIGKILL)
            time.sleep(600)  # it ends with its torchrun


@contextmanager
def writing() -> Iterator[None]:
    """A write of this attempt, which may be suspended until another one has begun."""
    if (told := FOLDER / "stop-writing-0").exists():
        told.unlink()
        (FOLDER / "stopped").write_text(str(os.getpid()), encoding="utf-8")
        os.kill(os.getpid(), signal.SIGSTOP)
    with fence.standing(FOLDER, ATTEMPT):
        yield


def torchrun() -> int:
    """Process id of this host's; not the parent's, as this process may have forked off another."""
    asked = f"PET_NODE_RANK={os.environ['GROUP_RANK']}".encode()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command, variables = (path / "cmdline").read_bytes(), (path / "environ").read_bytes()
        except OSError:
            continue  # ended meanwhile
        if b"torch.distributed.run" in command and str(FOLDER).encode() in command and asked in variables.split(b"\0"):
            return int(path.name)
    raise ProcessLookupError("this host's torchrun")


def main() -> int:
    """Exit code, as of a worker of fine-tuning."""
    try:
        with joined("cpu", 60, seeded_key(9), f"launch-1|fine_tune|{ATTEMPT}") as process:
            if (FOLDER / "other-kind").exists() and os.environ["GROUP_RANK"] == "1":
                low_bits.low_bits_of = lambda *_: "0123456789abcd"
            watched = Watched(process.rank, process.size, process.masked)
            weights_P, _ = run(LAUNCH, FOLDER / "rounds", process=watched, writing=writing)
            if process.rank == 0:
                (FOLDER / f"weights-{process.size}").write_bytes(weights_P.tobytes())
    except OSError as error:
        sys.stderr.write(f"a worker ended: {error}\n")
        return 75
    except StaleAttempt as error:
        (FOLDER / "stale").write_text(str(error), encoding="utf-8")
        return 75
    except ValueError as error:
        (FOLDER / f"refused-{process.rank}").write_text(str(error), encoding="utf-8")
        return 65
    return 0


if __name__ == "__main__":
    FOLDER, ATTEMPT = Path(sys.argv[1]), int(sys.argv[2])
    processes.end_with(torchrun(), 75)
    sys.exit(main())
