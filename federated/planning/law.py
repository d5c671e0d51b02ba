"""Step law: the server rate that a launch's noise allows, known before any text is read.

Symbols: T rounds, C clip norm, m ``report_goal``, z noise multiplier, w_t how much the mean update of round t counts in
the last model at server rate 1.

Two numbers describe a run. *Step noise* is the standard deviation of the noise in one weight of the last model,
``rate C z / m |S^-T w|`` with strategy S; a network bears as much as the scale of its weights allows, not its
devices. *Way* is the longest path that updates of the clip norm can take the model, ``rate C sum_t w_t``. The rate
scales both, so a launch takes the longest way whose noise the network bears, up to the longest that was measured in
so many rounds.
"""

from dataclasses import dataclass

import numpy as np

from federated import mechanisms
from federated.config.mechanism import MechanismConfig
from federated.config.training import MOMENTUM, ServerConfig

# Step noise on the flat top of recall, and how far the top reaches (``benchmarks/results/crossing.md``: of 0.02, 0.045
# and 0.09 the middle was best for five groups of people of seven, and within 0.13 points of the best for two).
STEP_NOISE, _LEAST, _MOST = 0.045, 0.018, 0.072
# Where people are so many that noise is no limit: the longest that 40,000 people went, without noise
# (``benchmarks/results/way.md``; with noise 900). The second is of one round: server rate times clip norm.
LONGEST_WAY, LONGEST_STRIDE = 10_000.0, 1.64
# More participations of a device allow hardly a longer way: with all rounds the noise of one release is reached.
MOST_PARTICIPATIONS = 16


@dataclass(frozen=True)
class Step:
    """Step noise and way of a run.

    Attributes:
      noise, way: see the module.
      fits: whether the step noise lies where recall was measured to be flat, or below it as the way is long.
      fitting_rate: server learning rate, to two digits, see ``server_rate``.
    """

    noise: float
    way: float
    fits: bool
    fitting_rate: float


def step(mechanism: MechanismConfig, server: ServerConfig) -> Step | None:
    """Step noise and way of a launch, at the clip norm of its file; None for Adam, of which the law says nothing."""
    if server.optimizer == "adam":
        return None
    built = mechanisms.build(mechanism)
    rate = float(f"{server_rate(mechanism, server, built=built):.2g}")
    noise, length = step_noise(mechanism, server, built), way(mechanism, server)
    fits = noise <= _MOST and (noise >= _LEAST or length >= longest_way(mechanism, server) / 2)
    return Step(noise, length, fits, rate)


def round_weights(rounds: int, server: ServerConfig) -> np.ndarray:
    """Weight of each round's mean update in the last model at server rate 1: float64 ``[T]``.

    Raises:
      ValueError: Adam, whose steps follow the size of the updates.
    """
    left_T = np.arange(rounds, 0, -1)
    match server.optimizer:
        case "sgd":
            return np.ones(rounds)
        case "momentum":
            return (1 - MOMENTUM**left_T) / (1 - MOMENTUM)
        case "nesterov":
            # A step takes the mean beside the momentum that it has just joined.
            return 1 + MOMENTUM * (1 - MOMENTUM**left_T) / (1 - MOMENTUM)
        case "adam":
            raise ValueError("server.optimizer: 'adam' divides by its updates' size; the step law takes 'momentum'")


def step_noise(mechanism: MechanismConfig, server: ServerConfig, built: mechanisms.Mechanism | None = None) -> float:
    """Standard deviation of the noise in one weight of the last model.

    Args:
      built: the mechanism of this block where it was built before; a banded one takes seconds.
    """
    weights_T = round_weights(mechanism.rounds, server)
    noise = (built or mechanisms.build(mechanism)).noise_std(weights_T) * mechanism.noise_multiplier
    return server.learning_rate * mechanism.clip_norm * noise / mechanism.report_goal


def way(mechanism: MechanismConfig, server: ServerConfig) -> float:
    """Length of the longest path of the model: every round's mean update as long as the clip norm, all one way."""
    return server.learning_rate * mechanism.clip_norm * float(round_weights(mechanism.rounds, server).sum())


def longest_way(mechanism: MechanismConfig, server: ServerConfig) -> float:
    """Longest way that was measured, or that as many rounds of the longest steps go if that is less."""
    return min(LONGEST_WAY, LONGEST_STRIDE * float(round_weights(mechanism.rounds, server).sum()))


def way_per_noise(mechanism: MechanismConfig, server: ServerConfig) -> float:
    """Way at a step noise of 1, whatever the rate: it grows as people and as the root of rho."""
    return way(mechanism, server) / step_noise(mechanism, server)


def server_rate(
    mechanism: MechanismConfig,
    server: ServerConfig,
    noise: float = STEP_NOISE,
    built: mechanisms.Mechanism | None = None,
) -> float:
    """Server learning rate at which the last model carries this step noise, but at most the longest measured."""
    one = server.model_copy(update={"learning_rate": 1.0})
    return min(noise / step_noise(mechanism, one, built), longest_way(mechanism, one) / way(mechanism, one))
