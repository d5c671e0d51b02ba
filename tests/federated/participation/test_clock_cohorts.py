"""Launches by the clock: who joins keeps to the hours and to what was reserved, whatever the clock does."""

import itertools
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federated import mechanisms
from federated.accounting.guarantees import guarantee_of
from federated.config.mechanism import MechanismConfig
from federated.participation.clock_cohorts import ClockCohorts, ClockState
from federated.participation.cohorts import Cohorts
from federated.participation.observation import observe
from federated.participation.records import load_records, require_by_the_rule, save_records
from federated.rounds.rule import RoundRule
from tests.helpers.audits.mechanism_kinds import KINDS, PARSER
from tests.helpers.launches.cohort_run import observed, played

ROUNDS = 14


def launch(kind: str, min_sep: int, most: int) -> MechanismConfig:
    block = KINDS[kind] | {"rounds": ROUNDS, "min_sep": min_sep, "max_participations": most}
    return PARSER.validate_python(block | ({"bands": min(2, min_sep)} if kind == "banded" else {}))


@cache
def rho(kind: str, made_for: int, min_sep: int, most: int) -> float:
    mechanism = mechanisms.build(launch(kind, made_for, 2))
    return guarantee_of(mechanism, ROUNDS, min_sep, most, (), twice=False).rho


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    rule=st.builds(
        ClockCohorts,
        num_devices=st.integers(4, 40),
        report_goal=st.integers(1, 8),
        min_sep=st.integers(1, 9),
        max_participations=st.integers(1, 5),
        seed=st.integers(0, 2**31),
        timer_days=st.integers(1, 3),
        round_minutes=st.sampled_from([1.0, 3.0, 400.0]),
    )
)
def test_no_history_costs_more_than_was_reserved(rule: ClockCohorts) -> None:
    """Hours, floor and cap hold in every history, so what is committed is at most what the limits allow."""
    require_within_what_was_reserved(rule)


@pytest.mark.parametrize("limits", [(5, 2), (3, 4), (9, 1)])
def test_a_few_histories_cost_no_more_than_was_reserved(limits: tuple[int, int]) -> None:
    require_within_what_was_reserved(ClockCohorts(30, 3, *limits, seed=1, timer_days=1))


