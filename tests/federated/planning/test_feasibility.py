"""The timer of a plan and of a launch: what is refused never fills, and what is let through does."""

import pytest

from federated.config.mechanism import TreeMechanism
from federated.participation import clock
from federated.participation.availability import Availability
from federated.planning import feasibility
from federated.planning.feasibility import rounds_below_goal
from federated.planning.worst_case import plan
from tests.helpers.launches.small_run import mechanism


def launch(devices_a_round: int, rounds: int, min_sep: int, most: int, days: int = 1) -> TreeMechanism:
    fields = {"report_goal": devices_a_round, "rounds": rounds, "min_sep": min_sep, "max_participations": most}
    return mechanism(**fields, availability={"timer_days": days})


@pytest.mark.parametrize("shape", [(4, 12, 3, 4), (4, 12, 3, 2), (3, 9, 4, 3), (5, 10, 1, 2)])
def test_a_population_is_refused_just_where_a_run_does_not_fill(shape: tuple[int, int, int, int]) -> None:
    config = launch(*shape)
    goal, rounds, floor, most = shape
    refused = {devices: bool(feasibility.never_full(config, devices)) for devices in range(goal, 6 * goal + 20)}
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
    (resting,) = feasibility.never_full(launch(10, 20, 5, 4), 40)
    assert "a round selects 13 devices while 40 that joined one of the last 4" in resting
    assert "lower min_sep to 3 or lower report_goal to 7" in resting
    assert feasibility.never_full(launch(7, 20, 5, 4), 40) == []
    assert feasibility.never_full(launch(10, 20, 3, 20), 40) == []
    (capped,) = feasibility.never_full(launch(10, 20, 2, 2), 101)
    assert capped.startswith("max_participations 2: by the clock, the last of 20 rounds would not fill")


def test_a_launch_that_counts_rounds_is_asked_nothing() -> None:
    assert feasibility.never_full(mechanism(), 1) == []
    assert feasibility.of_launch(mechanism(), 100) is None


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
    # As in the sentence of a proposal.
    assert "devices come back after" in made.by_the_clock.in_words(10, by_the_clock=True)
    assert "min_sep 40, which the guarantee rests on" in made.by_the_clock.in_words(40, by_the_clock=True)
    assert "'availability: {timer_days: 1}' makes the launch go by the clock" in made.by_the_clock.in_words(40)


def test_too_few_devices_make_a_plan_infeasible_and_nothing_is_played() -> None:
    made = plan(launch(20, 40, 10, 4), 190)
    assert not made.feasible
    assert made.by_the_clock is None
    assert any("report_goal 20: a round selects 26 devices" in reason for reason in made.reasons)
