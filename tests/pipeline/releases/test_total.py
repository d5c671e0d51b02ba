"""The one number: by hand, whatever a part costs, planned and spent alike; no release ever falls out of it."""

import math
from types import SimpleNamespace

import pytest

from discovery.certificates.group import device, honest_messages
from discovery.device.randomizer import subset_selection
from federated.accounting.gaussian import epsilon_of_rho
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.entries import Spend
from pipeline.releases.ceiling import above_total
from pipeline.releases.central_words import central_discovery
from pipeline.releases.counts import counts
from pipeline.releases.evaluation import evaluated
from pipeline.releases.local_words import local_discovery
from pipeline.releases.release import Outlook, gaussian
from pipeline.releases.spent import spent
from pipeline.releases.terms import Terms
from pipeline.releases.total import spent_alone, total
from pipeline.releases.uses import planned
from tests.helpers.launches.pipeline_launch import RAW, launch_config
from tests.helpers.reports.reports_example import LOCAL_WORDS

DELTA = 1e-6
SENT = 3


def words(certified: float, epsilon0: float = 4.0, sent: int = SENT) -> Spend:
    return local_discovery(epsilon0, sent, certified, DELTA / 2, "of a test")


def noised(rho: float = 0.4) -> Spend:
    return gaussian(rho, DELTA, "of a test")


def epsilon_of(**spends: Spend) -> float:
    return total(launch_config(), spends).epsilon


def test_words_and_noised_releases_add_up_each_at_its_part_of_delta() -> None:
    whole = total(launch_config(), {"discover": words(2.5), "count": counts(0.1, DELTA), "fine_tune": noised(0.3)})
    assert [(part.releases, part.how) for part in whole.parts] == [
        (("local_words",), "shuffled"),
        (("counts", "training"), "noise"),
    ]
    assert whole.epsilon == pytest.approx(2.5 + epsilon_of_rho(0.4, DELTA / 2), rel=1e-12)
    assert (whole.delta, math.fsum(part.delta for part in whole.parts)) == (DELTA, pytest.approx(DELTA))


def test_where_shuffling_certifies_nothing_words_join_with_their_local_bound() -> None:
    """The demo of before: ten messages of 8 for a few hundred devices, and training of rho 0.45 beside counts."""
    demo = words(80.0, 8.0, 10)
    whole = total(launch_config(), {"discover": demo, "count": counts(0.05, DELTA), "fine_tune": noised(0.45)})
    assert [(part.epsilon, part.delta, part.how) for part in whole.parts[:1]] == [(80.0, 0.0, "local")]
    assert whole.epsilon == pytest.approx(80.0 + epsilon_of_rho(0.5, DELTA))


@pytest.mark.parametrize("edge", [0.5, 1.0, 9.0, 9.9, 10.0, 10.1, 11.5, 11.9999, 12.0, 40.0])
def test_words_that_cost_more_never_lower_the_total(edge: float) -> None:
    """At 10.1 they once fell out of it, and 16.3 became 6.4."""
    assert epsilon_of(discover=words(edge), fine_tune=noised()) <= epsilon_of(
        discover=words(edge * 1.001), fine_tune=noised()
    )
    assert epsilon_of(discover=words(edge), fine_tune=noised()) >= min(edge, SENT * 4.0)
    assert epsilon_of(discover=words(edge), fine_tune=noised()) > epsilon_of(fine_tune=noised())


@pytest.mark.slow
def test_the_total_rises_with_epsilon0_and_with_fewer_honest_devices() -> None:
    """Over certificates as they are, from where shuffling hides a device to where it hides none."""

    def whole(epsilon0: float, devices: int, share: float) -> float:
        honest = honest_messages(devices * SENT, SENT, share)
        certified = device(subset_selection(epsilon0, 30), honest, SENT, DELTA / 2)
        return epsilon_of(discover=local_discovery(epsilon0, SENT, certified, DELTA / 2, ""), fine_tune=noised())

    grid = (0.5, 2.0, 3.3, 3.4, 6.0, 9.0)
    for devices in (10, 1_000):
        seen = [whole(epsilon0, devices, 1.0) for epsilon0 in grid]
        assert seen == sorted(seen)
        assert all(value > epsilon_of(fine_tune=noised()) for value in seen)
    for changes in ([(2.0, devices, 1.0) for devices in (10_000, 1_000, 100, 1)],
                    [(2.0, 3_000, share) for share in (1.0, 0.5, 0.01, 0.0)]):  # fmt: skip
        seen = [whole(*change) for change in changes]
        assert seen == sorted(seen)
        assert seen[0] < seen[-1] == pytest.approx(6.0 + epsilon_of_rho(0.4, DELTA))


def test_a_message_more_never_costs_less_against_whoever_collects_them() -> None:
    seen = [epsilon_of(discover=words(4.0 * sent, sent=sent), fine_tune=noised()) for sent in range(1, 12)]
    assert seen == sorted(seen)


