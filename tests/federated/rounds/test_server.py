import numpy as np
import pytest
import torch

from federated.config.training import ADAPTIVITY, SECOND_MOMENTUM, ServerConfig
from federated.rounds import server
from pretrain.model import KeyboardLM


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


def torch_twin(config: ServerConfig, weights: torch.nn.Parameter) -> torch.optim.Optimizer:
    match config.optimizer:
        case "sgd":
            return torch.optim.SGD([weights], lr=config.learning_rate)
        case "momentum" | "nesterov":
            nesterov = config.optimizer == "nesterov"
            return torch.optim.SGD([weights], lr=config.learning_rate, momentum=config.momentum, nesterov=nesterov)
        case _:
            betas = (config.momentum, SECOND_MOMENTUM)
            return torch.optim.Adam([weights], lr=config.learning_rate, betas=betas, eps=ADAPTIVITY)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "nesterov", "adam"])
def test_each_optimiser_is_torch_s_own_on_the_mean_update(optimizer):
    config = ServerConfig(optimizer=optimizer, learning_rate=0.3, momentum=0.8)
    rng = np.random.default_rng(3)
    state = start(config, 7)
    weights = torch.nn.Parameter(torch.ones(7, dtype=torch.float64))
    twin = torch_twin(config, weights)
    for _ in range(6):
        released_P = rng.normal(size=7)
        state = server.step(state, released_P, 4, config)
        weights.grad = torch.from_numpy(-released_P / 4)
        twin.step()
    np.testing.assert_allclose(state.weights_P, weights.detach().numpy(), rtol=1e-12)


def test_a_step_leaves_the_state_before_alone():
    for optimizer in ("momentum", "adam"):
        config = ServerConfig(optimizer=optimizer, learning_rate=1.0)
        state = start(config, 3)
        server.step(state, np.ones(3), 4, config)
        np.testing.assert_array_equal(state.weights_P, np.ones(3))
        np.testing.assert_array_equal(state.momentum_P, np.zeros(3))
        assert not state.second_P.any()
