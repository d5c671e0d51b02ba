"""A population has one budget, whatever launches and working directories say."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from pipeline.ground import clock
from pipeline.ground.errors import (
    BudgetExceeded,
    LedgerConflict,
    LedgerMissing,
    LedgerTampered,
    PopulationUnknown,
    RulesBroken,
)
from pipeline.ground.settings import Settings
from pipeline.launch.config import launch_id
from pipeline.ledger.budget import Rules
from pipeline.ledger.database import SECRETS
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.preflight.foresee import foresee
from pipeline.releases.release import Outlook
from pipeline.releases.terms import Terms
from pipeline.run import runner
from pipeline.run.population import require_allowed, require_population
from pipeline.run.stage import Stage
from pipeline.stages.graph import STAGES
from tests.helpers.launches.installed import at, registered
from tests.helpers.launches.pipeline_launch import Calls, launch_config, spend
from tests.helpers.launches.spends import budget, counted, device, item, reserve
from tests.helpers.launches.stages import stages_of

IDS = [f"device-{number}" for number in range(300)]


@pytest.fixture
def ledger(there: Settings) -> PrivacyLedger:
    return PrivacyLedger.create(there)


def test_opening_makes_nothing(there: Settings, tmp_path: Path):
    with pytest.raises(LedgerMissing, match="tacit ledger init"):
        PrivacyLedger.of(there)
    assert not list(tmp_path.glob("*.db"))
    (tmp_path / "empty.db").touch(0o600)
    with pytest.raises(LedgerMissing, match="tacit ledger init"):
        PrivacyLedger(f"sqlite:///{tmp_path / 'empty.db'}")
    PrivacyLedger.create(there)
    assert PrivacyLedger.of(there).entries() == []


def test_a_relative_ledger_is_refused(settings: Settings):
    with pytest.raises(ValueError, match="no absolute path"):
        PrivacyLedger.create(replace(settings, ledger_url="sqlite:///ledger.db"))


def test_nothing_is_spent_on_a_population_that_nobody_registered(ledger: PrivacyLedger):
    with pytest.raises(PopulationUnknown, match="tacit ledger register people --max-rho"):
        reserve(ledger, "first", device(0.1))
    assert ledger.entries() == []


def test_a_launch_can_only_ask_for_less(ledger: PrivacyLedger):
    ledger.register("people", budget(max_rho=1.0, max_discovery_epsilon=8.0), "owner")
    with pytest.raises(BudgetExceeded, match=r"population_max_rho: 2 is more than .* registered with \(1\)"):
        reserve(ledger, "first", device(0.1), budget_rho=2.0)
    with pytest.raises(BudgetExceeded, match="population_max_discovery_epsilon: 9 is more"):
        reserve(ledger, "first", item(0.1), budget_discovery_epsilon=9.0)
    with pytest.raises(BudgetExceeded, match="0 of 8 is spent"):
        reserve(ledger, "first", item(8.5))  # A file that names no ceiling has the population's.
    with pytest.raises(BudgetExceeded, match=r"0 of 0\.5 is spent"):
        reserve(ledger, "first", device(0.6), budget_rho=0.5)
    assert ledger.spends() == []


def test_a_budget_is_changed_by_those_named_and_with_a_reason(ledger: PrivacyLedger):
    ledger.register("people", budget(max_rho=1.0), "owner", ["reviewer"])
    with pytest.raises(LedgerConflict, match="may be changed by reviewer, not by owner"):
        ledger.change_budget("people", budget(max_rho=2.0), "owner", "more")
    with pytest.raises(LedgerConflict, match="--reason"):
        ledger.change_budget("people", budget(max_rho=2.0), "reviewer", "")
    ledger.change_budget("people", budget(max_rho=2.0), "reviewer", "a new study")
    ledger.change_budget("people", budget(max_rho=3.0), "reviewer", "and another")
    reserve(ledger, "first", device(2.5), budget_rho=3.0)
    assert [entry.kind for entry in ledger.entries()] == ["register", "budget", "budget", "reserve"]
    assert ledger.verify() == []


def test_rules_are_kept_and_changed_by_those_named_alone(ledger: PrivacyLedger):
    rules = Rules(retention_days=30, min_approvals=2, reviewers=("ana", "ben"), gates={"min_top1_gain": 0.0})
    ledger.register("people", budget(max_rho=1.0), "owner", ["owner"], rules)
    rules = rules.model_copy(update={"witness": ledger.outside_files().witness_key})
    assert ledger.population("people").rules == rules
    with pytest.raises(LedgerConflict, match="rho 1"):
        ledger.register("people", budget(max_rho=1.0), "owner", ["owner"])
    fewer = rules.model_copy(update={"min_approvals": 1})
    with pytest.raises(LedgerConflict, match="may be changed by owner"):
        ledger.change_budget("people", budget(max_rho=1.0), "ana", "holiday", fewer)
    with pytest.raises(LedgerConflict, match="--case-sensitive-ids is fixed"):
        ledger.change_budget(
            "people", budget(max_rho=1.0), "owner", "ids", rules.model_copy(update={"case_sensitive_ids": True})
        )
    ledger.change_budget("people", budget(max_rho=2.0), "owner", "a new study")
    assert ledger.population("people").rules == rules
    ledger.change_budget("people", budget(max_rho=2.0), "owner", "holiday", fewer)
    assert ledger.population("people").rules == fewer


PLANNED = {"discover": item(1.0), "fine_tune": device(0.1)}
LOOSER = {
    "no reviewers": ({"reviewers": []}, "reviewers: 0, .* at least 2 of ana, ben"),
    "one reviewer": ({"reviewers": ["ana"]}, "reviewers: 1, "),
    "the same twice": ({"reviewers": ["ana", "ANA"]}, "reviewers: 1, "),
    "another": ({"reviewers": ["ana", "ben", "eve"]}, "reviewers: eve, .* one of ana, ben"),
    "one approval": ({"policy": {"approvals": 1}}, "policy.approvals: 1, .* at least 2"),
    "a gain": ({"policy": {"min_top1_gain": -0.5}}, r"policy.min_top1_gain: -0\.5, .* at least 0"),
    "a loss": ({"policy": {"max_top3_loss": 0.9}}, r"policy.max_top3_loss: 0\.9, .* at most 0\.1"),
    "no gate": ({"policy": {"min_new_word_top3": None}}, r"policy.min_new_word_top3: None, .* at least 0\.001"),
    "covered": ({"policy": {"cover_everything": False}}, "policy.cover_everything: False, .* at least 1"),
    "a field that went": ({"policy": {}}, "policy.min_gone: None"),
}
GATES = {"min_top1_gain": 0.0, "max_top3_loss": 0.1, "min_new_word_top3": 0.001, "max_discovery_epsilon0": 9.0}


@pytest.mark.parametrize("case", LOOSER)
def test_a_launch_file_loosens_no_registered_gate_nor_its_reviewers(ledger: PrivacyLedger, case: str):
    changes, why = LOOSER[case]
    gates = GATES | ({"cover_everything": 1.0} if case == "covered" else {})
    gates |= {"min_gone": 1.0} if case == "a field that went" else {}
    rules = Rules(min_approvals=2, reviewers=("ana", "ben"), gates=gates)
    owned = ledger.register("people", budget(max_rho=1e3), "owner", rules=rules)
    policy = {"approvals": 2, "min_top1_gain": 0.0, "max_top3_loss": 0.1, "min_new_word_top3": 0.001}
    within = launch_config(reviewers=["ana", "Ben"], policy=policy)
    if case not in ("covered", "a field that went"):
        require_allowed(within, owned)
    reviewers = changes.get("reviewers", ["ana", "ben"])
    changed = within.policy.model_copy(update=changes.get("policy", {}))
    with pytest.raises(RulesBroken, match=why):
        require_allowed(within.model_copy(update={"reviewers": tuple(reviewers), "policy": changed}), owned)


def test_a_file_below_its_registration_is_refused_by_check_and_before_any_private_stage(settings: Settings):
    config = launch_config(reviewers=["ana"])
    ledger = PrivacyLedger.of(settings)
    owned = require_population(config, ledger)
    look = foresee(Terms(config, Outlook(0.0, None), PLANNED), settings, launch_id(config))
    assert not any("policy.min_top1_gain" in line for line in look.problems)
    rules = Rules(gates={"min_top1_gain": config.policy.min_top1_gain + 0.1})
    ledger.change_budget(owned.key, owned.budget, *owned.raised_by, "stricter", rules)
    look = foresee(Terms(config, Outlook(0.0, None), PLANNED), settings, launch_id(config))
    assert any("policy.min_top1_gain" in line for line in look.problems)
    with pytest.raises(RulesBroken, match="min_top1_gain"):
        runner.run_stage("ingest_private", config, launch_id(config), settings, STAGES)


def test_a_window_forgets_what_is_older(ledger: PrivacyLedger, monkeypatch: pytest.MonkeyPatch):
    ledger.register("people", budget(max_rho=1.0, window_days=30), "owner")
    reserve(ledger, "first", device(0.8), budget_rho=None)
    assert counted(ledger, "device") == 0.8
    with pytest.raises(BudgetExceeded):
        reserve(ledger, "second", device(0.8), budget_rho=None)
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now + timedelta(days=31))
    assert (counted(ledger, "device"), ledger.total("people")) == (0.0, 0.8)
    reserve(ledger, "second", device(0.8), budget_rho=None)


def test_the_split_secret_is_drawn_once(ledger: PrivacyLedger, there: Settings):
    registered(ledger, "people", "others")
    secret = ledger.split_secret("people")
    assert len(secret) == 32
    assert PrivacyLedger.of(there).split_secret("people") == secret != ledger.split_secret("others")
    assert secret.hex() not in str(ledger.entries())
    with pytest.raises(PopulationUnknown):
        ledger.split_secret("nobody")


def test_another_split_secret_is_found(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    ledger = registered(PrivacyLedger.create(at(tmp_path, url)), "people")
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("DROP TRIGGER privacy_ledger_secrets_stay"))
        connection.execute(SECRETS.update().values(content=bytes(64)))
    engine.dispose()
    with pytest.raises(LedgerTampered, match="split secret of population 'people' is not the one"):
        ledger.split_secret("people")


@pytest.mark.parametrize(
    "kept", [IDS, IDS[:150], IDS[:20], [*IDS[7:], "one more"], [*IDS, *(f"new-{n}" for n in range(999))]]
)
def test_the_same_devices_under_another_name_are_refused(ledger: PrivacyLedger, kept: list[str]):
    registered(ledger, "people", "renamed")
    ledger.bind_devices("people", IDS)
    with pytest.raises(BudgetExceeded, match="these are devices of population 'people'"):
        ledger.bind_devices("renamed", reversed(kept))
    ledger.bind_devices("people", kept)
    ledger.bind_devices("renamed", [*IDS[:5], *(f"other-{number}" for number in range(300))])
    assert ledger.verify() == []


def test_forgotten_devices_are_noticed(ledger: PrivacyLedger, there: Settings):
    registered(ledger, "people", "renamed")
    ledger.bind_devices("people", IDS)
    engine = create_engine(there.ledger_url)
    with engine.begin() as connection:
        connection.execute(SECRETS.update().where(SECRETS.c.kind == "devices").values(content=b""))
    engine.dispose()
    with pytest.raises(LedgerTampered, match="list of devices of population 'people' is not the one"):
        ledger.bind_devices("renamed", IDS)


def test_a_simulation_registers_itself_and_people_do_not(settings: Settings):
    ledger = PrivacyLedger.of(settings)
    population = require_population(launch_config(), ledger)
    assert (population.simulated, population.budget.max_rho) == (True, 1.0)
    people = {"source": "files", "paths": ["people.parquet"], "name": "real"}
    with pytest.raises(PopulationUnknown, match="real"):
        require_population(launch_config(private_text=people), ledger)
    with pytest.raises(BudgetExceeded, match="only ask for less"):
        require_population(launch_config(policy={"population_max_rho": 2.0}), ledger)


def test_a_ledger_that_lost_entries_is_refused_before_the_spend(settings: Settings):
    """Used up, removed and made anew, it once had room again."""
    calls, config = Calls(), launch_config()
    for name in ("ingest_private", "plan", "fine_tune"):
        runner.run_stage(name, config, launch_id(config), settings, calls.stages)
    (settings.runs_dir / "ledger.db").unlink()
    PrivacyLedger.create(settings)
    other, made = launch_config(name="second"), list(calls.made)
    with pytest.raises(LedgerTampered, match=r"log holds entry 1 .* the ledger ends at 0"):
        runner.run_stage("ingest_private", other, launch_id(other), settings, calls.stages)
    assert calls.made == made


def test_a_launch_that_died_anchors_its_reservation(settings: Settings):
    config = launch_config()

    def fails(ctx):
        raise ArithmeticError("diverged")

    # No other stage: what finished ones say is an anchor too.
    stages = stages_of({"fine_tune": fails}, Stage("fine_tune", "", planned=lambda config, run: spend(0.4)))
    with pytest.raises(ArithmeticError):
        runner.run_stage("fine_tune", config, launch_id(config), settings, stages)
    (settings.runs_dir / "ledger.db").unlink()
    PrivacyLedger.create(settings)
    with pytest.raises(LedgerTampered, match="log holds entry 2"):
        runner.run_stage("fine_tune", config, launch_id(config), settings, stages)
