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
    local, central = both_ways(config, 90)
    assert [(way.kind, way.chosen) for way in (local, central)] == [("ldp-triehh", True), ("central", False)]
    assert isinstance(local, LocalWords)
    assert local.local == 64.0
    assert local.local >= local.shuffled
    assert central.reach.shares[0] == pytest.approx(local.reach.shares[0], rel=1e-3)
    assert "(weak) if 50% of the others are honest" in str(local)
    assert "; finds a word that 14% of devices hold: about " in str(local)
    assert str(local).endswith("% of what people type")


def test_too_few_devices_find_no_more_than_what_all_of_them_hold() -> None:
    local, _ = both_ways(launch_config(discovery={"epsilon0": 0.1}), 10)
    assert local.reach.shares == (1.0, 1.0)
    assert str(local).endswith("; finds at most words that all devices hold")


def test_a_central_file_sees_its_own_promise_first() -> None:
    config = LaunchConfig.model_validate(RAW | {"discovery": CENTRAL, "policy": POLICY})
    central, local = both_ways(config, 100_000)
    assert isinstance(central, CentralWords)
    assert config.central_discovery is not None
    assert central.epsilon == central_discovery(config.central_discovery).epsilon
    assert (central.chosen, local.chosen, local.local) == (True, False, 80.0)
    assert str(central).startswith("central: trusts an aggregator: epsilon 2.3")
    assert "9 words a device; finds a word that 0.05% of devices hold, or 0.23% where each holds many" in str(central)
