"""The plan: what the enforced limits cost, which number must change, and that what is refused never fills."""

import re

import numpy as np
import pytest

from federated.accounting.guarantees import account
from federated.config.mechanism import TreeMechanism
from federated.participation import clock
from federated.participation.availability import Availability
from federated.participation.cohorts import Cohorts
from federated.planning import feasibility
from federated.planning.feasibility import expected_turnout, most_rest, plan, rho_for, rounds_below_goal, shortfalls
from tests.helpers.launches.cohort_run import played
from tests.helpers.launches.small_run import mechanism

MECHANISM = mechanism(
    noise_multiplier=7.0, rounds=20, report_goal=10, min_sep=5, max_participations=4, clip_norm=0.3, delta=1e-10
)


@pytest.mark.slow
def test_the_plan_is_the_guarantee_of_the_enforced_limits() -> None:
    planned = plan(MECHANISM, 1000)
    assert planned.feasible
    assert planned.reasons == ()
    assert planned.guarantee == account(MECHANISM, (1e-10,))


def test_an_impossible_plan_says_which_number_must_change() -> None:
    short = plan(MECHANISM, 30)
    assert not short.feasible
    assert "lower report_goal to 6 or min_sep to 3" in short.reasons[0]
    assert "raise max_participations to 7 or lower rounds to 12" in short.reasons[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"report_goal": 6, "max_participations": 4, "rounds": 20},
        {"min_sep": 3, "max_participations": 7},
        {"min_sep": 3, "rounds": 12, "max_participations": 4},
    ],
)
def test_the_changes_that_a_reason_names_are_enough(changes: dict[str, int]) -> None:
    assert not plan(MECHANISM, 30).feasible
    assert plan(MECHANISM.model_copy(update=changes), 30).feasible


