"""Models with canaries apart from the launch: a twin under the launch's noise, and a control without noise.

Neither ever ships. Both are trained only on public text and synthetic devices, so they cost no privacy and have no
entry in the ledger, and both can be trained again from the public half of a launch and the twin's key.
"""

import copy
import hashlib
import itertools
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
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.randomness.noise import seeded_key
from pretrain.text.vocabulary import EOS, TokenStream, join_streams

# Rounds of a control between two checks.
CONTROL_ROUNDS = 16
_NEXT_TO_NONE = 1e-9
_CHUNK = 16
# Words of a pseudo-person: two or three sentences, enough for an update as long as the clip norm at a small part of a
# real device's cost.
_WORDS = 20


@dataclass(frozen=True)
class TwinModel:
    """A model that never ships, and the participation of its canary devices."""

    model: KeyboardLM
    done: FineTuneResult

    @property
    def weights_sha256(self) -> str:
        """SHA-256 of the model's weights."""
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
    """Train with the launch's starting model, mechanism, noise, clip, cohorts and canary devices, on public text.

    After an interruption it resumes from its checkpoint in ``directory``.

    Args:
      start: starting model of the launch's training; not modified.
      people: public text, see ``pseudo_people``.
      rule: the launch's rule, with a key of the twin's own.
    """
    devices = join_streams([people, planted.devices])
    canary_D = np.arange(len(devices)) >= len(people)
    stress_D = np.concatenate([np.zeros(len(people), dtype=bool), planted.stress_D])
    data = TrainingData(devices, canary_D, people.select(np.arange(1)), stress_D, STRESS_RATE)
    return _train(start, data, rule, config, directory, on_round)


def train_control(start: KeyboardLM, planted: CanarySet, config: LaunchConfig, directory: Path) -> KeyboardLM:
    """Train ``CONTROL_ROUNDS`` rounds on the canary devices alone: all in every round, clipped, without noise.

    Guarantee: none, and none is needed, as these devices are synthetic.
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
    """Runtime with one process, validation at both ends only, and a fixed chunk size, as a tuned one changes bits."""
    chunk = config.runtime.chunk_devices or _CHUNK
    changes = {"workers": 1, "evaluate_every_rounds": rounds, "chunk_devices": chunk}
    return config.runtime.model_copy(update=changes)


def pseudo_people(text: TokenStream, count: int, seed: int) -> TokenStream:
    """Exactly ``count`` owners of whole sentences of ``text``, each of ``_WORDS`` words rounded up to a sentence.

    Text that is too short is cut again, in another order.

    Guarantee: the result contains only ``text``, which is public.

    Raises:
      ValueError: the text has no sentence.
    """
    if not np.any(text.tokens_N == EOS):
        raise ValueError(
            "public_text: it holds no sentence, and a twin is trained on public text; give a longer corpus"
        )
    cuts: list[TokenStream] = []
    for order in itertools.count():
        missing = count - sum(map(len, cuts))
        if not missing:
            return join_streams(cuts) if cuts else text.select(np.arange(0))
        cuts.append(_cut(text, missing, seed + order))
    raise AssertionError("unreachable")


def _cut(text: TokenStream, count: int, seed: int) -> TokenStream:
    """Partition documents, in an order drawn from ``seed``, into at most ``count`` owners of whole sentences.

    An owner is a run of consecutive sentences, so it has topics of its own, as people do; its last sentence is the one
    that reaches ``_WORDS``. No sentence has two owners, and there are fewer if the text ends before.
    """
    rng = np.random.default_rng([seed, len(text)])
    shuffled = text.select(rng.permutation(len(text)))
    ends_S = np.flatnonzero(shuffled.tokens_N == EOS) + 1
    words_S = ends_S - np.arange(1, len(ends_S) + 1)  # words up to each sentence's end
    offsets, before = [0], 0
    while len(offsets) <= count and (last := int(np.searchsorted(words_S, before + _WORDS))) < len(ends_S):
        offsets.append(int(ends_S[last]))
        before = int(words_S[last])
    if len(offsets) == 1:
        offsets.append(int(ends_S[-1]))  # less text than one budget: one owner has it all
    return TokenStream(shuffled.tokens_N[: offsets[-1]], np.array(offsets, dtype=np.int64))
