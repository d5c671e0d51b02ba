"""The clones certificate on a wide grid: close to independent figures, sound at the edges of floats, fast."""

import itertools
import math
import time

import numpy as np
import pytest

from discovery.certificates.clones import clones, delta_given

# Upper bounds computed independently with finer blocks: epsilon0 -> messages -> (delta 1e-6, delta 1e-10).
GRID = {
    1.0: {
        10_000: (0.0530053228, 0.0821144283),
        100_000: (0.0152820637, 0.0249432921),
        1_000_000: (0.00433452032, 0.00756168691),
        10_000_000: (0.00119933614, 0.0022847408),
    },
    2.0: {
        10_000: (0.155045256, 0.23185882),
        100_000: (0.0450255871, 0.0701901205),
        1_000_000: (0.0129583711, 0.0213170759),
        10_000_000: (0.00366547261, 0.00645984337),
    },
    4.0: {
        10_000: (0.600908816, 0.893913388),
        100_000: (0.169769764, 0.253263563),
        1_000_000: (0.0493070781, 0.076598227),
        10_000_000: (0.0142045347, 0.0232646894),
    },
    6.0: {
        10_000: (5.72100878, 5.99997568),
        100_000: (0.524180621, 0.775559351),
        1_000_000: (0.149290916, 0.223486193),
        10_000_000: (0.0433512395, 0.0676790345),
    },
    8.0: {
        10_000: (7.99999475, 8),
        100_000: (2.18856585, 7.99807024),
        1_000_000: (0.444468796, 0.655377626),
        10_000_000: (0.127492353, 0.191727847),
    },
    10.0: {
        10_000: (9.99999881, 10),
        100_000: (9.99999046, 10),
        1_000_000: (1.59706086, 8.7195456),
        10_000_000: (0.376202129, 0.554167852),
    },
}


@pytest.mark.parametrize("epsilon0", GRID)
def test_grid(epsilon0):
    for messages, figures in GRID[epsilon0].items():
        for delta, figure in zip((1e-6, 1e-10), figures, strict=True):
            start = time.process_time()
            bound = clones(epsilon0, messages, delta)
            assert time.process_time() - start <= 1
            assert bound >= figure - 1e-6
            assert bound == pytest.approx(figure, rel=1e-3)
            assert bound <= epsilon0


@pytest.mark.parametrize(("epsilon0", "delta"), [(1.0, 1e-6), (4.0, 1e-10), (8.0, 1e-8)])
def test_more_messages_never_hurt(epsilon0, delta):
    bounds = [clones(epsilon0, 2**power, delta) for power in range(24)]
    # Blocks of the sum are worth 1e-4 of the bound.
    assert all(after <= before * (1 + 2e-4) for before, after in itertools.pairwise(bounds))
    assert bounds[0] > 2 * bounds[-1]


@pytest.mark.parametrize("epsilon0", [30.0, 37.0, 40.0, 49.0, 51.0, 800.0])
@pytest.mark.parametrize("messages", [1, 1000, 10**9])
def test_a_large_epsilon0_is_not_amplified_by_rounding(epsilon0, messages):
    assert clones(epsilon0, messages, 1e-6) == pytest.approx(epsilon0, abs=0.01)


@pytest.mark.parametrize("epsilon0", [0.5, 3.0, 12.0, 40.0])
def test_without_clones_delta_is_that_of_randomised_response(epsilon0):
    for epsilon in (0.0, epsilon0 / 2, epsilon0 * 0.9, epsilon0 - 1e-3):
        p = 1 / (1 + math.exp(-epsilon0))
        exact = p * -math.expm1(epsilon - epsilon0)
        assert delta_given(epsilon0, epsilon, np.array([0]))[0] == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("delta", [1e-14, 1e-20])
def test_a_tiny_delta_is_never_cheaper(delta):
    assert clones(4.0, 100_000, delta) > clones(4.0, 100_000, 1e-12)
