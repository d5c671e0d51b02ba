"""A second sum of spends, against the ledger's own sums and against hand-made histories."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from federated.config.population import PopulationKey
from pipeline.ledger.entries import Entry
from pipeline.publication.gates.budgets import overspent
from tests.helpers.launches.pipeline_launch import launch_config

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def entry(kind: str, launch: str, stage: str, rho: float | None = None, day: float = 0, **bound: Any) -> Entry:
    """An entry as the ledger writes it, without hash and signature."""
    epsilon = bound.pop("epsilon", 0.0)
    stated = {"split": "train", "split_rule": "one"} | bound
    return Entry(
        seq=1,
        kind=kind,
        population=PopulationKey("people"),
        launch_id=launch,
        stage=stage,
        unit="device" if rho is not None else "item" if epsilon else "none",
        adjacency="zero-out",
        rho=rho,
        epsilon=epsilon,
        delta=1e-6,
        binding=json.dumps(stated),
        note="",
        created_at=(NOW + timedelta(days=day)).isoformat(),
        salt="",
        hash="",
        signature="",
    )


def registered(**budget: Any) -> Entry:
    return entry("register", "", "people", budget={"max_rho": 1.0} | budget)


def problems(*entries: Entry, **policy: Any) -> list[str]:
    config = launch_config(policy={"population_max_rho": 100.0} | policy)
    return list(overspent(entries, "mine", config.policy))


def test_a_spend_above_the_registered_budget_is_named_with_both_numbers() -> None:
    (problem,) = problems(registered(), entry("reserve", "mine", "fine_tune", 1.5))
    assert problem == "registered max_rho: 1, but a second sum of the entries gives 1.5"
    assert not problems(registered(), entry("reserve", "mine", "fine_tune", 1.0))
    raised = entry("budget", "", "people 1", budget={"max_rho": 2.0})
    assert not problems(registered(), raised, entry("reserve", "mine", "fine_tune", 1.5))


@pytest.mark.parametrize(
    ("entries", "lost"),
    [
        ((("reserve", "other", "fine_tune", 0.7), ("reserve", "mine", "fine_tune", 0.7)), True),
        ((("reserve", "mine", "count", 0.7), ("reserve", "mine", "fine_tune", 0.7)), True),
        ((("reserve", "mine", "fine_tune", 0.4), ("commit", "mine", "fine_tune", 1.4)), True),
        ((("reserve", "mine", "fine_tune", 1.4), ("commit", "mine", "fine_tune", 0.4)), False),
        ((("reserve", "mine", "fine_tune", 1.4), ("release", "mine", "fine_tune", 0.0)), False),
        (
            (
                ("reserve", "mine", "fine_tune", 0.8),
                ("release", "mine", "fine_tune", 0.0),
                ("reserve 2", "mine", "fine_tune", 1.8),
            ),
            True,
        ),
        ((("reserve", "other", "fine_tune", 1.4),), False),  # held in its own launch
    ],
)
def test_every_spend_counts_as_its_last_entry_says(
    entries: tuple[tuple[str, str, str, float], ...], lost: bool
) -> None:
    assert bool(problems(registered(), *(entry(*each) for each in entries))) == lost


def test_devices_of_one_split_lose_nothing_to_another_one_under_one_rule() -> None:
    trained = entry("reserve", "mine", "fine_tune", 0.7)
    assert not problems(registered(), trained, entry("reserve", "mine", "ab_test", 0.7, split="test"))
    assert problems(registered(), trained, entry("reserve", "mine", "ab_test", 0.7, split="test", split_rule="two"))
    assert problems(registered(), trained, entry("reserve", "mine", "ab_test", 0.7, split="test", split_rule=""))
    assert problems(registered(), trained, entry("reserve", "mine", "experiment", 0.7, split="every"))


def test_a_window_counts_the_days_before_a_spend_of_this_launch() -> None:
    old, new = entry("reserve", "other", "fine_tune", 0.7), entry("reserve", "mine", "fine_tune", 0.7, day=31)
    assert not problems(registered(window_days=30), old, new)
    assert problems(registered(window_days=31), old, new)
    assert problems(registered(window_days=30, lifetime_rho=1.2), old, new)
    back = entry("reserve", "mine", "fine_tune", 0.7, day=-90)  # a clock set back makes no room
    assert problems(registered(window_days=30), old, back)


def test_ceilings_of_the_launch_file_and_of_words_count_too() -> None:
    spend = entry("reserve", "mine", "fine_tune", 0.7)
    assert problems(registered(), spend, population_max_rho=0.5)
    assert problems(registered(), spend, budget={"rho": 0.5, "epsilon": 10.0, "days": 10})
    word = entry("reserve", "mine", "discover", epsilon=3.0)
    assert problems(registered(max_discovery_epsilon=2.0), word)
    assert problems(registered(), word, population_max_discovery_epsilon=2.0)
    assert not problems(registered(max_discovery_epsilon=3.0), word, population_max_discovery_epsilon=3.0)
