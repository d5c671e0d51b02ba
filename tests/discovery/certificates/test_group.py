"""A whole device after shuffling: against the exact law of votes, and where shuffling hides nobody."""

import math

import numpy as np
import pytest
from scipy import stats

from discovery.certificates.blanket import blanket
from discovery.certificates.clones import clones
from discovery.certificates.group import group
from discovery.device.randomizer import of_size

DELTA = 1e-3


def votes(ones: int, messages: int, epsilon0: float) -> np.ndarray:
    """Exact law of the number of ones among shuffled messages of randomised response."""
    true = math.exp(epsilon0) / (1 + math.exp(epsilon0))
    held = stats.binom.pmf(np.arange(ones + 1), ones, true)
    return np.convolve(held, stats.binom.pmf(np.arange(messages - ones + 1), messages - ones, 1 - true))


def exact_delta(size: int, messages: int, epsilon0: float, epsilon: float) -> float:
    """Largest hockey-stick divergence of a device that says all ones or all zeros, whatever the others say."""
    others, worst = messages - size, 0.0
    for ones in (0, others // 2, others):
        one, other = votes(ones + size, messages, epsilon0), votes(ones, messages, epsilon0)
        for first, second in ((one, other), (other, one)):
            worst = max(worst, float(np.maximum(first - math.exp(epsilon) * second, 0).sum()))
    return worst


@pytest.mark.parametrize(
    ("size", "messages", "epsilon0"), [(1, 200, 1.0), (2, 300, 1.0), (5, 2_000, 0.5), (3, 40, 2.0)]
)
def test_no_device_tells_more_than_stated(size: int, messages: int, epsilon0: float) -> None:
    epsilon = group(lambda delta: clones(epsilon0, messages, delta), size, epsilon0, DELTA)
    assert exact_delta(size, messages, epsilon0, epsilon) <= DELTA
    if messages >= 200:
        assert epsilon < 0.7 * size * epsilon0  # shuffling hides


@pytest.mark.slow
def test_one_message_is_its_certificate_and_more_cost_more_than_their_sum() -> None:
    randomizer = of_size(4.0, 1_001, 20)

    def certificate(delta: float) -> float:
        return blanket(randomizer, 100_000, delta)

    alone, ten = certificate(1e-6), group(certificate, 10, 4.0, 1e-6)
    assert group(certificate, 1, 4.0, 1e-6) == alone
    assert 10 * alone < ten < 20 * alone


def test_delta_grows_with_the_group() -> None:
    """The certificate must be asked at a delta that the whole group does not lift above the stated one."""
    asked = []

    def certificate(delta: float) -> float:
        asked.append(delta)
        return 0.1 + 0.01 * -math.log(delta)

    stated = group(certificate, 5, 9.0, DELTA) / 5
    assert asked[-1] * math.expm1(5 * stated) / math.expm1(stated) == pytest.approx(DELTA, rel=1e-9)
    assert certificate(asked[-1]) <= stated


def test_where_shuffling_hides_nobody_the_local_sum_stands() -> None:
    assert group(lambda delta: 8.0, 10, 8.0, 1e-6) == 80.0
    assert group(lambda delta: clones(8.0, 400, delta), 10, 8.0, 1e-6) == 80.0
    assert group(lambda delta: 0.0, 10, 8.0, 1e-6) == 0.0
