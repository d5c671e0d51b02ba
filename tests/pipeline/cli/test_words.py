"""Both ways of finding words at the launch's own population."""

import pytest

from pipeline.cli.words import both_ways
from pipeline.launch.config import LaunchConfig
from pipeline.releases.central_words import central_discovery
from tests.helpers.launches.pipeline_launch import RAW, launch_config

CENTRAL = {"kind": "central", "noise_multiplier": 2.0, "words_per_device": 9, "delta": 1e-6}
POLICY = {**RAW["policy"], "max_discovery_epsilon0": None}


def test_a_local_file_sees_what_equal_reach_costs_centrally() -> None:
    (local, central), lines = both_ways(
        launch_config(discovery={"epsilon0": 8.0, "messages_per_device": 8}, policy={"max_discovery_epsilon0": 8.0}), 90
    )
    assert [row["kind"] for row in (local, central)] == ["ldp-triehh", "central"]
    assert (local["chosen"], central["chosen"]) == (True, False)
    assert local["local"] == 64.0
    assert local["local"] >= local["shuffled"]
    assert central["least_share"] == pytest.approx(local["least_share"], rel=1e-3)
    assert "(weak) if 50% of the others are honest" in lines[1]
    assert "90 devices" in lines[0]
    assert lines[1].endswith("finds a word that 14% of devices hold")


def test_too_few_devices_find_no_more_than_what_all_of_them_hold() -> None:
    (row, _), lines = both_ways(launch_config(discovery={"epsilon0": 0.1}), 10)
    assert row["least_share"] == 1.0
    assert lines[1].endswith("; finds at most words that all devices hold")


def test_a_central_file_sees_its_own_promise_first() -> None:
    config = LaunchConfig.model_validate(RAW | {"discovery": CENTRAL, "policy": POLICY})
    (central, local), lines = both_ways(config, 100_000)
    assert config.central_discovery is not None
    assert central["epsilon"] == central_discovery(config.central_discovery).epsilon
    assert (central["chosen"], local["chosen"], local["local"]) == (True, False, 80.0)
    assert lines[1].startswith("  central: an aggregator is trusted: rho 0.125")
    assert lines[1].endswith("finds a word that 0.035% of devices hold")
