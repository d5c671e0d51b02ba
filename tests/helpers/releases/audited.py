"""Small releases made through ``make`` with faults planted in its four arguments, and the verdicts of their audits.

An entry of ``RELEASES`` takes a ``Plant`` and a key, makes the release with every ``make`` of it planted, and returns
the verdicts of its audit.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from discovery.central import filled, forms, select, weighted_gaussian
from discovery.central.contributions import shards_of
from discovery.config import CentralConfig
from discovery.device.typed import TypedWords
from evaluation.audit.released import central_words
from evaluation.audit.released.counts import Asked, counts_audit
from evaluation.audit.released.evaluation import evaluation_audit
from evaluation.audit.released.key import key_audit
from evaluation.audit.verdict import Verdict
from evaluation.noisy.compare import coverage
from evaluation.noisy.questions import CLIP_NORM as EVALUATION_NORM
from evaluation.noisy.questions import MOST_WORDS, WORDS, Layout, vectors
from federated.counts import bounded_sum
from federated.counts import cells as counted
from federated.counts.release import CLIP_NORM, released_counts
from pretrain.writing.case import SIGNS
from tests.helpers.text.counted_devices import VOCABULARY, typed

FACTS = ("made-up-2026-11-25-0123456789ab", "made_up:people", "en-US", "17", "count", "discover", "ab_test")
Make = Callable[..., Any]
# Arguments of ``make``: contributions, noise, bound, finish.
Parts = tuple[Iterable[Any], Callable[..., np.ndarray], Callable[[Any], Any], Callable[..., Any]]
Plant = Callable[[Parts], Parts]
DEVICES, Z = 30, 0.8


@contextmanager
def planted(module: ModuleType, plant: Plant) -> Iterator[None]:
    """A module whose ``make`` is given planted arguments."""
    make = module.make

    def faulty(*parts: Any) -> Any:
        return make(*plant(parts[:4]), *parts[4:])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "make", faulty)
        yield


def secret(key: bytes) -> Verdict:
    """The verdict on a key that the ledger is committed to."""
    commitment = hashlib.sha256(b"tacit key commitment" + key).hexdigest()
    return key_audit(key, commitment, FACTS, seeded=False)


@cache
def counting() -> tuple[Any, counted.Cells]:
    return typed(DEVICES, 2), counted.choose(typed(60, 1), VOCABULARY, contexts=7)


def counts(plant: Plant, key: bytes) -> tuple[Verdict, ...]:
    devices, cells = counting()
    with planted(bounded_sum, plant):
        released_U = released_counts(devices, cells, Z, key)
    asked = Asked(cells.context_K, cells.weight_U, cells.vocabulary_size)
    return counts_audit(released_U, map(devices.owner, range(len(devices))), asked, Z, CLIP_NORM, key)


def evaluation(plant: Plant, key: bytes) -> tuple[Verdict, ...]:
    rng, layout = np.random.default_rng(3), Layout((coverage(),))
    words_D = rng.integers(1, 90, DEVICES)
    unknown_D = rng.binomial(words_D, 0.3)
    parts = {WORDS: words_D, "unknown_words": unknown_D, "new_words": rng.binomial(unknown_D, 0.5)}
    each = list(vectors(layout, parts))
    with planted(bounded_sum, plant):
        released_M = bounded_sum.released_sum(each, len(layout), Z, key, "evaluation", EVALUATION_NORM)
    vectors_DM = np.array([vector_M for _, vector_M in each])
    weight = layout.weights[WORDS]
    return evaluation_audit(released_M, vectors_DM, words_D, len(layout), weight, MOST_WORDS, Z, EVALUATION_NORM, key)


@cache
def typists() -> TypedWords:
    """Devices of a few words that most type, in several forms, and of many that some type."""
    rng = np.random.default_rng(0)
    return TypedWords.gather(
        ["the", "lol", "haha" + SIGNS[device % 3], *(f"w{number}" for number in rng.integers(0, 40, 2 + device))]
        for device in range(DEVICES)
    )


def central(module: ModuleType) -> Callable[[Plant, bytes], tuple[Verdict, ...]]:
    """A central discovery with faults in one of its three sums."""

    def made(plant: Plant, key: bytes) -> tuple[Verdict, ...]:
        config = CentralConfig(kind="central", noise_multiplier=Z, words_per_device=12, delta=1e-3)
        devices, known, cut = typists(), frozenset({"the"}), select.cut_of(config)
        with planted(module, plant):
            released = select.release(lambda: shards_of(devices, 1), known, config, key)
        result = select.found(released, len(devices), config)
        found = central_words.Found(
            released.weight_of,
            released.total,
            released.forms_VF,
            result.threshold,
            {word.word: (word.share, word.low, word.high, word.form) for word in result.words},
        )
        rule = central_words.Rule(
            known, config.words_per_device, cut.noise_multiplier, cut.filled_noise, cut.forms_noise, config.failure
        )
        text = central_words.Typed(devices.distinct, devices.starts, devices.numbers)
        return central_words.central_words_audit(found, text, rule, key)

    return made


@dataclass(frozen=True)
class Audited:
    """A release in small.

    Attributes:
      made: makes it with a plant under a key, and audits it.
      spoilt: post-processing that releases more than it may: given the honest one, the faulty one.
    """

    made: Callable[[Plant, bytes], tuple[Verdict, ...]]
    spoilt: Callable[[Callable[..., Any]], Callable[..., Any]]


def all_digits(finish: Callable[..., Any]) -> Callable[..., Any]:
    """Sums with digits that tell of a device."""
    return lambda *sums: finish(*sums) + 2.0**-40


def lower(finish: Callable[..., Any]) -> Callable[..., Any]:
    """A threshold below half of what it should be."""
    return lambda words, noisy_V: weighted_gaussian.passing(Z, 0.5)(words, noisy_V)


def one_form_louder(finish: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *sums: finish(*sums) + 1


RELEASES: dict[str, Audited] = {
    "counts": Audited(counts, all_digits),
    "evaluation": Audited(evaluation, all_digits),
    "central words, weights": Audited(central(weighted_gaussian), lower),
    "central words, total": Audited(central(filled), all_digits),
    "central words, forms": Audited(central(forms), one_form_louder),
}
