"""Direction canaries against the dense Hadamard matrix; whiteners against the mechanisms' own noise."""

import numpy as np
import pytest
from scipy import linalg

from evaluation.audit import whitening
from evaluation.audit.directions import UPDATE_NORM, Directions, hadamard, most_directions, unauditable
from evaluation.audit.matched_filter import whiteness
from federated import mechanisms
from federated.mechanisms.banded import Banded, from_coefficients
from federated.mechanisms.blt import Blt
from federated.mechanisms.tree import Tree, prefix_variances
from pretrain.randomness import noise


def test_the_fast_transform_is_the_dense_matrix() -> None:
    rng = np.random.default_rng(0)
    for size in (1, 2, 128, 512):
        vector = rng.standard_normal(size)
        np.testing.assert_allclose(hadamard(vector), linalg.hadamard(size) @ vector, atol=1e-10)


@pytest.mark.parametrize("layers", [(2048,), (1800, 500, 500)])
def test_directions_are_unit_rows_and_projections_their_inner_products(layers: tuple[int, ...]) -> None:
    directions = Directions(layers, 40, seed=1)
    rows_NP = np.stack([directions.update(number) for number in range(40)]).astype(np.float64) / UPDATE_NORM
    np.testing.assert_allclose(np.linalg.norm(rows_NP, axis=1), 1, rtol=1e-6)
    vector_P = np.random.default_rng(0).standard_normal(sum(layers))
    np.testing.assert_allclose(directions.project(vector_P), rows_NP @ vector_P, atol=1e-6)
    for part in np.split(rows_NP, np.cumsum(layers)[:-1], axis=1):
        # Cut rows that are alike in a small layer are told apart in others.
        np.testing.assert_allclose(np.sum(part**2, axis=1), 1 / len(layers), rtol=1e-6 if layers == (2048,) else 0.3)
    cross = np.abs(rows_NP @ rows_NP.T - np.eye(40))
    # Orthonormal also where rows are cut; in float32, as a device would send them.
    assert cross.max() < 1e-6


def test_a_function_of_the_seed_that_is_committed_to() -> None:
    one, same, other = (Directions((1000,), 200, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.update(7), same.update(7))
    np.testing.assert_array_equal(one.included_N, same.included_N)
    assert one.commitment == same.commitment != other.commitment
    assert not np.array_equal(one.update(7), other.update(7))
    assert 70 < one.included_N.sum() < 130
    with pytest.raises(ValueError, match="11 directions in 10 dimensions"):
        Directions((10,), 11, 1)


@pytest.mark.parametrize(
    "mechanism",
    [
        Tree(1.0),
        Tree(1.0, (5, 11)),
        Blt(1.0, (0.9, 0.5), (0.3, 0.2)),
        Blt(1.0, (0.9,), (0.4,), (6,)),
        from_coefficients(1.0, np.array([1.0, 0.5, 0.3]), 16),
    ],
)
def test_whitened_noise_of_the_mechanism_is_independent(mechanism: Tree | Blt | Banded) -> None:
    rounds, size = 16, 40_000
    whitener_TT = mechanisms.whitener(mechanism, rounds, whitening.of_tree, whitening.of_coefficients)
    assert np.array_equal(whitener_TT, np.tril(whitener_TT))
    state, rows = mechanism.init(size), []
    for number in range(rounds):
        row_P, state = mechanism.noise(state, number, noise.seeded_key(1))
        rows.append(row_P)
    white_TP = whitener_TT @ np.array(rows)
    covariance_TT = white_TP @ white_TP.T / size
    np.testing.assert_allclose(covariance_TT, np.eye(rounds), atol=6 / np.sqrt(size))
    assert whiteness(white_TP).p_value > 0.01
    # The whitener of another mechanism leaves rounds that tell of each other.
    assert whiteness(whitening.of_coefficients(0.8 ** np.arange(rounds)) @ np.array(rows)).p_value < 1e-6


def test_a_trees_whitener_charges_no_more_than_the_accountant_and_its_prefixes_are_the_papers() -> None:
    for rounds, restarts in ((13, (5,)), (16, ()), (31, (8, 9))):
        mixing_TK, _ = whitening.tree_noise(rounds, restarts)
        prefix_TK = np.cumsum(mixing_TK, axis=0)
        np.testing.assert_allclose(np.sum(prefix_TK**2, axis=1), prefix_variances(rounds, restarts), rtol=1e-12)
        whitener_TT = whitening.of_tree(rounds, restarts)
        pattern_T = np.zeros(rounds)
        pattern_T[[0, rounds // 2]] = 1
        charged = Tree(2.0, restarts).sensitivity_squared(rounds, rounds // 2, 2) ** 0.5 / 2
        assert 0.7 * charged < whitening.mu_of_pattern(whitener_TT, pattern_T, 2.0) <= charged


def test_whiteness_sees_one_repeated_round_and_a_weak_lag() -> None:
    rng = np.random.default_rng(0)
    noise_TN = rng.standard_normal((50, 300))
    assert whiteness(noise_TN).p_value > 0.05
    twice = noise_TN.copy()
    twice[40] = twice[3]
    assert whiteness(twice).rounds == (3, 40)
    assert whiteness(twice).p_value < 1e-20
    dragging = noise_TN.copy()
    dragging[1:] += 0.1 * noise_TN[:-1]
    assert whiteness(dragging).lag == 1
    assert whiteness(dragging).p_value < 1e-6
    with pytest.raises(ArithmeticError, match="round 2 has no noise"):
        whiteness(noise_TN * (np.arange(50) != 2)[:, None])
    with pytest.raises(ValueError, match="at least 2 rounds"):
        whiteness(noise_TN[:1])


@pytest.mark.statistical
def test_whiteness_of_independent_noise_keeps_its_level() -> None:
    rng = np.random.default_rng(3)
    p_values = [whiteness(rng.standard_normal((12, 40))).p_value for _ in range(500)]
    assert 0.01 < np.mean(np.array(p_values) < 0.05) < 0.07


def test_many_directions_in_few_weights_show_a_length_without_bias() -> None:
    """500 in 1,428, as in a test launch: what canaries add together has each one's length along its direction."""
    directions = Directions((1428,), 500, seed=4)
    sent = np.flatnonzero(directions.included_N)
    total_P = np.sum([directions.update(number) for number in sent], axis=0, dtype=np.float64) / UPDATE_NORM
    np.testing.assert_allclose(directions.project(total_P), directions.included_N, atol=1e-5)


@pytest.mark.parametrize("parameters", [2_049, 32_768, 32_769, 61_823, 65_536, 65_537, 1_000_003])
def test_the_most_directions_of_a_model_are_all_that_an_audit_accepts(parameters: int) -> None:
    most = most_directions(parameters)
    assert not unauditable(most, rounds=2, parameters=parameters)
    assert unauditable(most + 1, rounds=2, parameters=parameters)


def test_rounding_is_that_of_float32() -> None:
    directions, rng = Directions((900, 100), 40, seed=2), np.random.default_rng(0)
    weights_P = rng.standard_normal(1000)
    errors = directions.project(weights_P.astype(np.float32) - weights_P)
    assert 0.1 * directions.rounding(weights_P) < np.std(errors) < directions.rounding(weights_P)
