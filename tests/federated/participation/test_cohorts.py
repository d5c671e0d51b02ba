import stat
from collections import Counter
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import stats

from federated.participation.clock_cohorts import ClockCohorts
from federated.participation.cohorts import Cohorts, most_assigned
from federated.participation.observation import observe
from federated.participation.records import Records, forget_records, load_records, no_records, save_records
from tests.helpers.launches.cohort_run import observed, played


def brute_force(records: Records, keep) -> tuple[list[int], dict[int, int]]:
    """Separations of neighbouring participations, and participations, device by device."""
    rounds_of: dict[int, list[int]] = {}
    for number, device in zip(records.rounds_N.tolist(), records.devices_N.tolist(), strict=True):
        if keep(device):
            rounds_of.setdefault(device, []).append(number)
    gaps = [later - earlier for own in rounds_of.values() for earlier, later in pairwise(own)]
    return gaps, {device: len(own) for device, own in rounds_of.items()}


@pytest.mark.parametrize(("min_sep", "most", "goal"), [(1, 20, 5), (3, 4, 5), (4, 2, 9), (20, 1, 2)])
def test_rules_hold_and_observation_equals_brute_force(min_sep, most, goal):
    cohorts = Cohorts(30, goal, min_sep, most, seed=7)
    records = played(cohorts, 20)[0]
    synthetic_D = np.arange(30) >= 26
    seen = observe(records, 20, cohorts, synthetic_D)
    gaps, counts = brute_force(records, lambda device: device < 26)
    assert seen.min_sep == (min(gaps) if gaps else None)
    assert seen.mins == (min(gaps) - 1 if gaps else None)
    assert seen.max_participations == max(counts.values())
    assert seen.separation_histogram == {gap: gaps.count(gap) for gap in sorted(set(gaps))}
    values = list(counts.values())
    assert seen.participation_histogram == {count: values.count(count) for count in sorted(set(values))}
    assert seen.rounds == 20
    assert seen.synthetic_devices == 4
    assert seen.violations == 0
    all_gaps, all_counts = brute_force(records, lambda device: True)
    assert all(gap >= min_sep for gap in all_gaps)
    assert max(all_counts.values()) <= most


def test_a_timer_that_is_off_by_one_is_seen():
    # MinS counts the rounds strictly between: taking it for min_sep lets devices back a round early.
    promised = Cohorts(12, 4, 3, 10, seed=1)
    mistaken = Cohorts(12, 4, promised.min_sep - 1, 10, seed=1)
    assert observed(promised, 30).violations == 0
    seen = observed(mistaken, 30, promised)
    assert seen.violations > 0
    assert seen.min_sep == promised.min_sep - 1
    uncapped = Cohorts(12, 4, 3, 11, seed=1)
    few = Cohorts(12, 4, 3, 5, seed=1)
    assert observed(uncapped, 60, few).violations > 0


def test_synthetic_devices_are_checked_but_not_reported():
    cohorts = Cohorts(4, 2, 3, 5, seed=0)
    records = no_records().add(0, np.array([0, 3])).add(1, np.array([3])).add(4, np.array([0]))
    seen = observe(records, 5, cohorts, np.array([False, False, False, True]))
    assert (seen.min_sep, seen.mins, seen.max_participations) == (4, 3, 2)
    assert seen.participation_histogram == {2: 1}
    assert seen.violations == 1


def test_the_worst_device_decides_what_is_observed():
    # One device of fifty comes back early, and another one more often than all others.
    records = no_records()
    for number in range(0, 40, 10):
        joined = [*range(50)] if number < 20 else [0]
        records = records.add(number, np.array(joined)).add(number + 1, np.array([1] if number == 0 else []))
    seen = observe(records, 40, Cohorts(50, 50, 1, 9, seed=0), np.zeros(50, dtype=bool))
    assert (seen.min_sep, seen.max_participations) == (1, 4)


def test_twice_in_one_round_counts_as_separation_zero():
    records = no_records().add(2, np.array([1, 1]))
    seen = observe(records, 3, Cohorts(2, 2, 1, 1, seed=0), np.zeros(2, dtype=bool))
    assert seen.min_sep == 0
    assert seen.violations == 2


def test_no_records_is_no_evidence():
    seen = observe(no_records(), 0, Cohorts(3, 2, 1, 1, seed=0), np.zeros(3, dtype=bool))
    assert (seen.min_sep, seen.mins, seen.max_participations, seen.violations) == (None, None, 0, 0)


