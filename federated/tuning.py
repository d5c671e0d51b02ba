"""How many devices to train side by side, measured once at the start of a run.

Low bits of the result depend on it, so a run that goes on must use what it began with.
"""

import time
from collections.abc import Sequence

import numpy as np

from federated.clipping import Clip
from federated.config import LocalTrainingConfig
from federated.rows import DeviceRows
from federated.sums import chunked_sum
from pretrain.model import KeyboardLM
from pretrain.vocabulary import EOS

CANDIDATES = (1, 2, 4, 8, 16, 32)


def best_chunk(model: KeyboardLM, local: LocalTrainingConfig, candidates: Sequence[int] = CANDIDATES) -> int:
    """The candidate that trains made-up devices of two batches fastest, by CPU time; no client data is read."""
    rng = np.random.default_rng(0)
    shape = 2 * local.batch_sentences, local.sequence_words
    tokens = rng.integers(EOS + 1, model.vocabulary_size, size=(max(candidates), *shape), dtype=np.int32)
    devices = [DeviceRows(own_RT, own_RT) for own_RT in tokens]

    def seconds(size: int) -> float:
        began = time.process_time()
        chunked_sum(model, devices, local, Clip(1.0), size)
        return time.process_time() - began

    seconds(1)  # compiles and warms up
    return min(candidates, key=lambda size: min(seconds(size), seconds(size)))
