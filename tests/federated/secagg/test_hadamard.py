"""The flattening transform against dense matrices, exact integers and its tail bound."""

import math

import numpy as np
import pytest
from scipy.linalg import hadamard as sylvester

from federated.secagg import hadamard

ORDERS = (1, 2, 8, 12, 16, 20, 24, 40, 48, 64, 80, 128, 192, 256, 320, 1536)


def _dense(order: int, seed: int = 3) -> np.ndarray:
    """The transform as a matrix, column by column."""
    own = hadamard.rotation(order, seed, 0)
    return np.stack([own.forward(column) for column in np.eye(order)], axis=1)


@pytest.mark.parametrize("order", ORDERS)
def test_is_an_orthogonal_matrix_of_equal_magnitudes(order: int) -> None:
    dense = _dense(order)
    np.testing.assert_allclose(np.abs(dense), 1 / math.sqrt(order), rtol=1e-14)
    np.testing.assert_allclose(dense @ dense.T, np.eye(order), atol=1e-13)


@pytest.mark.parametrize("order", [1, 2, 4, 16, 64, 128, 512])
def test_powers_of_two_are_the_library_matrix_with_signed_columns(order: int) -> None:
    signs_N = hadamard.rotation(order, 3, 0).signs_N
    np.testing.assert_allclose(_dense(order), sylvester(order) * signs_N / math.sqrt(order), rtol=1e-14)


@pytest.mark.parametrize("order", ORDERS)
def test_backward_undoes_forward(order: int) -> None:
    own = hadamard.rotation(order, 5, 7)
    x_N = np.random.default_rng(0).normal(size=order)
    np.testing.assert_allclose(own.backward(own.forward(x_N)), x_N, atol=1e-13)
    assert np.linalg.norm(own.forward(x_N)) == pytest.approx(np.linalg.norm(x_N), rel=1e-13)


def test_orders_waste_at_most_a_third() -> None:
    for size in [*range(1, 3000), 2_400_000, 2**21 + 1]:
        order = hadamard.order_of(size)
        assert size <= order
        assert order <= max(4 / 3 * size, 8)
        assert math.prod(hadamard.factors(order)) == order
    assert hadamard.order_of(2_400_000) == 20 * 2**17


def test_refuses_an_order_without_a_matrix() -> None:
    with pytest.raises(ValueError, match="order: no matrix of order 36"):
        hadamard.factors(36)


@pytest.mark.parametrize("order", [64, 80, 96, 4096])
def test_arithmetic_error_is_bounded_against_exact_integers(order: int) -> None:
    own = hadamard.rotation(order, 1, 2)
    rng = np.random.default_rng(order)
    integers_N = rng.integers(-(2**52), 2**52, size=order)
    # Sylvester and Paley matrices of signs.
    exact = np.ones((1, 1))
    for part in hadamard.factors(order):
        exact = np.kron(exact, np.rint(hadamard.sign_matrix(part)))
    # Halves of 26 bits, whose sums floats hold exactly; Python's integers join them.
    high_N, low_N = np.divmod(integers_N * own.signs_N.astype(np.int64), 2**26)
    truth = [int(a) * 2**26 + int(b) for a, b in zip(exact @ high_N, exact @ low_N, strict=True)]
    ours = own.forward(integers_N.astype(np.float64))
    root = math.sqrt(order)
    error = math.sqrt(sum((float(a) / root - b) ** 2 for a, b in zip(truth, ours, strict=True)))
    assert error <= hadamard.arithmetic_error(order) * np.linalg.norm(integers_N.astype(float))
    assert hadamard.arithmetic_error(2**22) < 1e-12


def test_signs_are_fair_and_differ_between_rounds_and_seeds() -> None:
    rounds = [hadamard.rotation(4096, seed, number).signs_N for seed, number in ((1, 0), (1, 1), (2, 0))]
    for signs_N in rounds:
        assert set(signs_N) == {-1.0, 1.0}
        assert abs(signs_N.sum()) < 4 * 64
    assert abs(rounds[0] @ rounds[1]) < 4 * 64
    assert abs(rounds[0] @ rounds[2]) < 4 * 64
    np.testing.assert_array_equal(rounds[0], hadamard.rotation(4096, 1, 0).signs_N)


def _worst(order: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    gaussian = rng.normal(size=order)
    return {
        "constant": np.full(order, order**-0.5),
        "gaussian": gaussian / np.linalg.norm(gaussian),
        "half": np.repeat([2**0.5, 0.0], order // 2) * order**-0.5,
    }


def _exceeding(x_N: np.ndarray, tau: float, rotations: list[hadamard.Rotation]) -> float:
    """Share of rotated elements above tau / sqrt(N)."""
    return float(np.mean([np.mean(np.abs(own.forward(x_N)) > tau / math.sqrt(own.order)) for own in rotations]))


@pytest.mark.statistical
@pytest.mark.parametrize("name", ["constant", "gaussian", "half"])
@pytest.mark.parametrize("tau", [2.0, 3.0, 4.0])
def test_flattened_elements_keep_the_tail_bound(name: str, tau: float) -> None:
    order = 640
    rotations = [hadamard.rotation(order, 9, number) for number in range(400)]
    bound = 2 * math.exp(-(tau**2) / 2)
    x_N = _worst(order)[name]
    assert _exceeding(x_N, tau, rotations) <= bound
    # Twice as long a vector breaks it, and so the check can fail.
    assert _exceeding(2.0 * x_N, tau, rotations) > bound


def test_without_signs_a_vector_can_pile_up() -> None:
    plain = hadamard.Rotation(1024, np.ones(1024))
    assert plain.forward(np.full(1024, 1 / 32))[0] == pytest.approx(1.0)
    assert np.abs(hadamard.rotation(1024, 0, 0).forward(np.full(1024, 1 / 32))).max() < 0.2
