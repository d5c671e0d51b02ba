"""Noise of every mechanism at a fixed seed: each prefix has the dense matrix's variance, and no other scale.

The variances come from matrices written out here, ``A C^-1`` entry by entry and for the tree the
least-squares weights of its nodes, not from the mechanisms' own formulas.
"""

import itertools

import numpy as np
import pytest

from federated.mechanisms.banded import Banded, from_coefficients
from federated.mechanisms.blt import Blt, prefix_variances
from federated.mechanisms.sensitivity import tree_matrix
from federated.mechanisms.tree import Tree
from federated.mechanisms.tree import prefix_variances as tree_prefix_variances
from pretrain.randomness import noise
from tests.helpers.audits.strategies import KEY, block_toeplitz, streamed

ROUNDS, SIZE, MULTIPLIER = 14, 40_000, 1.7
RESTARTS = (5, 9)
LAGS = np.tril(np.ones((ROUNDS, 4))) * np.random.default_rng(0).uniform(0.2, 1.0, size=(ROUNDS, 4))
MECHANISMS = {
    "tree": Tree(MULTIPLIER),
    "tree with restarts": Tree(MULTIPLIER, RESTARTS),
    "blt": Blt(MULTIPLIER, (0.97, 0.5), (0.2, 0.4)),
    "blt with restarts": Blt(MULTIPLIER, (0.97, 0.5), (0.2, 0.4), RESTARTS),
    "banded": Banded(MULTIPLIER, LAGS),
    "banded toeplitz": from_coefficients(MULTIPLIER, np.array([1.0, 0.5, 0.3]), ROUNDS),
}
every_mechanism = pytest.mark.parametrize("name", MECHANISMS)


def strategy(mechanism: Blt | Banded) -> np.ndarray:
    """Dense C."""
    if isinstance(mechanism, Banded):
        return mechanism.matrix()
    lags = range(1, ROUNDS)
    terms = list(zip(mechanism.omega, mechanism.theta, strict=True))
    column = np.array([1.0, *(sum(w * t ** (lag - 1) for w, t in terms) for lag in lags)])
    return block_toeplitz(column, mechanism.restarts)


def tree_variances(tree: Tree) -> list[float]:
    """Squared weights of the best unbiased estimate of each open subtree, closed trees carried on."""
    variances, closed = [], 0.0
    for start, end in itertools.pairwise([0, *tree.restarts, ROUNDS]):
        for done in range(1, end - start + 1):
            heights = [height for height in range(done.bit_length()) if done >> height & 1]
            weights = [np.linalg.pinv(tree_matrix(1 << height)).sum(axis=0) for height in heights]
            variances.append(closed + sum(float(weight @ weight) for weight in weights))
        closed = variances[-1]
    return variances


def wanted(mechanism: Tree | Blt | Banded) -> np.ndarray:
    """Variance of each prefix's noise at multiplier 1."""
    if isinstance(mechanism, Tree):
        return np.array(tree_variances(mechanism))
    prefixes = np.tril(np.ones((ROUNDS, ROUNDS))) @ np.linalg.inv(strategy(mechanism))
    return np.sum(prefixes**2, axis=1)


@pytest.mark.statistical
@every_mechanism
def test_every_prefix_has_its_variance_and_no_other_scale(name: str) -> None:
    mechanism = MECHANISMS[name]
    right = wanted(mechanism) * MULTIPLIER**2
    prefixes = np.cumsum(streamed(mechanism, ROUNDS, SIZE), axis=0)
    for factor, accepted in ((1.0, True), (2 / 3, False), (3 / 2, False)):
        ratios = np.var(factor * prefixes, axis=1) / right
        inside = np.abs(ratios - 1) < 5 * np.sqrt(2 / SIZE)
        assert np.all(inside == accepted), ratios


@pytest.mark.statistical
@pytest.mark.parametrize("name", [name for name in MECHANISMS if not name.startswith("tree")])
def test_noise_is_white_again_after_multiplication_by_the_strategy(name: str) -> None:
    mechanism = MECHANISMS[name]
    rows = streamed(mechanism, ROUNDS, SIZE) / MULTIPLIER
    off = np.abs(np.cov(strategy(mechanism) @ rows) - np.eye(ROUNDS))
    assert off.max() < 6 * np.sqrt(2 / SIZE)
    for factor in (2 / 3, 3 / 2):
        assert np.abs(np.cov(strategy(mechanism) @ (factor * rows)) - np.eye(ROUNDS)).max() > 0.5
    # Another strategy does not whiten it: independent noise would pass for none of these.
    assert np.abs(np.cov(rows) - np.eye(ROUNDS)).max() > 0.05


@pytest.mark.statistical
@every_mechanism
def test_the_noise_of_two_keys_is_unrelated(name: str) -> None:
    mechanism, state = MECHANISMS[name], MECHANISMS[name].init(SIZE)
    one, _ = mechanism.noise(state, 0, KEY)
    two, _ = mechanism.noise(state, 0, noise.seeded_key(34))
    assert abs(np.corrcoef(one, two)[0, 1]) < 5 / np.sqrt(SIZE)
    assert np.corrcoef(one, 2 * one)[0, 1] > 0.99


@pytest.mark.parametrize("restarts", [(), RESTARTS, (1, 13)])
def test_closed_forms_of_the_variances_are_those_of_the_dense_matrices(restarts: tuple[int, ...]) -> None:
    tree, blt = Tree(1.0, restarts), Blt(1.0, (0.97, 0.5), (0.2, 0.4), restarts)
    np.testing.assert_allclose(tree_prefix_variances(ROUNDS, restarts), wanted(tree), rtol=1e-12)
    np.testing.assert_allclose(prefix_variances(blt, ROUNDS), wanted(blt), rtol=1e-12)
