"""The root that turns a delta into an epsilon, against scipy's to the last bit: epsilons are recorded."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import optimize

from federated.accounting import gaussian


def _excess(rho: float, delta: float) -> Callable[[float], float]:
    def excess(epsilon: float) -> float:
        at_epsilon = gaussian.delta_of_epsilon(math.sqrt(2 * rho), epsilon)
        return (math.log(at_epsilon) if at_epsilon > 0 else -math.inf) - math.log(delta)

    return excess


def test_a_root_is_that_of_scipy_to_the_last_bit() -> None:
    draws = np.random.default_rng(3)
    for _ in range(500):
        excess = _excess(*(float(10**power) for power in draws.uniform((-6, -14), (3, -1))))
        upper = 2.0 ** int(draws.integers(1, 14))
        if excess(0.0) > 0 > excess(upper):
            assert gaussian.root(excess, 0.0, upper) == optimize.brentq(excess, 0.0, upper, xtol=1e-12)
    for shape in (math.cos, lambda x: x**3 - 2, lambda x: math.expm1(x) - 0.1, lambda x: -1.0 if x < 0.3 else 1.0):
        assert gaussian.root(shape, 0.0, 2.5) == optimize.brentq(shape, 0.0, 2.5, xtol=1e-12)


def test_an_end_may_be_the_root() -> None:
    assert gaussian.root(lambda x: x - 1, 1.0, 2.0) == 1.0
    assert gaussian.root(lambda x: x - 2, 1.0, 2.0) == 2.0


def test_what_has_no_root() -> None:
    with pytest.raises(ValueError, match=r"low, high: got 0\.0 and 1\.0"):
        gaussian.root(lambda x: x + 1, 0.0, 1.0)
    with pytest.raises(ArithmeticError, match="after 100 steps"):
        gaussian.root(lambda x: -1.0 if x < 1e-200 else 1.0, 0.0, 1e300)