def test_only_honest_devices_hide_one() -> None:
    assert honest_messages(30, 3, 1.0) == 30
    assert honest_messages(30, 3, 0.5) == 3 * (1 + 4)  # nine others, of whom four and a half
    assert honest_messages(30, 3, 0.0) == 3
    assert honest_messages(0, 3, 0.5) == 3, "a layer below ten devices shows none"


def test_words_that_are_part_of_rho_are_not_counted_again() -> None:
    central = {"kind": "central", "noise_multiplier": 2.0, "words_per_device": 5, "delta": DELTA}
    policy = {**RAW["policy"], "max_discovery_epsilon0": None}
    config = LaunchConfig.model_validate({**RAW, "discovery": central, "policy": policy})
    found = central_discovery(config.central_discovery)
    whole = total(config, {"discover": found, "fine_tune": noised()})
    assert (whole.words, whole.parts[0].releases) == (None, ("central_words", "training"))
    assert whole.epsilon == pytest.approx(epsilon_of_rho(0.4 + 0.125, DELTA - found.failure))


def test_a_held_out_device_counts_where_it_loses_more() -> None:
    spends = {"discover": words(1.0), "fine_tune": noised(0.01)}
    alone = epsilon_of(**spends)
    assert epsilon_of(**spends, ab_test=evaluated(0.001, DELTA)) == alone
    held_out = epsilon_of(**spends, ab_test=evaluated(2.0, DELTA))
    assert held_out == pytest.approx(epsilon_of_rho(2.0, DELTA))
    assert held_out > alone


def test_the_plan_and_what_happened_go_through_one_function() -> None:
    config = launch_config(evaluation={"noise_multiplier": 2.0})
    plan = planned(config, Outlook(0.3, None))
    results = {name: {"spend": spend.model_dump()} for name, spend in plan.items()}
    happened = spent(config, SimpleNamespace(result=results.__getitem__))  # type: ignore[arg-type]
    assert total(config, happened) == total(config, plan)


def test_words_that_were_taken_over_cost_what_their_launch_paid() -> None:
    stated = LOCAL_WORDS | {"delta": DELTA / 2}
    results = {"discover": stated | {"spend": None}, "fine_tune": {"spend": noised().model_dump()}}
    whole = total(launch_config(), spent(launch_config(), SimpleNamespace(result=results.__getitem__)))  # type: ignore[arg-type]
    assert (whole.words.epsilon, whole.words.delta) == (stated["device_epsilon_central"], DELTA / 2)


def test_a_plan_above_its_ceiling_is_refused_with_the_part_to_lower_and_to_what() -> None:
    raw = {"epsilon0": 2.0, "messages_per_device": 6}
    config = launch_config(discovery=raw, policy={"max_total_epsilon": 8.0})
    (line,) = above_total(Terms.of(config, 0.3))
    assert line.startswith("policy.max_total_epsilon: 8, but one device loses epsilon 15.")
    assert "words 12.00 (local guarantee), training 3." in line
    assert "lower discovery.messages_per_device from 6 to 2" in line
    lowered = launch_config(discovery=raw | {"messages_per_device": 2}, policy={"max_total_epsilon": 8.0})
    assert above_total(Terms.of(lowered, 0.3)) == []
    (noise,) = above_total(Terms.of(lowered, 0.5))
    assert "raise mechanism.noise_multiplier from 6 to 7." in noise
    factor = float(noise.rpartition("from 6 to ")[2].split()[0].rstrip(";,")) / 6.0
    assert above_total(Terms.of(lowered, 0.5 / factor**2)) == []


def test_a_sample_that_nobody_draws_is_not_planned_for() -> None:
    """Training counts at most at what the ceiling on rho leaves; a launch above it is held for that."""
    sampled = {"kind": "independent", "noise_multiplier": 1.0, "clip_norm": 1.0, "rounds": 8, "report_goal": 2}
    sampled |= {"delta": DELTA, "randomness": "secure", "sampling": "poisson", "population": 40}
    config = LaunchConfig.model_validate({**RAW, "mechanism": sampled})
    sample, usual = Terms.of(config, 4.0), Terms.of(launch_config(), 4.0)
    assert sample.likely(sample.spends)["fine_tune"].rho == config.policy.max_rho
    assert usual.likely(usual.spends)["fine_tune"].rho == 4.0


def test_what_a_launch_spent_is_the_same_by_its_file_and_by_the_ledger():
    """The report states each launch's loss from entries, and its own from its results."""
    for certified in (1.5, 90.0):
        spends = {"discover": words(certified), "fine_tune": noised()}
        assert spent_alone(spends).epsilon == total(launch_config(), spends).epsilon
    unfinished = spent_alone({"discover": words(1.5)})
    assert (unfinished.epsilon, unfinished.delta) == (SENT * 4.0, 0.0), "no release has a delta yet: the local bound"
