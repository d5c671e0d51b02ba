"""The last digits of a release do not say which numbers the noise can have been (Mironov 2012)."""

from fractions import Fraction

import numpy as np
import pytest

from federated.counts.bounded_sum import released_sum
from federated.local_training.clipping import release
from pretrain.randomness import noise
from pretrain.randomness.noise import FIXED_POINT

SIZE, KEY = 100_000, noise.seeded_key(3)
CELLS, VECTOR = np.arange(0, SIZE, 2), np.linspace(0.1, 1.0, SIZE // 2)


def impossible(supposed_P: np.ndarray, noise_multiplier: float) -> bool:
    """True if 53 bits of a uniform number cannot make this noise, in units of ``C / 2^44``.

    An adversary who knows all other devices takes what these add from the release. Of what is left, each pair of
    coordinates has a radius, ``u = exp(-radius^2 / 2)`` was a multiple of 2^-53, and far out such multiples are few.
    """
    normals_M2 = (supposed_P.astype(np.longdouble) / np.longdouble(FIXED_POINT * noise_multiplier)).reshape(-1, 2)
    square_M = np.sum(normals_M2**2, axis=1)
    places_M = np.exp(-square_M / 2) * np.longdouble(2) ** 53
    unsure_M = places_M * np.sqrt(square_M) / (FIXED_POINT * noise_multiplier) + 1e-3 + places_M * 1e-15
    return bool(np.any((unsure_M < 0.05) & (np.abs(places_M - np.rint(places_M)) > 1.5 * unsure_M)))


def released(noise_multiplier: float) -> np.ndarray:
    """The release of one device's vector with noise, in units of ``C / 2^44``."""
    summed_P = released_sum(iter([(CELLS, VECTOR)]), SIZE, noise_multiplier, KEY, "lattice", 1.0)
    return np.rint(summed_P * FIXED_POINT).astype(np.int64)


def as_it_was(unnoised_P: np.ndarray, noise_multiplier: float) -> np.ndarray:
    """The same with noise of 53-bit radii, and all its digits shown."""
    rng = np.random.default_rng(5)
    radius_M = np.sqrt(-2 * np.log((rng.integers(2**53, size=SIZE // 2) + 1) * 2.0**-53))
    angle_M = 2 * np.pi * rng.random(SIZE // 2)
    normals_P = np.stack([radius_M * np.cos(angle_M), radius_M * np.sin(angle_M)], axis=1).reshape(-1)
    return unnoised_P + np.rint(noise_multiplier * normals_P * FIXED_POINT).astype(np.int64)


def unnoised() -> np.ndarray:
    """The device's share of the sum."""
    sum_P = np.zeros(SIZE, dtype=np.int64)
    sum_P[CELLS] = np.trunc(VECTOR * (FIXED_POINT * (1 - 2.0**-20) / np.linalg.norm(VECTOR))).astype(np.int64)
    return sum_P


@pytest.mark.parametrize("noise_multiplier", [1.0, 3.16])
def test_the_attack_tells_a_device_that_is_there_where_all_digits_are_shown(noise_multiplier: float) -> None:
    shown_P = as_it_was(unnoised(), noise_multiplier)
    assert impossible(shown_P, noise_multiplier), "that the device is absent is refuted"
    assert not impossible(shown_P - unnoised(), noise_multiplier), "that it is there is true"


@pytest.mark.parametrize("noise_multiplier", [1.0, 3.16])
def test_a_release_refutes_the_truth_as_well_as_the_lie(noise_multiplier: float) -> None:
    """To an adversary who trusts the lattice, whatever is released is impossible: it shows nothing of it."""
    shown_P = released(noise_multiplier)
    assert impossible(shown_P, noise_multiplier)
    assert impossible(shown_P - unnoised(), noise_multiplier)


@pytest.mark.parametrize("noise_multiplier", [0.3, 1.0, 40.0])
def test_rounded_noise_on_a_whole_sum_is_the_rounded_noisy_sum(noise_multiplier: float) -> None:
    """So both roundings follow from sum and noise, which the accountant is told of, and cost nothing."""
    noise_P = noise_multiplier * noise.gaussian(KEY, "lemma", 0, 2000)
    sum_P = np.random.default_rng(1).integers(-(2**58), 2**58, len(noise_P))
    exact = [round(Fraction(int(s)) + Fraction(float(y)) * FIXED_POINT) for s, y in zip(sum_P, noise_P, strict=True)]
    whole_P = np.array(exact, dtype=np.int64)
    shown_P = noise.on_grid(whole_P, noise_multiplier * FIXED_POINT) / FIXED_POINT
    np.testing.assert_array_equal(release(sum_P, noise_P, 1.0, noise_multiplier), shown_P)


@pytest.mark.parametrize("noise_multiplier", [0.3, 1.0, 40.0])
def test_a_release_is_coarser_than_anything_that_a_device_adds(noise_multiplier: float) -> None:
    """Its digits end at 2^-21 of the noise or above, whatever the sum's are."""
    noise_P = noise_multiplier * noise.gaussian(KEY, "lattice", 0, SIZE)
    step = 2.0 ** np.floor(np.log2(noise_multiplier * FIXED_POINT) - 20)
    for sum_P in (unnoised(), unnoised() + 1, np.zeros(SIZE, np.int64)):
        units_P = release(sum_P, noise_P, 1.0, noise_multiplier) * FIXED_POINT
        assert np.array_equal(units_P / step, np.rint(units_P / step))
        np.testing.assert_allclose(units_P, sum_P + noise_P * FIXED_POINT, rtol=0, atol=step / 2 + 1)
