"""One worker's share of a few rounds; started by test_federated_distributed through torch.distributed.run.

Arguments: directory for results, and ``lose`` to let worker 1 vanish in the second round.
"""

import os
import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
from test_federated_client import keyboard, local, rows_of

from federated.clipping import Clip
from federated.distributed import joined
from federated.sums import chunked_sum, most_steps_first


def main(directory: Path, lose: bool) -> int:
    """Exit code 75 if a worker was lost."""
    torch.set_num_threads(1)
    config, model = local(), keyboard(False)
    with joined(timeout_seconds=20) as worker:
        worker.agree(7, "seed")
        for number in range(3):
            if lose and worker.rank == 1 and number == 1:
                os._exit(9)
            ordered = most_steps_first(rows_of(11, config, seed=number), config)
            clip = Clip(0.1, below=0.2, weight_words=20)
            own = chunked_sum(model, ordered, config, clip, 3, part=worker.rank, parts=worker.size)
            try:
                total_P, counts = worker.sum(own.flat(model), own.counts)
            except OSError as error:
                (directory / f"error-{worker.rank}").write_text(str(error))
                os._exit(75)
            if worker.rank == 0:
                np.savez(directory / f"{worker.size}-{number}.npz", total_P=total_P.numpy(), counts=counts)
        return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), "lose" in sys.argv[2:]))
