"""A tiny model's shape and its pretraining, made-up text with something to learn in it, and the loss in one line."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from torch import Tensor
from torch.nn import functional

from pretrain.config import ModelConfig, PretrainConfig
from pretrain.model.keyboard_lm import KeyboardLM, build_model, placed
from pretrain.text.vocabulary import EOS, PAD, SPECIALS, TokenStream, join_owners
from pretrain.training.train import Kernel, TrainingCurve, pretrain

TINY = ModelConfig(embedding_dim=8, hidden_dim=12, tied=True)
WORDS = 24
PRETRAIN = PretrainConfig(
    steps=60,
    batch_sentences=16,
    sequence_words=8,
    learning_rate=0.02,
    evaluate_every_steps=20,
)


def chain_stream(owners: int, seed: int, words: int = 20) -> TokenStream:
    """Sentences in which each word mostly follows from the one before: there is something to learn."""
    generator = np.random.default_rng(seed)
    documents = []
    for _ in range(owners):
        tokens: list[int] = []
        for _ in range(3):
            word = int(generator.integers(words))
            for _ in range(int(generator.integers(1, 12))):
                tokens.append(len(SPECIALS) + word)
                word = (3 * word + 1) % words if generator.random() < 0.9 else int(generator.integers(words))
            tokens.append(EOS)
        documents.append(np.asarray(tokens, dtype=np.int32))
    return join_owners(documents)


def next_word_loss(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    """Mean cross-entropy in nats over targets that are not ``PAD``."""
    return functional.cross_entropy(logits_BTV.flatten(0, -2), targets_BT.flatten(), ignore_index=PAD)


def pretrain_tiny(
    directory: Path,
    config: PretrainConfig = PRETRAIN,
    on_progress: Callable[[dict], None] | None = None,
    seed: int = 1,
    kernel: Kernel | None = None,
    device: str = "cpu",
) -> tuple[KeyboardLM, TrainingCurve]:
    """Train a fresh tiny model on made-up text."""
    model = placed(build_model(TINY, WORDS, seed=3), device)
    curve = pretrain(config, model, chain_stream(120, 7), chain_stream(30, 8), directory, seed, on_progress, kernel)
    return model, curve


def trained_on_chains(tied: bool, directory: Path, vocabulary_size: int = WORDS) -> KeyboardLM:
    """A model of tiny width that has learnt the made-up text."""
    model = build_model(TINY.model_copy(update={"tied": tied}), vocabulary_size, seed=3)
    config = PRETRAIN.model_copy(update={"learning_rate": 0.05, "evaluate_every_steps": 60})
    pretrain(config, model, chain_stream(100, 7), chain_stream(10, 8), directory, 1)
    return model
