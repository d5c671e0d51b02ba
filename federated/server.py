"""The server's step: fixed denominator, momentum after noise.

Shape legend: P parameters.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from federated.config import ServerConfig


@dataclass(frozen=True)
class ServerState:
    """Weights and momentum between rounds, float64 ``[P]`` each.

    float64 because a server step can be far below the last digit of a float32 weight; the
    devices train on the float32 rounding of ``weights_P``.
    """

    weights_P: np.ndarray
    momentum_P: np.ndarray


def init(model: nn.Module) -> ServerState:
    """The model's weights, no momentum."""
    weights_P = flat_weights(model)
    return ServerState(weights_P, np.zeros_like(weights_P))


def step(state: ServerState, released_sum_P: np.ndarray, report_goal: int, config: ServerConfig) -> ServerState:
    """One step on the noisy sum.

    Guarantee: post-processing of ``released_sum_P``. The denominator is the report goal, never
    the number of devices that arrived: that number may depend on one device's data.
    """
    mean_P = released_sum_P / report_goal
    momentum_P = config.momentum * state.momentum_P + mean_P
    return ServerState(state.weights_P + config.learning_rate * momentum_P, momentum_P)


def flat_weights(model: nn.Module) -> np.ndarray:
    """All parameters end to end in the order of ``model.parameters()``, float64."""
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).double().numpy()


def load_weights(model: nn.Module, weights_P: np.ndarray) -> None:
    """Put flat weights into the model, rounded to its own precision."""
    flat_P = torch.from_numpy(weights_P)
    start = 0
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(flat_P[start : start + parameter.numel()].view_as(parameter))
            start += parameter.numel()
