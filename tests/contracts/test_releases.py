"""One meaning of the neighbour: a device that contributes nothing, in every release that leaves.

Each entry says how far one device moves everything that noise is added to, in units of the sensitivity that the
accountant is told of, by the functions that make the release.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from pretrain.vocabulary import join_owners
from tests.helpers.launches.small_run import Launch
from tests.helpers.releases import sums
from tests.helpers.releases.training import EVERY_KIND, Rounds, launch_of, stressed

# Sums are whole numbers, but noise is divided out of them in float64.
SLACK = 1e-9
QUIET_BITS = "tree, adaptive, quiet bits"


@cache
def rounds(kind: str) -> Rounds:
    return stressed() if kind == "stress devices" else Rounds(launch_of(kind))


def trained(kind: str) -> Callable[[int], Sequence[float]]:
    return lambda emptied: rounds(kind).moved(emptied)


RELEASES: dict[str, Callable[[int], Sequence[float]]] = {
    **{f"training: {kind}": trained(kind) for kind in (*EVERY_KIND, "stress devices")},
    "counts": sums.counts,
    "central words": sums.central_words,
    "local words": sums.local_words,
    "evaluation": sums.evaluation,
}
# One that is quick of each kind.
QUICK = {f"training: {QUIET_BITS}", "counts", "central words", "evaluation"}
EMPTIED = (8, 14, 18, 22)
every_release = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in RELEASES]
)


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
    assert max(rounds(QUIET_BITS).moved(8)) == pytest.approx(1, abs=1e-5)


def nobody_typed(launch: Launch) -> Launch:
    silent = join_owners([np.empty(0, dtype=np.int64)] * len(launch.devices))
    return replace(launch, devices=silent)


def nothing_is_finite(launch: Launch) -> Launch:
    return replace(launch, device=launch.device.model_copy(update={"learning_rate": 1e38, "epochs": 2}))


@pytest.mark.parametrize("kind", [QUIET_BITS, "clipped estimator, adaptive"])
@pytest.mark.parametrize("nothing", [nobody_typed, nothing_is_finite])
def test_who_contributes_nothing_adds_nothing_to_any_sum(kind: str, nothing: Callable[[Launch], Launch]) -> None:
    assert not Rounds(nothing(launch_of(kind))).sums().any()
