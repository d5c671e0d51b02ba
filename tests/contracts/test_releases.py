"""One meaning of the neighbour: a device that contributes nothing, in every release that leaves.

Each entry says how far one device moves everything that noise is added to, in units of the sensitivity that the
accountant is told of, by the functions that make the release.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import pytest

from discovery import discover as trie
from discovery.central import forms, total, weighted_gaussian
from discovery.central import select as central
from discovery.central.contributions import Shard
from discovery.central.weighted_gaussian import GRID
from discovery.config import CentralConfig, TrieConfig
from discovery.device.typed import TypedWords
from evaluation.arms.arm import PublicNGram
from evaluation.arms.held_out import held_out
from evaluation.comparison.compare import Entrants, Rules
from evaluation.noisy import compare as noisy
from evaluation.noisy import questions
from federated.counts import cells as counted
from federated.counts.bounded_sum import released_sum
from federated.counts.release import CLIP_NORM, released_counts
from federated.rounds.privatize import PrivacyState, Privatizer, RoundNoise
from federated.rounds.rule import RoundRule
from pretrain.ngrams.ngram import NGram
from pretrain.randomness import noise
from pretrain.randomness.noise import FIXED_POINT, seeded_key
from pretrain.text.vocabulary import TokenStream, join_owners
from pretrain.text.words import write_words
from pretrain.writing.case import SIGNS
from tests.helpers.audits.mechanism_kinds import EVERY_KIND, QUIETEST, launch_of
from tests.helpers.launches.small_run import DEVICES, Launch, run
from tests.helpers.text.counted_devices import VOCABULARY, typed
from tests.helpers.text.typed_text import UNKNOWN, WORDS, stream, vocabulary


def without(devices: TokenStream, emptied: int) -> TokenStream:
    """The same devices, of which one typed nothing."""
    nothing = np.empty(0, dtype=devices.tokens_N.dtype)
    return join_owners([nothing if device == emptied else devices.owner(device) for device in range(len(devices))])


@dataclass
class Rounds:
    """A run's sums, in which every later run releases what the first one released.

    Composition asks how far a round's sum moves while all that was released before it is the same.

    Attributes:
      launch: of the run.
      more: further fields of ``TrainingData``.
      released: of each round, by the first run.
    """

    launch: Launch
    more: dict[str, object] = field(default_factory=dict)
    released: list[tuple[np.ndarray, PrivacyState]] = field(default_factory=list)

    @cached_property
    def whole(self) -> np.ndarray:
        """The sums with all devices there."""
        return self.sums()

    def sums(self, emptied: int | None = None) -> np.ndarray:
        """Updates and bit of every round, ``[T, P + 1]``, in units of the sensitivity that is accounted.

        Each is divided by the standard deviation of the noise that it really gets, and multiplied by the one noise
        multiplier that the accountant is told of.
        """
        launch, first, rows = self.launch, not self.released, list[np.ndarray]()
        if emptied is not None:
            launch = replace(launch, devices=without(launch.devices, emptied))
        rule, privatize = RoundRule(launch.mechanism, launch.seed, launch.key), Privatizer.privatize

        def recorded(
            privatizer: Privatizer, unnoised_sum_P: np.ndarray, below: float, drawn: RoundNoise, state: PrivacyState
        ) -> tuple[np.ndarray, PrivacyState]:
            unit_P = unit_noise(rule, len(unnoised_sum_P), rule.key)[state.round]
            deviation = np.mean(drawn.noise_P / unit_P) * privatizer.sensitivity
            bit = 0.0
            if privatizer.bits is not None:
                (unit,) = unit_noise(rule, 1, noise.subkey(rule.key, "clip bits"))[state.round]
                bit = below * unit / drawn.bit_noise
            rows.append(np.append(unnoised_sum_P / FIXED_POINT / deviation, bit) * rule.config.noise_multiplier)
            if first:
                self.released.append(privatize(privatizer, unnoised_sum_P, below, drawn, state))
            return self.released[len(rows) - 1]

        with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as directory:
            patch.setattr(Privatizer, "privatize", recorded)
            encoding = run(launch, Path(directory), **self.more)[1].encoding
        return np.array(rows) / (1.0 if encoding is None else encoding.inflated_norm)

    def moved(self, emptied: int) -> np.ndarray:
        """Distance by which one device moves the sums of every round."""
        return np.linalg.norm(self.whole - self.sums(emptied), axis=1)


def unit_noise(rule: RoundRule, size: int, key: bytes) -> list[np.ndarray]:
    """The mechanism's noise of every round at a noise multiplier of 1."""
    one = replace(rule.mechanism, noise_multiplier=1.0)
    state, rows = one.init(size), []
    for number in range(rule.config.rounds):
        row, state = one.noise(state, number, key)
        rows.append(row)
    return rows


def stressed(kind: str = QUIETEST) -> Rounds:
    """A run in which one of the synthetic devices is outside timer and cap."""
    return Rounds(launch_of(kind), {"stress_D": np.arange(DEVICES) == DEVICES - 1, "stress_rate": 0.7})


