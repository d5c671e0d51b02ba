"""Prices of a launch by whom it trusts."""

import pytest

from federated.accounting.gaussian import epsilon_of_rho
from federated.config.mechanism import SecAggConfig
from pipeline.launch.config import LaunchConfig
from pipeline.preflight.trust import Trust, prices
from pipeline.preflight.words import CentralWords, LocalWords, both_ways
from pipeline.releases.release import Outlook
from pipeline.releases.total import total
from pipeline.releases.training import training_rho
from pipeline.releases.uses import planned
from tests.helpers.launches.pipeline_launch import RAW, launch_config

CENTRAL = {
    "discovery": {"kind": "central", "noise_multiplier": 4.0, "words_per_device": 9, "delta": 5e-7},
    "policy": {**RAW["policy"], "max_discovery_epsilon0": None, "population_max_words_epsilon": None},
}
DEVICES = 20_000


def priced(config: LaunchConfig) -> tuple[tuple[Trust, ...], LocalWords, CentralWords]:
    """Prices, and words of both kinds at equal reach."""
    rho, words = training_rho(config), both_ways(config, DEVICES)
    whole = total(config, planned(config, Outlook(rho, DEVICES)))
    local, central = sorted(words[:2], key=lambda way: isinstance(way, CentralWords))
    assert isinstance(local, LocalWords)
    assert isinstance(central, CentralWords)
    return prices(config, whole, rho, words), local, central


@pytest.mark.parametrize(
    "config",
    [launch_config(), launch_config(trust="secure sum"), LaunchConfig.model_validate(RAW | CENTRAL)],
    ids=["server", "secure sum", "server, central words"],
)
def test_the_file_s_own_choice_comes_first_and_noise_alone_is_dearest(config: LaunchConfig) -> None:
    rows, local, central = priced(config)
    own, *others = rows
    assert (own.trust, own.own, [row.own for row in others]) == (config.trust, True, [False, False])
    by = {row.trust: row for row in rows}
    assert by["secure sum"].words == local.shuffled
    assert by["nobody"].words == local.local
    own_local = config.central_discovery is None and config.trust == "server"
    assert by["server"].words == (local.shuffled if own_local else central.epsilon)
    assert by["server"].training <= by["secure sum"].training < 1.001 * by["server"].training
    assert "no launch does so" in str(by["nobody"])


def test_without_trust_each_device_s_own_noise_adds_up_to_a_sum_s() -> None:
    """n devices with noise of std s / sqrt(n) each sum up to std s: each alone then loses n times the rho."""
    config = launch_config()
    goal, mechanism = config.mechanism.report_goal, config.mechanism
    alone = config.model_copy(
        update={"mechanism": mechanism.model_copy(update={"noise_multiplier": mechanism.noise_multiplier / goal**0.5})}
    )
    nobody = next(row for row in priced(config)[0] if row.trust == "nobody")
    delta = config.mechanism.delta - config.discovery.delta
    assert nobody.training == pytest.approx(epsilon_of_rho(training_rho(alone), delta))


def test_secure_sums_are_masked_by_default_with_bits_that_a_file_may_set() -> None:
    assert launch_config(trust="secure sum").mechanism.secagg == SecAggConfig(bits=32)
    assert launch_config(mechanism={"secagg": {"bits": 24}}).mechanism.secagg == SecAggConfig(bits=24)
    assert launch_config().mechanism.secagg is None


def test_nothing_is_priced_where_nothing_is_trained() -> None:
    counted = launch_config(counts={"noise_multiplier": 3.0, "model": "counts"})
    assert prices(counted, total(counted, planned(counted, Outlook(0.0, DEVICES))), 0.0, ()) == ()
