"""A second sum of spends, against the ledger's own sums and against hand-made histories."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from federated.accounting.gaussian import epsilon_of_rho
from federated.config.population import PopulationKey
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.entries import Entry
from pipeline.publication.gates.budgets import overspent, understated
from tests.helpers.launches.pipeline_launch import RAW, launch_config

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def entry(kind: str, launch: str, stage: str, rho: float | None = None, day: float = 0, **bound: Any) -> Entry:
    """An entry as the ledger writes it, without hash and signature."""
    epsilon = bound.pop("epsilon", 0.0)
    stated = {"split": "train", "split_rule": "one", "failure": 0.0, "device_epsilon": 0.0, "device_delta": 0.0} | bound
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
    return entry("register", "", "people", budget={"max_rho": 1.0, "max_words_epsilon": 9.0, "delta": 1e-5} | budget)


def problems(*entries: Entry, **policy: Any) -> list[str]:
    config = launch_config(policy={"population_max_rho": 100.0} | policy)
    return list(overspent(entries, "mine", config.policy))


def test_a_spend_above_the_registered_budget_is_named_with_both_numbers() -> None:
    (problem,) = problems(registered(), entry("reserve", "mine", "fine_tune", 1.5))
    assert problem == "registered max_rho: 1, but a second sum of the entries gives 1.5"
    assert not problems(registered(), entry("reserve", "mine", "fine_tune", 1.0))
    raised = entry("budget", "", "people 1", budget={"max_rho": 2.0, "max_words_epsilon": 9.0, "delta": 1e-5})
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
    assert problems(
        registered(), entry("reserve", "mine", "count", 1.1), entry("reserve", "mine", "ab_test", 0.1, split="test")
    )
    trained = entry("reserve", "mine", "fine_tune", 0.7)
    assert not problems(registered(), trained, entry("reserve", "mine", "ab_test", 0.7, split="test"))
    assert problems(registered(), trained, entry("reserve", "mine", "ab_test", 0.7, split="test", split_rule="two"))
    assert problems(registered(), trained, entry("reserve", "mine", "ab_test", 0.7, split="test", split_rule=""))


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
    assert problems(registered(), spend, budget={"rho": 0.5, "days": 10})
    word = entry("reserve", "mine", "discover", epsilon=3.0, device_epsilon=6.0, device_delta=2e-6)
    assert problems(registered(max_words_epsilon=5.0), word)
    assert problems(registered(), word, population_max_words_epsilon=5.0)
    assert problems(registered(delta=3e-6), word)
    assert problems(registered(), word, population_delta=3e-6)
    assert problems(registered(max_discovery_epsilon=2.0), word)
    assert problems(registered(), word, population_max_discovery_epsilon=2.0)
    assert not problems(registered(max_discovery_epsilon=3.0), word, population_max_discovery_epsilon=3.0)


def total_problems(stated: float | None, *entries: Entry, config: LaunchConfig | None = None) -> list[str]:
    return list(understated(entries, config or launch_config(), stated))


def test_a_total_without_the_failure_of_a_threshold_is_too_low() -> None:
    policy = RAW["policy"] | {"max_discovery_epsilon0": None}
    central = {"kind": "central", "noise_multiplier": 2.0, "words_per_device": 5, "delta": RAW["mechanism"]["delta"]}
    config = LaunchConfig.model_validate(RAW | {"discovery": central, "policy": policy})
    delta, failure = config.mechanism.delta, config.central_discovery.failure
    spent = (entry("reserve", "mine", "discover", 0.2), entry("commit", "mine", "fine_tune", 0.8))
    right, forgotten = (epsilon_of_rho(1.0, each) for each in (delta - failure, delta))
    assert right > 1.001 * forgotten
    assert not total_problems(right, *spent, config=config)
    (problem,) = total_problems(forgotten, *spent, config=config)
    assert "a second sum of the launch's entries gives" in problem
    assert not total_problems(None, *spent, config=config)


def test_a_total_covers_words_by_the_lower_of_two_bounds_and_the_split_that_loses_most() -> None:
    delta = launch_config().mechanism.delta
    words = entry("commit", "mine", "discover", epsilon=3.0, messages=2, device_epsilon=2.5, device_delta=delta / 4)
    spent = (words, entry("commit", "mine", "fine_tune", 0.3), entry("commit", "mine", "ab_test", 0.1, split="test"))
    right = 2.5 + epsilon_of_rho(0.3, 0.75 * delta)
    assert not total_problems(right, *spent)
    assert total_problems(epsilon_of_rho(0.3, delta), *spent)
    assert total_problems(right, *spent, entry("commit", "mine", "count", 0.3))
    assert not total_problems(right, *spent, entry("reserve", "mine", "count", 9.0), entry("release", "mine", "count"))
