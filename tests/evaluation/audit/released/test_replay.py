"""The models that devices are sent follow from released sums, which hold the noise of their key."""

from pathlib import Path

import numpy as np
import pytest

from evaluation.audit.released.replay import Optimiser
from federated import train
from federated.config.training import ADAPTIVITY, MOMENTUM, SECOND_MOMENTUM, ServerConfig
from federated.rounds import server
from federated.rounds.privatize import Privatizer
from pretrain.randomness.noise import FIXED_POINT
from tests.helpers.audits.audited_run import audited, failed, with_optimiser
from tests.helpers.launches.small_run import Launch, mechanism, run

OPTIMISERS = ("momentum", "nesterov", "sgd", "adam")
LAUNCH = Launch(mechanism=mechanism(noise_multiplier=4.0))


@pytest.mark.parametrize("kind", OPTIMISERS)
def test_the_replay_is_the_server_s_step(kind: str) -> None:
    config = ServerConfig(optimizer=kind, learning_rate=0.7)
    rng = np.random.default_rng(0)
    state, released_TP, expected = server.ServerState(rng.normal(size=9), np.zeros(9), np.zeros(9), 0), [], []
    start_P = state.weights_P
    for _ in range(5):
        released_TP.append(rng.normal(size=9))
        state = server.step(state, released_TP[-1], 6.0, config)
        expected.append(state.weights_P)
    optimiser = Optimiser(kind, 0.7, MOMENTUM, SECOND_MOMENTUM, ADAPTIVITY, 6.0)
    np.testing.assert_allclose(optimiser.models(start_P, np.array(released_TP)), expected, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("kind", OPTIMISERS)
def test_an_honest_run_follows(tmp_path: Path, kind: str) -> None:
    found = audited(with_optimiser(LAUNCH, kind), tmp_path)
    rows = {row.type: row for row in found.rows}
    assert rows["sequence"].passed
    assert rows["noise_added"].passed


@pytest.mark.slow
@pytest.mark.parametrize("kind", OPTIMISERS)
def test_an_unnoised_sum_handed_to_the_server_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The released sum is made, and looked at, and the server steps on the other one."""
    true_release, true_step, unnoised = Privatizer.privatize, server.step, {}

    def release(self: Privatizer, unnoised_sum_P: np.ndarray, *others: object) -> object:
        unnoised["P"] = unnoised_sum_P * (others[-1].clip_norm / FIXED_POINT)
        return true_release(self, unnoised_sum_P, *others)

    monkeypatch.setattr(Privatizer, "privatize", release)
    monkeypatch.setattr(
        train.server, "step", lambda state, _released_P, *others: true_step(state, unnoised["P"], *others)
    )
    found = audited(with_optimiser(LAUNCH, kind), tmp_path)
    assert failed(found).keys() == {"sequence"}
    assert "model after round 0" in failed(found)["sequence"]


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [(8,), range(9)])
def test_a_released_sum_without_its_noise_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: tuple[int, ...]
) -> None:
    true_release = Privatizer.privatize

    def release(self: Privatizer, unnoised_sum_P: np.ndarray, *others: object) -> object:
        released_P, after = true_release(self, unnoised_sum_P, *others)
        if others[-1].round in rounds:
            # One weight of 1,428.
            released_P[7] = unnoised_sum_P[7] * (others[-1].clip_norm / FIXED_POINT)
        return released_P, after

    monkeypatch.setattr(Privatizer, "privatize", release)
    found = audited(LAUNCH, tmp_path)
    assert "noise_added" in failed(found)
    assert f"round {rounds[0]} released" in failed(found)["noise_added"]
    assert "sequence" not in failed(found)


def test_a_denominator_that_depends_on_who_arrived_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    true_step = server.step

    def step(state: server.ServerState, released_P: np.ndarray, denominator: float, config: ServerConfig) -> object:
        return true_step(state, released_P, denominator - (state.steps == 4), config)

    monkeypatch.setattr(train.server, "step", step)
    assert "after round 4" in failed(audited(LAUNCH, tmp_path))["sequence"]


def test_another_model_than_the_last_released_is_seen(tmp_path: Path) -> None:
    def other(*arguments: object, **named: object) -> object:
        final_P, done = run(*arguments, **named)
        final_P[3] += 1e-3
        return final_P, done

    assert "published model" in failed(audited(LAUNCH, tmp_path, train=other))["sequence"]
