"""Second programs for the sensitivities, unrelated to the first ones, so that one mistake cannot pass both.

- Tree: ``sensitivity.tree_sensitivity_squared`` joins subtrees and squares counts. The one here walks through the
  rounds and adds up pairs: with ``G = C^T C``, ``||C 1_P||^2`` is the sum over pairs of participations of the number
  of tree nodes that hold both.
- BLT: ``sensitivity.toeplitz_sensitivity_squared`` adds shifted coefficients of the earliest pattern, which theorem
  3.1 says is the worst. The one here never forms C and does not assume the theorem: inner products of columns come
  from geometric series in the decays, and a pattern's square is held under the largest inner product that each
  *pair* of its participations could have anywhere.
- Banded: ``Banded.sensitivity_squared`` trusts that columns ``bands`` or more apart share no row and adds up squared
  norms by a dynamic program. The one here multiplies the dense matrix out, charges whatever inner products it
  finds, and leaves the choice of rounds to a linear program.

First and second programs share the checks of their arguments and the spans between restarts, and nothing else.

Suffixes: B buffers, J the later column of a pair, D the distance between the two, G distances in steps of b,
N rounds, R rows of constraints.
"""

import functools
from collections.abc import Sequence

import numpy as np

from federated.mechanisms.sensitivity import check_pattern, segments

# Of the tree: about half a second; every published row needs fewer than 300.
MAX_STATES = 100_000
# Pairs of rounds of a BLT that are looked at: a quarter of a second for 5,000 rounds in one piece.
MAX_PAIRS = 25_000_000
_CHUNK = 256  # columns at a time, to bound memory
# Of a banded strategy: the product of the dense matrix takes a second for as many.
MAX_ROUNDS = 2500
# The least that the solver accepts; its usual one could pass over the better of two nearly equal rounds.
_TOLERANCE = 1e-10

_Counts = tuple[int, ...]
_States = dict[tuple[int, _Counts], int]


def tree_sensitivity_squared_forward(
    rounds: int, min_sep: int, max_participations: int, restarts: Sequence[int] = (), max_states: int = MAX_STATES
) -> int | None:
    """Exact squared sensitivity of tree aggregation by a pass over the rounds.

    A state is what the future can still meet: the participations so far and, for every node
    around the present round that is tall enough to hold two, how many of them it holds. One more
    participation adds its own ``height + 1`` nodes and twice those counts.

    Returns:
      The square in clip norms squared, or None where more than ``max_states`` states would be
      needed (small ``min_sep`` with many participations).

    Raises:
      ValueError: limits that cannot happen; see ``check_pattern``.
    """
    check_pattern(rounds, min_sep, max_participations)
    trees = _trees(rounds, restarts)
    shortest = min_sep.bit_length()  # the lowest level with more than min_sep leaves
    allowed: _States = {(0, ()): 0}
    waiting: dict[int, _States] = {}
    best = visited = 0
    for now in range(rounds):
        start, height = trees[now]
        returning = waiting.pop(now, {})
        if now == start or (now - start) % (1 << shortest) == 0:
            moved: _States = {}
            for (joined, counts), value in allowed.items():
                _keep(moved, (joined, _carried(counts, trees, now - 1, now, shortest)), value)
            allowed = moved
            for state, value in returning.items():
                _keep(allowed, state, value)
            fresh = dict(allowed)
        else:
            # Old states could have joined a round ago with the same gain and been free again earlier.
            fresh = {state: value for state, value in returning.items() if _keep(allowed, state, value)}
        visited += len(fresh)
        if visited > max_states:
            return None
        for (joined, counts), value in fresh.items():
            if joined < max_participations:
                grown_value = value + height + 1 + 2 * sum(counts)
                best = max(best, grown_value)
                if now + min_sep < rounds:
                    grown = tuple(count + 1 for count in counts)
                    later = _carried(grown, trees, now, now + min_sep, shortest)
                    _keep(waiting.setdefault(now + min_sep, {}), (joined + 1, later), grown_value)
    return best


