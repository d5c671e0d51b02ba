"""The plan of an encoding: limits, reported numbers and refusals."""

import math

import mpmath
import pytest

from federated.secagg import bounds, hadamard
from federated.secagg.bounds import plan_encoding


@pytest.mark.parametrize(("devices", "bits"), [(1, 8), (10, 8), (100, 12), (1000, 16), (6500, 20), (500, 62)])
def test_a_plan_keeps_its_promises(devices: int, bits: int) -> None:
    plan = plan_encoding(100_000, devices, bits)
    assert plan.order == hadamard.order_of(100_000)
    assert plan.inflated_norm > plan.norm_limit / plan.scale > 1
    assert plan.clipped_fraction * plan.order <= 2.0**-10 * (1 + 1e-9)
    assert plan.rounding_std == math.sqrt(devices) / (2 * plan.scale)
    assert devices * plan.element_bound < 2 ** (bits - 1) <= devices * (plan.element_bound + 1)


def test_more_bits_inflate_less() -> None:
    norms = [plan_encoding(2_400_000, 1000, bits).inflated_norm for bits in (12, 14, 16, 20, 32)]
    assert norms == sorted(norms, reverse=True)
    assert norms[0] > 1.4
    assert norms[-1] < 1 + 1e-8


def test_the_norm_is_theorem_1_in_its_own_symbols() -> None:
    mpmath.mp.dps = 30
    for d, gamma, beta in ((4, 0.7, 0.3), (256, 0.05, 2.0**-20), (2_621_440, 2.0**-12, 2.0**-20)):
        c = mpmath.mpf(1)
        g, root, log = mpmath.mpf(gamma), mpmath.sqrt(d), mpmath.log(1 / mpmath.mpf(beta))
        square = c**2 + g**2 * d / 4 + mpmath.sqrt(2 * log) * g * (c + g * root / 2)
        expected = mpmath.sqrt(min(square, (c + g * root) ** 2))
        assert bounds.rounded_norm(d, 1 / gamma, beta) == pytest.approx(float(expected), rel=1e-14)


@pytest.mark.parametrize(
    ("gamma", "beta", "published"),
    [
        (1e-9, 0.01, 1.000000001642451),
        (1e-9, 0.5, 1.0000000007137142),
        (1e-2, 0.01, 158.13231445360802),
        (1e-2, 0.5, 158.12296930808552),
        (1e-2, 1.0, 158.11704525445697),
    ],
)
def test_the_norm_is_that_of_tensorflow_federated(gamma: float, beta: float, published: float) -> None:
    """Constants of its discretization tests, at a norm of 1 and 10^9 dimensions."""
    assert bounds.rounded_norm(10**9, 1 / gamma, beta) == pytest.approx(published, rel=1e-6)
    if gamma < 1e-5:
        assert bounds.rounded_norm(10**9, 1 / gamma, beta) - 1 == pytest.approx(published - 1, rel=1e-6)


def test_the_clipped_fraction_is_hoeffdings_bound() -> None:
    plan = plan_encoding(4096, 100, 16)
    room = (2**15 - 1) // 100 - 1
    exact = 2 * mpmath.exp(-(mpmath.mpf(room) ** 2) * 4096 / (2 * mpmath.mpf(plan.scale) ** 2))
    assert plan.clipped_fraction == pytest.approx(float(exact), rel=1e-9)


def test_a_grid_finer_than_that_of_the_updates_is_not_planned() -> None:
    plan = plan_encoding(100_000, 10, 62)
    assert plan.scale == 2.0**44
    assert plan.clipped_fraction == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"devices": 64, "bits": 8}, r"secagg.bits: 8 cannot hold a sum over 64 devices; raise it to 9 or more"),
        ({"devices": 10, "bits": 63}, r"secagg.bits: 63; give 8 to 62"),
        ({"devices": 10, "bits": 7}, r"secagg.bits: 7; give 8 to 62"),
        ({"devices": 0, "bits": 8}, r"devices: 0; give at least 1"),
        ({"devices": 10, "bits": 8, "beta": 1.0}, r"beta: 1.0; give a probability"),
        ({"devices": 2**18, "bits": 40}, r"secagg.bits: 40 inflates norms to"),
    ],
)
def test_refusals_name_the_fix(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan_encoding(1000, **arguments)


@pytest.mark.parametrize("devices", [64, 100, 127, 128, 1000, 6500])
def test_the_advised_bits_are_the_least_that_work(devices: int) -> None:
    with pytest.raises(ValueError, match="cannot hold a sum") as refused:
        plan_encoding(1000, devices, 8)
    advised = int(str(refused.value).split("raise it to ")[1].split()[0])
    with pytest.raises(ValueError, match="cannot hold a sum"):
        plan_encoding(1000, devices, advised - 1)
    assert plan_encoding(1000, devices, advised).element_bound >= 1
