"""Small texts for the tests of simulated typing."""

from pathlib import Path

import numpy as np

from evaluation.arms.held_out import HeldOut, held_out
from pretrain.text.vocabulary import EOS, SPECIALS, TokenStream, Vocabulary, join_owners
from pretrain.text.words import write_words

WORDS = (
    *("the", "they", "then", "there", "a", "an", "and", "ant", "i", "in", "it", "is", "its", "to", "two", "too"),
    *("go", "good", "god", "got", "hello", "help", "world", "word", "work", "café", "don't", "was", "saw", "as"),
)
UNKNOWN = ("zyx", "theyre", "goood")


def vocabulary() -> Vocabulary:
    return Vocabulary(SPECIALS + WORDS)


def text(directory: Path, devices: int = 12, seed: int = 0, max_words: int | None = None) -> HeldOut:
    """Devices of different diligence; one of them silent; some words in no vocabulary."""
    rng = np.random.default_rng(seed)
    pool = WORDS + UNKNOWN
    owners = [
        [[pool[i] for i in rng.integers(len(pool), size=rng.integers(1, 9))] for _ in range(rng.integers(1, 12))]
        for _ in range(devices)
    ]
    owners[1] = []
    return held_out(write_words(directory, owners), np.arange(devices), max_words)


def stream(text: HeldOut, vocabulary: Vocabulary) -> TokenStream:
    """Held-out text as one owner a device."""
    ids_P = np.insert(text.ids(vocabulary), text.starts_S[1:], EOS) if len(text.starts_S) else np.empty(0)
    ids_P = np.append(ids_P, EOS) if len(text.starts_S) else ids_P
    size_D = np.bincount(text.device_S, weights=text.lengths_S + 1, minlength=text.devices).astype(np.int64)
    return join_owners(np.split(ids_P, np.cumsum(size_D)[:-1]))
