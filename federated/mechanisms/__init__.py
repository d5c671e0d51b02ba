"""Correlated-noise mechanisms: one object holds strategy, sensitivity, noise and DP event.

Each has the same few methods (see ``Tree``): ``init``, ``noise``, ``sensitivity_squared``, ``dp_event``,
``save`` and ``load``.
"""

from federated.config import MechanismConfig
from federated.mechanisms.blt import PRESETS, Blt, BltState
from federated.mechanisms.tree import Tree, TreeState

Mechanism = Tree | Blt
MechanismState = TreeState | BltState


def build(config: MechanismConfig) -> Mechanism:
    """The mechanism that a launch file names."""
    match config.kind:
        case "tree":
            return Tree(config.noise_multiplier, config.restarts)
        case "blt":
            parameters = PRESETS[config.preset] if config.preset else config
            return Blt(config.noise_multiplier, parameters.theta, parameters.omega)
