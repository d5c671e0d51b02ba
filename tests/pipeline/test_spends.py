"""What the ledger is told before and after training: the whole run, and nothing that counts on a secret sample."""

from types import SimpleNamespace

import pytest

from federated.accounting.guarantees import guarantee_of
from federated.mechanisms.independent import Independent
from pipeline import spends
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
