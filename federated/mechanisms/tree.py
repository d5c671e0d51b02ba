"""Tree aggregation with Honaker's variance reduction: the mechanism of DP-FTRL.

A node's noise is regenerated from the key and the node's name whenever it is wanted, so the
state is the number of the round. Noise kept in memory is a cache: with it a round draws two
vectors on average, without it a merge draws its left subtree again, and the bits are the same.

Kairouz et al. 2021, *Practical and Private (Deep) Learning without Sampling or Shuffling*,
section 4 and appendix B; Honaker 2015 for the combination of a node with its children.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from federated.mechanisms.second_sensitivity import tree_sensitivity_squared_forward
from federated.mechanisms.sensitivity import (
    check_noise_multiplier,
    check_restarts,
    complete_subtrees,
    segments,
    tree_sensitivity_squared,
)
from pretrain.randomness import noise

STREAM = "tree"


@dataclass(frozen=True)
class TreeState:
    """Position of a run in the tree. Two integers say it all; nothing else is ever saved.

    Attributes:
      round: the round that comes next.
      num_parameters: P.
      cached: float64 ``[P]`` or None for each complete subtree of the present tree, oldest and
        tallest first: Honaker's estimate of its noise, in clip norms. Empty after ``load``.
        Secret: it lets anyone subtract the noise.
    """

    round: int
    num_parameters: int
    cached: tuple[np.ndarray | None, ...] = field(default=(), repr=False, compare=False)


@dataclass(frozen=True)
class Tree:
    """DP-FTRL with tree aggregation.

    Guarantee: the sequence of released sums ``sum_t + C * noise_t`` is post-processing of all
    complete tree nodes, each released once with Gaussian noise of standard deviation
    ``noise_multiplier * C``. With at most ``max_participations`` participations of a device
    that lie ``min_sep`` or more apart it is rho-zCDP with ``rho = sensitivity^2 / (2 z^2)``,
    under zero-out adjacency, for adaptively chosen updates (Kairouz et al. 2021, theorem 4.1).

    Attributes:
      noise_multiplier: z, standard deviation of a node's noise in clip norms.
      restarts: rounds at which a new tree begins, rising; those past a run's end do nothing.

    Raises:
      ValueError: a multiplier that gives no noise, or restarts that do not rise from 1 on.
    """

    noise_multiplier: float
    restarts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_noise_multiplier(self.noise_multiplier)
        check_restarts(self.restarts)

    @property
    def secret_sample(self) -> None:
        """None: the guarantee does not use sampling."""

    def init(self, num_parameters: int) -> TreeState:
        """State before the first round."""
        return TreeState(0, num_parameters)

    def noise(self, state: TreeState, round_number: int, key: bytes) -> tuple[np.ndarray, TreeState]:
        """Noise to add to one round's sum, so that prefixes of released sums carry the tree's noise.

        Args:
          state: what the previous round returned.
          round_number: must be ``state.round``.
          key: 32 secret bytes, the same in every round of the run.

        Returns:
          float64 ``[P]`` in clip norms: the prefix's noise after this round minus before; new state.
        """
        if round_number != state.round:
            raise ValueError(f"round: got {round_number}, but this state continues with round {state.round}")
        size = state.num_parameters
        # A closed tree's noise stays in every later prefix, so a restart just leaves it behind.
        first = max((restart for restart in self.restarts if restart <= round_number), default=0)
        open_levels = complete_subtrees(round_number - first)
        estimates = list(state.cached or [None] * len(open_levels))[: len(open_levels)]
        estimate_P = self._node(key, round_number, 0, size)
        merged_P: np.ndarray | float = 0.0
        level = 0
        while open_levels and open_levels[-1] == level:
            open_levels.pop()
            left_P = estimates.pop()
            if left_P is None:
                left_P = self._estimate(key, round_number - (1 << level), level, size)
            merged_P = merged_P + left_P
            level += 1
            estimate_P = self._joined(key, round_number, level, left_P, estimate_P)
        # The prefix's noise is the sum of the open subtrees' estimates; those that did not merge cancel.
        return estimate_P - merged_P, TreeState(round_number + 1, size, (*estimates, estimate_P))

    def sensitivity_squared(self, rounds: int, min_sep: int, max_participations: int) -> float:
        """Exact squared sensitivity in clip norms squared, before the noise multiplier."""
        restarts = [restart for restart in self.restarts if restart < rounds]
        return float(tree_sensitivity_squared(rounds, min_sep, max_participations, restarts))

    def second_sensitivity_squared(self, rounds: int, min_sep: int, max_participations: int) -> float | None:
        """The squared sensitivity by an unrelated program; None where that would take too long."""
        restarts = [restart for restart in self.restarts if restart < rounds]
        squared = tree_sensitivity_squared_forward(rounds, min_sep, max_participations, restarts)
        return None if squared is None else float(squared)

    def rms_error(self, rounds: int) -> float:
        """Root mean square, over prefixes, of the noise's standard deviation at multiplier 1.

        As the noise is really made: that of the streamed estimate (Honaker), not of the best one with hindsight.
        """
        restarts = [restart for restart in self.restarts if restart < rounds]
        return float(np.sqrt(prefix_variances(rounds, restarts).mean()))

    def noise_std(self, weights_T: np.ndarray) -> float:
        """Standard deviation of the weighted sum of the rounds' noise, ``weights_T @ noise_TP``, at multiplier 1."""
        restarts = [restart for restart in self.restarts if restart < len(weights_T)]
        return math.sqrt(weighted_variance(np.asarray(weights_T, dtype=np.float64), restarts))

    def save(self, state: TreeState) -> dict[str, np.ndarray]:
        """The state as arrays, for a private checkpoint: two integers and no noise.

        Whoever reads the checkpoint without the key learns nothing about the tree's noise.
        """
        return {
            "round": np.asarray(state.round, dtype=np.int64),
            "num_parameters": np.asarray(state.num_parameters, dtype=np.int64),
        }

    def load(self, arrays: Mapping[str, np.ndarray]) -> TreeState:
        """The state from the arrays of a checkpoint, which resumes with the same bits.

        Rounds draw the noise that they miss again, when they come to need it: the left subtree of
        a merge, ``2^(h + 1)`` vectors at height h, once. A whole run redraws each node once at most.
        """
        return TreeState(int(arrays["round"]), int(arrays["num_parameters"]))

    def _estimate(self, key: bytes, last_leaf: int, level: int, size: int) -> np.ndarray:
        """Honaker's estimate of a complete subtree, from the noise of all its nodes."""
        if level == 0:
            return self._node(key, last_leaf, 0, size)
        left_P = self._estimate(key, last_leaf - (1 << level - 1), level - 1, size)
        return self._joined(key, last_leaf, level, left_P, self._estimate(key, last_leaf, level - 1, size))

    def _joined(self, key: bytes, last_leaf: int, level: int, left_P: np.ndarray, right_P: np.ndarray) -> np.ndarray:
        """Honaker's estimate of a node from its own noise and its children's estimates."""
        weight = own_weight(level)
        return weight * self._node(key, last_leaf, level, len(left_P)) + (1 - weight) * (left_P + right_P)

    def _node(self, key: bytes, last_leaf: int, level: int, size: int) -> np.ndarray:
        """A node's own noise. (last leaf, level) names a node, so no two nodes share bits."""
        return self.noise_multiplier * noise.gaussian(key, f"{STREAM}/{level}", last_leaf, size)


