"""Devices outside the timer: they join by their own coin, take places, and bind nobody else's rules."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from federated.participation.cohorts import Cohorts
from federated.participation.observed import observe
from federated.participation.records import no_records
from tests.helpers.launches.small_run import DEVICES, SYNTHETIC, Launch, run

STRESS_D = np.arange(40) >= 36
COHORTS = Cohorts(40, 8, 5, 3, seed=2, stress_D=STRESS_D, stress_rate=0.575)


def test_stress_devices_join_at_their_rate_and_nobody_else_is_freed() -> None:
    state, records = COHORTS.init(), no_records()
    for number in range(400):
        cohort, state = COHORTS.draw(state, number)
        assert len(set(cohort)) == len(cohort) <= 8
        records = records.add(number, cohort)
    rate = records.participations(40)[STRESS_D] / 400
    np.testing.assert_allclose(rate, 0.575, atol=0.1)
    assert records.participations(40)[~STRESS_D].max() == 3
    seen = observe(records, 400, COHORTS, STRESS_D)
    assert seen.violations == 0
    assert seen.min_sep >= 5
    # Under the plain rule the same records are full of violations.
    assert observe(records, 400, replace(COHORTS, stress_D=None), STRESS_D).violations > 100


def test_a_retried_round_has_the_same_cohort_and_few_places_are_not_exceeded() -> None:
    np.testing.assert_array_equal(COHORTS.draw(COHORTS.init(), 7)[0], COHORTS.draw(COHORTS.init(), 7)[0])
    tight = replace(COHORTS, report_goal=2, stress_rate=1.0)
    assert len(tight.draw(tight.init(), 0)[0]) == 2
    # Without stress devices cohorts are what they were.
    plain = Cohorts(40, 8, 5, 3, seed=2)
    none = replace(COHORTS, stress_D=np.zeros(40, dtype=bool))
    np.testing.assert_array_equal(plain.draw(plain.init(), 0)[0], none.draw(none.init(), 0)[0])


def test_training_tells_who_of_the_synthetic_joined_when(tmp_path: Path) -> None:
    stress_D = np.arange(DEVICES) == DEVICES - 1
    _, result = run(Launch(), tmp_path / "one", stress_D=stress_D, stress_rate=1.0)
    assert result.synthetic_joined_TD.shape == (9, SYNTHETIC)
    assert result.synthetic_joined_TD[:, -1].all()
    assert tuple(result.synthetic_joined_TD.sum(axis=0)) == result.synthetic_participations
    assert result.observed.violations == 0
    with pytest.raises(ValueError, match="only synthetic devices may be outside"):
        run(Launch(), tmp_path / "two", stress_D=np.arange(DEVICES) == 0, stress_rate=1.0)
