"""Releases that stream through a round loop or a trie, made with faults planted in each round, or each layer.

Training and local words have no call that holds all contributions at once. What their rounds and layers add, bound,
noise and finish is planted where each of it happens; a round, or a layer, is one ``make``.
"""

import functools
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from discovery import discover, trie
from discovery.config import TrieConfig
from discovery.device import answer, votes
from discovery.device.answer import Question, letters_of
from discovery.device.typed import TypedWords
from evaluation.audit.released.local_words import local_words_audit
from evaluation.audit.verdict import Verdict
from federated.local_training import clipping, sums
from federated.rounds import aggregation
from federated.rounds.privatize import NoiseAhead, Privatizer, RoundNoise
from pipeline.releases.local_words import layers_of, rule_of
from pretrain.randomness.noise import FIXED_POINT
from pretrain.text.vocabulary import TokenStream
from tests.helpers.audits.remade_run import release_audited
from tests.helpers.launches.small_run import Launch, mechanism, run, stream

Plant = Callable[[tuple[Any, ...]], tuple[Any, ...]]
# What a bound is planted in: a factor in these units.
_WHOLE = 1 << 30
ADAPTIVE = {"target_quantile": 0.5, "learning_rate": 0.2, "bit_noise_std": 3.0}


@functools.cache
def launch() -> Launch:
    """Two rounds of 21 devices, trained one by one, whose updates are longer than the clip norm."""
    asked = mechanism(
        noise_multiplier=4.0,
        clip_norm=0.05,
        rounds=2,
        report_goal=21,
        min_sep=1,
        max_participations=2,
        restarts=[1],
        adaptive_clipping=ADAPTIVE,
    )
    one_by_one = Launch().runtime.model_copy(update={"chunk_devices": 1})
    return Launch(mechanism=asked, devices=spoken(1), runtime=one_by_one)


def spoken(seed: int) -> TokenStream:
    """Text of sixty devices, of which each typed something."""
    return stream(66, seed).select(np.flatnonzero(np.arange(66) % 10))


def training(
    plant: Plant, key: bytes, *, share_of_bit_noise: float = 1.0, trained_on: TokenStream | None = None
) -> tuple[Verdict, ...]:
    """Rounds with faults, and the verdicts on them.

    Args:
      trained_on: text of other devices than those that should train.
    """
    asked = replace(launch(), key=key)

    def train(launch: Launch, *given: Any, **named: Any) -> Any:
        with planted_rounds(plant, share_of_bit_noise):
            return run(replace(launch, devices=trained_on or launch.devices), *given, **named)

    with tempfile.TemporaryDirectory() as folder:
        return release_audited(asked, Path(folder), train)


@contextmanager
def planted_rounds(plant: Plant, share_of_bit_noise: float = 1.0) -> Iterator[None]:
    """Plant every round's devices, bound, noise and last digits."""
    draw, chunked_sum, grid_scale, on_grid = Privatizer.draw, aggregation.chunked_sum, sums.grid_scale, clipping.on_grid
    now: dict[str, Any] = {}

    def drawn(self: Privatizer, state: Any, key: bytes) -> RoundNoise:
        made, devices = draw(self, state, key), []
        whole_P = np.rint(made.noise_P * FIXED_POINT).astype(np.int64)
        base = (devices, lambda *_: whole_P, lambda _: (None, np.array([_WHOLE])), on_grid)
        contributions, noise, bound, finish = plant(base)
        now.update(devices=devices, contributions=contributions, bound=bound, finish=finish)
        bit_noise = made.bit_noise * share_of_bit_noise
        return replace(made, noise_P=noise(len(whole_P)) / FIXED_POINT, bit_noise=bit_noise)

    def summed(model: Any, ordered: Any, *others: Any, **named: Any) -> Any:
        now["devices"].extend(ordered)
        return chunked_sum(model, list(now["contributions"]), *others, **named)

    def scaled(*given: Any) -> float:
        return grid_scale(*given) * int(now["bound"](None)[1][0]) / _WHOLE

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Privatizer, "draw", drawn)
        # In turn: what is planted in a round must meet that round's devices.
        patch.setattr(NoiseAhead, "draw", lambda ahead, state: ahead.privatizer.draw(state, ahead.key))
        patch.setattr(aggregation, "chunked_sum", summed)
        patch.setattr(sums, "grid_scale", scaled)
        patch.setattr(clipping, "on_grid", lambda *sum_of: now["finish"](*sum_of))
        yield


def unrounded(finish: Callable[..., Any]) -> Callable[..., Any]:
    """Sums with all their digits."""
    return lambda noisy, deviation: noisy.astype(np.float64)


CONFIG = TrieConfig(
    kind="ldp-triehh", epsilon0=5.0, delta=1e-6, messages_per_device=2, layers=3, max_prefixes=20, honest_share=1.0
)
KNOWN, LETTERS = frozenset({"the"}), "ahlow"


@functools.cache
def typists() -> TypedWords:
    rng = np.random.default_rng(0)
    pool = ["ha", "lo", "ow", "hal", "the"]
    return TypedWords.gather([[pool[place] for place in rng.integers(5, size=4)] for _ in range(200)])


def local_words(plant: Plant, key: bytes) -> tuple[Verdict, ...]:
    """A discovery with faults in each layer, and the verdicts on it.

    Where votes are no sum of whole messages the discovery itself ends, and has released nothing.
    """
    with tempfile.TemporaryDirectory() as directory, planted_layers(plant):
        folder = Path(directory) / "layers"
        try:
            found = discover.discover(
                typists(), known_words=KNOWN, alphabet=LETTERS, config=CONFIG, key=key, directory=folder
            )
        except ArithmeticError:
            return (Verdict("votes", "", "", False, "votes are not the sum of the messages that devices send"),)
        published = {word.word: word.form for word in found.words}
        rule = rule_of(CONFIG, letters_of(LETTERS), KNOWN)
        return local_words_audit(key, layers_of(folder), published, typists().of, rule)


@contextmanager
def planted_layers(plant: Plant) -> Iterator[None]:
    """Layers in which devices, a message's noise, its bound and the words' threshold are planted."""
    randomise, word_votes = answer.randomise, trie.word_votes
    now: dict[str, Any] = {}

    def added(votes_d: np.ndarray, question: Question, devices_N: np.ndarray, typed: TypedWords, key: bytes) -> None:
        sent: list[tuple[int, np.ndarray]] = []

        def recorded(randomizer: Any, value: int, bits: Any) -> np.ndarray:
            sent.append((value, randomise(randomizer, value, bits)))
            return sent[-1][1]

        def noise(row: int) -> np.ndarray:
            sent.clear()
            question.answer(typed.of(row), int(devices_N[row]), key)
            noise_d = np.zeros(len(votes_d), dtype=np.int64)
            for value, items in sent:
                noise_d[items] += 1
                noise_d[value] -= 1
            return noise_d

        def bound(row: int) -> tuple[slice, np.ndarray]:
            noise_d = now["noise"](row)
            for value, _ in sent:
                noise_d[value] += 1
            return slice(None), 1000 * noise_d

        contributions, now["noise"], bound, now["finish"] = plant((range(len(devices_N)), noise, bound, word_votes))
        patch.setattr(answer, "randomise", recorded)
        for row in contributions:
            cells, thousandths_d = bound(row)
            votes_d[cells] -= -thousandths_d // 1000

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(votes, "one_by_one", added)
        patch.setattr(trie, "word_votes", lambda *given: now["finish"](*given))
        yield


def any_word(finish: Callable[..., Any]) -> Callable[..., Any]:
    """One vote makes a word."""
    return lambda *_: 1
