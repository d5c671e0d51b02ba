"""The audit of every release, over faults planted through ``make``: 20 of 20 seeds held, an honest release never.

A new release is an entry of ``tests.helpers.releases.audited.RELEASES``.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest

from evaluation.audit.verdict import failed
from tests.helpers.releases.audited import FACTS, RELEASES, Audited, Parts, Plant, secret

SEEDS = range(20)


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


@pytest.mark.parametrize("name", RELEASES)
def test_an_honest_release_passes(name: str) -> None:
    for seed in SEEDS:
        verdicts = (secret(key_of(seed)), *RELEASES[name].made(honest, key_of(seed)))
        assert not failed(verdicts)
        assert len({verdict.name for verdict in verdicts}) == len(verdicts)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", RELEASES)
def test_a_planted_fault_is_held_at_every_seed(name: str, fault: str) -> None:
    release = RELEASES[name]
    held = [failed(release.made(FAULTS[fault](release, seed), key_of(seed))) for seed in SEEDS]
    assert all(held), f"{sum(map(bool, held))} of {len(held)}"


@pytest.mark.parametrize("name", RELEASES)
def test_a_key_derived_from_something_public_is_held_at_every_seed(name: str) -> None:
    """Nothing but the key's verdict can see it: noise from it is noise as any other."""
    for seed, public in zip(SEEDS, itertools.permutations(FACTS, 2), strict=False):
        key = hashlib.sha256(":".join(public).encode()).digest()
        assert [verdict.name for verdict in failed((secret(key), *RELEASES[name].made(honest, key)))] == ["key"], seed


@pytest.mark.parametrize("name", RELEASES)
def test_verdicts_have_the_same_words_whatever_the_text_and_the_noise(name: str) -> None:
    """All that a reader is shown of them but ``passed``: no number of a release is in it."""
    made = [RELEASES[name].made(FAULTS["no noise"](RELEASES[name], 0), key_of(seed)) for seed in SEEDS]
    assert len({tuple((verdict.name, verdict.tested, verdict.slack) for verdict in each) for each in made}) == 1
    spoken = {(verdict.name, verdict.sentence) for each in made for verdict in each if not verdict.passed}
    assert len(spoken) == len({name for name, _ in spoken})
