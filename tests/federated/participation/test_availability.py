"""Availability: coins of devices, nights and dropouts, and from a launch file the devices drawn and the turnout."""

import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from federated.config.mechanism import IndependentMechanism
from federated.participation.availability import Availability, uniform
from federated.participation.cohorts import Cohorts
from federated.participation.observation import Observation, observe
from federated.participation.records import no_records
from federated.rounds.rule import RoundRule
from tests.helpers.launches.cohort_run import played
from tests.helpers.launches.small_run import Launch, mechanism, run

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
    arrived, dropped = DAY.reporting(devices, 3, POPULATION)
    assert len(arrived) + dropped == POPULATION
    assert abs(len(arrived) / POPULATION - 0.92) < 4 * np.sqrt(0.08 * 0.92 / POPULATION)
    # Arrival says nothing about the device's number.
    assert abs(np.corrcoef(arrived, np.arange(len(arrived)))[0, 1]) < 4 / np.sqrt(len(arrived))
    # Who drops out after the goal is reached belongs to no round.
    first, before = DAY.reporting(devices, 3, 100)
    np.testing.assert_array_equal(first, arrived[:100])
    assert 0 < before < dropped
    assert len(np.unique(arrived)) == len(arrived)


def test_a_round_whose_places_canaries_have_waits_for_nobody():
    reported, dropped = DAY.reporting(np.arange(0), 3, DAY.selected(0))
    assert (len(reported), dropped) == (0, 0)


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


# From the launch file: who is drawn, and how full the rounds are.

NIGHTS = {"round_minutes": 20.0}
KEY = bytes(32)


def of_launch(devices: int, **fields: object) -> Cohorts:
    config = mechanism(**{"rounds": 400, "report_goal": 20, "max_participations": 12} | fields)
    return RoundRule(config, 5, KEY).cohorts(np.zeros(devices, dtype=bool))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "round_minutes: None, timer_days: None"),
        ({"round_minutes": 30, "timer_days": 1}, "give either the duration of a round, or the days"),
        ({"round_minutes": 0}, "round_minutes"),
        ({"timer_days": 0}, "timer_days"),
        ({"timer_days": 400}, "timer_days"),
        (NIGHTS | {"nights": 3}, "nights"),
    ],
)
def test_mistakes_in_the_block_are_named(fields, words):
    with pytest.raises(ValueError, match=words):
        mechanism(availability=fields)


def test_secret_samples_have_no_availability():
    base = mechanism().model_dump(exclude={"kind", "restarts", "min_sep", "max_participations", "availability"})
    base |= {"kind": "independent", "sampling": "poisson", "population": 20}
    assert IndependentMechanism.model_validate(base)
    with pytest.raises(ValueError, match="availability: independent noise assumes a secret uniform sample"):
        IndependentMechanism.model_validate(base | {"availability": NIGHTS})


class Hasty(Cohorts):
    """Lets devices back a round too soon, as who takes MinS for min_sep does."""

    def ready(self, state, round_number, devices):
        return Cohorts.ready(replace(self, min_sep=self.min_sep - 1), state, round_number, devices)


class Uncapped(Cohorts):
    """Forgets the cap."""

    def ready(self, state, round_number, devices):
        return Cohorts.ready(replace(self, max_participations=10**6), state, round_number, devices)


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "kept"), [(Cohorts, True), (Hasty, False), (Uncapped, False)])
@pytest.mark.parametrize("devices", [500, 3000])
def test_timer_and_cap_hold_over_many_rounds(devices, rule, kept):
    # Devices are few enough for timer and cap to bind, at night and in rounds that fall short.
    goal = devices // 25
    honest = of_launch(devices, availability=NIGHTS, min_sep=12, report_goal=goal)
    assert honest.availability is not None
    assert honest.min_sep == 12
    records = played(rule(**vars(honest)), 400)[0]
    seen = observe(records, 400, honest, np.zeros(devices, dtype=bool))
    assert (seen.violations == 0) == kept
    rounds_of: dict[int, list[int]] = {}
    for number, device in zip(records.rounds_N.tolist(), records.devices_N.tolist(), strict=True):
        rounds_of.setdefault(device, []).append(number)
    least = min(later - earlier for own in rounds_of.values() for earlier, later in pairwise(own))
    most = max(map(len, rounds_of.values()))
    assert (least >= 12 and most <= 12) == kept
    if kept:
        hours = min(
            (b - a) * honest.availability.round_minutes / 60 for o in rounds_of.values() for a, b in pairwise(o)
        )
        assert hours >= 4.0
        assert 0 < seen.turnout.rounds_below_goal < 400


def test_by_night_a_large_population_is_asked_no_more_than_a_small_one(monkeypatch):
    asked = []
    awake = Availability.awake
    monkeypatch.setattr(
        Availability, "awake", lambda self, devices, number: asked.append(len(devices)) or awake(self, devices, number)
    )

    def most_asked(devices: int) -> int:
        cohorts = of_launch(devices, availability=NIGHTS, report_goal=200, min_sep=10)
        state, totals = cohorts.init(), []
        for number in range(6):
            asked.clear()
            _, state = cohorts.draw(state, number)
            totals.append(sum(asked))
        return max(totals)

    small, large = most_asked(10_000), most_asked(1_000_000)
    assert large < 1.1 * small
    assert large < 20_000


def test_turnout_by_brute_force():
    cohorts = of_launch(300, availability=NIGHTS, rounds=50)
    records = played(cohorts, 50)[0]
    sizes = [int(np.sum(records.rounds_N == number)) for number in range(50)]
    seen = observe(records, 50, cohorts, np.zeros(300, dtype=bool)).turnout
    assert seen.rounds_below_goal == sum(size < 20 for size in sizes)
    assert seen.mean_devices == pytest.approx(np.mean(sizes))
    checked = [cohorts.availability.awake(np.arange(300), number).sum() for number in range(50)]
    assert seen.check_ins == pytest.approx(np.mean(checked), abs=4 * (300 / 4 / 17) ** 0.5)
    assert seen.fewest_check_ins <= seen.check_ins
    # Everybody, always; and rounds that nobody joined count.
    always = observe(no_records().add(0, np.arange(20)), 3, of_launch(300), np.zeros(300, dtype=bool)).turnout
    assert (always.rounds_below_goal, always.check_ins, always.fewest_check_ins) == (2, 300, 300)
    assert always.mean_devices == pytest.approx(20 / 3)


@pytest.mark.parametrize("spread", [0.0, 3.0, 24.0])
def test_the_share_that_checks_in_is_the_mean_over_zones(spread):
    day = Availability(zone_spread_hours=spread, round_minutes=20.0)
    for number in (0, 2, 3, 40, 100):
        local = np.floor(number / 3) + (np.arange(20_000) + 0.5) / 20_000 * spread
        assert day.share(number) == pytest.approx(day.fraction(local % 24).mean(), abs=1e-7)


def test_a_run_with_availability_goes_on_where_it_was(tmp_path: Path):
    config = mechanism(availability={"round_minutes": 240.0}, rounds=9)
    launch = replace(Launch(), mechanism=config)
    _, result = run(launch, tmp_path / "whole")
    assert isinstance(result.observed, Observation)
    assert result.observed.turnout.rounds_below_goal > 0
    assert result.observed.turnout.mean_devices < config.report_goal
    assert result.observed.turnout.check_ins < len(launch.devices)
    assert result.observed.violations == 0
    assert run(launch, tmp_path / "whole")[1].observed == result.observed