def test_too_few_devices_go_on_with_fewer():
    records, _ = played(Cohorts(5, 4, 3, 9, seed=0), 4)
    assert [len(cohort) for _, cohort in records.cohorts] == [4, 1, 0, 4]


def p_value(draw, cohorts: Cohorts, ready: list[int], rounds: int) -> float:
    """Of the hypothesis that pairs of the devices that are not resting are equally likely."""
    pairs = Counter[tuple[int, ...]]()
    for number in range(4, 4 + rounds):
        state = cohorts.init()
        state.last_round_D[:] = number - 1
        state.last_round_D[ready] = -1
        pairs[tuple(np.asarray(draw(cohorts, state, number)).tolist())] += 1
    return float(stats.chisquare([pairs[pair] for pair in combinations(ready, 2)]).pvalue)


def earliest_to_check_in(cohorts, state, number):
    """The mistake of asking devices in order of their number until there are enough."""
    ready = cohorts.available(state, number)
    willing = ready[np.random.default_rng(number).random(len(ready)) < 0.9]
    return sorted([*willing, *np.setdiff1d(ready, willing)][:2])


def lowest_of_those_guessed(cohorts, state, number):
    rng = np.random.default_rng(number)
    found = [device for device in rng.integers(12, size=40) if state.last_round_D[device] == -1]
    return sorted(set(found[:6]))[:2] if len(set(found[:6])) > 1 else [0, 1]


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize(
    ("cohorts", "ready", "mistaken"),
    [
        (Cohorts(6, 2, 2, 9, seed=3), [0, 1, 2, 3, 4], earliest_to_check_in),
        # So many devices for a round that it guesses them.
        (Cohorts(12, 2, 5, 9, seed=3), [0, 1, 4, 5, 8, 9, 11], lowest_of_those_guessed),
    ],
    ids=["all looked at", "guessed"],
)
def test_the_cohort_is_uniform_over_all_sets(cohorts, ready, mistaken):
    assert p_value(lambda rule, state, number: rule.draw(state, number)[0], cohorts, ready, 4000) > 1e-3
    assert p_value(mistaken, cohorts, ready, 4000) < 1e-3


def test_records_are_private_whole_and_cut_at_a_round(tmp_path):
    records = played(Cohorts(30, 5, 2, 9, seed=1), 6)[0]
    folder = tmp_path / "participation.parquet"
    save_records(played(Cohorts(30, 5, 2, 9, seed=1), 4)[0], folder, 4)
    save_records(records, folder, 6)
    save_records(records, folder, 6)
    paths = sorted(folder.iterdir())
    assert [path.name for path in paths] == ["rounds-00000000-00000004.parquet", "rounds-00000004-00000006.parquet"]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in paths)
    loaded = load_records(folder)
    np.testing.assert_array_equal(loaded.rounds_N, records.rounds_N)
    np.testing.assert_array_equal(loaded.devices_N, records.devices_N)
    assert loaded.rounds_N[:15].tolist() == [0] * 5 + [1] * 5 + [2] * 5
    assert pq.read_table(folder).num_rows == len(records.rounds_N), "any reader takes the folder for one table"
    assert load_records(folder, 3).rounds_N.max() == 3
    with pytest.raises(OSError, match="rounds-00000006-"):
        load_records(folder, 7)
    forget_records(folder, 5)
    assert list(folder.iterdir()) == paths[:1]
    paths[0].write_bytes(paths[0].read_bytes()[:-9])
    with pytest.raises(OSError, match=r"participation\.parquet/rounds-00000000"):
        load_records(folder)


def test_what_is_new_is_found_from_the_end():
    records, rng = no_records(), np.random.default_rng(5)
    cohorts = [rng.integers(9, size=size) for size in (3, 0, 2, 4, 0)]
    for number, cohort in enumerate(cohorts):
        records = records.add(number, cohort)
    for first in range(6):
        new = records.since(first)
        assert new.devices_N.tolist() == [int(device) for cohort in cohorts[first:] for device in cohort]
        assert new.rounds_N.tolist() == [number for number in range(first, 5) for _ in cohorts[number]]


def test_records_are_values():
    first = no_records().add(0, np.array([3, 5]))
    one, other = first.add(1, np.array([1])), first.add(1, np.array([2]))
    assert first.devices_N.tolist() == [3, 5]
    assert one.devices_N.tolist() == [3, 5, 1]
    assert other.devices_N.tolist() == [3, 5, 2]
    longer = one.add(2, np.array([4]))
    assert one.devices_N.tolist() == [3, 5, 1]
    assert longer.rounds_N.tolist() == [0, 0, 1, 2]
    assert longer.rounds_N.dtype == longer.devices_N.dtype == np.int32