def require_within_what_was_reserved(rule: ClockCohorts) -> None:
    records, states = played(rule, ROUNDS)
    seen = observe(records, ROUNDS, rule, np.zeros(rule.num_devices, dtype=bool))
    assert seen.violations == 0
    rested_D = np.full(rule.num_devices, -math.inf)
    for (number, cohort), (_, begin, end), state in zip(records.cohorts, records.hours, states[1:], strict=True):
        assert len(cohort) <= rule.report_goal
        assert begin < end == state.opens
        # Nobody is selected before the timer is over, so no round ends before it.
        assert np.all(rested_D[cohort] <= end - rule.round_minutes / 60), number
        rested_D[cohort] = end + 24 * rule.timer_days
    for kind in ("tree", "blt", "banded"):
        floor, cap = rule.min_sep, min(rule.max_participations, -(-ROUNDS // rule.min_sep))
        committed = rho(kind, floor, seen.min_sep or floor, max(seen.max_participations, 1))
        assert committed <= rho(kind, floor, floor, cap) * (1 + 1e-12)


@pytest.mark.parametrize("kind", ["tree", "blt", "banded"])
@pytest.mark.parametrize(("floor", "cap"), [(1, 3), (2, 4), (3, 2), (4, 4)])
def test_every_pattern_within_the_limits_is_paid_for(kind: str, floor: int, cap: int) -> None:
    """Brute force: all sets of rounds of a device that floor and cap allow, each at its own separation."""
    reserved = rho(kind, floor, floor, min(cap, -(-ROUNDS // floor)))
    tried = set()
    for joined in itertools.chain.from_iterable(itertools.combinations(range(ROUNDS), k) for k in range(1, cap + 1)):
        apart = [later - earlier for earlier, later in itertools.pairwise(joined)]
        if min(apart, default=floor) >= floor:
            tried.add((min(apart, default=floor), len(joined)))
    assert len(tried) > 4 * (cap > 1)
    # What is committed is that of the device with the least separation and of the one that joined most.
    for (apart, _), (_, most) in itertools.product(tried, tried):
        if most > -(-ROUNDS // apart):
            continue  # no device joins so often at that separation, whichever is observed
        assert rho(kind, floor, apart, most) <= reserved * (1 + 1e-12)


def test_the_floor_holds_devices_back_that_the_hours_would_let_in() -> None:
    free = ClockCohorts(400, 10, 1, ROUNDS * 9, seed=4)
    by_hours = observed(free, 120)
    assert 20 < by_hours.min_sep < 36
    floor = by_hours.min_sep + 3
    held = observed(replace(free, min_sep=floor), 120)
    assert held.min_sep == floor
    assert held.violations == 0
    # A floor below what comes out changes nothing at all.
    below, same = played(replace(free, min_sep=floor - 4), 120)[0], played(free, 120)[0]
    np.testing.assert_array_equal(below.devices_N, same.devices_N)
    assert below.hours == same.hours


def test_rounds_that_cannot_fill_end_and_the_next_begins() -> None:
    rule = ClockCohorts(10, 4, 5, 1, seed=2)
    records, _ = played(rule, 6)
    sizes = [len(cohort) for _, cohort in records.cohorts]
    assert sum(sizes) == 10
    assert sizes[-1] == 0
    assert records.hours[-1][2] - records.hours[-1][1] == pytest.approx(48 + 3 / 60)
    turnout = observe(records, 6, rule, np.zeros(10, dtype=bool)).turnout
    assert turnout.rounds_below_goal == sum(size < 4 for size in sizes)
    assert turnout.timetable.longest == pytest.approx(48 * 60 + 3)


def test_the_timetable_is_that_of_the_rounds() -> None:
    rule = ClockCohorts(300, 10, 2, 9, seed=6)
    records, states = played(rule, 25)
    table = observe(records, 25, rule, np.zeros(300, dtype=bool)).turnout.timetable
    minutes = [60 * (end - begin) for _, begin, end in records.hours]
    assert table.days == states[-1].opens / 24
    assert (table.shortest, table.longest) == (min(minutes), max(minutes))
    assert table.median == sorted(minutes)[12]
    assert len(table.median_by_part) == 10
    assert [begin for _, begin, _ in records.hours[1:]] == [end for _, _, end in records.hours[:-1]]


def test_records_with_other_hours_are_refused(tmp_path) -> None:
    rule = ClockCohorts(60, 6, 3, 5, seed=8)
    records, states = played(rule, ROUNDS)
    save_records(records, tmp_path / "records", ROUNDS)
    again = load_records(tmp_path / "records", ROUNDS)
    after = require_by_the_rule(again, ROUNDS, rule)
    assert isinstance(after, ClockState)
    assert after.opens == states[-1].opens
    number, begin, end = again.hours[3]
    edited = replace(again, hours=(*again.hours[:3], (number, begin, end + 1e-9), *again.hours[4:]))
    for wrong in (edited, replace(again, hours=())):
        with pytest.raises(ValueError, match="hours are not those of their seed"):
            require_by_the_rule(wrong, ROUNDS, rule)


def test_canaries_keep_the_limits_and_need_no_clock() -> None:
    canaries = ClockCohorts(60, 6, 3, 5, seed=8).of_canaries(4)
    assert (canaries.min_sep, canaries.max_participations, type(canaries)) == (3, 5, Cohorts)


def test_stress_devices_have_their_places_and_no_timer() -> None:
    stress_D = np.arange(50) >= 46
    rule = ClockCohorts(50, 6, 4, 3, seed=3, stress_D=stress_D, stress_rate=0.5)
    records, _ = played(rule, ROUNDS)
    joined_D = records.participations(50)
    assert joined_D[stress_D].max() > 3 >= joined_D[~stress_D].max()
    assert observe(records, ROUNDS, rule, stress_D).violations == 0
    assert max(len(cohort) for _, cohort in records.cohorts) <= 6


def test_a_launch_that_says_days_goes_by_the_clock() -> None:
    rule = RoundRule(PARSER.validate_python(KINDS["blt, by the clock"]), seed=5)
    cohorts = rule.cohorts(np.zeros(24, dtype=bool))
    assert isinstance(cohorts, ClockCohorts)
    assert (cohorts.timer_days, cohorts.min_sep, cohorts.max_participations) == (1, 3, 2)
