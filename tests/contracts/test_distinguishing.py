"""A game against every release: can an attacker tell neighbours apart better than the stated loss allows?

The attacker knows everything but whether one device contributes, and sees all that the release's own ``make`` returns,
under many keys. Two attacks are played: the likelihood ratio along the device's contribution, and the support, which
asks whether a released value minus a hypothetical sum can be the noise at all. Frequencies on either side of fixed
thresholds bound the loss from below by Clopper and Pearson (1934, *The Use of Confidence or Fiducial Limits*), with a
share of the error probability for each threshold. Honest releases stay within their statement; each planted fault
exceeds it.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats

from discovery.central import forms, select, total, weighted_gaussian
from discovery.central.contributions import Shard
from discovery.central.weighted_gaussian import GRID
from discovery.config import CentralConfig
from discovery.device.keystream import Keystream
from discovery.device.randomizer import randomise, subset_selection
from discovery.device.typed import TypedWords
from evaluation.noisy.questions import clip_norm
from federated import mechanisms
from federated.accounting import guarantees
from federated.accounting.gaussian import epsilon_of_rho
from federated.config.mechanism import MechanismConfig
from federated.counts import bounded_sum
from federated.counts.bounded_sum import released_sum
from federated.counts.cells import Cells, choose
from federated.counts.release import CLIP_NORM, released_counts
from federated.local_training import clipping
from federated.rounds.rule import RoundRule
from pipeline.releases.audit_trace import whitener
from pipeline.releases.central_words import central_discovery
from pretrain.randomness import noise
from pretrain.randomness.noise import FIXED_POINT
from pretrain.text.vocabulary import join_owners
from tests.helpers.audits.mechanism_kinds import KINDS, launch_of
from tests.helpers.text.counted_devices import VOCABULARY, typed

DELTA = 1e-5
KEYS, ERROR = 1500, 1e-3
# Largest epsilon that so many keys can show is 4.9; a release is played at a loss well below it.
Z = 1.25
# In standard deviations of the noise: where the scores of the two worlds are cut.
THRESHOLDS = (-1.0, 0.0, 0.5, 1.0, 2.0, 4.0)

pytestmark = [pytest.mark.slow, pytest.mark.statistical]


@dataclass(frozen=True)
class Scores:
    """Evidence of one release for the device's presence.

    Attributes:
      likelihood: along the contribution, in standard deviations of the noise, 0 in the middle of the two worlds.
      support: 1 if only presence is possible, -1 if only absence is, 0 if both are or neither is.
    """

    likelihood: float
    support: int


Played = Callable[[bool, bytes], Scores]


@dataclass(frozen=True)
class Game:
    """A release in small, with a device that contributes as much as it may.

    Attributes:
      played: releases with or without the device under a key, and scores what leaves.
      epsilon: stated loss of the device at ``DELTA``.
    """

    played: Played
    epsilon: float


def bound(game: Game) -> float:
    """Lower bound on epsilon at ``DELTA`` that holds with probability 1 - ERROR."""
    here, gone = (
        [game.played(there, hashlib.sha256(f"{there} {number}".encode()).digest()) for number in range(KEYS)]
        for there in (True, False)
    )
    tests = [(lambda score, cut=cut: score.likelihood > cut) for cut in THRESHOLDS]
    tests += [lambda score: score.support > 0]
    error = ERROR / (4 * len(tests))
    return max(
        _epsilon(sum(map(guess, one)), sum(map(guess, other)), error, inverted)
        for guess in tests
        for one, other, inverted in ((here, gone, False), (gone, here, True))
    )


def _epsilon(right: int, wrong: int, error: float, inverted: bool) -> float:
    if inverted:  # the guess is that the device is absent
        right, wrong = KEYS - right, KEYS - wrong
    true = stats.beta.ppf(error, right, KEYS - right + 1) if right else 0.0
    false = stats.beta.isf(error, wrong + 1, KEYS - wrong) if wrong < KEYS else 1.0
    return math.log((true - DELTA) / false) if true > DELTA else 0.0


def scored(
    released_U: np.ndarray, absent_U: np.ndarray, moved_U: np.ndarray, deviation_U: np.ndarray | float
) -> Scores:
    """Score noisy sums whose noise is independent.

    Args:
      absent_U: sums without the device and without noise.
      moved_U: what it adds.
      deviation_U: of the noise.
    """
    without_U, along_U = released_U - absent_U, moved_U / deviation_U
    middle_U = (without_U - moved_U / 2) / deviation_U
    support = int(_possible(without_U - moved_U)) - int(_possible(without_U))
    return Scores(float(middle_U @ along_U) / float(np.linalg.norm(along_U)), support)


def _possible(noise_U: np.ndarray) -> bool:
    """Return whether values can be noise of single precision: what floats without a lattice show."""
    return bool(np.all(noise_U == noise_U.astype(np.float32)))


# Faults by the arguments of ``make``: contributions, noise, bound, finish.
Parts = tuple[Any, ...]
Fault = Callable[[Parts], Parts]


def no_noise(parts: Parts) -> Parts:
    each, drawn, bounded, finish = parts
    return each, lambda *size: drawn(*size) * 0, bounded, finish


def a_millionth(parts: Parts) -> Parts:
    each, drawn, bounded, finish = parts
    return each, lambda *size: drawn(*size) // 1_000_000, bounded, finish


def above_its_bound(parts: Parts) -> Parts:
    each, drawn, bounded, finish = parts
    return each, drawn, lambda one: (bounded(one)[0], bounded(one)[1] * 12), finish


def coarse_floats(parts: Parts) -> Parts:
    """Noise of single precision; ``planted`` also shows all digits of the sums."""
    each, drawn, bounded, finish = parts
    return each, lambda *size: drawn(*size).astype(np.float32).astype(np.int64), bounded, finish


FAULTS: dict[str, Fault] = {
    "no noise": no_noise,
    "a millionth of the noise": a_millionth,
    "a contribution above its bound": above_its_bound,
    "floats without a lattice": coarse_floats,
}


@contextmanager
def planted(modules: Iterable[Any], fault: Fault | None, *, digits: bool) -> Iterator[None]:
    """Plant a fault in the ``make`` of modules.

    Args:
      digits: show all digits of sums instead of multiples of a millionth of the noise.
    """
    with pytest.MonkeyPatch.context() as patch:
        for module in modules if fault else ():
            make = module.make
            patch.setattr(module, "make", lambda *parts, make=make: make(*fault(parts[:4]), *parts[4:]))
        for module in (noise, bounded_sum, clipping) if digits else ():
            patch.setattr(module, "on_grid", lambda noisy, deviation: np.asarray(noisy, dtype=np.float64))
        yield


def of_sums(
    release: Callable[[bool, bytes], np.ndarray],
    modules: Iterable[Any],
    fault: Fault | None,
    deviation_U: np.ndarray | float,
) -> Played:
    """Play a release of sums of whole numbers; the attacker makes the sums of both worlds without noise.

    Args:
      release: whole numbers.
      deviation_U: of the noise.
    """
    with planted(modules, lambda parts: no_noise(fault(parts) if fault else parts), digits=True):
        gone_U, there_U = (release(there, bytes(32)) for there in (False, True))

    def played(there: bool, key: bytes) -> Scores:
        with planted(modules, fault, digits=fault is coarse_floats):
            return scored(release(there, key), gone_U, there_U - gone_U, deviation_U)

    return played


@cache
def counting() -> tuple[Any, Any, Cells]:
    devices, cells = typed(5, 2), choose(typed(60, 1), VOCABULARY, contexts=7)
    owners = [devices.owner(device) for device in range(len(devices))]
    return devices, join_owners([*owners[:-1], owners[-1][:0]]), cells


def counts(fault: Fault | None) -> Game:
    there, gone, cells = counting()
    norm = CLIP_NORM / 10  # devices of a few words reach it

    def release(here: bool, key: bytes) -> np.ndarray:
        return whole(released_counts(there if here else gone, cells, Z, key, norm), norm)

    played = of_sums(release, [bounded_sum], fault, Z * FIXED_POINT)
    return Game(played, epsilon_of_rho(1 / (2 * Z**2), DELTA))


def whole(released_U: np.ndarray, norm: float) -> np.ndarray:
    """A release in the whole numbers of its sum."""
    return np.rint(released_U / (norm / FIXED_POINT))


def of_vectors(stream: str, norm: float, size: int, fault: Fault | None) -> Game:
    """A sum of three devices' vectors; the last one's is longer than the norm."""
    rng = np.random.default_rng(3)
    vectors = [(np.arange(size), rng.normal(size=size) * norm) for _ in range(3)]

    def release(there: bool, key: bytes) -> np.ndarray:
        return whole(released_sum(iter(vectors if there else vectors[:-1]), size, Z, key, stream, norm), norm)

    return Game(of_sums(release, [bounded_sum], fault, Z * FIXED_POINT), epsilon_of_rho(1 / (2 * Z**2), DELTA))


def evaluation(fault: Fault | None) -> Game:
    return of_vectors("evaluation", clip_norm(typed=True), 12, fault)


def central_words(fault: Fault | None) -> Game:
    """Words that many hold, so that all pass: every sum is seen, of weights, forms and the total."""
    words = ["lol", "haha", "omg"]
    config = CentralConfig(kind="central", noise_multiplier=Z, words_per_device=4, delta=DELTA)
    cut, people = select.cut_of(config), [words] * 60
    worlds = {there: TypedWords.gather([*people, words if there else []]) for there in (True, False)}
    deviations = np.repeat([cut.noise_multiplier, cut.filled_noise, cut.forms_noise], [3, 1, 9]) * GRID

    def release(there: bool, key: bytes) -> np.ndarray:
        made = select.release(lambda: [Shard(0, worlds[there])], frozenset(), config, key)
        weights = [made.weight_of.get(word, 0.0) for word in sorted(words)]
        return np.concatenate([np.rint(np.array([*weights, made.total]) * GRID), np.ravel(made.forms_VF)])

    played = of_sums(release, (weighted_gaussian, total, forms), fault, deviations)
    return Game(played, central_discovery(config).epsilon)


EPSILON0 = 2.0


def local_words(fault: Fault | None) -> Game:
    """One message, of either of two words (swap); the ratio of its chances is all that it shows."""
    honest = subset_selection(EPSILON0, 9)
    used = {no_noise: subset_selection(40.0, 9), a_millionth: subset_selection(EPSILON0 + math.log(1e6), 9)}
    randomizer, sends = used.get(fault, honest), 4 if fault is above_its_bound else 1

    def played(there: bool, key: bytes) -> Scores:
        bits = Keystream(key, "answers", 0)
        messages = [randomise(randomizer, 0 if there else 1, bits) for _ in range(sends)]
        return Scores(sum(float(0 in sent) - float(1 in sent) for sent in messages) - (sends - 1) * 0.9, 0)

    return Game(played, EPSILON0)


TRAINED = ("tree", "tree, adaptive", "tree, per layer", "blt", "banded", "tree, secagg", "poisson", "fixed")


def training(kind: str) -> Callable[[Fault | None], Game]:
    """All rounds of a mechanism; a device joins as often as the limits allow, with updates of one clip norm."""

    def game(fault: Fault | None) -> Game:
        config = launch_of(kind).mechanism
        mechanism, rounds = mechanisms.build(config), config.rounds
        limits = RoundRule(config, 1, bytes(32), mechanism).eager_limits(rounds, 2)
        joined_T = np.zeros(rounds)
        joined_T[: limits[1] * limits[0] : limits[0]] = 1.0
        # Every mechanism at the same stated loss.
        per_noise = (
            guarantees.guarantee_of(mechanism, rounds, *limits, (DELTA,), twice=False).mu * config.noise_multiplier
        )
        config = config.model_copy(update={"noise_multiplier": per_noise * Z} | _bits(config, per_noise * Z))
        mechanism = mechanisms.build(config)
        rule = RoundRule(config, 1, bytes(32), mechanism)
        stated = guarantees.guarantee_of(mechanism, rounds, *limits, (DELTA,), twice=False)
        white_TT = whitener(mechanism, rounds)
        along_T = white_TT @ joined_T
        length = float(np.linalg.norm(along_T))
        moved = (12 if fault is above_its_bound else 1) * (FIXED_POINT - 1)
        scale = {no_noise: 0.0, a_millionth: 1e-6}.get(fault, 1.0)
        coarse = fault is coarse_floats

        def released(there: bool, key: bytes) -> Iterator[float]:
            """The sum of one parameter in every round, as a whole number, less that of all other devices."""
            privatizer, state = rule.privatizer, rule.privatizer.init(1)
            for number in range(rounds):
                state = privatizer.begin(state)
                drawn = privatizer.draw(state, key)
                noise_P = drawn.noise_P.astype(np.float32).astype(np.float64) if coarse else drawn.noise_P * scale
                unnoised_P = np.array([_OTHERS + int(there * joined_T[number]) * moved])
                norm = state.clip_norm
                made_P, state = privatizer.privatize(unnoised_P, 0.0, replace(drawn, noise_P=noise_P), state)
                yield float(np.rint(made_P[0] / (norm / FIXED_POINT))) - _OTHERS

        def played(there: bool, key: bytes) -> Scores:
            with planted((), None, digits=coarse):
                whole_T = np.array([*released(there, key)])
            deviation = rule.privatizer.noise_multiplier * FIXED_POINT
            white_T = white_TT @ (whole_T - joined_T * FIXED_POINT / 2) / deviation
            support = int(_possible(whole_T - joined_T * moved)) - int(_possible(whole_T))
            return Scores(float(white_T @ along_T) / length, support)

        return Game(played, stated.epsilon[DELTA])

    return game


def _bits(config: MechanismConfig, noise_multiplier: float) -> dict[str, object]:
    """Bits of adaptive clipping with as much noise, for the updates' share of the loss to be nearly all."""
    bits = config.adaptive_clipping
    return (
        {} if bits is None else {"adaptive_clipping": bits.model_copy(update={"bit_noise_std": 4 * noise_multiplier})}
    )


# The sum of all other devices.
_OTHERS = FIXED_POINT // 7 * 3 + 1

GAMES: dict[str, Callable[[Fault | None], Game]] = {
    "counts": counts,
    "evaluation": evaluation,
    "central words": central_words,
    "local words": local_words,
    **{f"training: {kind}": training(kind) for kind in TRAINED if kind in KINDS},
}


@pytest.mark.parametrize("name", GAMES)
def test_no_attack_tells_neighbours_apart_better_than_is_stated(name: str) -> None:
    game = GAMES[name](None)
    reached = bound(game)
    assert 0.2 < reached <= game.epsilon, "an attack that finds nothing shows nothing"


# Faults in training are the same for every mechanism; a message of a word is no float.
FAULTY = [name for name in GAMES if not name.startswith("training") or name == "training: tree, adaptive"]
PLANTED = [
    (name, fault) for name in FAULTY for fault in FAULTS if (name, fault) != ("local words", "floats without a lattice")
]


@pytest.mark.parametrize(("name", "fault"), PLANTED)
def test_a_planted_fault_loses_more_than_is_stated(name: str, fault: str) -> None:
    game = GAMES[name](FAULTS[fault])
    assert bound(game) > game.epsilon
