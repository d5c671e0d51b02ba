"""Loss of one device over all releases of all launches: words and noised releases in one window."""

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from federated.accounting.gaussian import epsilon_of_rho
from pipeline.ground.errors import BudgetExceeded
from pipeline.ledger import clock
from pipeline.ledger.budget import Budget, Ceilings, Window
from pipeline.ledger.entries import problems_of
from pipeline.ledger.ledger import PrivacyLedger
from pipeline.ledger.loss import Release, total_epsilon
from pipeline.preflight import schedule
from pipeline.releases.local_words import local_discovery
from pipeline.releases.release import Outlook, gaussian
from pipeline.releases.uses import planned
from tests.helpers.launches.installed import at
from tests.helpers.launches.pipeline_launch import launch_config
from tests.helpers.launches.spends import BINDING

DELTA, W = 1e-10, 1e-9  # of a launch, and of all that count
WORDS, RHO = 3.2, 0.4785
BINDING = BINDING | {"split_rule": "one"}
NOW = datetime(2026, 11, 20, 9, tzinfo=UTC)


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PrivacyLedger:
    made = PrivacyLedger.create(at(tmp_path, f"sqlite:///{tmp_path / 'ledger.db'}"))
    made.register("people", Budget(max_rho=9.0, max_epsilon=25.0, delta=W, window_days=60), "owner")
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


def by_hand(launches: int, words: float = WORDS) -> float:
    return launches * words + epsilon_of_rho(launches * RHO, W - launches * DELTA / 2)


def test_three_launches_in_a_window_add_up_with_their_words(ledger: PrivacyLedger) -> None:
    """Rho alone says nothing of 9.6 of them."""
    for number in range(1, 4):
        launch(ledger, f"launch {number}")
        assert ledger.total_epsilon("people", W) == pytest.approx(by_hand(number))
    assert ledger.most_in_any("people", "total", 60, W) == pytest.approx(by_hand(3))
    assert 20 < by_hand(3) < 25 < by_hand(4)
    with pytest.raises(BudgetExceeded) as refused:
        launch(ledger, "launch 4")
    assert "epsilon of one device over all releases at delta 1e-09" in str(refused.value)
    assert "of 25 in any 60 days is spent" in str(refused.value)
    assert "there is room from 2027-01-20 on" in str(refused.value)


def test_words_alone_fill_a_window(ledger: PrivacyLedger) -> None:
    with pytest.raises(BudgetExceeded, match="over all releases"):
        launch(ledger, "dear", words=25.1)
    assert ledger.spends() == []
    launch(ledger, "cheap", words=10.0)


def test_a_spend_that_left_the_window_counts_no_more(ledger: PrivacyLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        launch(ledger, f"launch {number}")
    monkeypatch.setattr(clock, "now", lambda: NOW + timedelta(days=61))
    launch(ledger, "later")
    assert ledger.counted("people", "total", W) == pytest.approx(by_hand(1))
    assert ledger.total_epsilon("people", W) == pytest.approx(by_hand(4)), "for ever it does"


def test_a_launch_file_asks_for_less_in_a_window_and_for_ever(ledger: PrivacyLedger) -> None:
    window = Ceilings(window=Window(rho=9.0, epsilon=12.0, days=60), delta=W)
    launch(ledger, "first", window)
    with pytest.raises(BudgetExceeded, match=r"of 12 in any 60 days.*\(policy\.budget\)"):
        launch(ledger, "second", window)
    with pytest.raises(BudgetExceeded, match=r"policy\.population_delta: 1e-08 is more than"):
        launch(ledger, "second", Ceilings(window=Window(rho=9.0, epsilon=12.0, days=60), delta=1e-8))
    with pytest.raises(BudgetExceeded, match=r"policy.budget.epsilon: 26 is more than .* --max-epsilon 26"):
        launch(ledger, "second", Ceilings(window=Window(rho=9.0, epsilon=26.0, days=60), delta=W))


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
    assert ledger.total_epsilon("people", W) == 0.0
    assert ledger.verify() == []


def test_an_entry_about_items_that_hides_its_device_is_found(ledger: PrivacyLedger) -> None:
    launch(ledger, "first")
    entry = next(entry for entry in ledger.entries() if entry.unit == "item")
    bare = entry.binding.replace('"device_epsilon":3.2', '"device_epsilon":0.0')
    assert bare != entry.binding
    problems = problems_of([entry.model_copy(update={"binding": bare})])
    assert any("does not state their device's loss" in line for line in problems)


def test_one_device_loses_the_larger_split_and_delta_may_run_out() -> None:
    def release(rho: float, split: str, epsilon: float = 0.0, delta: float = 0.0) -> Release:
        return Release(rho, 0.0, "", "one", split, epsilon, delta)

    both = [release(0.4, "train"), release(0.0, "train", 3.0, 4e-10), release(0.5, "test")]
    assert total_epsilon(both, W) == pytest.approx(3.0 + epsilon_of_rho(0.5, 6e-10))
    assert total_epsilon(both, 4e-10) == math.inf
    assert total_epsilon([], W) == 0.0


def test_a_schedule_whose_words_do_not_fit_is_refused() -> None:
    config = launch_config(
        schedule="@monthly",
        discovery={"messages_per_device": 4},
        policy={
            "budget": {"rho": 1.5, "epsilon": 20.0, "days": 60},
            "population_max_rho": None,
            "population_max_epsilon": None,
            "max_total_epsilon": 12.0,
        },
    )
    words = planned(config, Outlook(0.5, None))["discover"]
    (line,) = schedule.fits(config, None, words).problems
    each, together = 4 + epsilon_of_rho(0.5, 1e-5), 12 + epsilon_of_rho(1.5, 1e-5)
    assert f"at epsilon of one device over all releases {each:.6g} each, {together:.6g} together" in line
    cheaper = launch_config(**config.model_dump(include={"schedule", "policy"}))
    assert schedule.fits(cheaper, None, planned(cheaper, Outlook(0.5, None))["discover"]).problems == ()
