import numpy as np
import pytest
import torch
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from federated.config.training import ADAPTIVITY, MOMENTUM, SECOND_MOMENTUM, ServerConfig
from federated.rounds import server
from pretrain.model.keyboard_lm import KeyboardLM


def test_weights_go_in_and_out_in_the_model_s_own_order():
    model = KeyboardLM(11, 3, 5, tied=False)
    flat_P = server.flat_weights(model)
    assert flat_P.dtype == np.float64
    other = KeyboardLM(11, 3, 5, tied=False)
    server.load_weights(other, flat_P)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, other.get_parameter(name)), name
    np.testing.assert_array_equal(flat_P[: 11 * 3].reshape(11, 3), model.embedding.detach().numpy())


def start(config: ServerConfig, size: int) -> server.ServerState:
    second_P = np.zeros(size) if config.optimizer == "adam" else np.empty(0)
    return server.ServerState(np.ones(size), np.zeros(size), second_P, 0)


class TorchTwin:
    """The same steps by torch's functions; its classes import its compiler, which takes seconds."""

    def __init__(self, config: ServerConfig, weights_P: torch.Tensor) -> None:
        self._config, self.weights_P = config, weights_P
        self._momentum: list[torch.Tensor | None] = [None]
        self._mean_P, self._square_P = torch.zeros_like(weights_P), torch.zeros_like(weights_P)
        self._step = torch.zeros(())

    def step(self, gradient_P: torch.Tensor) -> None:
        kind, lr = self._config.optimizer, self._config.learning_rate
        common = {"lr": lr, "weight_decay": 0.0, "maximize": False, "foreach": False}
        if kind == "adam":
            moments = ([self._mean_P], [self._square_P], [], [self._step])
            betas = {"beta1": MOMENTUM, "beta2": SECOND_MOMENTUM}
            adam([self.weights_P], [gradient_P], *moments, amsgrad=False, eps=ADAPTIVITY, **betas, **common)
            return
        momentum = 0.0 if kind == "sgd" else MOMENTUM
        rule = {"momentum": momentum, "dampening": 0.0, "nesterov": kind == "nesterov"}
        sgd([self.weights_P], [gradient_P], self._momentum, **rule, **common)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "nesterov", "adam"])
def test_each_optimiser_is_torch_s_own_on_the_mean_update(optimizer):
    config = ServerConfig(optimizer=optimizer, learning_rate=0.3)
    rng = np.random.default_rng(3)
    state, twin = start(config, 7), TorchTwin(config, torch.ones(7, dtype=torch.float64))
    for _ in range(6):
        released_P = rng.normal(size=7)
        state = server.step(state, released_P, 4, config)
        twin.step(torch.from_numpy(-released_P / 4))
    np.testing.assert_allclose(state.weights_P, twin.weights_P.numpy(), rtol=1e-12)


def test_a_step_leaves_the_state_before_alone():
    for optimizer in ("momentum", "adam"):
        config = ServerConfig(optimizer=optimizer, learning_rate=1.0)
        state = start(config, 3)
        server.step(state, np.ones(3), 4, config)
        np.testing.assert_array_equal(state.weights_P, np.ones(3))
        np.testing.assert_array_equal(state.momentum_P, np.zeros(3))
        assert not state.second_P.any()
