"""Each unit has a budget of its own in the ledger."""

import pytest

from pipeline.ground.errors import BudgetExceeded, LedgerTampered
from pipeline.ground.settings import Settings
from pipeline.launch.config import launch_id
from pipeline.ledger.entries import Entry
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.loss import releases
from pipeline.run import runner
from pipeline.run.stage import Stage
from tests.helpers.launches.installed import registered
from tests.helpers.launches.pipeline_launch import Counted, launch_config
from tests.helpers.launches.spends import device, item, reserve
from tests.helpers.launches.stages import stages_of


@pytest.fixture
def ledger(there: Settings) -> PrivacyLedger:
    return registered(PrivacyLedger.create(there), "people", "others")


@pytest.mark.slow
def test_item_losses_have_a_budget_of_their_own(ledger: PrivacyLedger):
    more = {"stage": "discover", "budget_discovery_epsilon": 16.0}
    reserve(ledger, "first", item(8.0), **more)
    ledger.commit("first", "discover", item(8.0))
    reserve(ledger, "second", item(8.0), **more)  # counts although it was never committed
    assert ledger.total("people", "item") == 16.0
    with pytest.raises(BudgetExceeded, match=r"needs epsilon per typed word 0\.5, 16 of 16 is spent and 0 is left"):
        reserve(ledger, "third", item(0.5), **more)
    # A retry is free; without a ceiling, and on another population, there is room.
    reserve(ledger, "second", item(8.0), **more)
    reserve(ledger, "third", item(0.5), **more, population="others")
    assert len(ledger.spends()) == 4
    reserve(ledger, "fourth", item(0.5), stage="discover")
    assert ledger.total("people", "item") == 16.5


@pytest.mark.slow
def test_units_have_budgets_of_their_own_and_never_add_up(ledger: PrivacyLedger):
    both = {"budget_rho": 1.0, "budget_discovery_epsilon": 8.0}
    reserve(ledger, "first", item(8.0), stage="discover", **both)
    reserve(ledger, "first", device(1.0), **both)
    assert (ledger.total("people"), ledger.total("people", "item")) == (1.0, 8.0)
    with pytest.raises(BudgetExceeded, match=r"needs rho 0\.1, 1 of 1"):
        reserve(ledger, "second", device(0.1), **both)
    with pytest.raises(BudgetExceeded, match=r"needs epsilon per typed word 0\.1, 8 of 8"):
        reserve(ledger, "second", item(0.1), stage="discover", **both)


def test_a_spend_without_its_amount_is_no_free_one(ledger: PrivacyLedger):
    reserve(ledger, "first", device(0.4))
    (entry,) = ledger.spends()
    with pytest.raises(LedgerTampered, match="has no device-level amount"):
        releases([entry, entry.model_copy(update={"kind": "commit", "rho": None})], "people", "device")


def test_an_entry_keeps_its_hash():
    written = {"seq": 1, "kind": "reserve", "population": "people", "launch_id": "old", "stage": "discover"}
    written |= {"unit": "item", "adjacency": "swap", "rho": None, "epsilon": 8.0, "delta": 0.0}
    written |= {
        "binding": '{"config":"c0","split":"train"}',
        "note": "local, planned",
        "created_at": "2026-11-21T10:00:00.000000+00:00",
        "salt": "5a" * 16,
    }
    # A field more in an entry would break every ledger there is.
    expected = "055e787c694a4116c4fd9cfa6028786a2b0cd874d152ebb7e9350ab3fa1d01c5"
    assert Entry(**written, hash="", signature="").expected_hash() == expected


def test_what_words_lose_to_discovery_has_the_launch_files_ceiling(settings: Settings):
    lost = item(1.0)
    stages = stages_of(
        {"discover": lambda ctx: Counted(value=1, spend=lost)},
        Stage("discover", "", planned=lambda config, run: lost),
    )
    for name in ("first", "second", "third"):
        config = launch_config(name=name, policy={"population_max_discovery_epsilon": 2.0})
        if name == "third":
            with pytest.raises(BudgetExceeded, match=r"2 of 2 is spent .*population_max_discovery_epsilon"):
                runner.run_stage("discover", config, launch_id(config), settings, stages)
        else:
            runner.run_stage("discover", config, launch_id(config), settings, stages)
    assert PrivacyLedger.of(settings).total("chitchat:people", "item") == 2.0
