"""Sensitivity of strategy matrices under min separation and a cap on participations.

Symbols: T rounds, b ``min_sep`` (difference of two rounds; the papers' MinS is b - 1), k
``max_participations``. A device adds at most one clip norm in each round it joins, so the
squared sensitivity of a strategy C is ``max ||C 1_P||^2`` over patterns P of at most k rounds
that lie b or more apart.
"""

import itertools
from collections.abc import Sequence

import numpy as np

from federated.config.mechanism import MOST_ROUNDS, MOST_TREE_PARTICIPATIONS
from pretrain.config import LEAST_AMOUNT as LEAST_NOISE
from pretrain.config import MOST_AMOUNT as MOST_NOISE

# Larger than any blocked start; int32 leaves room to add to it.
_NEVER = np.int32(2**30)
# Coefficients computed in float64 may seem to rise by a last digit where they are flat.
_ROUNDING = 1e-12
_Rows = dict[int, np.ndarray]


def check_pattern(rounds: int, min_sep: int, max_participations: int) -> None:
    """ValueError unless the three describe patterns that can happen, in runs that can be computed."""
    for name, value in (("rounds", rounds), ("min_sep", min_sep), ("max_participations", max_participations)):
        if not 1 <= value <= MOST_ROUNDS:
            bound = "at least 1" if value < 1 else f"at most {MOST_ROUNDS:,}"
            raise ValueError(f"{name}: got {value:,}, expected {bound}")
    most = -(-rounds // min_sep)
    if max_participations > most:
        raise ValueError(
            f"max_participations: {max_participations} cannot happen, {rounds} rounds at min_sep {min_sep} allow at "
            f"most {most}; pass the observed number or {most}"
        )


def check_noise_multiplier(noise_multiplier: float) -> None:
    """ValueError unless there is noise, and an amount of it that can be computed with."""
    if not LEAST_NOISE <= noise_multiplier <= MOST_NOISE:
        raise ValueError(
            f"noise_multiplier: got {noise_multiplier}, expected a finite number above 0, the standard deviation in "
            f"clip norms, from {LEAST_NOISE:g} to {MOST_NOISE:g}; without noise there is no guarantee"
        )


def check_restarts(restarts: Sequence[int]) -> None:
    """ValueError unless the rounds rise and none is before round 1, where every run starts afresh anyway."""
    if list(restarts) != sorted(set(restarts)) or any(restart < 1 for restart in restarts):
        raise ValueError(f"restarts: got {list(restarts)}; give each round once, rising, the first at least 1")


def segments(rounds: int, restarts: Sequence[int]) -> list[tuple[int, int]]:
    """Half-open spans of rounds between restarts; a restart at r starts a new tree with round r."""
    cuts = [0, *sorted(set(restarts)), rounds]
    if cuts[1:-1] and not 0 < cuts[1] <= cuts[-2] < rounds:
        raise ValueError(f"restarts: {list(restarts)} must lie between 1 and {rounds - 1}, the rounds of this run")
    return list(itertools.pairwise(cuts))


def complete_subtrees(length: int) -> list[int]:
    """Levels of the forest that covers ``length`` leaves from the left: the binary digits of length."""
    return [level for level in range(length.bit_length() - 1, -1, -1) if length >> level & 1]


def tree_sensitivity_squared(rounds: int, min_sep: int, max_participations: int, restarts: Sequence[int] = ()) -> int:
    """Exact squared sensitivity of binary-tree aggregation (Kairouz et al. 2021, section 4 and appendix D).

    Every complete node of the forest is released once with noise, so the square is the largest
    ``sum over nodes of (participations below the node)^2``. Restarts cut the forest; patterns
    still cross the cuts.

    A dynamic program over levels: for a subtree with p participations and its first s leaves
    blocked by the separation, keep for every attainable value the least number of leaves it
    blocks in what follows. Levels with fewer leaves than b hold one participation at most.

    Returns:
      The square, in units of clip norm squared; an integer.
    """
    check_pattern(rounds, min_sep, max_participations)
    if max_participations > MOST_TREE_PARTICIPATIONS:
        raise ValueError(
            f"max_participations: got {max_participations:,}, expected at most {MOST_TREE_PARTICIPATIONS} with a tree, "
            "whose exact sensitivity takes minutes beyond; lower it, or use another mechanism"
        )
    trees = [level for start, end in segments(rounds, restarts) for level in complete_subtrees(end - start)]
    tables = _subtree_tables(max(trees), min_sep, max_participations)
    values: list[dict[int, int]] = [{0: 0}] + [{} for _ in range(max_participations)]
    for level in trees:
        following: list[dict[int, int]] = [{} for _ in range(max_participations + 1)]
        for before, states in enumerate(values):
            for value, blocked in states.items():
                for inside, rows in enumerate(tables[level][: max_participations - before + 1]):
                    for gained, next_S in rows.items():
                        left = int(next_S[blocked])
                        if left < _NEVER:
                            best = following[before + inside]
                            best[value + gained] = min(best.get(value + gained, left), left)
        values = [_undominated(states) for states in following]
    return max(value for states in values for value in states)


def _subtree_tables(top: int, min_sep: int, most: int) -> list[list[_Rows]]:
    """``tables[level][p][value][s]``: leaves blocked after a subtree, ``_NEVER`` if it cannot be."""
    starts_S = np.arange(min_sep, dtype=np.int32)
    tables: list[list[_Rows]] = []
    for level in range(top + 1):
        leaves = 1 << level
        empty_S = np.maximum(starts_S - leaves, 0).astype(np.int32)
        single_S = np.where(starts_S < leaves, np.maximum(starts_S + min_sep - leaves, 0), _NEVER).astype(np.int32)
        table: list[_Rows] = [{0: empty_S}, {level + 1: single_S}]
        for count in range(2, min(most, -(-leaves // min_sep)) + 1):
            table.append(_halves(tables[level - 1], count))
        tables.append(table[: most + 1])
    return tables


def _halves(half: list[_Rows], count: int) -> _Rows:
    """Rows of a subtree with ``count`` participations from the tables of its two halves."""
    rows: _Rows = {}
    for left in range(max(0, count - len(half) + 1), min(count, len(half) - 1) + 1):
        for left_value, blocked_S in half[left].items():
            possible_S = blocked_S < _NEVER
            inner_S = np.where(possible_S, blocked_S, 0)
            for right_value, next_S in half[count - left].items():
                value = left_value + right_value + count * count
                ends_S = np.where(possible_S, next_S[inner_S], _NEVER)
                rows[value] = np.minimum(rows[value], ends_S) if value in rows else ends_S
    undominated: _Rows = {}
    best_S = np.full_like(next(iter(rows.values())), _NEVER)
    for value in sorted(rows, reverse=True):
        # A row that blocks no less than rows of higher value can never be part of a maximum.
        if np.any(rows[value] < best_S):
            undominated[value] = rows[value]
            best_S = np.minimum(best_S, rows[value])
    return undominated


def _undominated(states: dict[int, int]) -> dict[int, int]:
    undominated, best = {}, int(_NEVER)
    for value in sorted(states, reverse=True):
        if states[value] < best:
            undominated[value] = best = states[value]
    return undominated


def toeplitz_sensitivity_squared(
    coefficients_T: np.ndarray, min_sep: int, max_participations: int, restarts: Sequence[int] = ()
) -> float:
    """Exact squared sensitivity of a lower-triangular Toeplitz C (McMahan et al. 2024, theorem 3.1).

    For coefficients that are non-negative and never rise the worst pattern takes part as often
    and as early as it may: rounds 0, b, 2b, ...

    A restart begins C anew: one truncated block per span of rounds, blocks share no row, and only
    the separation ties a device's participations in one to those in the next. Proof of the
    program over (participations so far, rounds still blocked): among all ways to put p
    participations into a block whose first s rounds are blocked, s, s + b, s + 2b, ... has its
    q-th participation earliest and every gap shortest, and ``<C_i, C_j>``, a sum over rounds j to
    the block's end of products of coefficients, never rises with j or with ``j - i``, so this way
    has the largest square and also blocks the fewest rounds of the next block. A later block's
    best square never falls when fewer of its rounds are blocked, so by induction over blocks it
    is enough to choose how many participations each block gets.

    Returns:
      The square, in units of clip norm squared.

    Raises:
      ValueError: coefficients for which the theorem does not hold, or restarts outside the run.
    """
    if not np.all(np.isfinite(coefficients_T)) or np.any(coefficients_T < 0):
        raise ValueError("coefficients: must be finite and non-negative; the sensitivity formula needs it")
    if np.any(np.diff(coefficients_T) > _ROUNDING * coefficients_T[0]):
        raise ValueError(
            f"coefficients: number {int(np.argmax(np.diff(coefficients_T))) + 1} is larger than the one before it, but "
            "they must never rise; the sensitivity formula needs it"
        )
    states: dict[tuple[int, int], float] = {(0, 0): 0.0}
    for start, end in segments(len(coefficients_T), restarts):
        following: dict[tuple[int, int], float] = {}
        squares = {
            blocked: _earliest_squares(coefficients_T[: max(0, end - start - blocked)], min_sep, max_participations)
            for blocked in {blocked for _, blocked in states}
        }
        for (used, blocked), value in states.items():
            for inside, square in enumerate(squares[blocked][: max_participations - used + 1]):
                state = (used + inside, max(0, blocked + inside * min_sep - (end - start)))
                following[state] = max(following.get(state, 0.0), value + square)
        states = following
    return max(states.values())


def _earliest_squares(coefficients_T: np.ndarray, min_sep: int, most: int) -> list[float]:
    """``||C 1_P||^2`` for the earliest pattern of 0, 1, 2, ... participations in one block."""
    total_T, squares = np.zeros(len(coefficients_T)), [0.0]
    for first in range(0, min(most * min_sep, len(coefficients_T)), min_sep):
        total_T[first:] += coefficients_T[: len(coefficients_T) - first]
        squares.append(float(total_T @ total_T))
    return squares


def tree_matrix(rounds: int, restarts: Sequence[int] = ()) -> np.ndarray:
    """Dense strategy C of tree aggregation, ``[nodes, T]``: one row for each complete node, by its last leaf."""
    rows = []
    for start, end in segments(rounds, restarts):
        for leaf in range(start, end):
            done = leaf - start + 1
            for level in range((done & -done).bit_length()):
                row = np.zeros(rounds)
                row[leaf + 1 - (1 << level) : leaf + 1] = 1.0
                rows.append(row)
    return np.array(rows)
