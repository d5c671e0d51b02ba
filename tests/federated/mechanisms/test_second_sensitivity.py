"""The second program for the tree's sensitivity: every small case, large random ones, and its limit."""

import itertools
import random

import pytest

from federated.mechanisms.second_sensitivity import tree_sensitivity_squared_forward
from federated.mechanisms.sensitivity import tree_matrix, tree_sensitivity_squared
from tests.helpers.audits.strategies import pattern_sensitivity_squared


def small_cases() -> list[tuple[int, int, int, tuple[int, ...]]]:
    """Every run of at most 8 rounds, with no, one and two restarts."""
    return [
        (rounds, min_sep, most, cuts)
        for rounds in range(1, 9)
        for min_sep in range(1, rounds + 1)
        for most in range(1, -(-rounds // min_sep) + 1)
        for number in range(3)
        for cuts in itertools.combinations(range(1, rounds), number)
    ]


@pytest.mark.slow
def test_every_small_case_equals_brute_force_by_both_programs() -> None:
    cases = small_cases()
    assert len(cases) > 1000
    for rounds, min_sep, most, cuts in cases:
        right = pattern_sensitivity_squared(tree_matrix(rounds, cuts), min_sep, most)
        assert tree_sensitivity_squared_forward(rounds, min_sep, most, cuts) == right
        assert tree_sensitivity_squared(rounds, min_sep, most, cuts) == right


def test_both_programs_agree_on_runs_too_long_for_brute_force() -> None:
    rng = random.Random(8)
    for _ in range(120):
        rounds = rng.randint(100, 4096)
        min_sep = rng.randint(rounds // 20, rounds)
        most = rng.randint(1, -(-rounds // min_sep))
        cuts = tuple(sorted(rng.sample(range(1, rounds), rng.randint(0, 3))))
        forward = tree_sensitivity_squared_forward(rounds, min_sep, most, cuts)
        assert forward == tree_sensitivity_squared(rounds, min_sep, most, cuts)


def test_the_earliest_pattern_is_not_the_worst_one() -> None:
    """Rounds 0, b, 2b, ... (their remark 3.2) give 174; a program that tried only those would fail here."""
    rounds, min_sep, most = 530, 55, 8
    strategy = tree_matrix(rounds)
    earliest = float((strategy[:, list(range(0, most * min_sep, min_sep))].sum(axis=1) ** 2).sum())
    assert earliest == 174
    assert tree_sensitivity_squared_forward(rounds, min_sep, most) == 182


def test_too_many_patterns_give_no_answer_instead_of_a_wrong_one() -> None:
    assert tree_sensitivity_squared_forward(2000, 50, 10, max_states=100) is None
    assert tree_sensitivity_squared_forward(2000, 50, 10) == tree_sensitivity_squared(2000, 50, 10)


def test_impossible_limits_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 5"):
        tree_sensitivity_squared_forward(10, 2, 6)
    with pytest.raises(ValueError, match="restarts"):
        tree_sensitivity_squared_forward(10, 2, 2, (12,))
