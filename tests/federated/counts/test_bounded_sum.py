"""A sum of bounded vectors under noise: sensitivity by brute force over neighbours, whatever a device's numbers are."""

import itertools

import numpy as np
import pytest

from federated.counts.bounded_sum import MOST_DEVICES, released_sum, require_few_enough
from pretrain.randomness.noise import FIXED_POINT, gaussian, seeded_key

# So little noise that a release leaves no digit of a sum out.
KEY, Z, SIZE, STREAM = seeded_key(3), 2.0**-24, 6, "trial"
ALL = np.arange(SIZE)
NASTY = (
    np.zeros(SIZE),
    np.full(SIZE, 1e300),
    np.full(SIZE, -1e300),
    np.array([np.nan, 1, 1, 1, 1, 1]),
    np.array([np.inf, -np.inf, 1, 1, 1, 1]),
    np.array([0.3, 0, 0, 0, 0, -0.2]),
    np.array([5.0, 0, 0, 0, 0, 0]),
    np.array([0, 0, 0, 0, 9.0, 0]),
    np.array([0, 0, 0, 0, 0, -5e-324]),
)


def unnoised(vectors: list[np.ndarray], clip_norm: float) -> np.ndarray:
    """The sum behind a release, in its own unit."""
    with np.errstate(over="ignore", invalid="ignore"):
        released = released_sum(((ALL, vector) for vector in vectors), SIZE, Z, KEY, STREAM, clip_norm)
    return released - clip_norm * np.rint(Z * gaussian(KEY, STREAM, 0, SIZE) * FIXED_POINT) / FIXED_POINT


@pytest.mark.slow
@pytest.mark.parametrize("clip_norm", [1.0, 1.25])
def test_no_device_moves_the_sum_by_more_than_the_clip_norm(clip_norm: float) -> None:
    """Every set of up to three nasty devices against the same set with one of them silent."""
    moved = [
        np.linalg.norm(unnoised([*others, one], clip_norm) - unnoised([*others, np.zeros(SIZE)], clip_norm))
        for others in itertools.combinations(NASTY, 2)
        for one in NASTY
    ]
    assert max(moved) <= clip_norm * (1 + 1e-12)
    assert max(moved) > 0.999 * clip_norm, "the bound is reached, so it is this one that holds"


def test_what_is_not_finite_is_nothing_and_what_is_short_stays() -> None:
    np.testing.assert_allclose(unnoised([NASTY[3], NASTY[4]], 1.0), 0, atol=1e-12)
    np.testing.assert_allclose(unnoised([NASTY[5]], 1.25), NASTY[5], atol=1e-5)
    np.testing.assert_allclose(unnoised([NASTY[6]], 1.25), 1.25 * NASTY[6] / 5, rtol=1e-5, atol=1e-12)


def test_more_devices_than_a_sum_holds_are_refused() -> None:
    require_few_enough(MOST_DEVICES)
    with pytest.raises(ValueError, match="count at most"):
        require_few_enough(MOST_DEVICES + 1)
