"""Rounding, clipping and reducing: exact where it can be, brute force and statistics where it is random."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from federated.secagg import bounds, hadamard
from federated.secagg.bounds import plan_encoding
from federated.secagg.encode import decode, encode, round_to_norm, stochastic_round
from federated.secagg.masks import word_of
from pretrain.randomness.noise import FIXED_POINT, seeded_key

ORDER = 256


def _unit(x_P: np.ndarray) -> np.ndarray:
    return x_P / np.linalg.norm(x_P)


def _awkward(size: int, own: hadamard.Rotation) -> dict[str, np.ndarray]:
    """Vectors of norm 1 and less that discretising might treat badly."""
    rng = np.random.default_rng(1)
    return {
        "one-hot": np.eye(size)[0],
        "constant": np.full(size, size**-0.5),
        "gaussian": _unit(rng.normal(size=size)),
        "sparse": _unit(rng.normal(size=size) * (rng.random(size) < 0.05) + np.eye(size)[1]),
        "knows the signs": own.backward(np.eye(own.order)[0])[:size],
        "tiny": np.full(size, 1e-9),
        "zeros": np.zeros(size),
    }


def _plan(bits: int = 8, devices: int = 10, **kwargs: float) -> bounds.Encoding:
    return plan_encoding(ORDER, devices, bits, **kwargs)


def _sum(vectors: list[np.ndarray], bits: int) -> np.ndarray:
    total = np.zeros_like(vectors[0])
    for vector in vectors:
        total += vector
    return total & total.dtype.type((1 << bits) - 1)


# Rounding.


def test_whole_numbers_stay_and_zeros_are_sent_as_zeros() -> None:
    whole = np.concatenate([np.arange(-500.0, 500.0), [2.0**43, -(2.0**43)]])
    np.testing.assert_array_equal(stochastic_round(whole, seeded_key(0)), whole)
    encoding = _plan()
    sent = encode(np.zeros(ORDER), encoding, hadamard.rotation(ORDER, 0, 0), seeded_key(0))
    assert not sent.any()


def _chi_square(rounds_KN: np.ndarray, flat_N: np.ndarray) -> float:
    """Probability of a mean square deviation as far out as this one, on either side."""
    part_N = flat_N - np.floor(flat_N)
    z_N = (rounds_KN.mean(axis=0) - flat_N) / np.sqrt(part_N * (1 - part_N) / len(rounds_KN))
    below = stats.chi2(len(flat_N)).cdf(np.sum(z_N**2))
    return 2 * min(below, 1 - below)


@pytest.mark.statistical
def test_rounding_is_unbiased_and_independent_and_the_check_rejects_others() -> None:
    rng = np.random.default_rng(2)
    flat_N = rng.uniform(-20, 20, size=400)
    keys = [seeded_key(number) for number in range(1500)]
    assert _chi_square(np.stack([stochastic_round(flat_N, key) for key in keys]), flat_N) > 1e-3
    coins = rng.random((1500, 400))
    floor_N = np.floor(flat_N)
    for slant in (-0.01, 0.01):
        assert _chi_square(floor_N + (coins < flat_N - floor_N + slant), flat_N) < 1e-6
    assert _chi_square(np.tile(np.rint(flat_N), (1500, 1)), flat_N) < 1e-6
    # Evenly spread coins instead of independent ones: the mean is too good.
    even = (np.arange(1500)[:, None] + 0.5) / 1500
    assert _chi_square(floor_N + (even < flat_N - floor_N), flat_N) < 1e-6


def _chance_of_rejection(flat_N: np.ndarray, limit: float) -> float:
    """Exact, over all ways to round."""
    floor_N = np.floor(flat_N)
    part_N = flat_N - floor_N
    total = 0.0
    for up in itertools.product((0, 1), repeat=len(flat_N)):
        up_N = np.array(up)
        if np.sum((floor_N + up_N) ** 2) > limit**2:
            total += float(np.prod(np.where(up_N, part_N, 1 - part_N)))
    return total


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "beta"), [(1.5, 0.3), (3.0, 0.1), (6.0, 0.02), (20.0, 0.3)])
def test_theorem_1_bounds_how_often_rounding_is_drawn_again(scale: float, beta: float) -> None:
    rng = np.random.default_rng(3)
    flats = [scale * _unit(rng.normal(size=8)) for _ in range(60)]
    flats += [np.full(8, scale / math.sqrt(8)), np.full(8, 0.5) * min(1, scale / math.sqrt(2))]
    limit = scale * bounds.rounded_norm(8, scale, beta)
    chances = [_chance_of_rejection(flat, limit) for flat in flats]
    assert max(chances) <= beta
    # A limit without room for the rounding would reject more often than that.
    assert max(_chance_of_rejection(flat, scale * (1 + 1e-9)) for flat in flats) > beta


def test_no_vector_leaves_a_device_longer_than_the_limit() -> None:
    own = hadamard.rotation(ORDER, 0, 0)
    encoding = _plan(beta=0.9)
    inputs = _awkward(ORDER, own)
    inputs |= {f"{size:g} {name}": size * x for size in (1.02, 3.0, 1e300) for name, x in inputs.items()}
    inputs |= {"nan": np.full(ORDER, np.nan), "inf": np.full(ORDER, np.inf)}
    with np.errstate(over="ignore", invalid="ignore"):
        for x_P in inputs.values():
            for number in range(20):
                sent_N = round_to_norm(own.forward(x_P) * encoding.scale, encoding, seeded_key(number))
                assert np.linalg.norm(sent_N) <= encoding.norm_limit
    assert not round_to_norm(np.full(ORDER, np.nan), encoding, seeded_key(0)).any()


# The modulus.


@pytest.mark.parametrize("bits", [8, 9, 16, 17, 31, 32, 33, 53, 61, 62])
def test_sums_are_exact_modulo_any_width(bits: int) -> None:
    rng = np.random.default_rng(bits)
    encoding = plan_encoding(64, 3, bits)
    word = word_of(bits)
    parts = rng.integers(0, 1 << bits, size=(7, 64), dtype=np.uint64).astype(word)
    total = _sum(list(parts), bits)
    assert total.tolist() == [sum(column) % (1 << bits) for column in parts.T.tolist()]
    # And back to the centre, checked through a rotation that does nothing.
    small = rng.integers(-(2**6), 2**6, size=1)
    one = replace(encoding, num_parameters=1, order=1, scale=1.0)
    decoded = decode((small.astype(np.int64) % (1 << bits)).astype(word), one, hadamard.Rotation(1, np.ones(1)))
    assert decoded.tolist() == (small * FIXED_POINT).tolist()


@pytest.mark.parametrize(("bits", "devices"), [(8, 5), (8, 63), (12, 1000), (16, 77), (32, 6500), (62, 100)])
def test_a_sum_of_elements_at_the_bound_does_not_wrap(bits: int, devices: int) -> None:
    encoding = plan_encoding(ORDER, devices, bits)
    bound, half = encoding.element_bound, 1 << (bits - 1)
    for sign in (1, -1):
        total = (devices * sign * bound) % (1 << bits)
        assert (total - (1 << bits) if total >= half else total) == devices * sign * bound
        doubled = (devices * sign * 2 * bound) % (1 << bits)
        assert (doubled - (1 << bits) if doubled >= half else doubled) != devices * sign * 2 * bound


def test_element_clip_bounds_elements_and_never_lengthens() -> None:
    own = hadamard.rotation(ORDER, 4, 0)
    encoding = _plan()
    free = replace(encoding, element_bound=1 << 62)
    clipped_any = False
    for x_P in _awkward(ORDER, own).values():
        sent, unclipped = (encode(x_P, plan, own, seeded_key(1)).view(np.int8).astype(int) for plan in (encoding, free))
        assert np.abs(sent).max() <= encoding.element_bound
        assert np.linalg.norm(sent) <= np.linalg.norm(unclipped)
        clipped_any |= bool((sent != unclipped).any())
    assert clipped_any


# Sensitivity of the decoded sum.


def _moves(encoding: bounds.Encoding, x_P: np.ndarray, others: list[np.ndarray], own: hadamard.Rotation) -> float:
    """Largest distance of the decoded sums with the device of ``x_P`` and with it zeroed, over some coins."""
    rest = [encode(other, encoding, own, seeded_key(1000 + index)) for index, other in enumerate(others)]
    without = decode(_sum([*rest, encode(0 * x_P, encoding, own, seeded_key(0))], encoding.bits), encoding, own)
    worst = 0.0
    for number in range(60):
        with_it = decode(_sum([*rest, encode(x_P, encoding, own, seeded_key(number))], encoding.bits), encoding, own)
        worst = max(worst, float(np.linalg.norm((with_it - without) / FIXED_POINT)))
    return worst


@pytest.mark.slow
@pytest.mark.parametrize("bits", [8, 13, 32, 62])
def test_zeroing_a_device_moves_the_sum_by_the_inflated_norm_at_most(bits: int) -> None:
    own = hadamard.rotation(ORDER, 6, 3)
    encoding = plan_encoding(ORDER, 5, bits)
    for x_P in _awkward(ORDER, own).values():
        for y_P in (x_P, -x_P, np.zeros(ORDER)):
            assert _moves(encoding, x_P, [y_P] * 4, own) <= encoding.inflated_norm
    assert _moves(encoding, _awkward(ORDER, own)["gaussian"], [], own) > 0.9


def test_the_bound_fails_without_the_norm_check_and_with_a_doubled_element_bound() -> None:
    own = hadamard.rotation(ORDER, 6, 3)
    encoding = _plan(beta=0.9)
    gaussian, knowing = (_awkward(ORDER, own)[name] for name in ("gaussian", "knows the signs"))
    assert _moves(encoding, gaussian, [], own) <= encoding.inflated_norm
    assert _moves(replace(encoding, norm_limit=math.inf), gaussian, [], own) > encoding.inflated_norm
    doubled = replace(encoding, element_bound=2 * encoding.element_bound)
    assert _moves(encoding, knowing, [knowing] * 9, own) <= encoding.inflated_norm
    # The sixth element of twice the bound is the one that wraps.
    assert _moves(doubled, knowing, [knowing] * 5, own) > encoding.inflated_norm


def test_without_element_clip_only_the_signs_protect() -> None:
    own, later = hadamard.rotation(ORDER, 6, 3), hadamard.rotation(ORDER, 6, 4)
    encoding = replace(_plan(), element_bound=1 << 62)
    knowing = _awkward(ORDER, own)["knows the signs"]
    # The fourth device carries the sum over the edge.
    assert _moves(encoding, knowing, [knowing] * 3, own) > encoding.inflated_norm
    assert _moves(encoding, knowing, [knowing] * 3, later) <= encoding.inflated_norm


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("name", ["constant", "gaussian", "sparse"])
def test_no_more_elements_are_clipped_than_reported(name: str) -> None:
    encoding = _plan()
    x_P = _awkward(ORDER, hadamard.rotation(ORDER, 0, 0))[name]

    def clipped(scale: float) -> float:
        """Share of the elements of 1,500 rotations that the bound would clip."""
        flats = (hadamard.rotation(ORDER, 8, number).forward(x_P) * scale for number in range(1500))
        return float(np.mean([np.mean(np.abs(flat_N) + 1 > encoding.element_bound) for flat_N in flats]))

    assert clipped(encoding.scale) <= encoding.clipped_fraction
    assert clipped(3 * encoding.scale) > encoding.clipped_fraction


@pytest.mark.statistical
def test_decoded_sums_are_as_far_off_as_reported() -> None:
    rng = np.random.default_rng(5)
    encoding = plan_encoding(1500, 20, 14)
    updates = [_unit(rng.normal(size=1500)) * rng.random() for _ in range(20)]
    errors = []
    for number in range(10):
        own = hadamard.rotation(encoding.order, 1, number)
        sent = [encode(x_P, encoding, own, seeded_key(100 * number + i)) for i, x_P in enumerate(updates)]
        errors.append(decode(_sum(sent, 14), encoding, own) / FIXED_POINT - np.sum(updates, axis=0))
    std = float(np.std(errors))
    # Fractional parts are spread evenly: a variance of 1/6 where the bound has 1/4.
    assert std == pytest.approx(encoding.rounding_std * math.sqrt(2 / 3), rel=0.03)
    assert abs(np.mean(errors)) < 4 * std / math.sqrt(15000)
