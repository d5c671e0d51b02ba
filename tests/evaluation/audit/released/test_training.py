"""The audit of training: honest runs of every kind pass it, and faults in sums, noise, bits and rules fail it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from evaluation.audit import strategies
from evaluation.audit.directions import Directions
from evaluation.audit.released.training import Rule, chosen, combined
from federated.rounds import kept_rounds
from federated.rounds.kept_rounds import KeptRound
from federated.rounds.privatize import Privatizer, RoundNoise
from federated.rounds.rule import RoundRule
from pipeline.releases.audit_trace import strategy_of
from tests.evaluation.audit.released.training_bugs import (
    Bug,
    broken_normals,
    looser_for_devices,
    looser_layers,
    neighbours_text,
    other_rows,
    twice_in_the_sum,
    two_points,
    unrecorded_tenth,
    without_in_round,
)
from tests.helpers.audits.audited_run import model_at_start, planted
from tests.helpers.audits.mechanism_kinds import EVERY_KIND, launch_of
from tests.helpers.audits.remade_run import release_audited
from tests.helpers.launches.small_run import Launch, run

ADAPTIVE = "tree, adaptive, quiet bits"
QUICK = {ADAPTIVE, "banded", "blt, adaptive", "tree, secagg"}
NAMES = ["rounds", "digits", "clipping_bits", "clip_norms"]


def failed(launch: Launch, folder: Path, bug: Bug | None = None) -> list[str]:
    """Names of the verdicts that speak against a run, which had a bug that is gone before the audit."""

    def train(*arguments: Any, **named: Any) -> Any:
        if bug is None:
            return run(*arguments, **named)
        with bug():
            return run(*arguments, **named)

    verdicts = release_audited(launch, folder, train)
    assert [verdict.name for verdict in verdicts] == NAMES
    return [verdict.name for verdict in verdicts if not verdict.passed]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in QUICK else pytest.mark.slow) for kind in EVERY_KIND]
)
def test_an_honest_run_passes(tmp_path: Path, kind: str) -> None:
    assert failed(launch_of(kind), tmp_path) == []


def of_bits(share: float) -> Bug:
    """A share of the noise on the bits of adaptive clipping."""

    @contextmanager
    def bug() -> Iterator[None]:
        true_draw = Privatizer.draw

        def draw(self: Privatizer, state: Any, key: bytes) -> RoundNoise:
            drawn = true_draw(self, state, key)
            return replace(drawn, bit_noise=drawn.bit_noise * share)

        with patch.object(Privatizer, "draw", draw):
            yield

    return bug


def of_estimates(factor: float) -> Bug:
    """Clip norms that are estimated too long."""

    @contextmanager
    def bug() -> Iterator[None]:
        true_privatize = Privatizer.privatize

        def privatize(*given: Any) -> Any:
            released_P, state = true_privatize(*given)
            return released_P, replace(state, estimate=factor * state.estimate)

        with patch.object(Privatizer, "privatize", privatize):
            yield

    return bug


@contextmanager
def bits_of_one() -> Iterator[None]:
    """Bits of 1 and -1, of which the noise hides half."""
    true_privatize = Privatizer.privatize

    def privatize(self: Privatizer, sum_P: np.ndarray, below: float, *others: Any) -> Any:
        return true_privatize(self, sum_P, 2 * below, *others)

    with patch.object(Privatizer, "privatize", privatize):
        yield


@contextmanager
def all_digits() -> Iterator[None]:
    """Sums are released as they are, to the last bit."""
    with patch("federated.local_training.clipping.on_grid", lambda noisy, _: noisy.astype(np.float64)):
        yield


# Beside those that tests/contracts/test_release_audits.py plants in every release.
FAULTS: dict[str, tuple[Bug, str]] = {
    "a generator of two points": (broken_normals(two_points), "rounds"),
    "every device twice": (lambda: twice_in_the_sum(), "rounds"),
    "a device above its bound": (looser_for_devices(1.01, 6), "rounds"),
    "the text of other devices": (lambda: other_rows(), "rounds"),
    "another device's text, read so": (lambda: neighbours_text(), "rounds"),
    "participations that nobody recorded": (lambda: unrecorded_tenth(), "rounds"),
    "all digits": (lambda: all_digits(), "digits"),
    "bits twice as large": (lambda: bits_of_one(), "clipping_bits"),
    "clip norms that do not follow": (of_estimates(1.01), "clip_norms"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_seen(tmp_path: Path, name: str) -> None:
    bug, verdict = FAULTS[name]
    assert verdict in failed(launch_of(ADAPTIVE), tmp_path, bug)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 1e-6, 2.0])
def test_bits_without_their_noise_are_seen_alone(tmp_path: Path, share: float) -> None:
    assert failed(launch_of(ADAPTIVE), tmp_path, of_bits(share)) == ["clipping_bits"]


@pytest.mark.parametrize("share", [0.0, 1e-6, 2.0])
def test_bits_without_their_noise_are_seen_in_rounds_that_are_not_chosen(tmp_path: Path, share: float) -> None:
    with patch("pipeline.releases.audit_trace.chosen", lambda *_: ()):
        assert failed(launch_of(ADAPTIVE), tmp_path, of_bits(share)) == ["clipping_bits"]


def test_layers_that_are_too_long_are_seen(tmp_path: Path) -> None:
    assert "rounds" in failed(launch_of("tree, per layer"), tmp_path, looser_layers(1.01))


def test_a_round_that_was_kept_otherwise_is_seen(tmp_path: Path) -> None:
    """Its model and sum must be those along which all models were replayed."""

    def train(launch: Launch, folder: Path, **named: Any) -> Any:
        done = run(launch, folder, **named)
        for number in kept_rounds.numbers(launch.mechanism.rounds):
            kept = kept_rounds.load(folder, number)
            released_P = np.where(np.arange(len(kept.released_P)) == 5, 0.0, kept.released_P)
            kept_rounds.save(folder, number, KeptRound(kept.model_P, released_P))
        return done

    (rounds, *_) = release_audited(launch_of(ADAPTIVE), tmp_path, train)
    assert not rounds.passed
    assert "recorded" in rounds.sentence


@pytest.mark.slow
def test_a_fault_of_one_round_is_seen_where_that_round_is_chosen(tmp_path: Path) -> None:
    launch = launch_of(ADAPTIVE)
    for number in range(launch.mechanism.rounds):
        folder, drawn = tmp_path / str(number), []

        def all_chosen(weights_P: np.ndarray, kept: Any, drawn: list = drawn) -> tuple[int, ...]:
            drawn.extend(chosen(weights_P, kept))
            return tuple(drawn)

        with patch("pipeline.releases.audit_trace.chosen", all_chosen):
            found = failed(launch, folder, without_in_round(number))
        assert ("rounds" in found) == (number in drawn)


def test_rounds_are_drawn_by_the_published_model() -> None:
    rng = np.random.default_rng(0)
    kept = kept_rounds.numbers(200)
    drawn = [chosen(rng.standard_normal(50), kept) for _ in range(200)]
    assert all(len(set(each)) == 3 and list(each) == sorted(each) and set(each) <= set(kept) for each in drawn)
    assert {number for each in drawn for number in each} == set(kept)
    weights_P = rng.standard_normal(50)
    assert chosen(weights_P, kept) == chosen(weights_P.astype(np.float32), kept)
    assert chosen(weights_P, range(2)) == (0, 1)


@pytest.mark.parametrize(("rounds", "expected"), [(1, [0]), (5, [0, 1, 2, 3, 4]), (16, list(range(16)))])
def test_a_short_run_keeps_every_round(rounds: int, expected: list[int]) -> None:
    assert list(kept_rounds.numbers(rounds)) == expected


def test_a_long_run_keeps_rounds_to_its_end() -> None:
    for rounds in (17, 100, 2000):
        kept = kept_rounds.numbers(rounds)
        assert kept[-1] == rounds - 1
        assert kept_rounds.MOST / 2 < len(kept) <= kept_rounds.MOST


@pytest.mark.parametrize("kind", ["tree", "tree, adaptive", "blt, adaptive", "banded", "poisson"])
def test_noise_from_streams_and_strategy_is_the_noise_of_the_loop(tmp_path: Path, kind: str) -> None:
    """Two programs, from the mechanism's own state and from the papers: the same to the rounding of another order."""
    launch, directions = launch_of(kind), planted(model_at_start(), 16)
    rule = RoundRule(launch.mechanism, launch.seed, launch.key)
    rounds = launch.mechanism.rounds
    drawn = strategies.drawn(
        strategy_of(rule, rounds), rule.privatizer.noise_multiplier, rule.key, directions, range(rounds)
    )
    state = rule.privatizer.init(directions.num_parameters)
    for number in range(rounds):
        made = rule.privatizer.draw(state, rule.key)
        state = replace(state, round=state.round + 1, updates=made.updates, bits=made.bits)
        noise_P = made.noise_P * rule.sensitivity
        np.testing.assert_allclose(drawn.whole[number], noise_P, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(drawn.along_TN[number], directions.project(noise_P), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("layers", [(40,), (25, 15)])
def test_canaries_together_are_the_sum_of_each(layers: tuple[int, ...]) -> None:
    directions, sends_N = Directions(layers, 8, seed=3), np.arange(8) % 3 == 0
    rule = Rule(1.0, layers if len(layers) > 1 else None)
    each = [combined(directions, np.arange(8) == number, rule) for number in np.flatnonzero(sends_N)]
    np.testing.assert_allclose(combined(directions, sends_N, rule), np.sum(each, axis=0), rtol=1e-9, atol=1e-12)
    assert [np.linalg.norm(one) for one in each] == pytest.approx([1.0] * len(each), abs=1e-2)