def _trees(rounds: int, restarts: Sequence[int]) -> list[tuple[int, int]]:
    """First round and height of the complete tree that each round belongs to."""
    trees = []
    for start, end in segments(rounds, restarts):
        first = start
        while first < end:
            height = (end - first).bit_length() - 1  # the tallest complete tree that still fits
            trees += [(first, height)] * (1 << height)
            first += 1 << height
    return trees


def _carried(counts: _Counts, trees: list[tuple[int, int]], now: int, later: int, shortest: int) -> _Counts:
    """Carry node counts from round ``now`` to ``later``; nodes that are new there start at 0."""
    start, height = trees[later]
    if now < start:
        return (0,) * max(height - shortest + 1, 0)
    shared = (now - start) ^ (later - start)
    return tuple(0 if shared >> level else count for level, count in enumerate(counts, shortest))


def _keep(states: _States, state: tuple[int, _Counts], value: int) -> bool:
    """Keep the larger value of a state; True if it changed."""
    if value <= states.get(state, -1):
        return False
    states[state] = value
    return True


def sensitivity_squared_by_pairs(
    theta: Sequence[float],
    omega: Sequence[float],
    rounds: int,
    min_sep: int,
    max_participations: int,
    restarts: Sequence[int] = (),
    max_pairs: int = MAX_PAIRS,
) -> float | None:
    """Squared sensitivity of a BLT with restarts, from the inner products of its columns.

    Guarantee: the number is never below ``max ||C 1_P||^2``, whatever the parameters, because
    each pair of participations is charged the largest ``<C_i, C_j>`` over all places that the
    separation leaves to it. It is that maximum where the inner products never rise with time
    and distance, as those of every BLT that ``Blt`` accepts; agreement with
    ``toeplitz_sensitivity_squared``, which is a pattern's square and so never above the maximum,
    proves both right.

    Returns:
      The square in clip norms squared, or None where more than ``max_pairs`` pairs of rounds
      would have to be looked at.

    Raises:
      ValueError: limits that cannot happen; see ``check_pattern``.
    """
    check_pattern(rounds, min_sep, max_participations)
    spans = segments(rounds, restarts)
    if sum((end - start) ** 2 for start, end in spans) > max_pairs:
        return None
    theta_B, omega_B = np.array(theta), np.array(omega)
    charges = {
        length: _charges(theta_B, omega_B, length, min_sep, max_participations)
        for length in {end - start for start, end in spans}
    }

    @functools.cache
    def squares(length: int, first: int) -> list[float]:
        """At least the square of 0, 1, 2, ... participations from round ``first`` of a block on."""
        places = np.arange(first, length, min_sep)[:max_participations]
        return [0.0, *np.cumsum(charges[length][np.arange(len(places)), places]).tolist()]

    @functools.cache
    def best(number: int, left: int, free: int) -> float:
        """At least the square of any ``left`` participations from block ``number`` and round ``free`` on."""
        if number == len(spans):
            return 0.0
        start, end = spans[number]
        first = max(start, free)
        choices = [best(number + 1, left, free)]
        for count, square in enumerate(squares(end - start, first - start)[1 : left + 1], start=1):
            choices.append(square + best(number + 1, left - count, first + count * min_sep))
        return max(choices)

    return best(0, max_participations, 0)


