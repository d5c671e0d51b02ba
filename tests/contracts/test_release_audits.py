"""The audit of every release, over faults planted through ``make``: 20 of 20 seeds held, an honest release never.

A new release is an entry of ``RELEASES``: it takes a ``Plant`` and a key, makes the
release with every ``make`` of it planted, and returns the verdicts of its audit.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from discovery.central import forms, select, total, weighted_gaussian
from discovery.central.contributions import shards_of
from discovery.config import CentralConfig
from discovery.device.typed import TypedWords
from evaluation.audit.released import central_words
from evaluation.audit.released.counts import CountCells, counts_audit
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
from tests.contracts import planted_rounds
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


@cache
def secret(key: bytes) -> Verdict:
    """The verdict on a key that the ledger is committed to: the same for every release, and a second of guesses."""
    commitment = hashlib.sha256(b"tacit key commitment" + key).hexdigest()
    return key_audit(key, commitment, FACTS, b"", seeded=False)


@cache
def counting() -> tuple[Any, counted.Cells]:
    return typed(DEVICES, 2), counted.choose(typed(60, 1), VOCABULARY, contexts=7)


def failed(verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    return tuple(verdict for verdict in verdicts if not verdict.passed)


def counts(plant: Plant, key: bytes) -> tuple[Verdict, ...]:
    devices, cells = counting()
    with planted(bounded_sum, plant):
        released_U = released_counts(devices, cells, Z, key)
    asked = CountCells(cells.context_K, cells.weight_U, cells.vocabulary_size)
    each = map(devices.owner, range(len(devices)))
    return counts_audit(released_U, each, asked, Z, CLIP_NORM, key, [released_U], [released_U])


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
        found = central_words.DiscoveryRelease(
            released.weight_of,
            released.total,
            released.forms_VF,
            result.threshold,
            {word.word: (word.share, word.low, word.high, word.form) for word in result.words},
        )
        rule = central_words.Rule(
            known, config.words_per_device, cut.noise_multiplier, cut.filled_noise, cut.forms_noise, config.failure
        )
        text = central_words.WordOccurrences(devices.distinct, devices.starts, devices.numbers)
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
    "central words, total": Audited(central(total), all_digits),
    "central words, forms": Audited(central(forms), one_form_louder),
    "training": Audited(planted_rounds.training, planted_rounds.unrounded),
    "local words": Audited(planted_rounds.local_words, planted_rounds.any_word),
}


SEEDS = range(20)
# Those that stream through rounds or layers take seconds for twenty seeds.
STREAMED = {"training", "local words"}
QUICK = {"counts", "evaluation"}
every_release = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in RELEASES]
)


def key_of(seed: int) -> bytes:
    return hashlib.sha256(f"release audits, {seed}".encode()).digest()


def honest(parts: Parts) -> Parts:
    return parts


def other_noise(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Audited, int], Plant]:
    def fault(_: Audited, seed: int) -> Plant:
        return lambda parts: (parts[0], lambda *size: change(parts[1](*size)), *parts[2:])

    return fault


def times(count: int) -> Callable[[Audited, int], Plant]:
    """The contribution of one device ``count`` times."""

    def repeated(contributions: Iterable[Any], which: int) -> Iterator[Any]:
        for number, contribution in enumerate(contributions):
            yield from itertools.repeat(contribution, count if number == which else 1)

    return lambda _, seed: lambda parts: (repeated(parts[0], seed), *parts[1:])


def above_its_bound(_: Audited, seed: int) -> Plant:
    """The contribution of one device by a thousandth more than its bounded one."""

    def plant(parts: Parts) -> Parts:
        number = itertools.count()

        def bound(contribution: Any) -> tuple[Any, np.ndarray]:
            cells, units = parts[2](contribution)
            return cells, units + units // 1000 if next(number) == seed else units

        return parts[0], parts[1], bound, parts[3]

    return plant


def other_finish(release: Audited, seed: int) -> Plant:
    return lambda parts: (*parts[:3], release.spoilt(parts[3]))


FAULTS: dict[str, Callable[[Audited, int], Plant]] = {
    "no noise": other_noise(np.zeros_like),
    "a millionth of the noise": other_noise(lambda noise: noise // 10**6),
    "noise twice": other_noise(lambda noise: 2 * noise),
    "a device left out": times(0),
    "a device counted twice": times(2),
    "a contribution above its bound": above_its_bound,
    "a threshold lowered, or more digits": other_finish,
}


@cache
def faulty(name: str, fault: str, seed: int) -> tuple[Verdict, ...]:
    release = RELEASES[name]
    return release.made(FAULTS[fault](release, seed), key_of(seed))


@pytest.mark.slow
@every_release
def test_an_honest_release_passes(name: str) -> None:
    for seed in SEEDS:
        verdicts = (secret(key_of(seed)), *RELEASES[name].made(honest, key_of(seed)))
        assert not failed(verdicts)
        assert len({verdict.name for verdict in verdicts}) == len(verdicts)


@pytest.mark.parametrize("fault", FAULTS)
@every_release
def test_a_planted_fault_is_held_at_every_seed(name: str, fault: str) -> None:
    held = [failed(faulty(name, fault, seed)) for seed in SEEDS]
    assert all(held), f"{sum(map(bool, held))} of {len(held)}"


@pytest.mark.slow
@every_release
def test_a_key_derived_from_something_public_is_held_at_every_seed(name: str) -> None:
    """Nothing but the key's verdict can see it: noise from it is noise as any other, which is made at some seeds."""
    for seed, public in zip(SEEDS[: 3 if name in STREAMED else None], itertools.permutations(FACTS, 2), strict=False):
        key = hashlib.sha256(":".join(public).encode()).digest()
        assert [verdict.name for verdict in failed((secret(key), *RELEASES[name].made(honest, key)))] == ["key"], seed


