"""Text is kept as long as the shorter window, and a launch says by which day it was cut."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from pipeline.ground import clock
from pipeline.ground.clock import day_of
from pipeline.ground.errors import BudgetExceeded
from pipeline.ground.settings import Settings
from pipeline.launch.config import LaunchConfig, launch_id
from pipeline.ledger.entries import AS_OF, SPLIT_RULE
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.preflight import readiness
from pipeline.run.cache import content_key
from pipeline.run.known import run_folder
from pipeline.run.population import kept, require_population
from pipeline.run.runner import run_stage
from pipeline.run.stage import StageContext
from tests.helpers.launches.installed import registered
from tests.helpers.launches.pipeline_launch import launch_config
from tests.helpers.launches.spends import budget
from tests.helpers.text.people import NOW, POLICY, STAGES, people


@pytest.fixture
def ledger(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> PrivacyLedger:
    monkeypatch.setattr(clock, "now", lambda: NOW)
    return registered(PrivacyLedger.of(settings), "real", budget=budget(max_rho=1.0, window_days=30))


def ingested(config: LaunchConfig, run_id: str, settings: Settings) -> dict:
    return run_stage("ingest_private", config, run_id, settings, STAGES).result


@pytest.mark.slow
def test_older_text_is_deleted_before_anything_reads_it(settings: Settings, ledger: PrivacyLedger, tmp_path: Path):
    config = people(tmp_path)
    result = ingested(config, launch_id(config, "20260314"), settings)
    # The population's 30 days are fewer than the launch file's 60: from 12 February on, noon of each day.
    assert (result["days_kept"], result["as_of"], result["older"]) == (30, "2026-03-14", 20 * 68 // 100 * 100)
    store = run_folder(settings, launch_id(config, "20260314")).private("ingest_private") / "store"
    summary = json.loads((store / "store.json").read_text())["summary"]
    assert (summary["devices"], summary["older"]) == (20, 1300)
    # Without a date it is today, and stays that day.
    assert ingested(config, launch_id(config), settings)["as_of"] == "2026-03-15"


def test_a_spend_says_by_which_day_its_text_was_cut(settings: Settings, ledger: PrivacyLedger, tmp_path: Path):
    config = people(tmp_path)
    run_id = launch_id(config, "20260301")
    ingested(config, run_id, settings)
    run_stage("fine_tune", config, run_id, settings, STAGES)
    for entry in ledger.spends():
        assert entry.names(AS_OF) == "2026-03-01"
        assert entry.names(SPLIT_RULE) == ledger.population("real").split_rule(0.1)
    assert ledger.verify() == []


def test_text_of_another_day_is_another_text(settings: Settings, ledger: PrivacyLedger, tmp_path: Path):
    config = people(tmp_path)

    def key(date: str) -> str | None:
        run = run_folder(settings, launch_id(config, date))
        ctx = StageContext(config, run, settings, "ingest_private", None, "real")
        return content_key(ctx, STAGES)

    assert key("20260301") == key("20260301") != key("20260302")


def test_a_launch_whose_text_is_all_to_be_deleted_is_refused(settings: Settings, ledger: PrivacyLedger, tmp_path: Path):
    config = people(tmp_path)
    with pytest.raises(BudgetExceeded, match="date: 2026-02-12 is more than 30 days ago"):
        ingested(config, launch_id(config, "20260212"), settings)
    (line,) = [
        line
        for line in readiness.look(config, settings, launch_id(config, "20260212")).problems
        if line.startswith("date")
    ]
    assert "launch with a later date" in line
    assert ledger.spends() == []


def test_text_that_grew_too_old_is_not_spent_on(
    settings: Settings, ledger: PrivacyLedger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config, other = people(tmp_path), people(tmp_path).model_copy(update={"name": "other"})
    for launch in (config, other):
        ingested(launch, launch_id(launch), settings)
    run_stage("fine_tune", config, launch_id(config), settings, STAGES)
    monkeypatch.setattr(clock, "now", lambda: NOW + timedelta(days=31))
    with pytest.raises(BudgetExceeded, match="date: 2026-03-15 is more than 30 days ago"):
        run_stage("fine_tune", other, launch_id(other), settings, STAGES)
    assert run_stage("fine_tune", config, launch_id(config), settings, STAGES).skipped


def test_check_says_what_will_be_deleted(settings: Settings, ledger: PrivacyLedger, tmp_path: Path):
    seen = readiness.look(people(tmp_path), settings, launch_id(people(tmp_path), "20260314"))
    assert any(
        "1,300+ that were typed outside the 30 days before 2026-03-14 are deleted" in note for note in seen.notes
    )


def test_what_nobody_typed_is_kept(settings: Settings, ledger: PrivacyLedger, tmp_path: Path):
    chat = launch_config(policy=POLICY)
    assert kept(chat, require_population(chat, ledger), "any") is None
    ledger.register("made_up_files:real", budget(max_rho=1.0, window_days=30), "owner")
    assert kept(people(tmp_path), ledger.population("made_up_files:real"), "any") is None
    ledger.register("for ever", budget(max_rho=1.0), "owner")
    assert (
        kept(
            people(tmp_path, budget=None, population_max_rho=1.0),
            ledger.population("for ever"),
            "any",
        )
        is None
    )
    assert kept(people(tmp_path), ledger.population("for ever"), "any").days == 60


@pytest.mark.parametrize(
    ("run_id", "day"),
    [
        ("trial-0a1b2c3d-20260301", "2026-03-01"),
        ("trial-0a1b2c3d", None),
        ("trial-12345678", None),
        ("trial-0a1b2c3d-99999999", None),
        ("20260301-0a1b2c3d", None),
    ],
)
def test_a_launch_s_day_is_the_date_in_its_id(run_id: str, day: str | None):
    assert str(day_of(run_id)) == str(day)
