"""Local training: devices per CPU second of the batched kernel against plain autograd, in one run.

    .venv/stages/bin/python benchmarks/kernel.py [--repeats 3]

Variants take turns, and each figure is a median of CPU times, so that other work on the machine
moves the ratio little.
"""

import argparse
import statistics
import time
from dataclasses import dataclass

import numpy as np

from federated.client import clipped_sum, one_torch_thread
from federated.config import LocalTrainingConfig
from federated.rows import DeviceRows, device_rows
from pretrain.config import ModelConfig
from pretrain.model import build_model
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


CASES = (
    Case("tiny", 2_000, ModelConfig(embedding_dim=32, hidden_dim=64, tied=False), 64, 4, 32, 16),
    Case("demo", 4_039, ModelConfig(embedding_dim=64, hidden_dim=256, tied=True), 200, 8, 16, 8),
    Case("paper, 100 words", 10_000, ModelConfig(embedding_dim=96, hidden_dim=670, tied=False), 100, 5, 8, 2),
)


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


def main() -> None:
    """Print one line a workload."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    print(f"{'workload':<18}{'reference/s':>12}{'batched/s':>12}{'ratio':>8}   devices per CPU second")
    for case in CASES:
        local = LocalTrainingConfig(
            learning_rate=0.5, batch_sentences=case.batch, sequence_words=10, epochs=1, max_words=case.words
        )
        model, devices = build_model(case.model, case.vocabulary, 0), typed(case, local)
        speeds: dict[str, list[float]] = {"reference": [], "batched": []}
        with one_torch_thread():
            for repeat in range(repeats + 1):
                for kernel, seen in speeds.items():
                    began = time.process_time()
                    clipped_sum(model, devices, local, 0.3, case.chunk, kernel=kernel)
                    if repeat:  # the first turn warms up
                        seen.append(case.devices / (time.process_time() - began))
        reference, batched = (statistics.median(speeds[kernel]) for kernel in ("reference", "batched"))
        print(f"{case.name:<18}{reference:>12.1f}{batched:>12.1f}{batched / reference:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
