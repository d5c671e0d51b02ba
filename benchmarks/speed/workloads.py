"""Synthetic devices for benchmarks of local training, and the measurement of its cost."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from federated.config.training import LocalTrainingConfig
from federated.local_training.clipping import Clip
from federated.local_training.rows import DeviceRows, device_rows
from federated.local_training.sums import chunked_sum, most_steps_first
from pretrain.config import ModelConfig
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.text.vocabulary import EOS

PAPER = ModelConfig(embedding_dim=96, hidden_dim=670, tied=False)
CLIP, RATE = 0.3, 0.5


@dataclass(frozen=True)
class Case:
    """One workload: model, words of a device and rows of a batch."""

    name: str
    vocabulary: int
    model: ModelConfig
    words: int
    batch: int
    devices: int
    chunk: int

    @property
    def training(self) -> LocalTrainingConfig:
        """One epoch over rows of 10 words, by the loss of the peers."""
        return LocalTrainingConfig(
            learning_rate=RATE, loss=0.0, batch_sentences=self.batch, sequence_words=10, max_words=self.words
        )


CASES = {
    "tiny": Case("tiny", 2_000, ModelConfig(embedding_dim=32, hidden_dim=64, tied=False), 64, 4, 64, 16),
    "demo": Case("4K, 200 words", 4_000, ModelConfig(embedding_dim=64, hidden_dim=256, tied=True), 200, 8, 32, 16),
    "100": Case("10K, 100 words", 10_000, PAPER, 100, 5, 12, 2),
    "1600": Case("10K, 1600 words", 10_000, PAPER, 1600, 8, 2, 1),
}


def text(rng: np.random.Generator, words: int, vocabulary: int) -> np.ndarray:
    """Zipf-distributed words in sentences of 8."""
    typed_N = np.minimum(rng.zipf(1.3, size=words) + 3, vocabulary - 1).astype(np.int32)
    typed_N[7::8] = EOS
    typed_N[-1] = EOS
    return typed_N


def typed(case: Case) -> list[DeviceRows]:
    """Devices of equal size."""
    rng = np.random.default_rng(0)
    return [device_rows(text(rng, case.words, case.vocabulary), case.training, 0.0) for _ in range(case.devices)]


def lognormal_sizes(devices: int, cap: int = 1600) -> np.ndarray:
    """Words of devices as people type: median 66, mean 133 before the cap."""
    spread = np.sqrt(2 * np.log(133 / 66))
    return np.random.default_rng(0).lognormal(np.log(66), spread, size=devices).clip(1, cap).astype(int)


def cpu_seconds(act: Callable[[], object]) -> float:
    """CPU time of all threads of this process."""
    began = time.process_time()
    act()
    return time.process_time() - began


def clipped_sum(
    model: KeyboardLM, devices: Sequence[DeviceRows], local: LocalTrainingConfig, clip_norm: float, chunk_devices: int
) -> Tensor:
    """Sum over the devices of their clipped updates, as a round makes it."""
    ordered = most_steps_first(devices, local)
    return chunked_sum(model, ordered, local, Clip(clip_norm), chunk_devices).flat(model)
