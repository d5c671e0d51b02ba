"""Whole runs on a population whose truth is known: what the paper claims about passes and epsilon."""

import numpy as np
import pytest

from discovery import discover as trie
from discovery.config import DiscoveryConfig
from discovery.device.answer import END
from discovery.device.typed import TypedWords
from discovery.projection import PublicHistogram, votes_for_tuning_only
from discovery.trie import choose, question_of

LETTERS = "abcdefghijklmnopqrstuvwxyz"
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
    values = {"epsilon0": 8.0, "delta": 1e-6, "messages_per_device": 8, "layers": 7, "max_prefixes": 250} | changes
    found = trie.discover(
        typed,
        known_words=frozenset(),
        alphabet=LETTERS,
        config=DiscoveryConfig(**values),
        key=bytes(32),
        directory=folder,
    )
    covered = sum(weights.get(word.word, 0.0) for word in found.words)
    return covered, sum(word.word not in weights for word in found.words), found


@pytest.mark.slow
@pytest.mark.statistical
def test_two_passes_beat_one_and_epsilon_helps(population, tmp_path):
    one, false_one, _ = run(population, tmp_path / "r1")
    two, false_two, _ = run(population, tmp_path / "r2", passes=2)
    assert two >= one + 0.03
    assert max(false_one, false_two) <= 10
    weaker, _, _ = run(population, tmp_path / "e6.5", passes=2, epsilon0=6.5)
    assert weaker < two
    # Without the threshold noise comes through as words.
    _, unfiltered, _ = run(population, tmp_path / "z0", passes=2, significance_z=0.0)
    assert unfiltered > 10


@pytest.mark.statistical
def test_intervals_of_words_hold_the_truth_as_often_as_they_say():
    letters = LETTERS + END
    config = DiscoveryConfig(epsilon0=4.0, delta=1e-6, messages_per_device=1, layers=3, max_prefixes=10_000)
    question = question_of(1, 2, tuple(LETTERS), letters, frozenset(), config)
    counts = np.zeros(question.broadcast.domain, dtype=np.int64)
    ends = [question.broadcast.item(letter + END) for letter in LETTERS]
    counts[ends] = np.linspace(2_000, 20_000, 26).astype(np.int64)
    counts[-1] = 500_000 - counts.sum()
    inside = narrow = total = 0
    for seed in range(40):
        votes_d = votes_for_tuning_only(PublicHistogram("made up, CC0", counts), question.randomizer, seed)
        _, words = choose(question, votes_d, 500_000, 0)
        for word in words:
            truth = counts[question.broadcast.item(word.word + END)] / 500_000
            inside += word.low <= truth <= word.high
            narrow += abs(truth - word.share) <= (word.high - word.low) / 4
            total += 1
    assert total == 40 * 26
    assert 0.93 <= inside / total <= 0.97
    assert narrow / total < 0.8
