"""A second, unrelated program for the BLT's sensitivity, so that one mistake cannot pass both.

``strategy.toeplitz_sensitivity_squared`` adds shifted coefficients of the earliest pattern, which
theorem 3.1 says is the worst. This one never forms C and does not assume the theorem: inner
products of columns come from geometric series in the decays, and a pattern's square is held
under the largest inner product that each *pair* of its participations could have anywhere.
The two share the checks of their arguments and the spans between restarts, and nothing else.

Suffixes: B buffers, J the later column of a pair, D the distance between the two, G distances in steps of b.
"""

import functools
from collections.abc import Sequence

import numpy as np

from federated.mechanisms.sensitivity import check_pattern, segments

# Pairs of rounds that are looked at: a quarter of a second for 5,000 rounds in one piece.
MAX_PAIRS = 25_000_000
_CHUNK = 256  # columns at a time, to bound memory


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
