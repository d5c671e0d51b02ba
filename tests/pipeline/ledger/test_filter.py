"""Ceilings on rho and on words are privacy filters; a ceiling on total epsilon is none.

An adversary releases noise, looks at the outcome, and then chooses how much noise and how many words to ask for, within
what the ceilings leave. Its exact loss is computed here, by numerical integration over the first outcome.
"""

import math
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from scipy.stats import norm

from federated.accounting.gaussian import epsilon_of_rho
from pipeline.ledger.budget import NO_RULES, Budget, Ceilings, Population, ceilings
from pipeline.ledger.entries import Spend
from pipeline.ledger.loss import Release, release_of
from pipeline.releases.local_words import local_discovery
from pipeline.releases.release import gaussian

DELTA = 1e-5
STEPS = 24
FIRST = np.linspace(-11, 11, 8001)  # first outcome, in standard deviations
Move = tuple[float, float]  # rho of noise, epsilon of words
Allowed = Callable[[list[Move]], bool]


def hockey_stick(rho: float, epsilon: float, at: np.ndarray) -> np.ndarray:
    """Exact delta at each epsilon of ``at`` of a Gaussian beside a randomised response."""

    def gauss(at: np.ndarray) -> np.ndarray:
        if not rho:
            return np.maximum(0.0, -np.expm1(at))
        mu = math.sqrt(2 * rho)
        return norm.cdf(mu / 2 - at / mu) - np.exp(at + norm.logcdf(-mu / 2 - at / mu))

    true = 1 / (1 + math.exp(-epsilon))
    return true * gauss(at - epsilon) + (1 - true) * gauss(at + epsilon)


def exact_delta(first: float, moves: Iterable[Move], epsilon: float) -> float:
    """Delta at ``epsilon`` of an adversary that chooses the worst move after each outcome of the first noise."""
    mu = math.sqrt(2 * first)
    left = epsilon - (mu * FIRST + mu**2 / 2)
    worst = np.max([hockey_stick(*move, left) for move in moves], axis=0)
    return float(np.trapezoid(norm.pdf(FIRST) * worst, FIRST))


def largest(allowed: Callable[[float], bool], most: float) -> float:
    low, high = 0.0, most
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if allowed(middle) else (low, middle)
    return low


def worst(allowed: Allowed, epsilon: float) -> float:
    """Largest delta at ``epsilon`` over first moves; after each, every mixture of words and noise that is allowed."""
    most = largest(lambda rho: allowed([(rho, 0.0)]), 50.0)
    found = []
    for first in np.linspace(most / 8, most, 8):
        words = largest(lambda asked, first=first: allowed([(first, 0.0), (0.0, asked)]), 50.0)
        asked = np.linspace(0.0, words, STEPS)
        moves = [
            (largest(lambda rho, e=e, first=first: allowed([(first, 0.0), (0.0, e), (rho, 0.0)]), 50.0), e)
            for e in asked
        ]
        found.append(exact_delta(first, moves, epsilon))
    return max(found)


def by_ledger(budget: Budget) -> Allowed:
    """The ledger's own answer to a series of spends."""
    secret = {"rules": NO_RULES, "raised_by": ("owner",), "registered_by": "owner", "secret_digest": ""}
    every = ceilings(Population(key="people", budget=budget, **secret), Ceilings())

    def spends(move: Move) -> list[Spend]:
        rho, words = move
        noised = [gaussian(rho, DELTA, "noise")] if rho else []
        return [*noised, local_discovery(words, 1, words, 0.0, "words")] if words else noised

    def allowed(moves: list[Move]) -> bool:
        made = [spend for move in moves for spend in spends(move)]
        for ceiling in every:
            before = list[Release]()
            for spend in made:
                release = release_of(spend, ceiling.unit, "one")
                if release.amount and not ceiling.holds(before, release, ""):
                    return False
                before.append(release)
        return True

    return allowed


def below_a_total(most: float) -> Allowed:
    """A ceiling on total epsilon: words' epsilon plus the curve at the sum of rho."""

    def allowed(moves: list[Move]) -> bool:
        rho, words = (math.fsum(each) for each in zip(*moves, strict=True))
        return words + (epsilon_of_rho(rho, DELTA) if rho else 0.0) <= most

    return allowed


@pytest.mark.parametrize(("rho", "words"), [(0.5, 2.0), (0.05, 4.0), (1.0, 0.0)])
def test_no_adaptive_choice_loses_more_than_is_stated(rho: float, words: float) -> None:
    budget = Budget(max_rho=rho, max_words_epsilon=words, delta=DELTA)
    assert worst(by_ledger(budget), budget.epsilon) <= DELTA
    # The ceilings are used up: a tenth less would be false.
    assert worst(by_ledger(budget), 0.9 * budget.epsilon) > DELTA


@pytest.mark.parametrize("most", [5.0, 13.0])
def test_a_ceiling_on_total_epsilon_is_passed_by_choosing_between_words_and_noise(most: float) -> None:
    allowed = below_a_total(most)
    assert worst(allowed, most) > 1.5 * DELTA, "delta is no bound at that total"
    assert worst(allowed, 1.01 * most) > DELTA, "nor is the total at that delta"
