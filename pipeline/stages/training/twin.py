"""Canaries apart from the launch: on a twin under the launch's noise, and on a control without any.

Neither is ever shipped. Both are trained on public text and made-up devices alone, so neither costs any privacy nor
has an entry in the ledger, and whoever has the public half of a launch and the twin's key can train them again.
"""

import copy
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evaluation.audit.canaries import CanarySet
from evaluation.config import STRESS_RATE
from federated.config.mechanism import TreeMechanism
from federated.config.training import RuntimeConfig
from federated.rounds.rule import RoundRule
from federated.rounds.server import flat_weights
from federated.train import FineTuneResult, Progress, TrainingData, Workplace, fine_tune
from pipeline.launch.config import LaunchConfig
from pretrain.model import KeyboardLM
from pretrain.randomness.noise import seeded_key
from pretrain.vocabulary import TokenStream, join_streams

# Rounds of a control between two looks at it.
CONTROL_ROUNDS = 16
_NEXT_TO_NONE = 1e-9
_CHUNK = 16


@dataclass(frozen=True)
class TwinModel:
    """A model that never ships, and what its canary devices did."""

    model: KeyboardLM
    done: FineTuneResult

    @property
    def weights_sha256(self) -> str:
        """Names the model's every bit."""
        return hashlib.sha256(flat_weights(self.model).astype("<f4").tobytes()).hexdigest()


def train_twin(
    start: KeyboardLM,
    people: TokenStream,
    planted: CanarySet,
    rule: RoundRule,
    config: LaunchConfig,
    directory: Path,
    on_round: Progress | None = None,
) -> TwinModel:
    """The launch's rounds on public text: its starting model, mechanism, noise, clip, cohorts and canary devices.

    Killed, it goes on from its checkpoint in ``directory``.

    Args:
      start: that the launch's training begins with; it stays what it is.
      people: public text, see ``pseudo_people``.
      rule: the launch's, with a key of the twin's own.
    """
    devices = join_streams([people, planted.devices])
    canary_D = np.arange(len(devices)) >= len(people)
    stress_D = np.concatenate([np.zeros(len(people), dtype=bool), planted.stress_D])
    data = TrainingData(devices, canary_D, people.select(np.arange(1)), stress_D, STRESS_RATE)
    return _train(start, data, rule, config, directory, on_round)


def train_control(start: KeyboardLM, planted: CanarySet, config: LaunchConfig, directory: Path) -> KeyboardLM:
    """``start`` after ``CONTROL_ROUNDS`` rounds of the canary devices alone: all in every round, clipped, no noise.

    Guarantee: none, and none is needed: these devices are nobody's.
    """
    devices = planted.devices
    mechanism = TreeMechanism(
        kind="tree",
        noise_multiplier=_NEXT_TO_NONE,
        clip_norm=config.mechanism.clip_norm,
        clipping=config.mechanism.clipping,
        rounds=CONTROL_ROUNDS,
        report_goal=len(devices),
        min_sep=1,
        max_participations=CONTROL_ROUNDS,
        delta=config.mechanism.delta,
        randomness="seeded",
    )
    data = TrainingData(devices, np.ones(len(devices), dtype=bool), devices.select(np.arange(1)))
    return _train(start, data, RoundRule(mechanism, config.seed, seeded_key(config.seed)), config, directory).model


def _train(
    start: KeyboardLM,
    data: TrainingData,
    rule: RoundRule,
    config: LaunchConfig,
    directory: Path,
    on_round: Callable[[dict[str, float]], None] | None = None,
) -> TwinModel:
    model = copy.deepcopy(start)
    place = Workplace(directory, _runtime(config, rule.config.rounds), on_round=on_round)
    return TwinModel(model, fine_tune(model, data, rule, config.local_training, config.server, place))


def _runtime(config: LaunchConfig, rounds: int) -> RuntimeConfig:
    """One process, measured at both ends only; chunks of a size that is no measurement, which would change bits."""
    chunk = config.runtime.chunk_devices or _CHUNK
    changes = {"workers": 1, "evaluate_every_rounds": rounds, "chunk_devices": chunk}
    return config.runtime.model_copy(update=changes)
