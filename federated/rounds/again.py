"""The noise of a finished run once more, from its key: for whoever checks what was added."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from federated.rounds.rule import RoundRule


def noise_again(rule: RoundRule, num_parameters: int, rounds: int) -> Iterator[np.ndarray]:
    """What was to be added to each round's sum, float64 ``[P]`` in clip norms; secret."""
    state = rule.privatizer.init(num_parameters)
    for _ in range(rounds):
        drawn = rule.privatizer.draw(state, rule.key)
        yield drawn.noise_P * rule.sensitivity
        state = replace(state, round=state.round + 1, updates=drawn.updates, bits=drawn.bits)
