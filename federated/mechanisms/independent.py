"""Fresh noise in every round: DP-FedAvg and DP-FedSGD.

McMahan et al. 2018, *Learning Differentially Private Recurrent Language Models*. The strategy is
the identity, so a device's rounds simply add up; what sampling gains beyond that is
``federated.accounting.amplification``'s to say.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from federated.config.mechanism import SecretSample
from federated.mechanisms.sensitivity import check_pattern
from pretrain.randomness import noise

STREAM = "independent"


@dataclass(frozen=True)
class IndependentState:
    """Nothing is remembered between rounds.

    Attributes:
      round: the round that comes next.
      num_parameters: P.
    """

    round: int
    num_parameters: int


@dataclass(frozen=True)
class Independent:
    """DP-FedAvg: each round's sum gets Gaussian noise of its own.

    Guarantee: a device that joins k rounds is rho-zCDP with ``rho = k / (2 z^2)`` under zero-out
    adjacency, also against an attacker who knows the sample. If each round samples its devices uniformly and in
    secret, ``federated.accounting.amplification.amplified`` gives a better epsilon.

    Attributes:
      noise_multiplier: z, standard deviation of a round's noise in clip norms.
      sampling: ``poisson``: every device by its own coin; ``fixed``: a fixed number without replacement.
      sampling_rate: probability of a device to be in a round.
      population: devices that can be sampled, at least.
    """

    noise_multiplier: float
    sampling: Literal["poisson", "fixed"]
    sampling_rate: float
    population: int

    def __post_init__(self) -> None:
        if not 0 < self.noise_multiplier < float("inf"):
            raise ValueError(f"noise_multiplier: got {self.noise_multiplier}, expected a finite number above 0")
        if not 0 < self.sampling_rate <= 1:
            raise ValueError(f"sampling_rate: got {self.sampling_rate}, expected above 0 and at most 1")
        if self.sampling not in ("poisson", "fixed"):
            raise ValueError(f"sampling: got {self.sampling!r}, expected 'poisson' or 'fixed'")
        if self.population < 1:
            raise ValueError(f"population: got {self.population}, expected at least 1")

    @property
    def secret_sample(self) -> SecretSample:
        """The sample that the amplified epsilon assumes."""
        return SecretSample(self.sampling, self.sampling_rate, self.population)

    def init(self, num_parameters: int) -> IndependentState:
        """State before the first round."""
        return IndependentState(0, num_parameters)

    def noise(self, state: IndependentState, round_number: int, key: bytes) -> tuple[np.ndarray, IndependentState]:
        """Noise of one round, float64 ``[P]`` in clip norms, and the state after it."""
        if round_number != state.round:
            raise ValueError(f"round: got {round_number}, but this state continues with round {state.round}")
        noise_P = self.noise_multiplier * noise.gaussian(key, STREAM, round_number, state.num_parameters)
        return noise_P, IndependentState(round_number + 1, state.num_parameters)

    def sensitivity_squared(self, rounds: int, min_sep: int, max_participations: int) -> float:
        """Squared sensitivity in clip norms squared without any gain from sampling: the participations."""
        check_pattern(rounds, min_sep, max_participations)
        return float(max_participations)

    def second_sensitivity_squared(self, rounds: int, min_sep: int, max_participations: int) -> float | None:
        """None: the participations are the sensitivity, so there is nothing to compute twice."""
        return None

    def rms_error(self, rounds: int) -> float:
        """Root mean square, over prefixes, of the noise's standard deviation at multiplier 1."""
        # Fresh noise every round: the t-th prefix has variance t.
        return math.sqrt((rounds + 1) / 2)

    def noise_std(self, weights_T: np.ndarray) -> float:
        """Standard deviation of the weighted sum of the rounds' noise, ``weights_T @ noise_TP``, at multiplier 1."""
        return float(np.linalg.norm(weights_T))

    def save(self, state: IndependentState) -> dict[str, np.ndarray]:
        """The state as arrays, for a private checkpoint."""
        return {"next": np.asarray([state.round, state.num_parameters], dtype=np.int64)}

    def load(self, arrays: Mapping[str, np.ndarray]) -> IndependentState:
        """The state from the arrays of a checkpoint."""
        return IndependentState(*(int(number) for number in arrays["next"]))
