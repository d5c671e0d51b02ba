"""One private training, and what it gives held-out people."""

import copy
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from torch import Tensor

from benchmarks.private_training.populations import People
from benchmarks.private_training.settings import Embeddings, Run, Setting, run_of
from benchmarks.utility.recalls import Recalls, recalls
from evaluation.arms.arm import neural
from federated.config.training import RuntimeConfig
from federated.local_training import sums
from federated.local_training.kernel.weights import Weights
from federated.rounds import server, state
from federated.rounds.rule import RoundRule
from federated.train import TrainingData, Workplace, fine_tune
from pretrain.model import KeyboardLM
from pretrain.randomness.noise import seeded_key
from pretrain.vocabulary import TokenStream

START = "start"
_KEYS = 1000  # where the draws of the noise begin
# The loop measures on its own, and is not asked to.
_NEVER = 1_000_000


@dataclass(frozen=True)
class Row:
    """One line of the file of rows.

    Attributes:
      draw: of the noise.
      cpu: seconds of the training alone.
    """

    population: str
    setting: str
    draw: int
    devices: int
    rounds: int
    goal: int
    min_sep: int
    max_participations: int
    noise_multiplier: float
    rho: float | None
    cpu: float
    validation: Recalls
    test: Recalls

    @staticmethod
    def read(line: str) -> "Row":
        """The row that a line holds."""
        fields = json.loads(line)
        return Row(**fields | {name: Recalls(**fields[name]) for name in ("validation", "test")})

    def line(self) -> str:
        """The row as a line."""
        return json.dumps(asdict(self)) + "\n"


def start_row(name: str, who: People) -> Row:
    """The start, which nothing private has touched."""
    return Row(name, START, 0, len(who.devices), 0, 0, 0, 0, 0.0, 0.0, 0.0, *_judged(who.start.model, who))


def rows(name: str, setting: Setting, draw: int, who: People, seed: int) -> Iterator[Row]:
    """Train once; the last model, and the means of the last few."""
    run, model = run_of(setting, len(who.devices)), copy.deepcopy(who.start.model)
    began = time.process_time()
    weights_TP = trained(model, run, setting, draw, who.devices, seed)
    block, cpu = run.mechanism, time.process_time() - began
    shape = block.rounds, block.report_goal, block.min_sep, block.max_participations
    about = draw, len(who.devices), *shape, block.noise_multiplier, run.rho, cpu
    yield Row(name, setting.name, *about, *_judged(model, who))
    for last in setting.averages:
        server.load_weights(model, np.mean(weights_TP[-last:], axis=0))
        yield Row(name, averaged(setting, last), *about, *_judged(model, who))


def averaged(setting: Setting, last: int) -> str:
    """Name of the row of a mean of the last models."""
    return f"{setting.name}, mean of the last {last} models"


def trained(
    model: KeyboardLM, run: Run, setting: Setting, draw: int, devices: TokenStream, seed: int
) -> list[np.ndarray]:
    """Train the model in place; the weights after every round, if the setting needs them."""
    rule = RoundRule(run.mechanism, seed, seeded_key(_KEYS + draw))
    data = TrainingData(devices, np.zeros(len(devices), dtype=bool), devices.select(np.arange(1)))
    every = 1 if setting.averages else _NEVER
    runtime = RuntimeConfig(chunk_devices=16, evaluate_every_rounds=_NEVER, checkpoint_every_rounds=every)
    with tempfile.TemporaryDirectory() as folder, _word_vectors(model, setting.embeddings):
        weights_TP: list[np.ndarray] = []
        keep = _keep(weights_TP, model, run, rule, data, Path(folder)) if setting.averages else None
        fine_tune(model, data, rule, run.local, run.server, Workplace(Path(folder), runtime, 1, on_round=keep))
    return weights_TP


def _keep(
    weights_TP: list[np.ndarray], model: KeyboardLM, run: Run, rule: RoundRule, data: TrainingData, folder: Path
) -> Callable[[dict[str, float]], None]:
    """What appends the weights of each round's checkpoint."""
    configs = run.mechanism, run.local, run.server
    digest = state.run_digest(model, data.devices, data.synthetic_D, configs, rule.seed, rule.key)

    def keep(_message: dict[str, float]) -> None:
        checkpoint = state.newest_checkpoint(folder, digest)
        assert checkpoint is not None
        weights_TP.append(checkpoint.arrays["weights"])

    return keep


@contextmanager
def _word_vectors(model: KeyboardLM, how: Embeddings) -> Iterator[None]:
    """Treat the word vectors apart. The product cannot, so the two places where it would are exchanged."""
    if how == Embeddings():
        yield
        return
    assert model.tied
    assert next(iter(model.parameters())) is model.embedding
    train_chunk, step, numbers = sums.train_chunk, server.step, model.embedding.numel()

    def weighed(*given: Any, **options: Any) -> tuple[Weights, list[Tensor]]:
        updates, ids = train_chunk(*given, **options)
        updates.outputs.mul_(how.clipped)
        return updates, ids

    def stepped(before: server.ServerState, released_sum_P: np.ndarray, *rest: Any) -> server.ServerState:
        released_sum_P = released_sum_P.copy()
        released_sum_P[:numbers] *= how.stepped
        return step(before, released_sum_P, *rest)

    with mock.patch.object(sums, "train_chunk", weighed), mock.patch.object(server, "step", stepped):
        yield


def _judged(model: KeyboardLM, who: People) -> tuple[Recalls, Recalls]:
    arm, vocabulary = neural(model), who.start.vocabulary
    return recalls(arm, who.validation, vocabulary), recalls(arm, who.test, vocabulary)
