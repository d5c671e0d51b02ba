"""The tree's sensitivity by two programs: every small case, large random ones, and patterns that can happen."""

import itertools
import random

import pytest

from federated.config.mechanism import MOST_ROUNDS
from federated.mechanisms.second_sensitivity import tree_sensitivity_squared_forward
from federated.mechanisms.sensitivity import check_pattern, tree_matrix, tree_sensitivity_squared
from tests.helpers.audits.strategies import pattern_sensitivity_squared, patterns


def test_brute_force_enumerates_what_it_should() -> None:
    assert sorted(patterns(4, 2, 2)) == [(), (0,), (0, 2), (0, 3), (1,), (1, 3), (2,), (3,)]


def require_brute_force(rounds: int, min_sep: int, most: int, cuts: tuple[int, ...]) -> None:
    right = pattern_sensitivity_squared(tree_matrix(rounds, cuts), min_sep, most)
    assert tree_sensitivity_squared_forward(rounds, min_sep, most, cuts) == right
    assert tree_sensitivity_squared(rounds, min_sep, most, cuts) == right


def test_sensitivity_equals_brute_force() -> None:
    rng = random.Random(5)
    for _ in range(150):
        rounds = rng.randint(1, 15)
        min_sep = rng.randint(1, rounds)
        most = rng.randint(1, -(-rounds // min_sep))
        cuts = tuple(sorted(rng.sample(range(1, rounds), rng.randint(0, min(3, rounds - 1)))))
        require_brute_force(rounds, min_sep, most, cuts)


@pytest.mark.slow
def test_every_small_case_equals_brute_force_by_both_programs() -> None:
    """Every run of at most 8 rounds, with no, one and two restarts."""
    cases = [
        (rounds, min_sep, most, cuts)
        for rounds in range(1, 9)
        for min_sep in range(1, rounds + 1)
        for most in range(1, -(-rounds // min_sep) + 1)
        for number in range(3)
        for cuts in itertools.combinations(range(1, rounds), number)
    ]
    assert len(cases) > 1000
    for case in cases:
        require_brute_force(*case)


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
    """Rounds 0, b, 2b, ... (McMahan et al. 2024, remark 3.2) give 174; a program that tried only those would fail."""
    rounds, min_sep, most = 530, 55, 8
    strategy = tree_matrix(rounds)
    earliest = float((strategy[:, list(range(0, most * min_sep, min_sep))].sum(axis=1) ** 2).sum())
    assert earliest == 174
    assert tree_sensitivity_squared_forward(rounds, min_sep, most) == 182


def test_too_many_patterns_give_no_answer_instead_of_a_wrong_one() -> None:
    assert tree_sensitivity_squared_forward(2000, 50, 10, max_states=100) is None
    assert tree_sensitivity_squared_forward(2000, 50, 10) == tree_sensitivity_squared(2000, 50, 10)


# Xu et al. 2023: rows of their tables with the restarts of their runs; without them ``test_published`` has them all.
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
    ("pattern", "message"),
    [
        ((10, 2, 6), "max_participations: 6 cannot happen, 10 rounds at min_sep 2 allow at most 5"),
        ((0, 1, 1), "rounds: got 0"),
        ((5, 0, 1), "min_sep: got 0"),
        ((5, 1, 0), "got 0"),
        ((MOST_ROUNDS + 1, 3, 2), "rounds: got 100,001, expected at most 100,000"),
        ((10, MOST_ROUNDS + 1, 1), "min_sep: got 100,001, expected at most 100,000"),
    ],
)
def test_a_run_that_cannot_be_computed_is_refused_at_once(pattern: tuple[int, int, int], message: str) -> None:
    check_pattern(MOST_ROUNDS, 3, 2)
    for program in (check_pattern, tree_sensitivity_squared, tree_sensitivity_squared_forward):
        with pytest.raises(ValueError, match=message):
            program(*pattern)


def test_restarts_outside_the_run_are_refused() -> None:
    for program in (tree_sensitivity_squared, tree_sensitivity_squared_forward):
        with pytest.raises(ValueError, match="restarts"):
            program(10, 2, 2, (12,))
