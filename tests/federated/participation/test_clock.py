"""Runs by the clock: the vectorised run is that of a plain loop over devices, and the timer holds."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from federated.participation import clock
from federated.participation.availability import Availability

ALWAYS = Availability(night_fraction=1.0, day_fraction=1.0, dropout=0.0, over_selection=1.0, seed=3)


def by_a_plain_loop(
    rounds: int,
    num_devices: int,
    goal: int,
    days: int,
    availability: Availability,
    minutes: float,
    limits: tuple[int, int],
):
    """Rounds as (start, end, cohort), one device and one check-in after the other."""
    joined: dict[int, list[int]] = {device: [] for device in range(num_devices)}
    rests_until = dict.fromkeys(range(num_devices), 0.0)
    done: list[tuple[float, float, list[int]]] = []
    waiting: list[int] = []
    opened, hour = 0.0, 0
    while len(done) < rounds:
        arrivals = []
        for device in range(num_devices):
            number = np.array([device])
            time = hour + availability.uniform(0x636C6F636B, number, hour)[0]
            if device not in waiting and availability.awake_at(number, hour)[0] and time >= rests_until[device]:
                arrivals.append((time, device))
        for time, device in sorted(arrivals):
            if time < opened or len(done) == rounds or len(joined[device]) == limits[1]:
                continue
            if joined[device] and len(done) - joined[device][-1] < limits[0]:
                continue
            waiting.append(device)
            if len(waiting) == availability.selected(goal):
                end = time + minutes / 60
                cohort = availability.reporting(np.array(waiting), len(done), goal)[0].tolist()
                for each in waiting:
                    rests_until[each] = end
                for each in cohort:
                    rests_until[each] = end + 24 * days
                    joined[each].append(len(done))
                done.append((opened, end, cohort))
                waiting, opened = [], end
        hour += 1
    return done


@pytest.mark.slow
@pytest.mark.parametrize(
    ("devices", "goal", "minutes", "limits"),
    [(40, 5, 3.0, None), (23, 5, 45.0, (3, 9)), (60, 2, 90.0, (11, 2))],
)
def test_a_run_is_that_of_a_plain_loop(devices: int, goal: int, minutes: float, limits: tuple[int, int] | None) -> None:
    availability = Availability(seed=11)
    played = clock.run(25, devices, goal, 1, availability, minutes, limits)
    expected = by_a_plain_loop(25, devices, goal, 1, availability, minutes, limits or (1, 25))
    assert played.start_T.tolist() == pytest.approx([start for start, _, _ in expected])
    assert played.end_T.tolist() == pytest.approx([end for _, end, _ in expected])
    assert played.devices_T.tolist() == [len(cohort) for _, _, cohort in expected]
    joined: dict[int, list[int]] = {}
    for number, (_, _, cohort) in enumerate(expected):
        for device in cohort:
            joined.setdefault(device, []).append(number)
    apart = Counter(later - earlier for each in joined.values() for earlier, later in pairwise(each))
    assert played.separations == dict(sorted(apart.items()))
    assert played.min_sep == min(apart, default=25)
    assert played.max_participations == max(map(len, joined.values()))


def test_where_all_are_always_awake_rounds_take_what_arrivals_take() -> None:
    # 6,000 an hour, evenly spread: 100 take a minute, then three until the round ends.
    played = clock.run(40, 6_000, 100, 30, ALWAYS)
    assert np.median(played.end_T - played.start_T) * 60 == pytest.approx(4, rel=0.1)
    assert played.separations == {}
    assert played.min_sep == 40


def test_the_separation_follows_from_the_population_and_not_from_a_longer_timer() -> None:
    one, two = (clock.run(200, 4_000, 100, days, Availability(seed=1)) for days in (1, 2))
    # 40 rounds of 100 use up 4,000 devices, of whom some sleep through the first night.
    assert 20 < one.min_sep <= two.min_sep < 40
    assert two.days > 1.5 * one.days


@pytest.mark.slow
def test_slow_rounds_bring_devices_back_sooner() -> None:
    fast, slow = (clock.run(100, 20_000, 50, 1, ALWAYS, minutes) for minutes in (3.0, 60.0))
    assert slow.min_sep < 30 < fast.min_sep


def test_a_goal_beyond_all_devices_is_refused() -> None:
    with pytest.raises(ValueError, match=r"report_goal: round 0 of 5 did not fill in 2 days.*lower report_goal"):
        clock.run(5, 20, 30, 1, ALWAYS)
    with pytest.raises(ValueError, match="give at least 1 of each"):
        clock.run(5, 20, 3, 0, ALWAYS)


@pytest.mark.parametrize(
    ("rounds", "minutes", "days"), [(36, 6, 1), (240, 6, 1), (241, 6, 2), (720, 10, 5), (1, 0.1, 1)]
)
def test_timers_are_whole_days(rounds: int, minutes: float, days: int) -> None:
    assert clock.whole_days(rounds, minutes) == days
