"""Spends before and after training: the whole run, and nothing that counts on a secret sample."""

from types import SimpleNamespace

import pytest

from federated.accounting.gaussian import epsilon_of_rho
from federated.accounting.guarantees import guarantee_of
from federated.mechanisms.independent import Independent
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.entries import Spend
from pipeline.releases import spent as spends
from pipeline.releases.central_words import central_discovery
from pipeline.releases.counts import counts
from pipeline.releases.evaluation import EVALUATION
from pipeline.releases.local_words import local_discovery
from pipeline.stages.graph import STAGES
from tests.helpers.launches.pipeline_launch import RAW, launch_config

DELTA = 1e-6


def trained(rho: float) -> SimpleNamespace:
    """A run that has trained, and nothing else."""
    spend = counts(rho, DELTA)
    stated = {"rho": rho, "mu": (2 * rho) ** 0.5, "delta": DELTA}
    stated |= {"epsilon": spend.epsilon, "epsilon_pld": spend.epsilon, "spend": spend.model_dump()}
    return SimpleNamespace(result={"fine_tune": stated}.__getitem__)


def test_a_reservation_is_the_plan_s_whole_worst_case() -> None:
    planned = {"rho": 0.4, "epsilon": 7.5, "delta": 1e-6}
    spend = spends.planned_training(launch_config(), SimpleNamespace(result={"plan": planned}.__getitem__))
    assert (spend.unit, spend.adjacency) == ("device", "zero-out")
    assert (spend.rho, spend.epsilon, spend.delta) == (0.4, 7.5, 1e-6)


@pytest.mark.slow
def test_a_spend_does_not_count_on_sampling() -> None:
    reached = guarantee_of(Independent(2.0, "poisson", 0.1, 1000), 10, 1, 4, (1e-6,))
    assert reached.amplified is not None
    assert reached.amplified.epsilon[1e-6] < reached.epsilon[1e-6]
    spend = spends.training(reached, 1e-6, "of a test")
    assert spend.rho == pytest.approx(4 / (2 * 2.0**2))
    assert spend.epsilon == reached.epsilon[1e-6]


def test_discovery_is_stated_per_item_and_for_its_device() -> None:
    spend = local_discovery(6.0, 2, 3.5, 5e-7, "of a test")
    assert (spend.unit, spend.adjacency, spend.rho, spend.epsilon, spend.delta) == ("item", "swap", None, 6.0, 0.0)
    assert (spend.messages, spend.device_epsilon, spend.device_delta) == (2, 3.5, 5e-7)
    with pytest.raises(ValueError, match=r"device_epsilon: 0\.0 with 0 messages of epsilon 6\.0; state"):
        Spend(unit="item", adjacency="swap", rho=None, epsilon=6.0, delta=0.0)


def test_evaluation_is_a_spend_of_test_devices() -> None:
    spend = EVALUATION.reserved(launch_config(evaluation={"noise_multiplier": 2.0}))
    assert (spend.unit, spend.adjacency, spend.split, spend.rho) == ("device", "zero-out", "test", 0.125)
    assert spend.epsilon == epsilon_of_rho(0.125, DELTA)
    assert STAGES["ab_test"].planned(launch_config(evaluation={"noise_multiplier": 2.0}), None) == spend
    assert STAGES["ab_test"].planned(launch_config(), None) is None


@pytest.mark.slow
@pytest.mark.parametrize(("training", "larger"), [(0.4, 0.4), (0.05, 0.125)])
def test_a_device_trains_or_is_held_out_and_the_larger_loss_counts(training: float, larger: float) -> None:
    loss = spends.launch_loss(launch_config(evaluation={"noise_multiplier": 2.0}), trained(training))
    assert loss.rho == pytest.approx(larger)
    assert loss.mu == pytest.approx((2 * larger) ** 0.5)
    assert loss.epsilon == pytest.approx(epsilon_of_rho(larger, DELTA))
    assert loss.epsilon_pld == pytest.approx(loss.epsilon, abs=1e-3)


@pytest.mark.slow
def test_what_may_fail_comes_out_of_delta() -> None:
    sure, unsure = counts(0.1, DELTA), counts(0.2, DELTA).model_copy(update={"failure": 3e-7})
    loss = spends.loss_together([sure, unsure, unsure], DELTA)
    assert (loss.rho, loss.failure) == (pytest.approx(0.5), pytest.approx(6e-7))
    assert loss.epsilon == pytest.approx(epsilon_of_rho(0.5, 4e-7))
    with pytest.raises(ValueError, match="is not above"):
        spends.loss_together([unsure] * 4, DELTA)


@pytest.mark.slow
def test_what_was_taken_over_counts_in_what_a_device_loses_to_the_launch() -> None:
    """Whoever sees the launch sees what came of it; only the ledger does not pay twice."""
    discovery = {"kind": "central", "noise_multiplier": 2.0, "words_per_device": 5, "delta": DELTA}
    made_up = {"source": "synthetic", "name": "made-up", "devices": 80, "max_words_per_device": 30}
    policy = {**RAW["policy"], "max_rho": 1.0, "population_max_rho": 4.0, "max_discovery_epsilon0": None}
    content = {
        "discovery": discovery,
        "private_text": made_up,
        "policy": policy,
        "counts": {"noise_multiplier": 3.0, "model": "mixture"},
    }
    config = LaunchConfig.model_validate({**RAW, **content})
    planned = {
        "discover": central_discovery(config.central_discovery),
        "count": counts(1 / 18, DELTA),
    }
    assert planned.keys() == {name for name, stage in STAGES.items() if stage.spends and stage.cached}
    results = {name: {"spend": spend.model_dump()} for name, spend in planned.items()}
    results["fine_tune"] = trained(0.3).result("fine_tune")
    paid = spends.launch_loss(config, SimpleNamespace(result=results.__getitem__))
    assert paid.rho == pytest.approx(0.3 + 1 / 8 + 1 / 18)
    taken_over = results | {name: {"spend": None} for name in planned}
    assert spends.launch_loss(config, SimpleNamespace(result=taken_over.__getitem__)) == paid
