"""An estimate of epsilon from the final model alone, by its change along inserted directions.

Andrew et al. 2023, *One-shot Empirical Privacy Estimation for Federated Learning*, the variant that
sees only the final model. Each canary device sent a random direction of its own; a direction that was
never sent has a cosine with the model's change of N(0, 1/d), so no run without canaries is needed.

The change is relative to the *initial* weights of private training: a pretrained model is far from zero,
and its direction says nothing about the run.

This is an estimate, not a bound, for an adversary who sees only the last model: correlated noise is much
larger in one model than in the whole sequence, which ``matched_filter`` tests.
"""

from dataclasses import dataclass

import numpy as np

from evaluation.audit.gaussian_dp import epsilon_between

# The null is a scaled beta distribution; from this dimension on it is normal to 1e-3 far beyond any relevant cosine.
LEAST_DIMENSION = 1000
_RESAMPLES = 200


@dataclass(frozen=True)
class OneShot:
    """Empirical epsilon of a final model, with its bootstrap interval.

    Attributes:
      epsilon: between two normals, the cosines of included canaries and the null.
      low, high: middle ``confidence`` of the bootstrap.
    """

    epsilon: float
    low: float
    high: float
    confidence: float
    canaries: int


def one_shot(cosines_N: np.ndarray, dimension: int, delta: float, seed: int, *, confidence: float = 0.95) -> OneShot:
    """Empirical epsilon of the final model.

    The estimate is biased upwards with few canaries: a chance difference of the deviations also counts.

    Args:
      cosines_N: of ``final - initial weights`` with the direction of each canary that took part.
      dimension: parameters of the model.
      seed: of the bootstrap.

    Raises:
      ValueError: too few parameters for the normal null, or fewer than 2 canaries.
    """
    if dimension < LEAST_DIMENSION or len(cosines_N) < 2:
        raise ValueError(
            f"dimension, cosines_N: {dimension} parameters and {len(cosines_N)} canaries; the estimate needs at least "
            f"{LEAST_DIMENSION} and 2"
        )
    scaled_N = np.asarray(cosines_N, dtype=np.float64) * np.sqrt(dimension)
    rng = np.random.default_rng([seed, *b"one-shot bootstrap"])
    drawn = (rng.choice(scaled_N, size=len(scaled_N)) for _ in range(_RESAMPLES))
    resampled = [epsilon_between(float(part.mean()), float(part.std()), delta) for part in drawn]
    tails = [(1 - confidence) / 2, (1 + confidence) / 2]
    mean, deviation = float(scaled_N.mean()), float(scaled_N.std())
    low, high = (float(value) for value in np.quantile(resampled, tails))
    return OneShot(epsilon_between(mean, deviation, delta), low, high, confidence, len(scaled_N))


def cosines(change_P: np.ndarray, projections_N: np.ndarray) -> np.ndarray:
    """Cosines of unit directions with the model's change, from their inner products with it.

    Raises:
      ArithmeticError: the model did not change at all.
    """
    length = float(np.linalg.norm(change_P))
    if not length > 0:
        raise ArithmeticError("change_P: the model did not change, so no direction has an angle with its change")
    return projections_N / length
