"""Both ways of finding words at the launch's own population."""

import pytest

from pipeline.launch.config import LaunchConfig
from pipeline.preflight.words import CentralWords, LocalWords, both_ways
from pipeline.releases.central_words import central_discovery
from tests.helpers.launches.pipeline_launch import RAW, launch_config

CENTRAL = {"kind": "central", "noise_multiplier": 2.0, "words_per_device": 9, "delta": 1e-6}
POLICY = {**RAW["policy"], "max_discovery_epsilon0": None}


def test_a_local_file_sees_what_equal_reach_costs_centrally() -> None:
    discovery = {"epsilon0": 8.0, "messages_per_device": 8}
    config = launch_config(discovery=discovery, policy={"max_discovery_epsilon0": 8.0})
    local, central, dear = both_ways(config, 90)
    kinds = [("ldp-triehh", "this file"), ("central", "at equal reach"), ("central", "at equal epsilon")]
    assert [(way.kind, way.compared) for way in (local, central, dear)] == kinds
    assert isinstance(local, LocalWords)
    assert local.local == 64.0
    assert local.local >= local.shuffled
    assert central.reach.shares[0] == pytest.approx(local.reach.shares[0], rel=1e-3)
    assert "(weak) if 50% of the others are honest" in str(local)
    assert "; finds a word that 14% of devices hold: about " in str(local)
    assert str(local).endswith("% of what people type")


def test_too_few_devices_find_no_more_than_what_all_of_them_hold() -> None:
    local, _, _ = both_ways(launch_config(discovery={"epsilon0": 0.1}), 10)
    assert local.reach.shares == (1.0, 1.0)
    assert str(local).endswith("; finds at most words that all devices hold")


def test_a_central_file_sees_its_own_promise_first() -> None:
    config = LaunchConfig.model_validate(RAW | {"discovery": CENTRAL, "policy": POLICY})
    central, far, cheap = both_ways(config, 100_000)
    assert isinstance(central, CentralWords)
    assert config.central_discovery is not None
    assert central.epsilon == central_discovery(config.central_discovery).epsilon
    assert (central.compared, far.compared, cheap.compared) == ("this file", "at equal reach", "at equal epsilon")
    assert str(central).startswith("central, this file: trusts an aggregator: epsilon 2.3")
    assert "9 words a device; finds a word that 0.05% of devices hold, or 0.23% where each holds many" in str(central)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1_000, 30_000, 1_000_000, 12_000_000])
@pytest.mark.parametrize("noise", [2.0, 20.0, 300.0])
def test_the_other_kind_is_compared_with_one_message_at_equal_reach_and_at_equal_epsilon(
    devices: int, noise: float
) -> None:
    config = LaunchConfig.model_validate(RAW | {"discovery": CENTRAL | {"noise_multiplier": noise}, "policy": POLICY})
    central, far, cheap = both_ways(config, devices)
    assert isinstance(central, CentralWords)
    assert isinstance(far, LocalWords)
    assert isinstance(cheap, LocalWords)
    assert far.messages_per_device == cheap.messages_per_device == 1
    # Votes are whole numbers: of the fewest, one more is a tenth.
    assert far.reach.shares[0] == pytest.approx(central.reach.shares[0], rel=0.15)
    assert cheap.shuffled == pytest.approx(central.epsilon, rel=0.02)
    assert cheap.shuffled < far.shuffled or cheap.reach.shares[0] <= far.reach.shares[0]


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1_000, 1_000_000])
def test_a_local_file_sees_how_far_an_aggregator_reaches_for_its_epsilon(devices: int) -> None:
    config = launch_config(
        discovery={"epsilon0": 5.0, "messages_per_device": 1}, policy={"max_discovery_epsilon0": 8.0}
    )
    local, far, dear = both_ways(config, devices)
    assert isinstance(local, LocalWords)
    assert isinstance(far, CentralWords)
    assert isinstance(dear, CentralWords)
    assert dear.epsilon == pytest.approx(local.shuffled, rel=1e-3)
    assert far.epsilon < dear.epsilon
    assert dear.reach.shares[0] < far.reach.shares[0]
