"""Made-up devices and a small model for tests of local training."""

import numpy as np
import torch

from federated.config.training import LocalTrainingConfig
from federated.local_training.rows import DeviceRows, cohort_rows
from pretrain.model.keyboard_lm import KeyboardLM
from pretrain.text.vocabulary import EOS, TokenStream, join_owners

WORDS = 30


def local(**fields: object) -> LocalTrainingConfig:
    base = {"learning_rate": 0.4, "batch_sentences": 3, "sequence_words": 6, "epochs": 1, "max_words": 40}
    return LocalTrainingConfig.model_validate(base | fields)


def typed(devices: int, seed: int = 0, words: int = WORDS) -> TokenStream:
    """Devices of very different sizes, long sentences and single words among them."""
    rng = np.random.default_rng(seed)
    owners = []
    for device in range(devices):
        sentences = [
            np.append(np.minimum(3 + rng.zipf(1.4, size=1 + rng.integers(0, 14)), words - 1), EOS)
            for _ in range(1 + device % 5 * 3)
        ]
        owners.append(np.concatenate(sentences).astype(np.int32))
    return join_owners(owners)


def keyboard(tied: bool, dtype: torch.dtype = torch.float32, words: int = WORDS) -> KeyboardLM:
    torch.manual_seed(5)
    model = KeyboardLM(words, 5, 8, tied=tied).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def rows_of(devices: int, config: LocalTrainingConfig, seed: int = 0) -> list[DeviceRows]:
    return cohort_rows(typed(devices, seed), np.arange(devices), config, 0.37)


def difference(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one.double() - other.double()).norm() / other.double().norm())
