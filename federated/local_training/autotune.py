"""Choose the number of devices to train side by side, by one measurement at the start of a run.

Low bits of the result depend on this number, so a resumed run uses its original number. With one device at a time, an
update depends on no other device (``sums.chunked_sum``), so 1 is used unless it is much slower.
"""

import math
import time
from pathlib import Path

import numpy as np
import torch

from federated.config.training import LocalTrainingConfig, RuntimeConfig
from federated.local_training.clipping import Clip
from federated.local_training.rows import DeviceRows
from federated.local_training.sums import chunked_sum
from federated.workers.worker import ALONE, Worker
from pretrain.files import PRIVATE, write_text
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.text.vocabulary import EOS

# On a CPU the cache limits the speed, on a GPU the number of kernel launches.
CANDIDATES = {"cpu": (1, 2, 4, 8, 16, 32), "cuda": (64, 128, 256, 512, 1024)}
FILE = "chunk_devices"
# Devices train side by side if that takes at most this share of the time of one by one.
WORTH = 0.9


def chunk_of_run(
    model: KeyboardLM, local: LocalTrainingConfig, runtime: RuntimeConfig, directory: Path, process: Worker = ALONE
) -> int:
    """The launch file's number, or the run's own, which is measured once and stored beside its checkpoints.

    It is stored before the first round, so that even a run without a checkpoint restarts with it: a
    retried round must be the same release. Worker 0 decides for all.

    Raises:
      OSError: the file holds something else.
      ValueError: the launch file's number was changed since the run began.
    """
    size = 0
    if process.rank == 0:
        path = directory / FILE
        written = path.read_text(encoding="ascii") if path.exists() else ""
        if written and not (written.isdecimal() and int(written)):
            raise OSError(f"{FILE}: {written[:20]!r} is not a number of devices; remove the file, or restore it")
        size = runtime.chunk_devices or int(written or best_chunk(model, local))
        if written and int(written) != size:
            raise ValueError(
                f"runtime.chunk_devices: {size}, but the rounds began with {written}, and done again with another "
                "number they would be other releases under the same noise; put it back, or leave it out"
            )
        if written != str(size):
            write_text(path, str(size), PRIVATE)
    return process.first(size)


def best_chunk(model: KeyboardLM, local: LocalTrainingConfig) -> int:
    """The fastest candidate on synthetic devices of two batches; no client data is read.

    Speed is CPU time or, on a GPU, wall time; a number that exceeds the GPU's memory is skipped. On a CPU the result is
    1 unless another number is faster by a tenth.
    """
    place = model.embedding.device.type
    candidates = CANDIDATES[place]
    rng = np.random.default_rng(0)
    shape = 2 * local.batch_sentences, local.sequence_words
    tokens = rng.integers(EOS + 1, model.vocabulary_size, size=(max(candidates), *shape), dtype=np.int32)
    devices = [DeviceRows(rows_RT, rows_RT) for rows_RT in tokens]
    clock = time.process_time if place == "cpu" else time.monotonic

    def seconds(size: int) -> float:
        began = clock()
        try:
            chunked_sum(model, devices, local, Clip(1.0), size)
            if place == "cuda":
                torch.cuda.synchronize()
        except torch.OutOfMemoryError:
            return float("inf")
        return clock() - began

    seconds(min(candidates))  # compiles and warms up
    taken = {size: min(seconds(size), seconds(size)) for size in candidates}
    fastest = min(taken, key=taken.__getitem__)
    return 1 if taken.get(1, math.inf) * WORTH <= taken[fastest] else fastest