@pytest.mark.parametrize("report_goal", [10, 189, 3000, 100_000])
@pytest.mark.parametrize("devices", [0, 3, 60, 840])
@pytest.mark.parametrize("apart", [(1, 16), (4, 4), (5, 1)])
def test_no_reason_names_a_number_that_cannot_be(report_goal: int, devices: int, apart: tuple[int, int]) -> None:
    config = MECHANISM.model_copy(
        update={"rounds": 16, "report_goal": report_goal, "min_sep": apart[0], "max_participations": apart[1]}
    )
    for reason in shortfalls(config, devices):
        fixes = re.findall(r"(report_goal|min_sep|max_participations|rounds) to (\d+)", reason)
        for name, number in fixes:
            # The separation that the other reason names goes with it.
            rest = max(min(apart[0], devices // report_goal), 1)
            least = config.model_copy(update={"min_sep": rest, name: int(number)})
            changed = TreeMechanism.model_validate(least.model_dump())
            assert not any(reason[:25] == other[:25] for other in shortfalls(changed, devices)), (name, number)
        assert fixes or reason.endswith("have more devices")


def test_more_noise_lowers_rho_by_its_square() -> None:
    single, double = rho_for(MECHANISM, 1000, noise_multipliers=[7.0, 14.0])
    worst = plan(MECHANISM, 1000).guarantee
    assert (single.rho, single.epsilon) == (worst.rho, worst.epsilon[1e-10])
    assert double.rho == pytest.approx(single.rho / 4)
    assert double.epsilon < single.epsilon
    assert double.noise_per_device == pytest.approx(1.4)


def test_a_smaller_report_goal_buys_rest_and_so_privacy() -> None:
    rows = rho_for(MECHANISM, 100, report_goals=[5, 10, 20])
    assert [(row.report_goal, row.min_sep, row.max_participations) for row in rows] == [
        (5, 20, 1),
        (10, 10, 2),
        (20, 5, 4),
    ]
    assert [row.rho for row in rows] == sorted(row.rho for row in rows)
    assert rows[0].noise_per_device == 4 * rows[2].noise_per_device


def test_rows_that_the_population_cannot_carry_are_left_out() -> None:
    assert [row.report_goal for row in rho_for(MECHANISM, 100, report_goals=[20, 40, 200])] == [20]


def test_alternatives_change_one_number_each() -> None:
    rows = plan(MECHANISM, 1000).alternatives
    assert {row.noise_multiplier for row in rows} == {3.5, 7.0, 14.0, 28.0}
    assert {row.report_goal for row in rows} == {5, 10, 20, 40}
    assert all(row.noise_multiplier == 7.0 or row.report_goal == 10 for row in rows)


def test_numbers_that_cannot_be_are_named() -> None:
    with pytest.raises(ValueError, match="noise_multipliers: got 0"):
        rho_for(MECHANISM, 100, noise_multipliers=[0.0])
    with pytest.raises(ValueError, match="report_goals: got -1"):
        rho_for(MECHANISM, 100, report_goals=[-1])


def with_day(**fields: object) -> TreeMechanism:
    return TreeMechanism.model_validate(MECHANISM.model_dump() | {"rounds": 96, "max_participations": 20} | fields)


@pytest.mark.slow
def test_a_plan_counts_who_checks_in() -> None:
    everybody = plan(with_day(), 60)
    assert (everybody.feasible, everybody.rounds_below_goal) == (True, None)
    nights = {"availability": {"round_minutes": 30.0}}
    short = plan(with_day(**nights), 54)
    assert not short.feasible
    assert short.rounds_below_goal > 48
    (reason,) = short.reasons
    assert "of 54 that train 21% to 89% check in, and up to 40 of them rest" in reason
    many = plan(with_day(**nights), 1000)
    assert many.feasible
    # In between nights make up for days, and the plan says how many rounds do not.
    some = plan(with_day(**nights), 70)
    assert some.feasible
    assert many.rounds_below_goal <= 2 < some.rounds_below_goal <= 48


@pytest.mark.slow
def test_the_shorter_timer_that_a_plan_names_is_enough_and_no_longer_one_is() -> None:
    config = with_day(availability={"round_minutes": 30.0})
    (reason,) = plan(config, 54).reasons
    rest = most_rest(config, 54, 10)
    assert f"lower min_sep to {rest} (a shorter timer)" in reason
    assert 1 <= rest < 5
    assert plan(config.model_copy(update={"min_sep": rest}), 54).feasible
    assert not plan(config.model_copy(update={"min_sep": rest + 1}), 54).feasible


def test_rows_of_other_report_goals_have_devices_awake_for_them() -> None:
    few_awake = {"round_minutes": 30.0}
    rows = rho_for(with_day(availability=few_awake), 100, report_goals=[5, 10, 20])
    asleep = rho_for(with_day(), 100, report_goals=[5, 10, 20])
    assert [row.report_goal for row in rows] == [5, 10, 20]
    assert all(few.min_sep <= all_.min_sep for few, all_ in zip(rows, asleep, strict=True))
    assert rows[-1].min_sep < asleep[-1].min_sep


def launch(devices_a_round: int, rounds: int, min_sep: int, most: int, days: int = 1) -> TreeMechanism:
    fields = {"report_goal": devices_a_round, "rounds": rounds, "min_sep": min_sep, "max_participations": most}
    return mechanism(**fields, availability={"timer_days": days})


@pytest.mark.parametrize("shape", [(4, 12, 3, 4), (4, 12, 3, 2), (3, 9, 4, 3), (5, 10, 1, 2)])
def test_a_population_is_refused_just_where_a_run_does_not_fill(shape: tuple[int, int, int, int]) -> None:
    config = launch(*shape)
    goal, rounds, floor, most = shape
    refused = {devices: bool(feasibility.unfillable(config, devices)) for devices in range(goal, 6 * goal + 20)}
    # More devices never hurt, and both answers occur.
    assert list(refused.values()) == sorted(refused.values(), reverse=True)
    assert len(set(refused.values())) == 2
    least = min(devices for devices, no in refused.items() if not no)

    def fills(devices: int) -> bool:
        try:
            clock.run(rounds, devices, goal, 1, Availability(), limits=(floor, most))
        except ValueError:
            return False
        return True

    assert fills(least)
    assert not fills(least - 1)


def test_reasons_name_what_to_change() -> None:
    (resting,) = feasibility.unfillable(launch(10, 20, 5, 4), 40)
    assert "a round selects 13 devices while 40 that joined one of the last 4" in resting
    assert "lower min_sep to 3 or lower report_goal to 7" in resting
    assert feasibility.unfillable(launch(7, 20, 5, 4), 40) == []
    assert feasibility.unfillable(launch(10, 20, 3, 20), 40) == []
    (capped,) = feasibility.unfillable(launch(10, 20, 2, 2), 101)
    assert capped.startswith("max_participations 2: by the clock, the last of 20 rounds would not fill")


def test_a_launch_that_counts_rounds_is_asked_nothing() -> None:
    assert feasibility.unfillable(mechanism(), 1) == []
    assert feasibility.launch_timer(mechanism(), 100) is None


@pytest.mark.slow
def test_a_plan_says_how_long_a_launch_takes_and_what_comes_out() -> None:
    made = plan(launch(20, 120, 10, 12), 600)
    assert made.feasible
    assert rounds_below_goal(launch(20, 120, 10, 12), 600) is made.rounds_below_goal is None
    assert made.by_the_clock.days == 1
    assert 15 < made.by_the_clock.min_sep < 30
    assert 3 < made.by_the_clock.run_days < 12
    twice = plan(launch(20, 120, 10, 12, days=2), 600)
    assert twice.by_the_clock.run_days > 1.5 * made.by_the_clock.run_days


@pytest.mark.slow
def test_too_few_devices_make_a_plan_infeasible_and_nothing_is_played() -> None:
    made = plan(launch(20, 40, 10, 4), 190)
    assert not made.feasible
    assert made.by_the_clock is None
    assert any("report_goal 20: a round selects 26 devices" in reason for reason in made.reasons)


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
