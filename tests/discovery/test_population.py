"""Whole runs on a population whose truth is known: what the paper claims about epsilon."""

import numpy as np
import pytest

from discovery import selection
from discovery.device.typed import TypedWords
from tests.helpers.text.tries import discovered, trie_config

WORDS, DEVICES = 2_000, 24_000
_SYLLABLES = [first + second for first in "bcdfghklmnprstv" for second in "aeiou"]


@pytest.fixture(scope="module")
def population() -> tuple[TypedWords, dict[str, float]]:
    """Heavy users: 150 words each of 2,000 made of syllables, by Zipf's law; and the weight of each word."""
    rng = np.random.default_rng(0)
    words: dict[str, None] = {}
    while len(words) < WORDS:
        words["".join(rng.choice(_SYLLABLES, size=rng.integers(1, 4)))] = None
    weights = 1 / np.arange(1, WORDS + 1) ** 0.9
    weights /= weights.sum()
    numbers = rng.choice(WORDS, size=DEVICES * 150, p=weights).astype(np.int32)
    typed = TypedWords(tuple(words), np.arange(DEVICES + 1) * 150, numbers)
    return typed, dict(zip(words, weights.tolist(), strict=True))


def run(population, folder, **changes):
    typed, weights = population
    config = trie_config(messages_per_device=8, layers=7, max_prefixes=250).model_copy(update=changes)
    found = discovered(folder, typed, known_words=frozenset(), config=config, key=bytes(32))
    covered = sum(weights.get(word.word, 0.0) for word in found.words)
    return covered, sum(word.word not in weights for word in found.words), found


@pytest.mark.slow
@pytest.mark.statistical
def test_epsilon_helps(population, tmp_path, monkeypatch):
    covered, false, _ = run(population, tmp_path / "r1")
    assert false <= 10
    weaker, _, _ = run(population, tmp_path / "e6.5", epsilon0=6.5)
    assert weaker < covered
    # Whoever asks for nearly any share of false words gets them.
    monkeypatch.setattr(selection, "FALSE_DISCOVERY_RATE", 0.999)
    _, unfiltered, _ = run(population, tmp_path / "z0")
    assert unfiltered > false