def own_weight(level: int) -> float:
    """Weight of a node's own noise against its children's: ``2^h / (2^(h+1) - 1)``, its variance too.

    The inverse-variance mean of the node (variance 1) and the sum of two children (variance
    ``2 v``) has variance ``v' = 1 / (1 + 1 / (2 v))``; from ``v = 1`` this is the closed form.
    """
    return 2.0**level / (2.0 ** (level + 1) - 1)


def prefix_variances(rounds: int, restarts: Sequence[int] = ()) -> np.ndarray:
    """Variance of the noise in each prefix of released sums, ``[T]``, for ``z = 1``."""
    variances, closed = [], 0.0
    for start, end in segments(rounds, restarts):
        for done in range(1, end - start + 1):
            open_trees = sum(own_weight(level) for level in range(done.bit_length()) if done >> level & 1)
            variances.append(closed + open_trees)
        closed = variances[-1]
    return np.array(variances)


def weighted_variance(weights_T: np.ndarray, restarts: Sequence[int] = ()) -> float:
    """Variance of the weighted sum of the rounds' noise, for ``z = 1``.

    A round's noise is the difference of two prefixes' noise, so round weights become prefix weights. A prefix is the
    sum of its open subtrees' estimates, and an estimate is made of its node and of its children's estimates: what a
    node counts for is passed down from the tallest.
    """
    total = 0.0
    for start, end in segments(len(weights_T), restarts):
        inside_T = weights_T[start:end]
        open_T = inside_T - np.append(inside_T[1:], 0.0)
        counts: dict[tuple[int, int], float] = {}
        for done, weight in enumerate(open_T, start=1):
            first = 0
            for level in reversed(range(done.bit_length())):
                if done >> level & 1:
                    place = (level, first >> level)
                    counts[place] = counts.get(place, 0.0) + weight
                    first += 1 << level
        for level in reversed(range(len(inside_T).bit_length())):
            for number in range(len(inside_T) >> level):
                count = counts.get((level, number), 0.0)
                own = own_weight(level) if level else 1.0
                total += (own * count) ** 2
                for right in range(2 if level else 0):
                    child = (level - 1, 2 * number + right)
                    counts[child] = counts.get(child, 0.0) + (1 - own) * count
    return total
