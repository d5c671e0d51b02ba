"""Made-up devices for benchmarks of local training."""

from dataclasses import dataclass

import numpy as np

from federated.config import LocalTrainingConfig
from federated.rows import DeviceRows, device_rows
from pretrain.config import ModelConfig
from pretrain.vocabulary import EOS


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


def typed(case: Case, local: LocalTrainingConfig) -> list[DeviceRows]:
    """Devices with Zipf-distributed words in sentences of 8."""
    rng = np.random.default_rng(0)
    devices = []
    for _ in range(case.devices):
        words = np.minimum(rng.zipf(1.3, size=case.words) + 3, case.vocabulary - 1).astype(np.int32)
        words[7::8] = EOS
        words[-1] = EOS
        devices.append(device_rows(words, local, 0.0))
    return devices
