"""A context of stage ``fine_tune`` with public text, people and canaries of a few words, and no run behind it."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from federated import mechanisms
from pipeline.run import artifacts
from pipeline.stages.training import fine_tune_inputs
from pretrain.config import ModelConfig
from pretrain.model.keyboard_lm import KeyboardLM, build_model
from pretrain.text.vocabulary import EOS, SPECIALS, TokenStream, Vocabulary, join_owners, join_streams
from tests.helpers.launches.pipeline_launch import launch_config

WORDS = Vocabulary(SPECIALS + tuple(f"w{number}" for number in range(40)))
SIZE = ModelConfig(embedding_dim=8, hidden_dim=12, tied=True)
MOVED = {"noise_multiplier": 2.0, "model": "network"}


def text(seed: int) -> TokenStream:
    rng = np.random.default_rng(seed)
    return join_owners([np.append(rng.integers(4, 44, size=6), EOS) for _ in range(30)])


def network(seed: int) -> KeyboardLM:
    return build_model(SIZE, len(WORDS), seed)


def training_context(folder: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A context whose artifacts are made here."""
    config = launch_config(
        counts=MOVED,
        model=SIZE.model_dump(),
        mechanism={"rounds": 4, "report_goal": 4, "randomness": "seeded"},
        audit={"populations": ["compliant", "stress"], "examples": [1, 8]},
    )
    store = SimpleNamespace(encode=lambda words, split, *beside: join_streams([text(1), *beside]))
    monkeypatch.setattr(artifacts, "vocabulary", lambda ctx, stage: WORDS)
    monkeypatch.setattr(artifacts, "public_streams", lambda ctx, words: (text(0), text(0)))
    monkeypatch.setattr(artifacts, "model", lambda ctx, stage: network(1))
    monkeypatch.setattr(artifacts, "counts", lambda ctx: "counts")
    monkeypatch.setattr(artifacts, "mechanism", lambda run: mechanisms.build(config.mechanism))
    monkeypatch.setattr(artifacts, "store", lambda ctx: store)
    monkeypatch.setattr(artifacts, "progress", lambda ctx: None)
    monkeypatch.setattr(fine_tune_inputs, "distil", lambda *given: network(2))
    return SimpleNamespace(config=config, run=None, stage="fine_tune", private=folder, noise_key=bytes(32), attempt=0)
