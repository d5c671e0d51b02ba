"""The watch in the real round loop: honest runs of each mechanism end, and each fault stops its run in its round."""

from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from evaluation.audit.watch import Stopped, breaks_limits
from federated.rounds import witness
from federated.rounds.rule import RoundRule
from tests.evaluation.audit.released.training_bugs import WHILE_IT_RUNS, Bug, changed_noise, without_in_round
from tests.helpers.audits.audited_run import model_at_start
from tests.helpers.audits.mechanism_kinds import EVERY_KIND, launch_of
from tests.helpers.audits.watched_run import watch_of, watched
from tests.helpers.launches.small_run import Killed, Launch, killed_after, mechanism, run, stream

LAUNCH = Launch(mechanism=mechanism(noise_multiplier=4.0, rounds=6, min_sep=3), devices=stream(44, 1))


@pytest.mark.slow
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_an_honest_run_of_each_mechanism_ends(tmp_path: Path, kind: str) -> None:
    assert watched(launch_of(kind), tmp_path) is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tree", "blt", "banded", "poisson"])
@pytest.mark.parametrize("name", ["noise missing", "noise of a public key"])
def test_a_fault_of_the_noise_stops_the_first_round_of_each_mechanism(tmp_path: Path, kind: str, name: str) -> None:
    with WHILE_IT_RUNS[name][0]():
        stopped = watched(launch_of(kind), tmp_path)
    assert str(stopped).startswith("round 1 of 5")


@pytest.mark.parametrize("name", WHILE_IT_RUNS)
def test_a_fault_stops_the_run_in_the_round_in_which_it_shows(tmp_path: Path, name: str) -> None:
    bug, names = WHILE_IT_RUNS[name]
    with bug():
        stopped = watched(LAUNCH, tmp_path)
    assert names in str(stopped)
    shows = {"noise reused": 2, "separation": first_return()}.get(name, 1)
    assert str(stopped).startswith(f"round {shows} of 6")
    # No checkpoint holds a model of that round.
    assert not list(tmp_path.glob("round-*.ckpt"))


def first_return() -> int:
    """The round, from 1, in which a device joins too soon where no timer holds it back."""
    cohorts = replace(RoundRule(LAUNCH.mechanism, LAUNCH.seed, LAUNCH.key).cohorts(LAUNCH.synthetic_D), min_sep=1)
    state, before = cohorts.init(), list[set[int]]()
    for number in count(1):
        cohort, state = cohorts.draw(state, number - 1)
        if any(device in earlier for earlier in before[-2:] for device in cohort.tolist()):
            return number
        before.append(set(cohort.tolist()))
    raise AssertionError("unreachable")


def beyond_the_first_numbers(share: float) -> Bug:
    """A share of the noise where no number of it is drawn again, more so than the tests' model has others."""

    def change(noise_P: np.ndarray, _round: int) -> np.ndarray:
        noise_P[1024:] *= share
        return noise_P

    return changed_noise(change)


def test_noise_that_only_the_directions_see_stops_the_run(tmp_path: Path) -> None:
    with beyond_the_first_numbers(0.0)():
        stopped = watched(LAUNCH, tmp_path, count=200)
    assert "scale" in str(stopped)


def test_evidence_of_a_checkpoint_is_made_again(tmp_path: Path) -> None:
    """A killed run is watched from its first round on: its state after a checkpoint is the one without a kill."""
    watch = watch_of(LAUNCH)
    named = {"probe": watch.directions, "watch": watch}
    with pytest.raises(Killed):
        run(LAUNCH, tmp_path, killed_after(4), **named, model=model_at_start())
    with without_in_round(5)(), pytest.raises(Stopped) as again:
        run(LAUNCH, tmp_path, **named, model=model_at_start())
    with without_in_round(5)(), pytest.raises(Stopped) as at_once:
        run(LAUNCH, tmp_path / "at once", **named, model=model_at_start())
    assert str(again.value) == str(at_once.value) == "round 6 of 6: the noise is not that of the launch's key"
    for name, value in vars(at_once.value.state).items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(getattr(again.value.state, name), value)


def test_stress_canaries_are_outside_the_limits(tmp_path: Path) -> None:
    stress_D = np.arange(len(LAUNCH.devices)) >= len(LAUNCH.devices) - 2
    assert watched(LAUNCH, tmp_path, stress_D=stress_D, stress_rate=1.0) is None


def test_a_device_twice_in_a_round_or_above_its_rounds_is_a_violation() -> None:
    watch = watch_of(LAUNCH)
    size = watch.directions.num_parameters
    state = watch.begin(witness.init(64, size), [(0, np.array([3, 4])), (3, np.array([3]))])
    assert not breaks_limits(state, 3, np.array([4, 5]), watch.limits)
    assert breaks_limits(state, 2, np.array([4, 5]), watch.limits)  # sooner than three rounds
    assert breaks_limits(state, 9, np.array([5, 5]), watch.limits)
    assert breaks_limits(state, 9, np.array([3]), watch.limits)  # a third round of two