KEY = seeded_key(5)
# So little noise that a release leaves no digit of a sum out; under one key it falls out of a difference.
QUIET = 2.0**-24


def counts(emptied: int) -> list[float]:
    """Counts of words and pairs, in clip norms."""
    devices, cells = typed(DEVICES, 2), counted.choose(typed(60, 1), VOCABULARY, contexts=7)
    there, gone = (released_counts(some, cells, QUIET, KEY) for some in (devices, without(devices, emptied)))
    return [float(np.linalg.norm(there - gone)) / CLIP_NORM]


def typing(emptied: int) -> list[float]:
    """The same sums with events of simulated typing."""
    return evaluation(emptied, Rules(("SC", "OTF"), "en-US", "salt", 1, 10, 100))


def evaluation(emptied: int, rules: Rules = Rules(("NWP",), "en-US", "salt", 1, 10, 0)) -> list[float]:  # noqa: B008
    """The sums about held-out devices, in bounds of one device's vector."""
    rng, pool = np.random.default_rng(0), WORDS + UNKNOWN
    owners = [
        [[pool[place] for place in rng.integers(len(pool), size=6)] for _ in range(count)]
        for count in rng.integers(1, 14, size=2 * DEVICES)
    ]
    sums, words, clip_norm = [], vocabulary(), questions.clip_norm(typed=rules.session_words > 0)
    for people in (owners, [[] if device == emptied else sentences for device, sentences in enumerate(owners)]):
        with tempfile.TemporaryDirectory() as directory:
            store = write_words(Path(directory) / "people", people)
            public = write_words(Path(directory) / "public", owners[DEVICES:])
            text = stream(held_out(store, np.arange(DEVICES, 2 * DEVICES)), words)
            models = {
                name: PublicNGram(NGram.fit(text, words, order)) for name, order in {"start": 2, "private": 3}.items()
            }
            entrants = Entrants(models, (("private", "start"),), words, 30, len(words))

            def release(size: int, vectors: Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]) -> np.ndarray:
                sums.append(released_sum(vectors(), size, QUIET, KEY, "evaluation", clip_norm))
                return sums[0]

            data = noisy.EvaluationData(store, np.arange(DEVICES), public)
            noisy.compare(entrants, data, rules, release, QUIET)
    return [float(np.linalg.norm(sums[0] - sums[1])) / clip_norm]


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
            for module in (weighted_gaussian, total, forms):
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


# Sums are whole numbers, but noise is divided out of them in float64.
SLACK = 1e-9


@cache
def rounds(kind: str) -> Rounds:
    return stressed() if kind == "stress devices" else Rounds(launch_of(kind))


def trained(kind: str) -> Callable[[int], Sequence[float]]:
    return lambda emptied: rounds(kind).moved(emptied)


RELEASES: dict[str, Callable[[int], Sequence[float]]] = {
    **{f"training: {kind}": trained(kind) for kind in (*EVERY_KIND, "stress devices")},
    "counts": counts,
    "central words": central_words,
    "local words": local_words,
    "evaluation": evaluation,
    "evaluation with typing": typing,
}
# One that is quick of each kind.
QUICK = {f"training: {QUIETEST}", "counts", "central words", "evaluation"}
EMPTIED = (8, 14, 18, 22)
every_release = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in RELEASES]
)


@pytest.mark.slow
@every_release
def test_no_device_moves_a_sum_by_more_than_is_accounted(name: str) -> None:
    moved = np.concatenate([RELEASES[name](device) for device in EMPTIED])
    assert moved.max() <= 1 + SLACK
    assert moved.max() > 0.4, "a release that no device moves shows nothing"


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*EVERY_KIND, "stress devices"])
def test_a_device_that_typed_nothing_moves_no_sum_of_training(kind: str) -> None:
    assert not any(rounds(kind).moved(0))


def test_a_bit_and_an_update_at_their_bounds_move_the_sum_by_all_that_is_accounted() -> None:
    """The bound is reached, so that nothing above it would be hidden by slack."""
    assert max(rounds(QUIETEST).moved(8)) == pytest.approx(1, abs=1e-5)


def nobody_typed(launch: Launch) -> Launch:
    silent = join_owners([np.empty(0, dtype=np.int64)] * len(launch.devices))
    return replace(launch, devices=silent)


def nothing_is_finite(launch: Launch) -> Launch:
    return replace(launch, device=launch.device.model_copy(update={"learning_rate": 1e38, "epochs": 2}))


@pytest.mark.parametrize("kind", [QUIETEST, "clipped estimator, adaptive"])
@pytest.mark.parametrize("nothing", [nobody_typed, nothing_is_finite])
def test_who_contributes_nothing_adds_nothing_to_any_sum(kind: str, nothing: Callable[[Launch], Launch]) -> None:
    assert not Rounds(nothing(launch_of(kind))).sums().any()
