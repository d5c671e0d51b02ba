"""The days of a schedule, and whether its launches fit what their population may lose."""

from datetime import date

import numpy as np
import pytest

from pipeline.launch.config import LaunchConfig
from pipeline.ledger.entries import Spend
from pipeline.preflight import schedule
from pipeline.releases.release import Outlook
from pipeline.releases.uses import planned
from tests.helpers.launches.pipeline_launch import launch_config


@pytest.mark.parametrize(
    ("expression", "days"),
    [
        ("@monthly", [1, 32, 60, 91]),
        ("@quarterly", [1, 91, 182, 274]),
        ("0 3 1,15 * *", [1, 15, 32, 46]),
        ("30 */4 * 2 mon", [33, 40, 47, 54]),
        ("0 0 13 * fri", [2, 9, 13, 16]),  # both restricted: one is enough
        ("0 0 L * *", [31, 59, 90, 120]),
        ("0 0 * * 7", [4, 11, 18, 25]),
        ("0 0 * jan-mar/2 sat", [3, 10, 17, 24]),
        ("0 0 28-31/3 * *", [28, 31, 59, 87]),
        ("@daily", [1, 2, 3, 4]),
    ],
)
def test_days_of_a_schedule(expression: str, days: list[int]):
    first = date(2025, 12, 31).toordinal()
    assert [day - first for day in schedule.launch_days(expression)[:4]] == days


@pytest.mark.parametrize("expression", ["", "@once", "monthly", "0 0 32 * *", "0 0 * * 8", "* * * *", "0 0 3#2 * *"])
def test_what_is_no_schedule_has_no_days(expression: str):
    with pytest.raises(ValueError, match="five fields"):
        schedule.launch_days(expression)


@pytest.mark.parametrize("span", [1, 28, 30, 59, 60, 90, 365])
def test_the_most_launches_in_a_window_by_looking_at_every_day(span: int):
    days = schedule.launch_days("0 0 1,10 * 3")
    marked, first = np.zeros(days[-1] - days[0] + span + 2, dtype=int), days[0]
    marked[[day - first + 1 for day in days]] = 1
    sums = marked.cumsum()
    every = max(sums[end] - sums[max(end - span - 1, 0)] for end in range(len(sums)))
    assert schedule.most_in(days, span) == every


def words(config: LaunchConfig) -> Spend:
    """What discovery costs with as few devices as nobody knows."""
    return planned(config, Outlook(0.0, None))["discover"]


def test_a_schedule_that_its_budget_cannot_bear_is_refused_with_numbers():
    policy = {
        "budget": {"rho": 1.0, "days": 60},
        "population_max_rho": None,
        "population_max_discovery_epsilon": 3.0,
    }
    config = launch_config(schedule="@monthly", policy=policy)
    problems, notes = vars(schedule.fits(config, None, words(config))).values()
    assert problems == (
        "schedule: '@monthly' makes up to 3 launches in any 60 days, at rho 0.5 each, 1.5 together, and policy.budget "
        "allows 1; launch less often, let a launch cost at most 0.3333, or have the budget reviewed",
    )
    assert notes == ()
    weekly = launch_config(schedule="@weekly", policy=policy | {"budget": {"rho": 4.5, "days": 58}, "max_rho": 0.5})
    (dear, *_), notes = vars(schedule.fits(weekly, None, words(weekly))).values()
    assert "9 launches in any 58 days, at epsilon per typed word 1 each, 9 together" in dear
    assert notes == (
        "schedule: '@weekly' makes up to 10 launches in any 58 days, at rho 0.5 each, 5 together, and policy.budget "
        "allows 4.5, if one is 7 days late and another is not",
    )
    for_ever = launch_config(schedule="@monthly")
    problems, notes = vars(schedule.fits(for_ever, None, words(for_ever))).values()
    assert problems == ()
    assert "after 2 launches of rho 0.5, as policy.population_max_rho bounds all launches for ever" in notes[0]
