"""A person with several devices: the stated loss of all releases against the exact loss of the worst mechanisms."""

from math import comb

import pytest
from mpmath import erfc, exp, log, mp, mpf, sqrt

from federated.accounting.gaussian import epsilon_of_rho
from pipeline.ledger.entries import Spend
from pipeline.releases.local_words import certified, words_of
from pipeline.releases.release import gaussian
from pipeline.releases.total import of_group, total
from reports.disclosure.total import Total
from tests.helpers.launches.pipeline_launch import launch_config
from tests.helpers.reports.reports_example import discovered

DELTA, RHO, EPSILON0 = 1e-6, 0.5, 4.0
CONFIG = launch_config(discovery={"epsilon0": EPSILON0, "messages_per_device": 1})
# Of one device, which shuffling cannot hide, and of many.
FEW, MANY = discovered((1, 30)), discovered((20_000, 30))


def noised(rho: float) -> Spend:
    return gaussian(rho, DELTA, "of a test")


def of(devices: int, words: dict, rho: float = RHO) -> Total:
    spends = {"discover": words_of(words), "fine_tune": noised(rho)}
    group = of_group(CONFIG, spends, {"discover": words}.__getitem__, devices)
    assert group is not None
    return group


def delta_of(distance: mpf, epsilon: mpf) -> mpf:
    """The exact delta of two unit normals so far apart (Balle and Wang 2018)."""

    def below(x: mpf) -> mpf:
        return erfc(-x / sqrt(2)) / 2

    return below(distance / 2 - epsilon / distance) - exp(epsilon) * below(-distance / 2 - epsilon / distance)


def exact_delta(devices: int, messages: int, epsilon0: float, rho: float, epsilon: float) -> mpf:
    """Delta at ``epsilon`` of randomised answers of several devices beside one Gaussian of all their vectors.

    Each answer is true with probability ``e^epsilon0 / (1 + e^epsilon0)``; the vectors point one way.
    """
    answers, true = devices * messages, exp(mpf(epsilon0)) / (1 + exp(mpf(epsilon0)))
    distance = devices * sqrt(2 * mpf(rho))
    return sum(
        comb(answers, right)
        * true**right
        * (1 - true) ** (answers - right)
        * delta_of(distance, mpf(epsilon) - (2 * right - answers) * log(true / (1 - true)))
        for right in range(answers + 1)
    )


@pytest.mark.parametrize("devices", [2, 3])
def test_no_person_loses_more_than_is_stated_and_noised_releases_alone_are_less(devices: int) -> None:
    loss, sent = of(devices, FEW), FEW["messages_per_device"]
    assert (loss.devices, loss.delta, loss.rho) == (devices, DELTA, None)
    assert loss.epsilon == pytest.approx(devices * sent * FEW["epsilon0"] + epsilon_of_rho(devices**2 * RHO, DELTA))
    with mp.workdps(60):
        assert exact_delta(devices, sent, FEW["epsilon0"], RHO, loss.epsilon) <= DELTA
        alone = epsilon_of_rho(devices**2 * RHO, DELTA)
        assert exact_delta(devices, sent, FEW["epsilon0"], RHO, alone) > DELTA
        # The bound is no more than a few percent loose.
        assert exact_delta(devices, sent, FEW["epsilon0"], RHO, 0.93 * loss.epsilon) > DELTA


@pytest.mark.parametrize("words", [FEW, MANY])
def test_more_devices_lose_more(words: dict) -> None:
    one = total(CONFIG, {"discover": words_of(words), "fine_tune": noised(RHO)})
    losses = [one.epsilon, *(of(devices, words).epsilon for devices in (2, 3, 4))]
    assert losses == sorted(set(losses))


def test_shuffled_words_of_several_devices_pay_the_delta_of_group_privacy() -> None:
    """k times the epsilon of one device would hold only at a delta that is ``e^((k - 1) epsilon)`` times as large."""
    alone = words_of(MANY | {"device_epsilon_central": certified(MANY)})
    (words, _) = of(2, MANY).parts
    assert words.how == "shuffled"
    assert words.delta == alone.device_delta
    assert 2 * alone.device_epsilon < words.epsilon <= 2 * alone.messages * alone.epsilon


@pytest.mark.parametrize("rho", [0.05, 0.5, 2.0])
def test_noised_releases_lose_what_normals_so_many_times_as_far_apart_lose(rho: float) -> None:
    for devices in (2, 3):
        (_, noised) = of(devices, FEW, rho).parts
        assert noised.rho == pytest.approx(devices**2 * rho)
        with mp.workdps(40):
            apart = devices * sqrt(2 * mpf(rho))
            assert float(delta_of(apart, mpf(noised.epsilon))) == pytest.approx(DELTA, rel=1e-6)


def test_no_loss_of_several_devices_is_stated_where_a_release_may_fail() -> None:
    failing = noised(0.2).model_copy(update={"failure": 1e-7})
    spends = {"discover": words_of(FEW), "count": failing, "fine_tune": noised(RHO)}
    assert of_group(CONFIG, spends, {"discover": FEW}.__getitem__, 2) is None
