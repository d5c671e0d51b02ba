"""Frequencies of discovered words follow from what discovery states, whatever the number of messages."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from discovery import frequencies
from federated.config.population import ChitchatPopulation
from federated.devices import store as population


def test_as_many_devices_hold_a_word_however_many_messages_each_sends() -> None:
    holders_N = np.array([0.2, 0.05, 0.01])
    once, ten_times = (frequencies.of_messages(holders_N / messages, messages) for messages in (1, 10))
    np.testing.assert_allclose(once, ten_times)
    np.testing.assert_array_equal(frequencies.of_messages(np.array([3.0]), 1), frequencies.of_messages(np.ones(1), 1))


def test_a_share_of_unknown_words_becomes_one_of_all_words() -> None:
    np.testing.assert_allclose(frequencies.of_contributions(np.array([0.5, 0.1]), 3 / 8), [0.1875, 0.0375])


def test_a_word_of_typed_chat_is_as_frequent_as_its_holders_say(tmp_path: Path) -> None:
    """Within a factor of three, for nine in ten words that 3 to 30% of people type."""
    config = ChitchatPopulation(source="chitchat", name="typed", max_words_per_device=400)
    population.build_store(config, "en-US", 1, tmp_path)
    people = list(population.open_store(tmp_path).device_words("train"))
    typed, holders = Counter(word for words in people for word in words), Counter()
    for words in people:
        holders.update(set(words))
    held = {word: count / len(people) for word, count in holders.items() if 0.03 <= count / len(people) <= 0.3}
    assert len(held) > 100
    stated_N = frequencies.of_messages(np.array(list(held.values())), 1)
    ratio_N = stated_N * typed.total() / np.array([typed[word] for word in held])
    assert np.mean((ratio_N > 1 / 3) & (ratio_N < 3)) > 0.9, f"{np.quantile(ratio_N, (0.05, 0.5, 0.95))}"


@pytest.mark.parametrize("messages", [1, 10])
def test_frequencies_are_shares(messages: int) -> None:
    assert np.all(frequencies.of_messages(np.array([0.0, 1.0]), messages) <= 0.01)
