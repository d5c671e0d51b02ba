from collections import Counter

import numpy as np
import pytest

from federated.config.population import SyntheticPopulation
from federated.devices.store import build_store, open_store
from federated.devices.synthetic import typists


def population(**fields: object) -> SyntheticPopulation:
    base = {"source": "synthetic", "name": "made-up", "max_words_per_device": 10_000, "devices": 300}
    return SyntheticPopulation.model_validate(base | fields)


@pytest.mark.slow
def test_a_function_of_the_seed():
    one, again, other = (list(typists(population(devices=5), "es-ES", seed).devices) for seed in (1, 1, 2))
    assert one == again
    assert one != other


@pytest.mark.slow
def test_a_larger_population_only_adds_typists():
    few = dict(typists(population(devices=10), "en-US", 1).devices)
    many = dict(typists(population(devices=99), "en-US", 1).devices)
    assert few.items() <= many.items()


@pytest.mark.slow
@pytest.mark.statistical
def test_volume_words_and_topics_look_like_a_population(tmp_path):
    summary = build_store(population(), "en-US", 3, tmp_path / "store")
    assert summary.synthetic
    assert summary.source == "synthetic"
    store = open_store(tmp_path / "store")
    volumes = np.array([np.count_nonzero(store.words.owner(device)) for device in range(len(store.words))])
    # Standard error of the mean of 300 lognormal volumes (sigma 1): 200 * 1.31 / sqrt(300) = 15.
    assert 140 < volumes.mean() < 260
    assert volumes.mean() > 1.2 * np.median(volumes)
    counts = Counter(store.words.word_counts())
    top = [count for _, count in counts.most_common(400)]
    # Zipf: the tenth word is several times as frequent as the hundredth.
    assert 3 < top[9] / top[99] < 40
    within, between = _topic_overlap(store)
    assert within > 1.2 * between


def _topic_overlap(store) -> tuple[float, float]:
    """Mean number of rarer words shared by halves of one typist, and by halves of two typists."""
    common = {word for word, _ in Counter(store.words.word_counts()).most_common(100)}
    halves = []
    for device in range(len(store.words)):
        words = [store.words.lexicon[number - 1] for number in store.words.owner(device) if number]
        rare = [word for word in words if word not in common]
        if len(rare) >= 60:
            halves.append((set(rare[:30]), set(rare[30:60])))
    within = np.mean([len(first & second) for first, second in halves])
    between = np.mean(
        [len(halves[i][0] & halves[j][1]) for i in range(len(halves)) for j in range(len(halves)) if i != j]
    )
    return within, between


def test_a_language_without_frequencies_is_refused():
    with pytest.raises(ValueError, match="word frequencies"):
        typists(population(), "zu-ZA", 1)
