"""Noise of tree aggregation against its least-squares definition, streamed, resumed and drawn once."""

import dataclasses
import itertools
import random
from dataclasses import dataclass

import numpy as np
import pytest

from federated.mechanisms.sensitivity import tree_matrix
from federated.mechanisms.tree import Tree
from pretrain.randomness import noise
from tests.helpers.audits.strategies import KEY, streamed

SIZE = 3


def dense(tree: Tree, rounds: int) -> np.ndarray:
    """Noise of every round from the least-squares definition, ``[T, P]``.

    Honaker's online estimate of a prefix is the best unbiased linear estimate of each complete
    subtree from the nodes inside it, so it is computed here by the pseudo-inverse.
    """
    prefixes, closed = [], np.zeros(SIZE)
    cuts = [0, *[restart for restart in tree.restarts if restart < rounds], rounds]
    for start, end in itertools.pairwise(cuts):
        for done in range(1, end - start + 1):
            total, first = closed.copy(), start
            for level in range(done.bit_length() - 1, -1, -1):
                if done >> level & 1:
                    leaves = 1 << level
                    strategy = tree_matrix(leaves)
                    nodes = np.array([node(first + last, height) for last, height in node_names(leaves)])
                    total += np.linalg.pinv(strategy).sum(axis=0) @ nodes * tree.noise_multiplier
                    first += leaves
            prefixes.append(total)
        closed = prefixes[-1]
    return np.diff(prefixes, axis=0, prepend=np.zeros((1, SIZE)))


def node_names(leaves: int) -> list[tuple[int, int]]:
    """(last leaf, level) in the row order of ``tree_matrix``."""
    return [(leaf, level) for leaf in range(leaves) for level in range(((leaf + 1) & -(leaf + 1)).bit_length())]


def node(last_leaf: int, level: int) -> np.ndarray:
    return noise.gaussian(KEY, f"tree/{level}", last_leaf, SIZE)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", range(1, 41))
def test_streamed_noise_is_the_least_squares_noise(rounds: int) -> None:
    tree = Tree(noise_multiplier=2.5)
    np.testing.assert_allclose(streamed(tree, rounds), dense(tree, rounds), rtol=0, atol=1e-11)


@pytest.mark.parametrize("restarts", [(), (1,), (4, 9), (3, 8, 16)])
def test_restarts_begin_new_trees(restarts: tuple[int, ...]) -> None:
    tree = Tree(noise_multiplier=1.5, restarts=restarts)
    np.testing.assert_allclose(streamed(tree, 20), dense(tree, 20), rtol=0, atol=1e-11)


@dataclass(frozen=True)
class ReusedNoise(Tree):
    """Broken: all nodes of a level share their noise."""

    def _node(self, key: bytes, last_leaf: int, level: int, size: int) -> np.ndarray:
        return super()._node(key, 0, level, size)


def test_broken_versions_differ_from_the_least_squares_noise() -> None:
    right = dense(Tree(noise_multiplier=2.5), 16)
    for broken in (Tree(noise_multiplier=2.5 * 2 / 3), ReusedNoise(noise_multiplier=2.5)):
        assert np.abs(streamed(broken, 16) - right).max() > 0.1


@pytest.mark.parametrize("restarts", [(), (5,), (4, 9), (1, 2, 3)])
def test_killed_at_any_round_it_goes_on_bitwise_to_the_end(restarts: tuple[int, ...]) -> None:
    tree, rounds = Tree(noise_multiplier=1.0, restarts=restarts), 21
    rows, state = streamed(tree, rounds), tree.init(SIZE)
    for cut in range(rounds):
        resumed = tree.load({name: array.copy() for name, array in tree.save(state).items()})
        for number in range(cut, rounds):
            row, resumed = tree.noise(resumed, number, KEY)
            assert np.array_equal(row, rows[number])
        _, state = tree.noise(state, cut, KEY)


def test_what_is_cached_makes_no_difference() -> None:
    """Any part of the cache may go missing at any time."""
    rng, tree = random.Random(1), Tree(noise_multiplier=2.0, restarts=(13,))
    rows, state = streamed(tree, 40), tree.init(SIZE)
    for number in range(40):
        kept = tuple(estimate if rng.random() < 0.5 else None for estimate in state.cached)
        row, state = tree.noise(dataclasses.replace(state, cached=kept), number, KEY)
        assert np.array_equal(row, rows[number])


def test_a_checkpoint_holds_no_noise() -> None:
    tree = Tree(noise_multiplier=1.0)
    state = tree.init(SIZE)
    for number in range(13):
        _, state = tree.noise(state, number, KEY)
    assert {name: array.tolist() for name, array in tree.save(state).items()} == {"round": 13, "num_parameters": SIZE}
    assert all(array.dtype == np.int64 for array in tree.save(state).values())
    assert "cached" not in repr(state)


def test_a_round_draws_two_vectors_on_average_and_a_resumed_one_no_node_twice() -> None:
    drawn: list[tuple[int, int]] = []

    @dataclass(frozen=True)
    class Counted(Tree):
        def _node(self, key: bytes, last_leaf: int, level: int, size: int) -> np.ndarray:
            drawn.append((last_leaf, level))
            return super()._node(key, last_leaf, level, size)

    tree = Counted(noise_multiplier=1.0)
    streamed(tree, 64)
    assert sorted(drawn) == sorted(node_names(64))
    drawn.clear()
    state = tree.load(tree.save(tree.init(SIZE)) | {"round": np.asarray(48)})
    for number in range(48, 63):
        _, state = tree.noise(state, number, KEY)
    # Rounds 0 to 31 and 32 to 47 stay closed until round 63 merges them: nothing of them was drawn.
    assert len(drawn) == len(set(drawn))
    assert min(leaf for leaf, _ in drawn) == 48
    tree.noise(state, 63, KEY)
    assert sorted(drawn) == sorted(node_names(64))
