"""A tiny vocabulary and model for the tests of ``pretrain``."""

import pytest
import torch

from pretrain.model.keyboard_lm import KeyboardLM, build_model
from pretrain.text.vocabulary import SPECIALS, Vocabulary
from tests.helpers.text.pretrain_streams import TINY


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
