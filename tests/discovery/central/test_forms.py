"""Written forms of released words: one device moves the sums by 1 at most, and noise decides no form."""

import itertools
from collections.abc import Iterable, Mapping

import numpy as np
import pytest

from discovery.central.contributions import Shard, shards_of
from discovery.central.forms import decided, forms_weights, noisy_forms
from discovery.central.weighted_gaussian import GRID
from discovery.device.typed import TypedWords
from pretrain.writing.case import SIGNS

KEY = bytes(32)
CAPITAL, UPPER = SIGNS[1], SIGNS[2]
WORDS = ("byu", "lol", "utah")


def weights(devices: list[list[str]]) -> np.ndarray:
    return forms_weights(Shard(0, TypedWords.gather(devices)), WORDS) / GRID


def forms_of(words: Iterable[str], shards: Iterable[Shard], noise_multiplier: float) -> Mapping[str, str]:
    words = list(words)
    return decided(words, noisy_forms(words, shards, noise_multiplier, KEY), noise_multiplier)


def test_one_device_moves_all_sums_by_one_at_most() -> None:
    """Every device with up to three occurrences of released words in any form, and others."""
    typed = ["lol", "lol" + UPPER, "byu" + UPPER, "utah" + CAPITAL, "other" + CAPITAL]
    assert not weights([[]]).any()
    for count in (1, 2, 3):
        for device in itertools.combinations_with_replacement(typed, count):
            moved = weights([list(device)])
            assert np.linalg.norm(moved) <= 1
            released = {word.rstrip(SIGNS) for word in device} & set(WORDS)
            assert np.count_nonzero(moved) == len(released)
            if released:
                assert np.linalg.norm(moved) == pytest.approx(1, abs=1e-8)


def test_most_devices_decide_and_each_by_what_it_types_most() -> None:
    people = [["byu" + UPPER, "byu" + UPPER, "byu", "lol"] for _ in range(60)]
    people += [["byu", "lol", "utah" + CAPITAL] for _ in range(20)]
    typed = TypedWords.gather(people)
    whole = forms_of(WORDS, [Shard(0, typed)], 0.5)
    assert whole == {"byu": "upper", "utah": "capital"}
    for size in (1, 7, 79):
        assert forms_of(reversed(WORDS), shards_of(typed, size), 0.5) == whole


def test_noise_alone_makes_a_capital_once_in_twenty_at_most() -> None:
    words = [f"w{number}" for number in range(4000)]
    silent = [Shard(0, TypedWords.gather([[]]))]
    wrong = len(forms_of(words, silent, 5.0))
    assert 0.05 * len(words) * 0.8 < wrong < 2 * 0.05 * len(words) * 1.05


def test_no_words_have_no_forms() -> None:
    assert forms_of([], [Shard(0, TypedWords.gather([["a"]]))], 1.0) == {}
