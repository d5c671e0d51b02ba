"""Availability from the launch file: who is drawn, and how full the rounds are."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from federated.config.mechanism import IndependentMechanism
from federated.participation.availability import Availability
from federated.participation.cohorts import Cohorts
from federated.participation.observation import Observation, observe
from federated.participation.records import no_records
from federated.planning.feasibility import expected_turnout
from federated.rounds.rule import RoundRule
from tests.helpers.launches.cohort_run import played
from tests.helpers.launches.small_run import Launch, mechanism, run

NIGHTS = {"round_minutes": 20.0}
KEY = bytes(32)


def of_launch(devices: int, **fields: object) -> Cohorts:
    config = mechanism(**{"rounds": 400, "report_goal": 20, "max_participations": 12} | fields)
    return RoundRule(config, 5, KEY).cohorts(np.zeros(devices, dtype=bool))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "round_minutes: None, timer_days: None"),
        ({"round_minutes": 30, "timer_days": 1}, "give either how long a round takes, or how many days"),
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
    with pytest.raises(ValueError, match="availability: independent noise counts on a secret uniform sample"):
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("devices", "goal", "min_sep", "fields"),
    [
        (4000, 100, 10, {}),
        (900, 100, 6, {}),
        (900, 100, 6, {"round_minutes": 5.0}),
        (900, 100, 3, {"round_minutes": 5.0}),
        (2000, 100, 12, {"over_selection": 1.0}),
        (3000, 100, 10, {"dropout": 0.4}),
    ],
)
def test_what_to_expect_is_what_happens(devices, goal, min_sep, fields):
    day = Availability(**{"round_minutes": 20.0, "zone_spread_hours": 2.0} | fields, seed=9)
    found = expected_turnout(288, devices, goal, min_sep, day)
    cohorts = Cohorts(devices, goal, min_sep, 288, seed=9, availability=day)
    sizes = np.bincount(played(cohorts, 288)[0].rounds_N, minlength=288)
    assert found.devices_T.mean() == pytest.approx(sizes.mean(), rel=0.03)
    assert found.below_goal == pytest.approx(np.sum(sizes < goal), abs=0.06 * 288)


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
