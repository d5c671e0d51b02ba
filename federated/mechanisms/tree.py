"""Tree aggregation with Honaker's variance reduction: the mechanism of DP-FTRL.

Kairouz et al. 2021, *Practical and Private (Deep) Learning without Sampling or Shuffling*,
section 4 and appendix B; Honaker 2015 for the combination of a node with its children.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import dp_accounting
import numpy as np

from federated import noise
from federated.mechanisms.forward import tree_sensitivity_squared_forward
from federated.mechanisms.strategy import segments, tree_sensitivity_squared

STREAM = "tree"


@dataclass(frozen=True)
class TreeState:
    """Noise of the subtrees that make up the current prefix. Secret: it lets anyone subtract the noise.

    Attributes:
      round: the round that comes next.
      levels: heights of the complete subtrees, strictly falling.
      estimates_LP: float64 ``[len(levels), P]``, Honaker's estimate of each subtree's noise, in clip norms.
    """

    round: int
    levels: tuple[int, ...]
    estimates_LP: np.ndarray


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
      restarts: rounds at which a new tree begins, ascending.
    """

    noise_multiplier: float
    restarts: tuple[int, ...] = ()

    def init(self, num_parameters: int) -> TreeState:
        """Before the first round."""
        return TreeState(0, (), np.empty((0, num_parameters)))

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
            raise ValueError(f"round: got {round_number}, but this state goes on with round {state.round}")
        size = state.estimates_LP.shape[1]
        levels, estimates = list(state.levels), list(state.estimates_LP)
        if round_number in self.restarts:
            # The closed trees' noise stays in every later prefix; the new tree adds to it.
            levels, estimates = [], []
        before_P = np.sum(estimates, axis=0) if estimates else np.zeros(size)
        level = 0
        estimate_P = self._node(key, round_number, level, size)
        while levels and levels[-1] == level:
            level += 1
            weight = own_weight(level)
            children_P = estimates.pop() + estimate_P
            levels.pop()
            estimate_P = weight * self._node(key, round_number, level, size) + (1 - weight) * children_P
        levels.append(level)
        estimates.append(estimate_P)
        after = TreeState(round_number + 1, tuple(levels), np.stack(estimates))
        return np.sum(after.estimates_LP, axis=0) - before_P, after

    def sensitivity_squared(self, rounds: int, min_sep: int, max_participations: int) -> float:
        """Exact squared sensitivity in clip norms squared, before the noise multiplier."""
        restarts = [restart for restart in self.restarts if restart < rounds]
        return float(tree_sensitivity_squared(rounds, min_sep, max_participations, restarts))

    def second_sensitivity_squared(self, rounds: int, min_sep: int, max_participations: int) -> float | None:
        """The same number by an unrelated program; None where that one would take too long."""
        restarts = [restart for restart in self.restarts if restart < rounds]
        squared = tree_sensitivity_squared_forward(rounds, min_sep, max_participations, restarts)
        return None if squared is None else float(squared)

    def dp_event(self, rounds: int, min_sep: int, max_participations: int) -> dp_accounting.DpEvent:
        """One Gaussian with the whole run's sensitivity."""
        sensitivity = self.sensitivity_squared(rounds, min_sep, max_participations) ** 0.5
        return dp_accounting.GaussianDpEvent(self.noise_multiplier / sensitivity)

    def save(self, state: TreeState) -> dict[str, np.ndarray]:
        """The state as arrays, for a private checkpoint."""
        return {
            "round": np.asarray(state.round, dtype=np.int64),
            "levels": np.asarray(state.levels, dtype=np.int64),
            "estimates": state.estimates_LP,
        }

    def load(self, arrays: dict[str, np.ndarray]) -> TreeState:
        """What ``save`` gave."""
        levels = tuple(int(level) for level in arrays["levels"])
        return TreeState(int(arrays["round"]), levels, np.asarray(arrays["estimates"]))

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