STRESS_D = np.arange(40) >= 36
STRESSED = Cohorts(40, 8, 5, 3, seed=2, stress_D=STRESS_D, stress_rate=0.575)


def test_stress_devices_join_at_their_rate_and_nobody_else_is_freed():
    """Devices outside the timer join by their own coin, take places, and bind nobody else's rules."""
    records, _ = played(STRESSED, 400)
    assert max(len(set(cohort)) for _, cohort in records.cohorts) <= 8
    rate = records.participations(40)[STRESS_D] / 400
    np.testing.assert_allclose(rate, 0.575, atol=0.1)
    assert records.participations(40)[~STRESS_D].max() == 3
    seen = observe(records, 400, STRESSED, STRESS_D)
    assert seen.violations == 0
    assert seen.min_sep >= 5
    # Under the plain rule the same records are full of violations.
    plain = replace(STRESSED, stress_D=None)
    assert observe(records, 400, plain, STRESS_D).violations > 100
    # Few places are not exceeded, and without stress devices cohorts are what they were.
    tight = replace(STRESSED, report_goal=2, stress_rate=1.0)
    assert len(tight.draw(tight.init(), 0)[0]) == 2
    none = replace(STRESSED, stress_D=np.zeros(40, dtype=bool))
    np.testing.assert_array_equal(plain.draw(plain.init(), 0)[0], none.draw(none.init(), 0)[0])


def with_canaries(people: int, canaries: int, goal: int, min_sep: int, most: int, rounds: int, **more) -> Cohorts:
    assigned_D = np.arange(people + canaries) >= people
    return Cohorts(people + canaries, goal, min_sep, most, 5, assigned_D=assigned_D, rounds=rounds, **more)


@pytest.mark.parametrize("by_the_clock", [False, True])
@pytest.mark.parametrize(
    ("people", "canaries", "goal", "min_sep", "most", "rounds", "times"),
    [
        (2_000, 9, 50, 20, 1, 20, 1),  # as production: a person joins at most once, most people never
        (300, 9, 30, 5, 3, 20, 3),
        (300, 7, 30, 3, 9, 20, 7),
        (300, 15, 30, 4, 4, 16, 4),
        (300, 15, 40, 1, 20, 20, 20),
        (300, 2, 30, 50, 2, 20, 1),
    ],
)
def test_every_canary_joins_as_often_as_timer_and_cap_allow(
    people, canaries, goal, min_sep, most, rounds, times, by_the_clock
):
    rule = with_canaries(people, canaries, goal, min_sep, most, rounds)
    if by_the_clock:
        rule = ClockCohorts(**vars(rule), timer_days=1)
    records = played(rule, rounds)[0]
    counts_D = records.participations(rule.num_devices)
    assert set(counts_D[people:].tolist()) == {times}
    assert counts_D[:people].sum() > 0
    seen = observe(records, rounds, rule, rule.assigned_D)
    assert seen.violations == 0
    joined_T = np.bincount(records.rounds_N, minlength=rounds)
    assert joined_T.max() <= goal
    together = np.bincount(records.rounds_N[records.devices_N >= people], minlength=rounds).max()
    assert together <= most_assigned(canaries, rounds, min_sep, most) < goal


def test_the_turns_of_canaries_say_nothing_of_how_many_people_there_are():
    def turns(people: int) -> list[tuple[int, int]]:
        records = played(with_canaries(people, 9, 30, 5, 3, 20), 20)[0]
        pairs = zip(records.rounds_N.tolist(), records.devices_N.tolist(), strict=True)
        return [(number, device - people) for number, device in pairs if device >= people]

    assert turns(300) == turns(301) == turns(4_000)


def test_a_canary_makes_up_for_a_round_whose_secure_sum_was_lost():
    rule = with_canaries(300, 9, 30, 20, 1, 20, sum_opens=lambda joined, dropped, number: number != 4)
    records = played(rule, 20)[0]
    assert 4 not in records.rounds_N
    assert set(records.participations(309)[300:].tolist()) == {1}


def test_stress_devices_take_the_places_that_assigned_ones_leave():
    rule = with_canaries(300, 12, 10, 1, 20, 20)
    stress_D = np.arange(312) >= 308
    rule = replace(rule, assigned_D=rule.assigned_D & ~stress_D, stress_D=stress_D, stress_rate=1.0)
    cohort, _ = rule.draw(rule.init(), 0)
    assert cohort.tolist() == [*range(300, 308), *cohort[8:]]
    assert len(cohort) == 10