def _charges(theta_B: np.ndarray, omega_B: np.ndarray, length: int, min_sep: int, most: int) -> np.ndarray:
    """``[g, j]`` for g below ``most``: what a participation at j or later adds at most, with g of them before it.

    To the square, that is its own ``||C_j'||^2`` and twice ``<C_i, C_j'>`` for each of the g, where ``j' >= j``
    and the nearest lies b or more before it, the next 2 b or more, and so on.

    With ``m = length - 1 - j'`` rounds after the later column, ``d = j' - i`` and ``c_0 = 1``,
    ``<C_i, C_j'> = c_d + sum_ab omega_a omega_b theta_b^d (1 + x + ... + x^(m - 1))`` for
    ``x = theta_a theta_b``.
    """
    logs_B = np.log(theta_B)
    after_J = np.arange(length - 1, -1, -1)
    logs_BB = logs_B[:, None] + logs_B
    series_BBJ = np.expm1(logs_BB[:, :, None] * after_J) / np.expm1(logs_BB)[:, :, None]
    tails_BJ = omega_B[:, None] * np.einsum("a,abj->bj", omega_B, series_BBJ)
    steps = -(-length // min_sep)
    distances_D = np.arange(steps * min_sep)
    powers_BD = np.exp(logs_B[:, None] * distances_D)
    first_D = omega_B @ np.exp(logs_B[:, None] * (distances_D - 1))
    first_D[0] = 1.0
    largest_GJ = np.empty((min(steps, most), length))
    for start in range(0, length, _CHUNK):
        columns_J = np.arange(start, min(start + _CHUNK, length))
        products_JD = first_D + tails_BJ[:, columns_J].T @ powers_BD
        products_JD[distances_D > columns_J[:, None]] = 0.0  # no column before round 0
        in_step_GJ = products_JD.reshape(len(columns_J), steps, min_sep).max(axis=2).T
        largest_GJ[:, columns_J] = np.maximum.accumulate(in_step_GJ[::-1], axis=0)[::-1][:most]
    largest_GJ = np.maximum.accumulate(largest_GJ[:, ::-1], axis=1)[:, ::-1]
    return 2 * np.cumsum(largest_GJ, axis=0) - largest_GJ[0]


def sensitivity_squared_by_windows(strategy_NN: np.ndarray, min_sep: int, max_participations: int) -> float | None:
    """Squared sensitivity of a dense C, exact where columns ``min_sep`` or more apart are orthogonal.

    With x the 0-1 vector of a pattern and no inner products between its columns the square is
    ``sum_t ||C_t||^2 x_t``. The separation says that any b rounds in a row hold one participation at
    most. Written by running sums ``y_t = x_0 + ... + x_t`` every constraint is on one difference of
    two unknowns, as in a network, so the linear program's best corner is a pattern.

    Guarantee: never below ``max ||C 1_P||^2``, whatever C is, because the largest inner product
    is charged to every pair of participations; to the precision of the linear program.

    Returns:
      The square in clip norms squared, or None for more than ``MAX_ROUNDS`` rounds.

    Raises:
      ValueError: limits that cannot happen; see ``check_pattern``.
      ArithmeticError: the linear program did not end with a solution.
    """
    # Half a second of CPU to import, which no other mechanism needs.
    from scipy.linalg import blas
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    rounds = len(strategy_NN)
    check_pattern(rounds, min_sep, max_participations)
    if rounds > MAX_ROUNDS:
        return None
    gram_NN = blas.dsyrk(1.0, strategy_NN, trans=1, lower=1)
    shared = float(np.abs(np.tril(gram_NN, -min_sep)).max())
    squares_N = np.diagonal(gram_NN)
    later_N, early = np.arange(1, rounds), np.arange(min_sep, rounds)
    first_R = np.concatenate([later_N - 1, early])  # y_(t - 1) - y_t <= 0, then y_t - y_(t - b) <= 1
    second_R = np.concatenate([later_N, early - min_sep])
    places_R = np.arange(len(first_R))
    limits = coo_array(
        (np.repeat([1.0, -1.0], len(places_R)), (np.tile(places_R, 2), np.concatenate([first_R, second_R]))),
        shape=(len(places_R), rounds),
    )
    solution = linprog(
        # sum_t w_t (y_t - y_(t - 1)), to be made large
        c=np.append(squares_N[1:], 0.0) - squares_N,
        A_ub=limits.tocsr() if len(places_R) else None,
        b_ub=np.repeat([0.0, 1.0], [rounds - 1, len(early)]) if len(places_R) else None,
        bounds=[(0, 1)] * min(min_sep, rounds) + [(0, max_participations)] * max(0, rounds - min_sep),
        method="highs-ds",
        options={"primal_feasibility_tolerance": _TOLERANCE, "dual_feasibility_tolerance": _TOLERANCE},
    )
    if solution.status != 0:
        raise ArithmeticError(f"linear program for the sensitivity of {rounds} rounds: {solution.message}")
    return float(-solution.fun) + max_participations * (max_participations - 1) * shared
