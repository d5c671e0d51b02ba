import stat
from itertools import combinations, pairwise

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import stats

from federated.participation.cohorts import Cohorts
from federated.participation.observed import observe
from federated.participation.records import Records, forget_records, load_records, no_records, save_records


def simulate(cohorts: Cohorts, rounds: int) -> Records:
    state, records = cohorts.init(), no_records()
    for number in range(rounds):
        ids, state = cohorts.draw(state, number)
        records = records.add(number, ids)
    return records


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
    records = simulate(cohorts, 20)
    synthetic_D = np.arange(30) >= 26
    observed = observe(records, 20, cohorts, synthetic_D)
    gaps, counts = brute_force(records, lambda device: device < 26)
    assert observed.min_sep == (min(gaps) if gaps else None)
    assert observed.mins == (min(gaps) - 1 if gaps else None)
    assert observed.max_participations == max(counts.values())
    assert observed.separation_histogram == {gap: gaps.count(gap) for gap in sorted(set(gaps))}
    values = list(counts.values())
    assert observed.participation_histogram == {count: values.count(count) for count in sorted(set(values))}
    assert observed.rounds == 20
    assert observed.synthetic_devices == 4
    assert observed.violations == 0
    all_gaps, all_counts = brute_force(records, lambda device: True)
    assert all(gap >= min_sep for gap in all_gaps)
    assert max(all_counts.values()) <= most


def test_a_timer_that_is_off_by_one_is_seen():
    # MinS counts the rounds strictly between: taking it for min_sep lets devices back a round early.
    promised = Cohorts(12, 4, 3, 10, seed=1)
    mistaken = Cohorts(12, 4, promised.min_sep - 1, 10, seed=1)
    synthetic_D = np.zeros(12, dtype=bool)
    assert observe(simulate(promised, 30), 30, promised, synthetic_D).violations == 0
    seen = observe(simulate(mistaken, 30), 30, promised, synthetic_D)
    assert seen.violations > 0
    assert seen.min_sep == promised.min_sep - 1
    uncapped = Cohorts(12, 4, 3, 11, seed=1)
    few = Cohorts(12, 4, 3, 5, seed=1)
    assert observe(simulate(uncapped, 60), 60, few, synthetic_D).violations > 0


def test_synthetic_devices_are_checked_but_not_reported():
    cohorts = Cohorts(4, 2, 3, 5, seed=0)
    records = no_records().add(0, np.array([0, 3])).add(1, np.array([3])).add(4, np.array([0]))
    observed = observe(records, 5, cohorts, np.array([False, False, False, True]))
    assert (observed.min_sep, observed.mins, observed.max_participations) == (4, 3, 2)
    assert observed.participation_histogram == {2: 1}
    assert observed.violations == 1


def test_the_worst_device_decides_what_is_observed():
    # One device of fifty comes back early, and another one more often than all others.
    records = no_records()
    for number in range(0, 40, 10):
        joined = [*range(50)] if number < 20 else [0]
        records = records.add(number, np.array(joined)).add(number + 1, np.array([1] if number == 0 else []))
    observed = observe(records, 40, Cohorts(50, 50, 1, 9, seed=0), np.zeros(50, dtype=bool))
    assert (observed.min_sep, observed.max_participations) == (1, 4)


def test_twice_in_one_round_counts_as_separation_zero():
    records = no_records().add(2, np.array([1, 1]))
    observed = observe(records, 3, Cohorts(2, 2, 1, 1, seed=0), np.zeros(2, dtype=bool))
    assert observed.min_sep == 0
    assert observed.violations == 2


def test_no_records_is_no_evidence():
    observed = observe(no_records(), 0, Cohorts(3, 2, 1, 1, seed=0), np.zeros(3, dtype=bool))
    assert (observed.min_sep, observed.mins, observed.max_participations, observed.violations) == (None, None, 0, 0)


def test_a_draw_is_a_function_of_seed_round_and_state():
    cohorts = Cohorts(100, 10, 2, 3, seed=5)
    state = cohorts.init()
    first, after = cohorts.draw(state, 0)
    again, _ = cohorts.draw(state, 0)
    np.testing.assert_array_equal(first, again)
    assert np.all(state.last_round_D == -1)
    assert np.all(state.count_D == 0)
    assert not np.array_equal(first, cohorts.draw(state, 1)[0])
    assert not np.array_equal(first, Cohorts(100, 10, 2, 3, seed=6).draw(state, 0)[0])
    assert not np.intersect1d(first, cohorts.draw(after, 1)[0]).size


def test_too_few_devices_go_on_with_fewer():
    cohorts = Cohorts(5, 4, 3, 9, seed=0)
    state = cohorts.init()
    sizes = []
    for number in range(4):
        ids, state = cohorts.draw(state, number)
        sizes.append(len(ids))
    assert sizes == [4, 1, 0, 4]


def uniformity(draw) -> float:
    """P value of the hypothesis that pairs of the five devices that are not resting are equally likely."""
    cohorts = Cohorts(6, 2, 2, 9, seed=3)
    pairs = dict.fromkeys(combinations(range(5), 2), 0)
    for number in range(1, 4001):
        state = cohorts.init()
        state.last_round_D[5] = number - 1
        pairs[tuple(draw(cohorts, state, number))] += 1
    return float(stats.chisquare(list(pairs.values())).pvalue)


@pytest.mark.slow
@pytest.mark.statistical
def test_the_cohort_is_uniform_over_all_sets():
    assert uniformity(lambda cohorts, state, number: cohorts.draw(state, number)[0].tolist()) > 1e-3

    def earliest_to_check_in(cohorts, state, number):
        # The mistake this test is for: asking devices in order of their number until there are enough.
        ready = cohorts.available(state, number)
        willing = ready[np.random.default_rng(number).random(len(ready)) < 0.9]
        return sorted([*willing, *np.setdiff1d(ready, willing)][:2])

    assert uniformity(earliest_to_check_in) < 1e-3


def test_records_are_private_whole_and_cut_at_a_round(tmp_path):
    records = simulate(Cohorts(30, 5, 2, 9, seed=1), 6)
    folder = tmp_path / "participation.parquet"
    save_records(simulate(Cohorts(30, 5, 2, 9, seed=1), 4), folder, 4)
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
