"""Regenerated noise of a training run, from its key: vectors of named streams, mixed by the strategy.

Written from the papers and the names of the streams, independently of the code that makes the noise: an audit must not
share its mistakes.

Shape legend: T rounds, K independent vectors, P parameters, N directions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from evaluation.audit import whitening
from evaluation.audit.directions import Directions
from evaluation.audit.keyed_noise import gaussian


@dataclass(frozen=True)
class Strategy:
    """Each round's noise as a mixture of independent vectors, at a noise multiplier of 1.

    Attributes:
      mixing_TK: round t adds ``sum_k mixing[t, k] z_k``.
      vectors_K: stream and index of each ``z_k``.
    """

    mixing_TK: np.ndarray
    vectors_K: tuple[tuple[str, int], ...]


def of_tree(rounds: int, restarts: Sequence[int]) -> Strategy:
    """Tree aggregation: a vector for each complete subtree, named by its height and its last leaf."""
    mixing_TK, nodes = whitening.tree_noise(rounds, restarts)
    return Strategy(mixing_TK, tuple((f"tree/{level}", first + (1 << level) - 1) for first, level in nodes))


def of_matrix(strategy_TT: np.ndarray, stream: str) -> Strategy:
    """``C^-1 z`` of a lower-triangular strategy C: a vector for each round, in a stream of the mechanism's name."""
    inverse_TT = linalg.solve_triangular(strategy_TT, np.eye(len(strategy_TT)), lower=True)
    return Strategy(inverse_TT, tuple((stream, number) for number in range(len(strategy_TT))))


@dataclass(frozen=True)
class RunNoise:
    """Noise of a run in clip norms. Secret.

    Attributes:
      along_TN: inner products of every round's noise with the directions.
      whole: noise of the requested rounds, ``[P]`` each.
    """

    along_TN: np.ndarray
    whole: dict[int, np.ndarray]


def drawn(
    strategy: Strategy, noise_multiplier: float, key: bytes, directions: Directions, rounds: Sequence[int]
) -> RunNoise:
    """Draw each vector once; every round's noise, and its projections, are linear in them.

    Args:
      noise_multiplier: of the released sums.
      key: key of training's noise.
      rounds: rounds whose whole noise is requested.
    """
    size = directions.num_parameters
    along_KN = np.empty((len(strategy.vectors_K), directions.count))
    whole = {number: np.zeros(size) for number in rounds}
    for place, (stream, index) in enumerate(strategy.vectors_K):
        vector_P = noise_multiplier * gaussian(key, stream, index, size)
        along_KN[place] = directions.project(vector_P)
        for number, noise_P in whole.items():
            if share := strategy.mixing_TK[number, place]:
                noise_P += share * vector_P
    return RunNoise(strategy.mixing_TK @ along_KN, whole)


def drawn_numbers(strategy: Strategy, deviation: float, key: bytes) -> np.ndarray:
    """Noise of one number per round, float64 ``[T]``, at this standard deviation."""
    numbers_K = [gaussian(key, stream, index, 1)[0] for stream, index in strategy.vectors_K]
    return deviation * (strategy.mixing_TK @ np.array(numbers_K))
