"""The sums of all releases but training's, for a population and for the same with one device emptied."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from discovery import discover as trie
from discovery.central import filled, forms, weighted_gaussian
from discovery.central import select as central
from discovery.central.contributions import Shard
from discovery.central.weighted_gaussian import GRID
from discovery.config import CentralConfig, TrieConfig
from discovery.device.typed import TypedWords
from evaluation.arms.arm import PublicNGram
from evaluation.arms.held_out import held_out
from evaluation.comparison.compare import Entrants, Rules
from evaluation.noisy import compare as noisy
from evaluation.noisy.questions import CLIP_NORM as EVALUATION_NORM
from federated.counts import cells as counted
from federated.counts.bounded_sum import released_sum
from federated.counts.release import CLIP_NORM, released_counts
from pretrain.ngrams.ngram import NGram
from pretrain.randomness.noise import seeded_key
from pretrain.words import write_words
from pretrain.writing.case import SIGNS
from tests.helpers.releases.training import without
from tests.helpers.text.counted_devices import VOCABULARY, typed
from tests.helpers.text.typed_text import UNKNOWN, WORDS, stream, vocabulary

KEY, DEVICES = seeded_key(5), 24
# So little noise that a release leaves no digit of a sum out; under one key it falls out of a difference.
QUIET = 2.0**-24
Moved = Callable[[int], Sequence[float]]


def counts(emptied: int) -> list[float]:
    """Counts of words and pairs, in clip norms."""
    devices, cells = typed(DEVICES, 2), counted.choose(typed(60, 1), VOCABULARY, contexts=7)
    there, gone = (released_counts(some, cells, QUIET, KEY) for some in (devices, without(devices, emptied)))
    return [float(np.linalg.norm(there - gone)) / CLIP_NORM]


def evaluation(emptied: int) -> list[float]:
    """The sums about held-out devices, in bounds of one device's vector."""
    rng, pool = np.random.default_rng(0), WORDS + UNKNOWN
    owners = [
        [[pool[place] for place in rng.integers(len(pool), size=6)] for _ in range(count)]
        for count in rng.integers(1, 14, size=2 * DEVICES)
    ]
    sums, words = [], vocabulary()
    for people in (owners, [[] if device == emptied else sentences for device, sentences in enumerate(owners)]):
        with tempfile.TemporaryDirectory() as directory:
            store = write_words(Path(directory), people)
            text = stream(held_out(store, np.arange(DEVICES, 2 * DEVICES)), words)
            models = {
                name: PublicNGram(NGram.fit(text, words, order)) for name, order in {"start": 2, "private": 3}.items()
            }
            entrants = Entrants(models, (("private", "start"),), words, 30, len(words))

            def release(size: int, vectors: Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]) -> np.ndarray:
                sums.append(released_sum(vectors(), size, QUIET, KEY, "evaluation", EVALUATION_NORM))
                return sums[0]

            asked = noisy.Asked(store, np.arange(DEVICES), store)
            noisy.compare(entrants, asked, Rules(("NWP",), "en-US", "salt", 1, 10, 0), release, QUIET)
    return [float(np.linalg.norm(sums[0] - sums[1])) / EVALUATION_NORM]


def typists() -> list[list[str]]:
    """Devices of a few words that all type, in several forms, and of many that two or three type."""
    rng = np.random.default_rng(0)
    return [
        ["the", "lol", "haha" + SIGNS[device % 3], *(f"w{number}" for number in rng.integers(0, 60, 3 * device))]
        for device in range(DEVICES)
    ]


def emptied_words(emptied: int) -> TypedWords:
    return TypedWords.gather([[] if device == emptied else words for device, words in enumerate(typists())])


def central_words(emptied: int) -> list[float]:
    """Weights of words, of forms, and the sum of all weights; in the device's 1 of each."""
    config = CentralConfig(kind="central", noise_multiplier=0.5, words_per_device=30, delta=1e-6)
    first: list[dict] = []
    released: list[object] = []
    moved: list[float] = []
    make = weighted_gaussian.make

    def unnoised(contributions: list, bound: Callable, names: tuple) -> dict:
        return make(
            contributions,
            lambda size: np.zeros(size, np.int64),
            bound,
            lambda *sums: dict(zip(*sums, strict=True)),
            names,
        )

    def of_all(contributions: Iterable, noise_of: Callable, bound: Callable, finish: Callable, names=()) -> object:
        shards = list(contributions)
        first.append(unnoised(shards, bound, names))
        released.append(make(shards, noise_of, bound, finish, names))
        return released[-1]

    def of_all_but_one(contributions: Iterable, noise_of: Callable, bound: Callable, finish: Callable, names=()):
        there, gone = first[len(moved)], unnoised(list(contributions), bound, names)
        moved.append(float(np.linalg.norm([there[name] - gone.get(name, 0) for name in there])) / GRID)
        return released[len(moved) - 1]

    for devices, recorded in ((TypedWords.gather(typists()), of_all), (emptied_words(emptied), of_all_but_one)):
        with pytest.MonkeyPatch.context() as patch:
            for module in (weighted_gaussian, filled, forms):
                patch.setattr(module, "make", recorded)
            central.select(lambda devices=devices: [Shard(0, devices)], DEVICES, frozenset({"the"}), config, KEY)
    assert released[0], "no word passes, so that no form is asked for"
    return moved


def local_words(emptied: int) -> list[float]:
    """Devices whose messages change in each layer: one, which answers in one layer and sends as many when it is empty.

    What one changed message is worth is the randomiser's (``tests/contracts/test_randomizers.py``), and what all of a
    device are worth after shuffling its certificate's: swap, of which zero-out is a case.
    """
    config = TrieConfig(
        kind="ldp-triehh", epsilon0=2.0, delta=1e-6, messages_per_device=4, layers=3, max_prefixes=30, honest_share=1.0
    )
    worlds: list[list[np.ndarray]] = [[], []]
    for world, devices in enumerate((TypedWords.gather(typists()), emptied_words(emptied))):

        def add_up(each: Iterable[np.ndarray], count: int, domain: int, stream: str, world: int = world) -> np.ndarray:
            worlds[world].append(np.array(list(each)))
            assert worlds[world][-1].shape == (count, domain)
            return worlds[0][len(worlds[world]) - 1].sum(axis=0)

        with tempfile.TemporaryDirectory() as directory:
            trie.discover(
                devices,
                known_words=frozenset({"the"}),
                alphabet="ahlow",
                config=config,
                key=KEY,
                directory=Path(directory) / "words",
                add_up=add_up,
            )
    changed = []
    for there_Nd, gone_Nd in zip(*worlds, strict=True):
        np.testing.assert_array_equal(there_Nd.sum(axis=1), gone_Nd.sum(axis=1))
        changed.append(float(np.any(there_Nd != gone_Nd, axis=1).sum()))
    assert sum(changed) <= 1, "a device answers in one layer"
    return changed