@every_release
def test_verdicts_have_the_same_words_whatever_the_text_and_the_noise(name: str) -> None:
    """All that a reader is shown of them but ``passed``: no number of a release is in it."""
    made = [faulty(name, "no noise", seed) for seed in SEEDS]
    assert len({tuple((verdict.name, verdict.tested, verdict.slack) for verdict in each) for each in made}) == 1
    spoken = {(verdict.name, verdict.sentence) for each in made for verdict in each if not verdict.passed}
    assert len(spoken) == len({name for name, _ in spoken})


@pytest.mark.slow
def test_clipping_bits_without_noise_are_held_at_every_seed() -> None:
    held = [failed(planted_rounds.training(honest, key_of(seed), share_of_bit_noise=0.0)) for seed in SEEDS]
    assert all([verdict.name for verdict in each] == ["clipping_bits"] for each in held)


@pytest.mark.slow
def test_validation_devices_that_train_are_held_at_every_seed() -> None:
    """Rounds number devices alike, whoever they are: what tells is the text that a chosen round is made of again."""
    held = [
        failed(planted_rounds.training(honest, key_of(seed), trained_on=planted_rounds.spoken(seed)))
        for seed in range(2, 22)
    ]
    assert all("rounds" in [verdict.name for verdict in each] for each in held)


def test_a_published_model_of_counts_that_knows_more_than_the_sums_is_held() -> None:
    """Noise is in the sums that are kept for the audit, and not in those that the model was made of."""
    devices, cells = counting()
    key = key_of(0)
    asked = CountCells(cells.context_K, cells.weight_U, cells.vocabulary_size)
    released_U = released_counts(devices, cells, Z, key)
    each = map(devices.owner, range(len(devices)))
    quiet_U = released_counts(devices, cells, 1e-6, key)
    verdicts = counts_audit(released_U, each, asked, Z, CLIP_NORM, key, [quiet_U], [released_U])
    assert [verdict.name for verdict in failed(verdicts)] == ["model"]
