"""The rule of a round: the part of a sum that is released."""

import numpy as np
import pytest

from federated.rounds.rule import RoundRule
from tests.helpers.audits.mechanism_kinds import KINDS, PARSER

SUM_P = np.array([600, -601, 0, 2**50])


@pytest.mark.parametrize("weight", [0.0, 5.0, 6.0])
def test_a_round_of_no_more_weight_than_the_denominator_is_released_as_it_is(weight: float) -> None:
    rule = RoundRule(PARSER.validate_python(KINDS["clipped estimator"]), seed=0)
    np.testing.assert_array_equal(rule.to_release(SUM_P, weight), SUM_P)


def test_a_heavier_round_is_scaled_to_the_denominator() -> None:
    """McMahan et al. 2018, section 2: divided by the weight that came, so multiplied by 6 / 9 before the fixed 6."""
    rule = RoundRule(PARSER.validate_python(KINDS["clipped estimator"]), seed=0)
    assert rule.denominator == 6
    np.testing.assert_array_equal(rule.to_release(SUM_P, 9.0), [400, -400, 0, 2**51 // 3])


@pytest.mark.parametrize("name", ["tree", "poisson"])
def test_other_estimators_release_the_sum(name: str) -> None:
    rule = RoundRule(PARSER.validate_python(KINDS[name]), seed=0)
    np.testing.assert_array_equal(rule.to_release(SUM_P, 100.0), SUM_P)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_canary_devices_are_assigned_and_people_are_drawn(name: str) -> None:
    synthetic_D, stress_D = np.arange(60) >= 40, np.arange(60) >= 55
    config = PARSER.validate_python(KINDS[name])
    stressed = stress_D if config.timed else None
    rule = RoundRule(config, 3, b"k" * 32).cohorts(synthetic_D, stressed, 0.5)
    assigned = getattr(rule, "assigned_D", None)
    if config.secret_sample is not None:  # the guarantee rests on it, so canaries are drawn like everybody
        assert assigned is None
        return
    assert assigned.tolist() == (synthetic_D & ~stress_D if config.timed else synthetic_D).tolist()
    assert rule.rounds == config.rounds
    assert RoundRule(config, 3, b"k" * 32).cohorts(np.zeros(60, dtype=bool)).assigned_D is None
