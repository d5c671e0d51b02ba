"""Small models and streams of made-up text for the tests of ``pretrain``."""

import numpy as np
import pytest
import torch

from pretrain.config import ModelConfig
from pretrain.model import KeyboardLM, build_model
from pretrain.vocabulary import EOS, SPECIALS, TokenStream, Vocabulary, join_owners

TINY = ModelConfig(embedding_dim=8, hidden_dim=12, tied=True)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Bitwise tests need one number of threads, and the machine is shared."""
    torch.set_num_threads(1)


@pytest.fixture
def tiny_vocabulary() -> Vocabulary:
    return Vocabulary(SPECIALS + tuple(f"w{number}" for number in range(20)))


@pytest.fixture
def tiny_model(tiny_vocabulary: Vocabulary) -> KeyboardLM:
    return build_model(TINY, len(tiny_vocabulary), seed=3)


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
