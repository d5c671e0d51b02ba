"""One number where words are found locally: by hand, with few devices none, with millions one."""

import math
from types import SimpleNamespace

import pytest

from discovery.certificates.blanket import blanket
from discovery.certificates.group import group
from discovery.device.randomizer import subset_selection
from federated.accounting.gaussian import epsilon_of_rho
from pipeline.config import LaunchConfig
from pipeline.covered import spends
from pipeline.covered.accesses import accesses
from pipeline.covered.together import composed, together, trusts, words_after_shuffling
from tests.helpers.launches.pipeline_launch import RAW, launch_config
from tests.helpers.reports.reports_example import block
from tests.helpers.reports.spent import DELTA, EPSILON0, SENT, discovered, trained


def run(words: dict, rho: float = 0.4) -> SimpleNamespace:
    results = {"discover": words, "fine_tune": trained(rho).result("fine_tune")}
    return SimpleNamespace(result=results.__getitem__)


def by_hand(asked: int, domain: int, delta: float) -> float:
    randomizer = subset_selection(EPSILON0, domain)
    return group(lambda at: blanket(randomizer, asked * SENT, at), SENT, EPSILON0, delta)


@pytest.mark.slow
def test_words_of_millions_are_in_the_one_number_by_basic_composition() -> None:
    """Each part at half of delta, so that both together are at the launch's."""
    words = discovered((400_000, 900), (100_000, 30), (2_000_000, 30))
    bound = together(launch_config(), run(words))
    assert bound is not None
    worst = max(by_hand(100_000, 30, DELTA / 2), by_hand(400_000, 900, DELTA / 2))
    assert worst < 1
    assert bound.words_epsilon == pytest.approx(worst, rel=1e-9)
    assert bound.noised_epsilon == pytest.approx(epsilon_of_rho(0.4, DELTA / 2), rel=1e-9)
    assert bound.epsilon == pytest.approx(worst + epsilon_of_rho(0.4, DELTA / 2), rel=1e-9)
    assert (bound.delta, bound.words_delta + bound.noised_delta) == (DELTA, pytest.approx(DELTA))


@pytest.mark.slow
def test_one_small_layer_is_what_a_launch_is_as_weak_as() -> None:
    fine = discovered((2_000_000, 30))
    weak = discovered((2_000_000, 30), (20, 30), epsilon0=4.0, device_level_epsilon0=12.0)
    assert together(launch_config(), run(fine)) is not None
    assert together(launch_config(), run(weak)) is None


def test_a_few_devices_have_no_guarantee_worth_the_name_and_so_no_one_number() -> None:
    demo = block("discovery")  # 80 a device, whom a hundred others do not hide
    assert words_after_shuffling(demo, DELTA) is None
    assert together(launch_config(), run(demo)) is None
    assert words_after_shuffling(demo | {"layers": []}, DELTA) is None


def test_words_that_are_part_of_rho_are_not_counted_again() -> None:
    central = {"kind": "central", "noise_multiplier": 2.0, "words_per_device": 5, "delta": DELTA}
    policy = {**RAW["policy"], "max_discovery_epsilon0": None}
    config = LaunchConfig.model_validate({**RAW, "discovery": central, "policy": policy})
    assert together(config, SimpleNamespace()) is None


def test_a_held_out_device_counts_where_it_loses_more() -> None:
    assert composed(1.0, 2.0, DELTA, 2.5).epsilon == 3.0
    assert composed(1.0, 2.0, DELTA, 3.5).epsilon == 3.5


@pytest.mark.slow
def test_what_test_devices_lose_is_not_added_to_words() -> None:
    config = launch_config(evaluation={"noise_multiplier": 2.0})
    words = discovered((2_000_000, 30))
    alone, beside = together(launch_config(), run(words)), together(config, run(words))
    assert alone == beside
    held_out = together(config, run(words, 0.001))
    assert held_out is not None
    assert held_out.epsilon == spends.evaluated(0.125, DELTA).epsilon


def test_who_reads_the_table_sees_whether_words_are_in_the_number() -> None:
    rows = {
        counted: next(row for row in accesses(launch_config(), words_counted=counted) if row.stage == "discover")
        for counted in (True, False)
    }
    assert (rows[True].unit, rows[False].unit) == ("device", "item")
    assert "outside the launch's one number" in (rows[False].mechanism or "")
    bound = composed(1.0, 2.0, DELTA)
    assert "being shuffled" in trusts(launch_config(), bound)[0]
    assert trusts(launch_config(), None) == ()
    assert math.isclose(bound.epsilon, 3.0)
