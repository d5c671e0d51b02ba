"""Tree aggregation against dense matrices; sensitivity against brute force and published numbers."""

import dataclasses
import itertools
import random
from dataclasses import dataclass

import numpy as np
import pytest

from federated.mechanisms.sensitivity import (
    tree_matrix,
    tree_sensitivity_squared,
)
from federated.mechanisms.tree import Tree, own_weight, prefix_variances
from pretrain.randomness import noise
from tests.helpers.audits.strategies import pattern_sensitivity_squared, patterns

KEY = noise.seeded_key(3)
SIZE = 3


def streamed(tree: Tree, rounds: int) -> np.ndarray:
    """Noise of every round, ``[T, P]``."""
    state, rows = tree.init(SIZE), []
    for number in range(rounds):
        row, state = tree.noise(state, number, KEY)
        rows.append(row)
    return np.array(rows)


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


@pytest.mark.parametrize("restarts", [(1,), (4, 9), (3, 8, 16)])
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


@pytest.mark.statistical
def test_prefix_noise_has_the_stated_variance() -> None:
    rounds, size = 13, 40_000
    tree, state = Tree(noise_multiplier=3.0), None
    state, total = tree.init(size), np.zeros(size)
    wanted = prefix_variances(rounds) * 9
    for number in range(rounds):
        row, state = tree.noise(state, number, KEY)
        total += row
        ratio = total.var() / wanted[number]
        assert abs(ratio - 1) < 5 * np.sqrt(2 / size)
        assert abs(ratio * (2 / 3) ** 2 - 1) > 5 * np.sqrt(2 / size)
    assert own_weight(0) == 1
    assert own_weight(1) == pytest.approx(2 / 3)


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


def test_the_noise_that_is_handed_out_can_be_changed() -> None:
    """A caller that scales it in place must not scale the next rounds' too."""
    tree = Tree(noise_multiplier=1.0)
    rows, state = streamed(tree, 9), tree.init(SIZE)
    for number in range(9):
        row, state = tree.noise(state, number, KEY)
        assert np.array_equal(row, rows[number])
        row *= 100.0


def test_rounds_cannot_be_skipped() -> None:
    tree = Tree(noise_multiplier=1.0)
    with pytest.raises(ValueError, match="goes on with round 0"):
        tree.noise(tree.init(2), 1, KEY)


def test_sensitivity_equals_brute_force() -> None:
    rng = random.Random(5)
    for _ in range(150):
        rounds = rng.randint(1, 15)
        min_sep = rng.randint(1, rounds)
        most = rng.randint(1, -(-rounds // min_sep))
        cuts = tuple(sorted(rng.sample(range(1, rounds), rng.randint(0, min(3, rounds - 1)))))
        fast = tree_sensitivity_squared(rounds, min_sep, most, cuts)
        assert fast == pattern_sensitivity_squared(tree_matrix(rounds, cuts), min_sep, most)


def test_brute_force_enumerates_what_it_should() -> None:
    assert sorted(patterns(4, 2, 2)) == [(), (0,), (0, 2), (0, 3), (1,), (1, 3), (2,), (3,)]


# Xu et al. 2023, tables 1 and 2: rounds, MinS, MaxP, and zeta^2 = 98 rho (noise multiplier 7).
PUBLISHED = [
    (930, 212, 4, 47), (980, 226, 4, 47), (1280, 180, 5, 87), (1620, 303, 5, 70), (530, 54, 8, 182),
    (1900, 526, 3, 34), (1750, 349, 4, 51), (2800, 371, 7, 128), (3600, 909, 3, 44), (1980, 343, 5, 63),
    (1170, 206, 5, 87), (1220, 206, 5, 87), (1280, 197, 5, 87), (1300, 290, 4, 60), (1360, 188, 5, 87),
    (870, 327, 3, 31), (430, 54, 7, 97), (1360, 622, 2, 24), (1290, 170, 6, 112), (640, 90, 5, 82),
]  # fmt: skip
PUBLISHED_RHO = [
    0.48, 0.48, 0.89, 0.71, 1.86, 0.35, 0.52, 1.31, 0.45, 0.64, 0.89, 0.89, 0.89, 0.61, 0.89, 0.32, 0.99, 0.25, 1.14,
    0.84,
]  # fmt: skip


@pytest.mark.parametrize(("row", "rho"), list(zip(PUBLISHED, PUBLISHED_RHO, strict=True)))
def test_published_rows(row: tuple[int, int, int, int], rho: float) -> None:
    rounds, mins, most, squared = row
    # The papers' MinS counts the rounds strictly between two participations.
    assert tree_sensitivity_squared(rounds, mins + 1, most) == squared
    assert squared / 98 == pytest.approx(rho, abs=0.0052)


@pytest.mark.parametrize(
    ("row", "restarts", "squared"),
    [
        ((980, 227, 4), (128,), 47),
        ((1900, 527, 3), (128, 1152), 34),
        ((2800, 372, 7), (128, 1152, 2176), 92),
        ((530, 55, 8), (128,), 105),
        ((3600, 910, 3), (128, 1152, 2176, 3200), 35),
    ],
)
def test_restarts_lower_the_sensitivity(row: tuple[int, int, int], restarts: tuple[int, ...], squared: int) -> None:
    assert tree_sensitivity_squared(*row, restarts=restarts) == squared <= tree_sensitivity_squared(*row)


def test_mins_taken_for_min_sep_is_noticed() -> None:
    assert tree_sensitivity_squared(1290, 171, 6) == 112
    assert tree_sensitivity_squared(1290, 170, 6) != 112


@pytest.mark.parametrize(
    ("row", "message"),
    [((10, 2, 6), "at most 5"), ((0, 1, 1), "rounds: got 0"), ((5, 0, 1), "min_sep: got 0"), ((5, 1, 0), "got 0")],
)
def test_impossible_patterns_are_refused(row: tuple[int, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tree_sensitivity_squared(*row)


def test_restart_outside_the_run_is_refused() -> None:
    with pytest.raises(ValueError, match="restarts"):
        tree_sensitivity_squared(10, 2, 2, (12,))


@pytest.mark.parametrize("multiplier", [0.0, -1.0, float("nan"), float("inf")])
def test_a_multiplier_without_noise_is_refused(multiplier: float) -> None:
    with pytest.raises(ValueError, match=f"noise_multiplier: got {multiplier}, expected a finite number above 0"):
        Tree(multiplier)


@pytest.mark.parametrize("restarts", [(0,), (-3,), (4, 4), (9, 4)])
def test_restarts_that_cannot_be_are_refused(restarts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="rising, the first at least 1"):
        Tree(1.0, restarts)
