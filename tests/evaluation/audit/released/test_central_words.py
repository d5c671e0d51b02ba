"""The audit of words found centrally, where contract faults do not reach: what was stated of its sums."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from discovery.central import select
from discovery.central.contributions import shards_of
from discovery.config import CentralConfig
from discovery.device.typed import TypedWords
from evaluation.audit.released.central_words import DiscoveryRelease, Rule, WordOccurrences, central_words_audit
from pretrain.randomness.noise import seeded_key
from pretrain.writing.case import SIGNS

KEY, KNOWN = seeded_key(6), frozenset({"the"})
CONFIG = CentralConfig(kind="central", noise_multiplier=0.7, words_per_device=12, delta=1e-3)
RULE = Rule.of(KNOWN, 12, 0.7, select.FORMS_SHARE, select.FILLED_SHARE, CONFIG.failure)

RNG = np.random.default_rng(0)
TYPED = TypedWords.gather(
    ["the", "lol", "haha" + SIGNS[device % 3], *(f"w{number}" for number in RNG.integers(0, 40, 2 + device))]
    for device in range(30)
)


@pytest.fixture(scope="module")
def found() -> DiscoveryRelease:
    released = select.release(lambda: shards_of(TYPED, 7), KNOWN, CONFIG, KEY)
    result = select.found(released, len(TYPED), CONFIG)
    words = {word.word: (word.share, word.low, word.high, word.form) for word in result.words}
    assert len(words) > 3
    return DiscoveryRelease(released.weight_of, released.total, released.forms_VF, result.threshold, words)


def failed(found: DiscoveryRelease, rule: Rule = RULE, key: bytes = KEY) -> list[str]:
    typed = WordOccurrences(TYPED.distinct, TYPED.starts, TYPED.numbers)
    return [verdict.name for verdict in central_words_audit(found, typed, rule, key) if not verdict.passed]


def test_shards_and_known_words_are_the_discovery_s(found: DiscoveryRelease) -> None:
    assert failed(found) == []
    assert "weights" in failed(found, replace(RULE, known_words=frozenset()))
    assert "weights" in failed(found, replace(RULE, most=11))
    assert set(failed(found, key=seeded_key(7))) >= {"weights", "total", "forms"}


def test_a_threshold_that_was_lowered_and_stated_so_is_noticed(found: DiscoveryRelease) -> None:
    assert failed(replace(found, threshold=found.threshold * (1 - 1e-6))) == ["threshold"]
    assert "threshold" in failed(found, replace(RULE, failure=RULE.failure * 10))


def test_a_word_less_or_more_is_noticed(found: DiscoveryRelease) -> None:
    first = next(iter(found.weight_of))
    less = {word: weight for word, weight in found.weight_of.items() if word != first}
    assert "weights" in failed(replace(found, weight_of=less, forms_RF=found.forms_RF[1:]))
    assert failed(replace(found, words={**found.words, "own": found.words[first]})) == ["words"]


def stated(change: Callable[[tuple], tuple]) -> Callable[[DiscoveryRelease], DiscoveryRelease]:
    def changed(found: DiscoveryRelease) -> DiscoveryRelease:
        first = min(found.words)
        return replace(found, words={**found.words, first: change(found.words[first])})

    return changed


@pytest.mark.parametrize(
    "change",
    [
        stated(lambda word: (word[0] * 1.01, *word[1:])),
        stated(lambda word: (word[0], word[1] * 0.99, *word[2:])),
        stated(lambda word: (*word[:2], word[2] * 1.01, word[3])),
        stated(lambda word: (*word[:3], "upper" if word[3] == "lower" else "lower")),
    ],
    ids=["share", "low", "high", "form"],
)
def test_what_is_stated_of_a_word_follows_from_its_sums(
    found: DiscoveryRelease, change: Callable[[DiscoveryRelease], DiscoveryRelease]
) -> None:
    assert failed(change(found)) == ["words"]
