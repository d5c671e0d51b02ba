"""Contract of every rule that picks a round's devices."""

import copy
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from federated.participation.availability import Availability
from federated.participation.clock_cohorts import ClockCohorts
from federated.participation.cohorts import Cohorts, ParticipationState
from federated.participation.observation import observe
from federated.participation.records import Records, load_records, no_records, save_records
from federated.participation.secret_sample import SampledCohorts
from pretrain.randomness.noise import seeded_key

DEVICES, ROUNDS, GOAL = 60, 24, 6
KEY = seeded_key(31)
TIMED = Cohorts(DEVICES, GOAL, 4, 3, seed=9)
SAMPLERS = {
    "timer and cap": TIMED,
    "who checks in": replace(TIMED, availability=Availability(round_minutes=30.0, seed=9)),
    "by the clock": ClockCohorts(DEVICES, GOAL, 4, 3, seed=9, timer_days=1),
    "with stress devices": replace(TIMED, stress_D=np.arange(DEVICES) >= DEVICES - 2, stress_rate=0.5),
    "poisson": SampledCohorts(DEVICES, GOAL, GOAL / DEVICES, True, KEY, ROUNDS),
    "fixed": SampledCohorts(DEVICES, GOAL, GOAL / DEVICES, False, KEY, ROUNDS),
}
# What decides a draw: a public seed under a timer, the secret key where the guarantee counts on the sample.
OTHERWISE: dict[str, Callable[[object], object]] = {
    name: (lambda rule: replace(rule, key=seeded_key(32)))
    if isinstance(rule, SampledCohorts)
    else (lambda rule: replace(rule, seed=10))
    for name, rule in SAMPLERS.items()
}
every_sampler = pytest.mark.parametrize("name", SAMPLERS)


def run(rule: Cohorts | SampledCohorts, rounds: int = ROUNDS) -> tuple[list[np.ndarray], ParticipationState, Records]:
    state, records, cohorts = rule.init(), no_records(), []
    for number in range(rounds):
        cohort, state = rule.draw(state, number)
        cohorts.append(cohort)
        records = records.add(number, cohort, state.lasted)
    return cohorts, state, records


@every_sampler
def test_a_draw_is_a_pure_function_and_leaves_its_state_alone(name: str) -> None:
    rule = SAMPLERS[name]
    _, state, _ = run(rule, 5)
    before = state.last_round_D.copy(), state.count_D.copy()
    first, after = rule.draw(state, 5)
    again, _ = rule.draw(state, 5)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal((state.last_round_D, state.count_D), before)
    np.testing.assert_array_equal(np.flatnonzero(after.count_D - state.count_D), first)
    assert np.all(after.last_round_D[first] == 5)


@every_sampler
def test_cohorts_are_devices_once_and_ascending(name: str) -> None:
    for cohort in run(SAMPLERS[name])[0]:
        assert np.all(np.diff(cohort) > 0)
        assert not len(cohort) or 0 <= cohort[0] <= cohort[-1] < DEVICES


@every_sampler
def test_every_round_draws_anew_and_another_secret_otherwise(name: str) -> None:
    cohorts = {tuple(cohort) for cohort in run(SAMPLERS[name])[0] if len(cohort)}
    assert len(cohorts) > ROUNDS / 3
    others = {tuple(cohort) for cohort in run(OTHERWISE[name](SAMPLERS[name]))[0] if len(cohort)}
    assert not cohorts & others


@every_sampler
def test_separation_and_cap_are_kept_and_the_records_say_so(name: str) -> None:
    rule = SAMPLERS[name]
    _, state, records = run(rule)
    stress_D = getattr(rule, "stress_D", None)
    synthetic_D = np.zeros(DEVICES, dtype=bool) if stress_D is None else stress_D
    seen = observe(records, ROUNDS, rule, synthetic_D)
    assert seen.violations == 0
    assert seen.min_sep is None or seen.min_sep >= rule.min_sep
    assert seen.max_participations <= rule.max_participations
    np.testing.assert_array_equal(records.participations(DEVICES), state.count_D)


@every_sampler
def test_killed_and_resumed_at_any_round_draws_the_same(name: str) -> None:
    rule, whole = SAMPLERS[name], run(SAMPLERS[name])[0]
    for cut in (1, 7, ROUNDS - 1):
        _, state, _ = run(rule, cut)
        np.testing.assert_array_equal(rule.draw(copy.deepcopy(state), cut)[0], whole[cut])


@every_sampler
def test_records_come_back_as_they_were(name: str, tmp_path) -> None:
    records = run(SAMPLERS[name])[2]
    first = Records(tuple(entry for entry in records.cohorts if entry[0] < 10), records.hours[:10])
    save_records(first, tmp_path / "records", 10)
    save_records(records, tmp_path / "records", ROUNDS)
    again = load_records(tmp_path / "records", ROUNDS)
    np.testing.assert_array_equal(again.rounds_N, records.rounds_N)
    np.testing.assert_array_equal(again.devices_N, records.devices_N)
    assert again.hours == records.hours
