"""Replay of the models from the released sums, and of the released sums from the noise.

Shape legend: T rounds, N directions, K followed weights.

The guarantee covers the sequence of models that devices receive. Momentum is linear in the released sums, so a replay
on their inner products with a few directions must give the inner products of the models, up to rounding; an optimiser
that used other inputs fails. Adam is not linear; it is replayed on weights whose every value was kept. Released sums
minus noise that another process regenerated from the key must equal the recorded sums before noise, up to the millionth
of the noise that a release rounds: sketches are linear too.

Written independently of the server's code: an audit must not share its mistakes.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from evaluation.audit.released.rows import AuditRow

# Bound on an honest gap along a direction, in deviations of float32 rounding.
_DEVIATIONS = 32
# Tolerances along a direction in clip norms: float64 rounding, and, per noise multiplier, rounding to multiples of
# 2^-20 of the noise; along unit directions such errors add up like independent ones.
_ROUNDING, _GRID_ROUNDING = 1e-7, _DEVIATIONS * 2.0**-20 / 12**0.5


@dataclass(frozen=True)
class Optimiser:
    """The server's optimiser from the launch file, and its divisor of a released sum."""

    kind: Literal["momentum", "nesterov", "sgd", "adam"]
    learning_rate: float
    momentum: float
    second_momentum: float
    adaptivity: float
    denominator: float

    def models(self, start_K: np.ndarray, released_TK: np.ndarray) -> np.ndarray:
        """The model after each round, ``[T, K]``, number by number."""
        velocity_K, square_K = np.zeros_like(start_K), np.zeros_like(start_K)
        weights_K, rows = start_K, []
        for number, released_K in enumerate(released_TK, start=1):
            mean_K = released_K / self.denominator
            if self.kind == "adam":
                velocity_K = self.momentum * velocity_K + (1 - self.momentum) * mean_K
                square_K = self.second_momentum * square_K + (1 - self.second_momentum) * mean_K * mean_K
                root_K = np.sqrt(square_K / (1 - self.second_momentum**number)) + self.adaptivity
                step_K = velocity_K / (1 - self.momentum**number) / root_K
            else:
                decay = 0.0 if self.kind == "sgd" else self.momentum
                velocity_K = decay * velocity_K + mean_K
                step_K = mean_K + decay * velocity_K if self.kind == "nesterov" else velocity_K
            weights_K = weights_K + self.learning_rate * step_K
            rows.append(weights_K)
        return np.array(rows)


@dataclass(frozen=True)
class RoundRecords:
    """Training's record of its rounds; ``federated.rounds.witness`` explains the names. Secret."""

    sums_TN: np.ndarray
    released_TN: np.ndarray
    weights_TN: np.ndarray
    planted_TN: np.ndarray
    rounding_T: np.ndarray
    clips_T: np.ndarray
    bits_T: np.ndarray
    thresholds_T: np.ndarray
    updates_T: np.ndarray
    longer_T: np.ndarray
    missing_T: np.ndarray
    rows_T: np.ndarray
    followed_released_TK: np.ndarray
    followed_weights_TK: np.ndarray


@dataclass(frozen=True)
class Models:
    """The initial and the published model, along the directions and at the followed weights.

    Attributes:
      places_K: indices of the followed weights.
    """

    places_K: np.ndarray
    start_N: np.ndarray
    start_K: np.ndarray
    final_N: np.ndarray
    final_K: np.ndarray


def sequence(seen: RoundRecords, models: Models, optimiser: Optimiser) -> AuditRow:
    """The row about the sequence of models: each follows from the released sums, and the last is the published one.

    Guarantee: fails if a round's step along any direction differs from the optimiser's step on the recorded released
    sum by more than float32 rounding. Exact: an honest run passes.
    """
    gaps_T = _gap_followed(seen, models, optimiser)
    if optimiser.kind != "adam":
        along_TN = np.abs(seen.weights_TN - optimiser.models(models.start_N, seen.released_TN))
        gaps_T = np.maximum(gaps_T, along_TN.max(axis=1) / (_DEVIATIONS * seen.rounding_T))
    published = np.abs(models.final_N - seen.weights_TN[-1]).max() / (_DEVIATIONS * seen.rounding_T[-1])
    published = max(published, float(np.any(models.final_K != seen.followed_weights_TK[-1])) * 2.0)
    reason = ""
    if not gaps_T.max() <= 1:
        reason = f"the model after round {int(np.argmax(~(gaps_T <= 1)))} does not follow from what was released"
    elif not published <= 1:
        reason = "the published model is not the one that the last round released"
    return AuditRow("sequence", reason)


def _gap_followed(seen: RoundRecords, models: Models, optimiser: Optimiser) -> np.ndarray:
    """Largest gap of each round relative to the tolerance of float32 rounding."""
    expected_TK = optimiser.models(models.start_K, seen.followed_released_TK)
    # Half a last place of float32, plus float64 rounding on the way; at least the smallest normal number.
    allowed_TK = 2.0**-23 * np.maximum(np.abs(expected_TK), 2.0**-100)
    return (np.abs(seen.followed_weights_TK - expected_TK) / allowed_TK).max(axis=1)


def noise_added(seen: RoundRecords, noise_TN: np.ndarray, noise_multiplier: float) -> AuditRow:
    """The row about the noise: the release minus the regenerated noise equals the recorded sum.

    Guarantee: fails if in any round the released sum lacks a part of the key's noise, or holds anything else, by more
    than the tolerance of rounding along some direction. Exact: an honest run passes.

    Args:
      noise_TN: inner products of each round's noise, regenerated from the key, in clip norms.
    """
    rest_TN = seen.released_TN / seen.clips_T[:, None] - noise_TN
    wrong_T = ~(np.abs(rest_TN - seen.sums_TN).max(axis=1) <= _slack(noise_multiplier))
    reason = ""
    if wrong_T.any():
        reason = f"what round {int(np.argmax(wrong_T))} released is not its sum and the noise of its key"
    return AuditRow("noise_added", reason, least_noise=least_noise(noise_multiplier))


def least_noise(noise_multiplier: float) -> float:
    """Largest share of the noise that ``noise_added`` rejects; a function of the launch file."""
    # Along some direction there is at least one deviation of noise, except in less than one run in a million.
    return 1 - _slack(noise_multiplier) / noise_multiplier


def _slack(noise_multiplier: float) -> float:
    """Tolerance of rounding along a direction, in clip norms."""
    return _ROUNDING + (_ROUNDING + _GRID_ROUNDING) * noise_multiplier
