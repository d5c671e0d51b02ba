"""The step law: round weights are the server's own, and step noise is what a run's last model carries."""

import numpy as np
import pytest
import torch

from federated import mechanisms
from federated.config.mechanism import BandedMechanism
from federated.config.training import ServerConfig
from federated.planning import law
from federated.rounds import server
from pretrain.randomness.noise import seeded_key

ROUNDS = 24
MECHANISM = BandedMechanism(
    kind="banded",
    noise_multiplier=1.5,
    clip_norm=0.3,
    rounds=ROUNDS,
    report_goal=40,
    min_sep=8,
    max_participations=3,
    delta=1e-6,
    randomness="seeded",
    bands=8,
)
linear = pytest.mark.parametrize("optimizer", ["momentum", "nesterov", "sgd"])


def last_weights(sums_TP: np.ndarray, config: ServerConfig, denominator: float) -> np.ndarray:
    """Weights after the server has stepped on each sum, from zero."""
    model = torch.nn.Linear(sums_TP.shape[1], 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    state = server.init(model, config)
    for sum_P in sums_TP:
        state = server.step(state, sum_P, denominator, config)
    return state.weights_P


@linear
def test_a_round_counts_as_the_server_counts_it(optimizer: str) -> None:
    config = ServerConfig(optimizer=optimizer, learning_rate=1.0)
    np.testing.assert_allclose(law.round_weights(ROUNDS, config), last_weights(np.eye(ROUNDS), config, 1.0))


@linear
def test_step_noise_is_that_of_the_last_model(optimizer: str) -> None:
    config = ServerConfig(optimizer=optimizer, learning_rate=0.7)
    built, size = mechanisms.build(MECHANISM), 1 << 16
    state, rows = built.init(size), []
    for number in range(ROUNDS):
        row_P, state = built.noise(state, number, seeded_key(3))
        rows.append(MECHANISM.clip_norm * row_P)
    made = last_weights(np.stack(rows), config, MECHANISM.report_goal).std()
    assert law.step_noise(MECHANISM, config) == pytest.approx(made, rel=0.02)
    assert law.step_noise(MECHANISM, config, built) == law.step_noise(MECHANISM, config)


@linear
def test_no_path_is_longer_than_the_way(optimizer: str) -> None:
    config = ServerConfig(optimizer=optimizer, learning_rate=0.7)
    update_P = np.full(9, MECHANISM.clip_norm / 3)
    sums_TP = np.tile(MECHANISM.report_goal * update_P, (ROUNDS, 1))
    moved = np.linalg.norm(last_weights(sums_TP, config, MECHANISM.report_goal))
    assert law.way(MECHANISM, config) == pytest.approx(moved)


@linear
def test_the_rate_gives_the_step_noise_that_was_asked_for(optimizer: str) -> None:
    config = ServerConfig(optimizer=optimizer, learning_rate=123.0)
    rate = law.server_rate(MECHANISM, config, 0.03)
    assert law.step_noise(MECHANISM, config.model_copy(update={"learning_rate": rate})) == pytest.approx(0.03)
    twice = MECHANISM.model_copy(update={"report_goal": 2 * MECHANISM.report_goal})
    assert law.server_rate(twice, config, 0.03) == pytest.approx(2 * rate), "twice the devices bear twice the step"


def test_momentum_s_first_round_counts_ten_times() -> None:
    weights_T = law.round_weights(400, ServerConfig(optimizer="momentum", learning_rate=1.0))
    assert weights_T[[0, -1]].tolist() == pytest.approx([10.0, 1.0])


def test_adam_has_no_round_weights() -> None:
    with pytest.raises(ValueError, match=r"server.optimizer: 'adam' .*takes 'momentum'"):
        law.step_noise(MECHANISM, ServerConfig(optimizer="adam", learning_rate=0.01))


def test_a_launch_is_told_its_step_and_the_rate_that_fits() -> None:
    config = ServerConfig(optimizer="momentum", learning_rate=1.0)
    found = law.step(MECHANISM, config)
    assert (found.noise, found.way) == (law.step_noise(MECHANISM, config), law.way(MECHANISM, config))
    fitting = law.step(MECHANISM, config.model_copy(update={"learning_rate": found.fitting_rate}))
    assert fitting.fits
    assert fitting.noise == pytest.approx(law.STEP_NOISE, rel=0.05)
    assert not law.step(MECHANISM, config.model_copy(update={"learning_rate": 3 * found.fitting_rate})).fits
    assert law.step(MECHANISM, ServerConfig(optimizer="adam", learning_rate=0.01)) is None
