"""Whitening matrices that turn the correlated noise of a mechanism back into independent noise.

Symbols: T rounds, W lower triangular with ``W Sigma W^T = I`` for the covariance Sigma of the noise that is
added to the rounds' sums, in units of the noise multiplier squared. Released sums multiplied by W
are ``W x + z`` with independent z, to which the guarantee applies, with ``mu = ||W p|| / z`` for a device
that joined the rounds p.

For lower-triangular strategies W is the strategy itself. Tree aggregation has more nodes than rounds; its W
follows from the covariance of the release, so ``||W p||^2`` is at most the accountant's charge, which assumes
that every node is released.

Written from the papers, independently of the code that makes the noise: an audit must not share its mistakes.
"""

import functools
from collections.abc import Sequence

import numpy as np
from scipy import linalg


def of_coefficients(coefficients_T: np.ndarray, restarts: Sequence[int] = ()) -> np.ndarray:
    """W of a Toeplitz strategy with restarts: block diagonal, ``[T, T]``."""
    rounds = len(coefficients_T)
    whitener_TT = np.zeros((rounds, rounds))
    for start, end in _spans(rounds, restarts):
        column = coefficients_T[: end - start]
        whitener_TT[start:end, start:end] = linalg.toeplitz(column, np.zeros(end - start))
    return whitener_TT


def of_tree(rounds: int, restarts: Sequence[int] = ()) -> np.ndarray:
    """W of tree aggregation with Honaker's estimate from each complete subtree (Kairouz et al. 2021, appendix B)."""
    return of_noise(tree_noise(rounds, restarts)[0])


def of_noise(mixing_TK: np.ndarray) -> np.ndarray:
    """W of noise ``M z`` for independent z: the inverse of the Cholesky factor of ``M M^T``."""
    factor_TT = np.linalg.cholesky(mixing_TK @ mixing_TK.T)
    return linalg.solve_triangular(factor_TT, np.eye(len(factor_TT)), lower=True)


def mu_of_pattern(whitener_TT: np.ndarray, participations_T: np.ndarray, noise_multiplier: float) -> float:
    """GDP of the release, for devices that sent at most ``participations_T`` clip norms in each round."""
    return float(np.linalg.norm(whitener_TT @ participations_T) / noise_multiplier)


def tree_noise(rounds: int, restarts: Sequence[int]) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """M, ``[T, nodes]``: each round's noise is the prefix's Honaker estimate minus that of the prefix before.

    Returns:
      M, and for each node the round of its first leaf and its level: it has ``2^level`` leaves.
    """
    nodes: dict[tuple[int, int], int] = {}
    prefixes = []
    closed: dict[int, float] = {}

    @functools.cache
    def estimate(first: int, level: int) -> dict[int, float]:
        """Weights of the nodes in the best estimate of one subtree's total noise."""
        number = nodes.setdefault((first, level), len(nodes))
        if level == 0:
            return {number: 1.0}
        children = estimate(first, level - 1) | estimate(first + (1 << level - 1), level - 1)
        # Variance of a subtree's estimate: v = 1 for a leaf, then 1 / v = 1 + 1 / (2 v of a child).
        variance = 1.0
        for _ in range(level - 1):
            variance = 1 / (1 + 1 / (2 * variance))
        itself = 2 * variance / (1 + 2 * variance)
        return {number: itself} | {node: (1 - itself) * weight for node, weight in children.items()}

    for start, end in _spans(rounds, restarts):
        for leaf in range(start + 1, end + 1):
            prefix, at = dict(closed), start
            for level in range((leaf - start).bit_length() - 1, -1, -1):
                if (leaf - start) >> level & 1:
                    prefix |= estimate(at, level)
                    at += 1 << level
            prefixes.append(prefix)
        closed = prefixes[-1]
    mixing_TK = np.zeros((rounds, len(nodes)))
    for row, prefix in enumerate(prefixes):
        mixing_TK[row, list(prefix)] = list(prefix.values())
    return np.diff(mixing_TK, axis=0, prepend=0.0), list(nodes)


def _spans(rounds: int, restarts: Sequence[int]) -> list[tuple[int, int]]:
    cuts = [0, *sorted(restart for restart in set(restarts) if restart < rounds), rounds]
    return [(cuts[place], cuts[place + 1]) for place in range(len(cuts) - 1)]
