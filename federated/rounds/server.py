"""The server's step: fixed denominator, the optimiser after noise.

Shape legend: P parameters.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from federated.config.training import ADAPTIVITY, MOMENTUM, SECOND_MOMENTUM, ServerConfig


@dataclass(frozen=True)
class ServerState:
    """Weights and the optimiser's memory between rounds, float64 ``[P]`` each.

    float64 because a server step can be far below the last digit of a float32 weight; the
    devices train on the float32 rounding of ``weights_P``.

    Attributes:
      momentum_P: running mean of the noisy means; unused by plain SGD.
      second_P: Adam's running mean of their squares; empty for the others.
      steps: steps taken.
    """

    weights_P: np.ndarray
    momentum_P: np.ndarray
    second_P: np.ndarray
    steps: int


def init(model: nn.Module, config: ServerConfig) -> ServerState:
    """Server state before the first round: the model's weights, zero momentum."""
    weights_P = flat_weights(model)
    second_P = np.zeros_like(weights_P) if config.optimizer == "adam" else np.empty(0)
    return ServerState(weights_P, np.zeros_like(weights_P), second_P, 0)


def step(state: ServerState, released_sum_P: np.ndarray, denominator: float, config: ServerConfig) -> ServerState:
    """Server state after one step of the optimizer on the noisy sum.

    Guarantee: post-processing of ``released_sum_P``. The denominator is the report goal (or a weight
    from the launch file), never the number of devices that arrived: that may depend on one device's data.

    ``momentum`` is heavy-ball momentum (Xu et al. 2023, algorithm 1) and ``nesterov`` its look-ahead (Ramaswamy et al.
    2020, table 6); ``adam`` is Kingma and Ba 2015, algorithm 1, as FedAdam uses it on the mean update (Reddi et al.
    2021).
    """
    mean_P = released_sum_P / denominator
    steps = state.steps + 1
    second_P = state.second_P
    match config.optimizer:
        case "sgd":
            momentum_P, move_P = state.momentum_P, mean_P
        case "momentum":
            momentum_P = move_P = MOMENTUM * state.momentum_P + mean_P
        case "nesterov":
            momentum_P = MOMENTUM * state.momentum_P + mean_P
            move_P = mean_P + MOMENTUM * momentum_P
        case "adam":
            momentum_P = MOMENTUM * state.momentum_P + (1 - MOMENTUM) * mean_P
            second_P = SECOND_MOMENTUM * state.second_P + (1 - SECOND_MOMENTUM) * mean_P**2
            first_P = momentum_P / (1 - MOMENTUM**steps)
            move_P = first_P / (np.sqrt(second_P / (1 - SECOND_MOMENTUM**steps)) + ADAPTIVITY)
    return ServerState(state.weights_P + config.learning_rate * move_P, momentum_P, second_P, steps)


def flat_weights(model: nn.Module) -> np.ndarray:
    """All parameters end to end in the order of ``model.parameters()``, float64."""
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).double().cpu().numpy()


def load_weights(model: nn.Module, weights_P: np.ndarray) -> None:
    """Put flat weights into the model, rounded to its own precision."""
    flat_P = torch.from_numpy(weights_P)
    start = 0
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(flat_P[start : start + parameter.numel()].view_as(parameter))
            start += parameter.numel()
