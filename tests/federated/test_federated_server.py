import numpy as np
import torch

from federated import server
from federated.config import ServerConfig
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


def test_momentum_by_hand():
    config = ServerConfig(learning_rate=0.5, momentum=0.9)
    state = server.ServerState(np.array([1.0]), np.array([0.0]))
    momentum = weight = 0.0
    weight = 1.0
    for released in (4.0, -2.0, 6.0):
        state = server.step(state, np.array([released]), 2, config)
        momentum = 0.9 * momentum + released / 2
        weight += 0.5 * momentum
    np.testing.assert_allclose(state.weights_P, [weight], rtol=1e-15)
    np.testing.assert_allclose(state.momentum_P, [momentum], rtol=1e-15)


def test_a_step_leaves_the_state_before_alone():
    state = server.ServerState(np.ones(3), np.zeros(3))
    server.step(state, np.ones(3), 4, ServerConfig(learning_rate=1.0))
    np.testing.assert_array_equal(state.weights_P, np.ones(3))
    np.testing.assert_array_equal(state.momentum_P, np.zeros(3))
