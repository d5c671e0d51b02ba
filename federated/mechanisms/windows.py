"""A second, unrelated program for a banded strategy's sensitivity, so that one mistake cannot pass both.

``Banded.sensitivity_squared`` trusts that columns ``bands`` or more apart share no row and adds up
squared norms by a dynamic program. This one multiplies the dense matrix out, charges whatever
inner products it finds, and leaves the choice of rounds to a linear program.

Suffixes: N rounds, R rows of constraints.
"""

import numpy as np
from scipy.linalg import blas
from scipy.optimize import linprog
from scipy.sparse import coo_array

from federated.mechanisms.sensitivity import check_pattern

# The product of the dense matrix takes a second for as many rounds.
MAX_ROUNDS = 2500
# The least that the solver accepts; its usual one could pass over the better of two nearly equal rounds.
_TOLERANCE = 1e-10


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
    found = linprog(
        # sum_t w_t (y_t - y_(t - 1)), to be made large
        c=np.append(squares_N[1:], 0.0) - squares_N,
        A_ub=limits.tocsr() if len(places_R) else None,
        b_ub=np.repeat([0.0, 1.0], [rounds - 1, len(early)]) if len(places_R) else None,
        bounds=[(0, 1)] * min(min_sep, rounds) + [(0, max_participations)] * max(0, rounds - min_sep),
        method="highs-ds",
        options={"primal_feasibility_tolerance": _TOLERANCE, "dual_feasibility_tolerance": _TOLERANCE},
    )
    if found.status != 0:
        raise ArithmeticError(f"linear program for the sensitivity of {rounds} rounds: {found.message}")
    return float(-found.fun) + max_participations * (max_participations - 1) * shared
