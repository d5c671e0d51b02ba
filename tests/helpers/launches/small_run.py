"""A run of the round loop on a model of a few hundred weights, for the tests beside this file."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from federated.config.mechanism import TreeMechanism
from federated.config.training import LocalTrainingConfig, RuntimeConfig, ServerConfig
from federated.mechanisms import Mechanism
from federated.rounds import server
from federated.rounds.direction_canaries import Probe
from federated.rounds.rule import RoundRule
from federated.rounds.witness import Watch
from federated.train import FineTuneResult, Progress, TrainingData, Workplace, fine_tune
from federated.workers.worker import ALONE, Worker
from pretrain.config import ModelConfig
from pretrain.model.keyboard_lm import KeyboardLM, build_model
from pretrain.randomness.noise import seeded_key
from pretrain.text.vocabulary import EOS, TokenStream, join_owners

WORDS, DEVICES, SYNTHETIC = 40, 24, 3


def stream(devices: int, seed: int) -> TokenStream:
    rng = np.random.default_rng(seed)
    owners = []
    for device in range(devices):
        # Devices 0, 10 and 20 typed nothing that can be trained on.
        sizes = rng.integers(1, 9, size=device % 10)
        sentences = [np.append(rng.integers(3, WORDS, size=size), EOS) for size in sizes]
        owners.append(np.concatenate([np.empty(0, dtype=np.int64), *sentences]))
    return join_owners(owners)


def mechanism(**fields: object) -> TreeMechanism:
    base = {"kind": "tree", "noise_multiplier": 0.5, "clip_norm": 0.2, "rounds": 9, "report_goal": 6}
    base |= {"min_sep": 3, "max_participations": 2, "delta": 1e-5, "randomness": "seeded"}
    return TreeMechanism.model_validate(base | fields)


@dataclass(frozen=True)
class Launch:
    """What a run is of, but for its model and its place."""

    mechanism: TreeMechanism = field(default_factory=mechanism)
    device: LocalTrainingConfig = field(
        default_factory=lambda: LocalTrainingConfig(
            learning_rate=0.3, batch_sentences=2, sequence_words=5, max_words=12
        )
    )
    server: ServerConfig = field(default_factory=lambda: ServerConfig(learning_rate=0.7))
    runtime: RuntimeConfig = field(
        default_factory=lambda: RuntimeConfig(chunk_devices=4, checkpoint_every_rounds=3, evaluate_every_rounds=4)
    )
    devices: TokenStream = field(default_factory=lambda: stream(DEVICES, 1))
    seed: int = 11
    key: bytes = seeded_key(5)

    @property
    def synthetic_D(self) -> np.ndarray:
        return np.arange(len(self.devices)) >= len(self.devices) - SYNTHETIC


def model_at_start() -> KeyboardLM:
    return build_model(ModelConfig(embedding_dim=4, hidden_dim=6, tied=True), WORDS, seed=2)


def run(
    launch: Launch,
    directory: Path,
    on_round: Progress | None = None,
    threads: int = 1,
    *,
    stored: Mechanism | None = None,
    process: Worker = ALONE,
    probe: Probe | None = None,
    model: KeyboardLM | None = None,
    writing: Callable[[], AbstractContextManager[None]] = nullcontext,
    watch: Watch | None = None,
    **stress: object,
) -> tuple[np.ndarray, FineTuneResult]:
    """Flat weights at the end, and the result."""
    model = model or model_at_start()
    data = TrainingData(launch.devices, launch.synthetic_D, stream(8, 99), **stress)
    rule = RoundRule(launch.mechanism, launch.seed, launch.key, stored)
    place = Workplace(directory, launch.runtime, threads, process, on_round, writing)
    result = fine_tune(model, data, rule, launch.device, launch.server, place, probe, watch)
    return server.flat_weights(model), result


class Killed(Exception):
    """Stands for the end of a process."""


def killed_after(round_number: int) -> Progress:
    """Progress that ends a run as one round does."""

    def told(message: dict) -> None:
        if message["round"] == round_number:
            raise Killed

    return told
