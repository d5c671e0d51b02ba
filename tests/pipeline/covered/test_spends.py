"""What the ledger is told before and after training: the whole run, and nothing that counts on a secret sample."""

from types import SimpleNamespace

import pytest

from federated.accounting.gaussian import epsilon_of_rho
from federated.accounting.guarantees import guarantee_of
from federated.mechanisms.independent import Independent
from pipeline.covered import spends
from tests.helpers.launches.pipeline_launch import launch_config


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


def test_discovery_is_told_per_item() -> None:
    spend = spends.discovery(6.0, "of a test")
    assert (spend.unit, spend.adjacency, spend.rho, spend.epsilon, spend.delta) == ("item", "swap", None, 6.0, 0.0)


DELTA = 1e-6


def trained(rho: float) -> SimpleNamespace:
    """A run that has trained, and nothing else."""
    spend = spends.counts(rho, DELTA)
    stated = {
        "rho": rho,
        "mu": (2 * rho) ** 0.5,
        "delta": DELTA,
        "epsilon": spend.epsilon,
        "epsilon_pld": spend.epsilon,
    }
    return SimpleNamespace(result={"fine_tune": stated | {"spend": spend.model_dump()}}.__getitem__)


def test_evaluation_is_a_spend_of_test_devices() -> None:
    spend = spends.planned_evaluation(launch_config(evaluation={"noise_multiplier": 2.0}))
    assert (spend.unit, spend.adjacency, spend.split, spend.rho) == ("device", "zero-out", "test", 0.125)
    assert spend.epsilon == epsilon_of_rho(0.125, DELTA)
    assert spends.SPENDS["ab_test"].planned(launch_config(evaluation={"noise_multiplier": 2.0}), None) == spend
    assert spends.SPENDS["ab_test"].planned(launch_config(), None) is None


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
    sure, unsure = spends.counts(0.1, DELTA), spends.counts(0.2, DELTA).model_copy(update={"failure": 3e-7})
    loss = spends.loss_together([sure, unsure, unsure], DELTA)
    assert (loss.rho, loss.failure) == (pytest.approx(0.5), pytest.approx(6e-7))
    assert loss.epsilon == pytest.approx(epsilon_of_rho(0.5, 4e-7))
    with pytest.raises(ValueError, match="is not above"):
        spends.loss_together([unsure] * 4, DELTA)
