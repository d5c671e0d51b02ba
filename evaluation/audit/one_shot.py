"""An estimate of epsilon from the final model alone: how far it lies along directions that were put in.

Andrew et al. 2023, *One-shot Empirical Privacy Estimation for Federated Learning*, the variant that
sees only the final model. Each canary device sent a random direction of its own; a direction that was
never sent has a cosine with the model's change of N(0, 1/d), so no run without canaries is needed.

The change is taken from the weights that private training *began* with: a pretrained model is far from
zero, and what lies along it says nothing of the run.

It is an estimate, for an adversary who sees no model but the last, not a bound: correlated noise is much
larger in one model than in the whole sequence, which ``matched_filter`` looks at.
"""

from dataclasses import dataclass

import numpy as np

from evaluation.audit.gaussian_dp import epsilon_between

# The null is a scaled beta distribution; from here on it is normal to 1e-3 far beyond any cosine of use.
LEAST_DIMENSION = 1000
_RESAMPLES = 200


@dataclass(frozen=True)
class OneShot:
    """Empirical epsilon of a final model, with its bootstrap interval.

    Attributes:
      epsilon: of two normals, the cosines of canaries that were in and the null.
      low, high: middle ``confidence`` of the bootstrap.
    """

    epsilon: float
    low: float
    high: float
    confidence: float
    canaries: int


def one_shot(cosines_N: np.ndarray, dimension: int, delta: float, seed: int, *, confidence: float = 0.95) -> OneShot:
    """Empirical epsilon of the final model.

    Biased upwards with few canaries: a deviation that differs from the null's by chance can be told too.

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
        raise ArithmeticError("change_P: the model is where it began, so no direction has an angle with its change")
    return projections_N / length
