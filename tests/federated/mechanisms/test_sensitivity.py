"""Patterns of participation that can happen, in runs that can be computed."""

import pytest

from federated.config.mechanism import MOST_ROUNDS
from federated.mechanisms.sensitivity import check_pattern


def test_a_run_that_cannot_be_computed_is_refused_at_once():
    check_pattern(MOST_ROUNDS, 3, 2)
    for pattern, field in (((MOST_ROUNDS + 1, 3, 2), "rounds"), ((10, MOST_ROUNDS + 1, 1), "min_sep")):
        with pytest.raises(ValueError, match=rf"{field}: got 100,001, expected at most 100,000"):
            check_pattern(*pattern)
