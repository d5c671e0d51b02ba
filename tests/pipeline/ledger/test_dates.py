"""Dates of a schedule: one spends once, whatever became of its file, and what dates would spend is known before."""

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from pipeline.ground import clock
from pipeline.ground.errors import BudgetExceeded, LedgerMissing, PopulationUnknown
from pipeline.ground.settings import Settings, load
from pipeline.launch.config import LaunchConfig, launch_id
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.preflight import schedule
from pipeline.preflight.foresee import forecast
from pipeline.releases.terms import Terms
from pipeline.run.population import kept
from tests.helpers.launches.pipeline_launch import launch_config
from tests.helpers.launches.spends import BINDING, budget, device, item, reserve

NOW = datetime(2026, 11, 20, 9, tzinfo=UTC)
TODAY = "trial-00000000-20261101"
CHANGED = "trial-11111111-20261101"
RHO = 0.2  # of training
PEOPLE = {"source": "files", "name": "people", "paths": ["typed.parquet"]}
POLICY = {
    "budget": {"rho": 0.5, "days": 60},
    "population_max_rho": None,
    "population_max_discovery_epsilon": 2.0,
}


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "now", lambda: NOW)


@pytest.fixture
def here(tmp_path: Path) -> Settings:
    return load({"TACIT_HOME": str(tmp_path)})


@pytest.fixture
def ledger(here: Settings) -> PrivacyLedger:
    here.runs_dir.mkdir()
    made = PrivacyLedger.create(here)
    made.register("people", budget(max_rho=0.5, max_discovery_epsilon=2.0, window_days=60), "owner")
    return made


def config(**changes: object) -> LaunchConfig:
    changes = {"schedule": "@monthly", "private_text": PEOPLE, "policy": POLICY} | changes
    return launch_config(**changes)


def worst(launch: LaunchConfig) -> Terms:
    return Terms.of(launch, RHO)


def ids(launch: LaunchConfig, *days: str) -> list[str]:
    return [launch_id(launch, day) for day in days]


def none(run_id: str) -> frozenset[str]:
    return frozenset()


def test_the_days_of_a_schedule_are_those_that_a_plain_count_gives():
    first, last = date(2026, 1, 31), date(2027, 3, 1)
    days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
    assert schedule.launch_dates("@monthly", first, last) == [day for day in days if day.day == 1]
    assert schedule.launch_dates("*/5 3 * * 1", first, last) == [day for day in days if day.weekday() == 0]


def test_a_date_spends_once_whatever_became_of_its_file(ledger: PrivacyLedger):
    reserve(ledger, TODAY, item(1.0), stage="discover")
    with pytest.raises(BudgetExceeded, match="20261101 of 'trial' was launched as trial-00000000-20261101"):
        reserve(ledger, CHANGED, device(0.01))
    for other in ("trial-11111111-20261102", "trial-2-11111111-20261101", "trial-11111111"):
        reserve(ledger, other, device(0.01))
    # The launch itself goes on, and starts again for nothing.
    first = reserve(ledger, TODAY, device(0.01))
    assert reserve(ledger, TODAY, device(0.01)) == first


def test_what_was_given_back_has_not_spent(ledger: PrivacyLedger):
    reserve(ledger, TODAY, device(0.1))
    ledger.release(TODAY, "fine_tune", "refused")
    reserve(ledger, CHANGED, device(0.1))


def test_a_forecast_is_what_reserving_in_turn_does(ledger: PrivacyLedger, here: Settings):
    """The oracle is the ledger itself: the same dates are then reserved, one by one."""
    launch = config()
    run_ids = ids(launch, "20260901", "20261001", "20261101", "20261120")
    rows = forecast(worst(launch), here, run_ids, none)
    population = ledger.population("people")
    for row in rows:
        binding = BINDING | {"split_rule": population.split_rule(launch.private_text.test_fraction)}
        asked = {"budget_rho": None, "binding": binding, "window": (0.5, 60)}
        try:
            kept(launch, population, row.launch_id)
            words = asked | {"stage": "discover", "budget_discovery_epsilon": 2.0}
            reserve(ledger, row.launch_id, item(row.epsilon), **words)
            reserve(ledger, row.launch_id, device(row.rho), **asked)
            said = ""
        except BudgetExceeded as error:
            said = str(error)
        # What is short for words is short for all; the sentence names one.
        assert bool(row.problem) == bool(said), (row, said)
    assert [bool(row.problem) for row in rows] == [True, False, False, True]
    assert "more than 60 days ago" in rows[0].problem
    assert "is spent and" in rows[3].problem
    assert {(row.rho, row.epsilon) for row in rows} == {(RHO, 1.0)}


def test_a_forecast_writes_nothing(ledger: PrivacyLedger, here: Settings):
    before = ledger.entries()
    forecast(worst(config()), here, ids(config(), "20261101"), none)
    assert ledger.entries() == before


def test_what_has_spent_spends_nothing_again_and_a_changed_file_is_refused(ledger: PrivacyLedger, here: Settings):
    launch = config()
    (run_id,) = ids(launch, "20261101")
    reserve(ledger, run_id, item(1.0), stage="discover")
    (half,) = forecast(worst(launch), here, [run_id], none)
    assert (half.rho, half.epsilon, half.has_spent, half.problem) == (RHO, 0.0, ("discover",), "")
    reserve(ledger, run_id, device(RHO))
    ledger.commit(run_id, "fine_tune", device(0.1))
    (done,) = forecast(worst(launch), here, [run_id], none)
    assert (done.rho, done.epsilon, done.problem) == (0.0, 0.0, "")
    changed = config(seed=8)
    (again,) = forecast(worst(changed), here, ids(changed, "20261101"), none)
    assert f"was launched as {run_id}" in again.problem


def test_dates_to_come_count_what_has_left_their_window(ledger: PrivacyLedger, here: Settings):
    reserve(ledger, "other", device(0.5))  # All that there is, on 20 November.
    launch = config()
    now, still, later = forecast(worst(launch), here, ids(launch, "20261120", "20270119", "20270121"), none)
    assert now.problem
    assert still.problem
    assert not later.problem


def test_what_is_taken_over_costs_nothing(ledger: PrivacyLedger, here: Settings):
    launch = config()
    (row,) = forecast(worst(launch), here, ids(launch, "20261101"), lambda run_id: {"discover"})
    assert (row.rho, row.epsilon) == (RHO, 0.0)


def test_held_out_devices_lose_beside_those_that_train(ledger: PrivacyLedger, here: Settings):
    launch = config(evaluation={"noise_multiplier": 1.0})  # rho 0.5: all of the window
    first, second = forecast(worst(launch), here, ids(launch, "20261101", "20261115"), none)
    assert (first.rho, first.held_out_rho, first.problem) == (RHO, 0.5, "")
    assert "0.5 of 0.5" in second.problem


def test_without_a_ledger_or_a_population_nobody_knows(here: Settings):
    with pytest.raises(LedgerMissing):
        forecast(worst(config()), here, [TODAY], none)
    here.runs_dir.mkdir()
    PrivacyLedger.create(here)
    with pytest.raises(PopulationUnknown):
        forecast(worst(config()), here, [TODAY], none)
    # A simulation registers itself; its own ceilings count until then.
    made_up = config(private_text={"source": "chitchat"})
    assert json.loads(made_up.model_dump_json())["private_text"]["name"] == "people"
    first, *_, last = forecast(worst(made_up), here, ids(made_up, "20261101", "20261102", "20261103"), none)
    assert not first.problem
    assert "2 of 2 in any 60 days is spent" in last.problem
