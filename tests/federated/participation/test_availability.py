import time
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from federated.participation.availability import Availability, uniform
from federated.participation.cohorts import Cohorts
from tests.helpers.launches.cohort_run import played

POPULATION = 40_000
DAY = Availability(seed=4)


def test_coins_are_uniform_independent_and_repeatable():
    devices = np.arange(100_000)
    one, again, other = (uniform(1, 2, devices, number) for number in (7, 7, 8))
    np.testing.assert_array_equal(one, again)
    assert stats.kstest(one, "uniform").pvalue > 1e-3
    assert stats.kstest(one * 0.99, "uniform").pvalue < 1e-3
    assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(len(devices))
    assert abs(np.corrcoef(one[1:], one[:-1])[0, 1]) < 4 / np.sqrt(len(devices))
    assert not np.array_equal(one, uniform(2, 2, devices, 7))
    np.testing.assert_array_equal(one[[5, 99]], uniform(1, 2, np.array([5, 99]), 7))


@pytest.mark.statistical
def test_availability_follows_the_day():
    devices = np.arange(POPULATION)
    flat = replace(DAY, zone_spread_hours=0.0)
    seen = [flat.awake(devices, number).mean() for number in range(0, 96, 2)]
    promised = flat.fraction(np.arange(48.0) % 24)
    error = np.sqrt(promised * (1 - promised) / POPULATION)
    assert np.all(np.abs(seen - promised) < 4.5 * error)
    assert max(promised) == pytest.approx(0.9)
    assert min(promised) == pytest.approx(0.2)
    # Another day, as a mistaken clock would have it, does not pass.
    assert np.any(np.abs(seen - flat.fraction(np.arange(48.0) % 24 + 1)) > 4.5 * error)


def test_a_device_keeps_its_mind_within_an_hour():
    devices = np.arange(1000)
    np.testing.assert_array_equal(DAY.awake(devices, 0), DAY.awake(devices, 1))
    assert not np.array_equal(DAY.awake(devices, 1), DAY.awake(devices, 2))


@pytest.mark.statistical
def test_dropout_and_order_of_arrival():
    devices = np.arange(POPULATION)
    arrived = DAY.reporting(devices, 3)
    assert abs(len(arrived) / POPULATION - 0.92) < 4 * np.sqrt(0.08 * 0.92 / POPULATION)
    # Arrival says nothing about the device's number.
    assert abs(np.corrcoef(arrived, np.arange(len(arrived)))[0, 1]) < 4 / np.sqrt(len(arrived))
    np.testing.assert_array_equal(arrived, DAY.reporting(devices, 3))
    assert len(np.unique(arrived)) == len(arrived)


def test_over_selection_makes_up_for_dropouts():
    rule = Cohorts(600, 20, 6, 4, seed=2, availability=DAY)
    assert max(len(cohort) for _, cohort in played(rule, 90)[0].cohorts) == 20
    # Without it, rounds fall short.
    bare = replace(rule, availability=replace(DAY, over_selection=1.0))
    assert sum(len(bare.draw(bare.init(), number)[0]) for number in range(20)) < 20 * 20


def test_nobody_awake_is_an_empty_round():
    night = replace(DAY, night_fraction=0.0, day_fraction=0.0)
    cohort, _ = Cohorts(5000, 20, 1, 4, seed=2, availability=night).draw(Cohorts(5000, 20, 1, 4, 2).init(), 0)
    assert not len(cohort)


@pytest.mark.parametrize("wrong", [{"dropout": 1.5}, {"over_selection": 0.9}, {"round_minutes": 0}])
def test_mistakes_are_named(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Availability(**wrong)


def test_a_million_devices_plan_in_milliseconds():
    cohorts = Cohorts(1_000_000, 6500, 100, 8, seed=1)
    state, spent = cohorts.init(), []
    for number in range(10):
        began = time.thread_time()
        _, state = cohorts.draw(state, number)
        spent.append(time.thread_time() - began)
    # A cohort must not cost a look at a million devices; the benchmark has the figures.
    assert np.median(spent) < 0.025
