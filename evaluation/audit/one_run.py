"""A lower bound on epsilon from one run with many canaries, each included by a fair coin.

Steinke, Nasr and Jagielski 2023, *Privacy Auditing with One (1) Training Run*, theorem 3.1. An auditor
who sees only the output guesses the included canaries and may abstain; a mechanism that is
(epsilon, delta)-DP for one canary bounds how many guesses can be right.

The bound is valid for any scores, and loose: with r correct guesses out of r it is at most
``logit(p^(1/r))``, 3.5 for 100. **A low bound is no evidence of privacy.** Print it as a lower bound,
never beside an epsilon as if the two could be compared.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special, stats

from evaluation.config import ALPHA

GUESSED_SHARES = (0.05, 0.1, 0.25, 0.5, 1.0)


@dataclass(frozen=True)
class OneRun:
    """A lower bound on epsilon, with the guesses it rests on.

    Attributes:
      epsilon_at_least: every smaller epsilon is refuted at this confidence; 0 if none is.
      canaries: m, in or out.
      guesses, correct: for the number of guesses that gave the bound.
      confidence: of the bound, corrected for all tried numbers of guesses.
    """

    epsilon_at_least: float
    confidence: float
    canaries: int
    guesses: int
    correct: int


def one_run(scores_N: np.ndarray, included_N: np.ndarray, delta: float, alpha: float = ALPHA) -> OneRun:
    """The best bound over a few numbers of guesses fixed beforehand, each at ``alpha`` over their number.

    With r guesses the r/2 highest scores are guessed in and the r/2 lowest out.

    Guarantee: if training is (epsilon, delta)-DP for one canary, then with probability at least
    ``1 - alpha`` the bound is at most epsilon, provided that each canary was included by a fair coin of its own
    before training and that the scores do not depend on those coins.

    Args:
      scores_N: higher for canaries that seem to be in.
      included_N: bool, the coins.

    Raises:
      ValueError: fewer than 2 canaries, or different numbers of scores and coins.
    """
    if scores_N.shape != included_N.shape or len(scores_N) < 2:
        raise ValueError(
            f"scores_N, included_N: {scores_N.shape} and {included_N.shape}; give a score and a coin for each of at "
            "least 2 canaries"
        )
    number = len(scores_N)
    order_N = np.argsort(scores_N, kind="stable")
    best = OneRun(0.0, 1 - alpha, number, 0, 0)
    for share in GUESSED_SHARES:
        half = max(1, int(share * number) // 2)
        correct = int(included_N[order_N[-half:]].sum() + (~included_N[order_N[:half]]).sum())
        bound = epsilon_at_least(number, 2 * half, correct, delta, alpha / len(GUESSED_SHARES))
        if best.guesses == 0 or bound > best.epsilon_at_least:
            best = OneRun(bound, 1 - alpha, number, 2 * half, correct)
    return best


def p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Upper bound on the probability of at least ``correct`` correct guesses under (epsilon, delta)-DP (theorem 3.1).

    ``beta + 2 m delta max_i (P(Bin >= v - i) - beta) / i`` with ``Bin`` of r guesses that are right with
    ``e^eps / (1 + e^eps)`` and ``beta = P(Bin >= v)``.
    """
    chance = special.expit(epsilon)
    beta = float(stats.binom.sf(correct - 1, guesses, chance))
    if delta == 0 or correct == 0:
        return beta
    steps = np.arange(1, correct + 1)
    gained = (stats.binom.sf(correct - steps - 1, guesses, chance) - beta) / steps
    return min(1.0, beta + 2 * canaries * delta * max(0.0, float(gained.max())))


def epsilon_at_least(canaries: int, guesses: int, correct: int, delta: float, alpha: float) -> float:
    """Largest epsilon that ``correct`` of ``guesses`` refute at level ``alpha``; 0 if none."""
    if p_value(canaries, guesses, correct, 0.0, delta) > alpha:
        return 0.0
    upper = 1.0
    while p_value(canaries, guesses, correct, upper, delta) <= alpha:
        upper *= 2
        if not math.isfinite(upper):
            raise ArithmeticError("one_run: no epsilon is consistent with these guesses")
    return float(
        optimize.brentq(lambda epsilon: p_value(canaries, guesses, correct, epsilon, delta) - alpha, 0.0, upper)
    )
