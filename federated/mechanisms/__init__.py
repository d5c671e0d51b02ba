"""Correlated-noise mechanisms: one object holds strategy, sensitivity, noise and DP event."""

from federated.config import MechanismConfig
from federated.mechanisms.tree import Tree, TreeState

Mechanism = Tree
MechanismState = TreeState


def build(config: MechanismConfig) -> Mechanism:
    """The mechanism that a launch file names."""
    match config.kind:
        case "tree":
            return Tree(noise_multiplier=config.noise_multiplier)
