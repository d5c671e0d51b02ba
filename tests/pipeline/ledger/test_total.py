"""Loss of one device over all releases of all launches: words and noised releases in one window."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from federated.accounting.gaussian import epsilon_of_rho
from pipeline.ground import clock
from pipeline.ground.errors import BudgetExceeded
from pipeline.ledger.budget import Budget, Ceilings
from pipeline.ledger.entries import problems_of
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.loss import Release, added
from pipeline.preflight import schedule
from pipeline.releases.local_words import local_discovery
from pipeline.releases.release import Outlook, gaussian
from pipeline.releases.uses import planned
from tests.helpers.launches.installed import at
from tests.helpers.launches.pipeline_launch import launch_config
from tests.helpers.launches.spends import BINDING, counted

DELTA, W = 1e-10, 1e-9  # of a launch, and of all that count
WORDS, RHO = 3.2, 0.4785
BINDING = BINDING | {"split_rule": "one"}
NOW = datetime(2026, 11, 20, 9, tzinfo=UTC)


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PrivacyLedger:
    made = PrivacyLedger.create(at(tmp_path, f"sqlite:///{tmp_path / 'ledger.db'}"))
    made.register("people", Budget(max_rho=9.0, max_words_epsilon=10.0, delta=W, window_days=60), "owner")
    monkeypatch.setattr(clock, "now", lambda: NOW)
    return made


def launch(ledger: PrivacyLedger, name: str, asked: Ceilings | None = None, words: float = WORDS) -> None:
    """Reserve and commit what one launch of production size loses a device."""
    spends = {
        "discover": local_discovery(7.0, 5, words, DELTA / 2, "words"),
        "fine_tune": gaussian(RHO, DELTA, "training"),
    }
    for stage, spend in spends.items():
        ledger.reserve(
            population="people",
            launch_id=name,
            stage=stage,
            spend=spend,
            asked=asked or Ceilings(),
            binding=BINDING,
        )
        ledger.commit(name, stage, spend)


def test_words_of_launches_in_a_window_add_up_beside_rho(ledger: PrivacyLedger) -> None:
    """Rho alone says nothing of 9.6 of them."""
    for number in range(1, 4):
        launch(ledger, f"launch {number}")
        assert ledger.total("people", "words") == pytest.approx(number * WORDS)
    assert ledger.total("people", "words", 60) == pytest.approx(3 * WORDS)
    with pytest.raises(BudgetExceeded) as refused:
        launch(ledger, "launch 4")
    assert "epsilon of one device to words found locally" in str(refused.value)
    assert "of 10 in any 60 days is spent" in str(refused.value)
    assert "there is room from 2027-01-20 on" in str(refused.value)


def test_the_stated_total_is_that_of_the_ceilings(ledger: PrivacyLedger) -> None:
    """Not of what is spent: an amount that later choices depend on bounds nothing."""
    stated = ledger.population("people").budget.epsilon
    assert stated == pytest.approx(10.0 + epsilon_of_rho(9.0, W / 2))
    launch(ledger, "first")
    assert ledger.population("people").budget.epsilon == stated


def test_failures_and_deltas_of_messages_have_half_of_delta(ledger: PrivacyLedger) -> None:
    failing = gaussian(0.1, DELTA, "words").model_copy(update={"failure": 0.4 * W})
    spends = [failing, local_discovery(7.0, 5, 3.0, 0.2 * W, "words")]
    asked = {"population": "people", "stage": "discover", "asked": Ceilings(), "binding": BINDING}
    ledger.reserve(launch_id="first", spend=spends[0], **asked)
    with pytest.raises(BudgetExceeded, match="delta beside that of the curve"):
        ledger.reserve(launch_id="second", spend=spends[1], **asked)
    with pytest.raises(BudgetExceeded, match=r"of 3e-10 is spent.*policy.population_delta"):
        ledger.reserve(launch_id="second", spend=failing, **asked | {"asked": Ceilings(delta=6e-10)})


def test_a_population_without_a_ceiling_on_words_finds_none_locally(ledger: PrivacyLedger) -> None:
    ledger.change_budget("people", Budget(max_rho=9.0, delta=W, window_days=60), "owner", "no more of them")
    with pytest.raises(BudgetExceeded, match="words found locally"):
        launch(ledger, "first")
    assert ledger.spends() == []


def test_words_alone_fill_a_window(ledger: PrivacyLedger) -> None:
    with pytest.raises(BudgetExceeded, match="words found locally"):
        launch(ledger, "dear", words=10.1)
    assert ledger.spends() == []
    launch(ledger, "cheap", words=10.0)


def test_a_spend_that_left_the_window_counts_no_more(ledger: PrivacyLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        launch(ledger, f"launch {number}")
    monkeypatch.setattr(clock, "now", lambda: NOW + timedelta(days=61))
    launch(ledger, "later")
    assert counted(ledger, "words") == pytest.approx(WORDS)
    assert ledger.total("people", "words") == pytest.approx(4 * WORDS), "for ever it does"


def test_a_launch_file_asks_for_less_in_a_window_and_for_ever(ledger: PrivacyLedger) -> None:
    window = Ceilings(window_rho=9.0, days=60, words=4.0, delta=W)
    launch(ledger, "first", window)
    with pytest.raises(BudgetExceeded, match=r"of 4 in any 60 days.*\(policy\.population_max_words_epsilon\)"):
        launch(ledger, "second", window)
    with pytest.raises(BudgetExceeded, match=r"policy\.population_delta: 1e-08 is more than"):
        launch(ledger, "second", Ceilings(window_rho=9.0, days=60, delta=1e-8))
    with pytest.raises(BudgetExceeded, match=r"population_max_words_epsilon: 11 is more .* --max-words-epsilon 11"):
        launch(ledger, "second", Ceilings(words=11.0, delta=W))


def test_what_is_given_back_has_no_messages_either(ledger: PrivacyLedger) -> None:
    spend = local_discovery(7.0, 5, WORDS, DELTA / 2, "words")
    ledger.reserve(
        population="people",
        launch_id="first",
        stage="discover",
        spend=spend,
        asked=Ceilings(),
        binding=BINDING,
    )
    ledger.release("first", "discover", "too few devices")
    assert ledger.total("people", "words") == 0.0
    assert ledger.verify() == []


def test_an_entry_about_items_that_hides_its_device_is_found(ledger: PrivacyLedger) -> None:
    launch(ledger, "first")
    entry = next(entry for entry in ledger.entries() if entry.unit == "item")
    bare = entry.binding.replace('"device_epsilon":3.2', '"device_epsilon":0.0')
    assert bare != entry.binding
    problems = problems_of([entry.model_copy(update={"binding": bare})])
    assert any("does not state their device's loss" in line for line in problems)


def test_one_device_loses_the_larger_split() -> None:
    both = [Release(amount, "", "one", split) for amount, split in ((0.2, "train"), (0.2, "train"), (0.5, "test"))]
    assert added(both) == 0.5
    assert added([*both, Release(0.3, "", "", "test")]) == 0.8
    assert added([]) == 0.0


def test_a_schedule_whose_words_do_not_fit_is_refused() -> None:
    config = launch_config(
        schedule="@monthly",
        discovery={"messages_per_device": 4},
        policy={
            "budget": {"rho": 1.5, "days": 60},
            "population_max_rho": None,
            "max_total_epsilon": 12.0,
            "population_max_words_epsilon": 9.0,
        },
    )
    words = planned(config, Outlook(0.5, None))["discover"]
    (line,) = schedule.fits(config, None, words).problems
    assert "at epsilon of one device to words found locally 4 each, 12 together" in line
    cheaper = launch_config(**config.model_dump(include={"schedule", "policy"}))
    assert schedule.fits(cheaper, None, planned(cheaper, Outlook(0.5, None))["discover"]).problems == ()
