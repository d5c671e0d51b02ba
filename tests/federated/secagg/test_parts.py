"""Keystream, sharing, graph, and the whole as the round loop calls it."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from federated.config.mechanism import secagg_neighbours, secagg_threshold
from federated.secagg.bounds import plan_encoding
from federated.secagg.masks import combine_shares, split_secret, word_of
from federated.secagg.protocol import check_graph, circulant, secure_sum
from federated.workers.streams import add_mask, uniform_blocks
from pretrain.randomness.noise import FIXED_POINT, seeded_key

P = 700


@pytest.mark.parametrize("bits", [8, 16, 32, 62])
@pytest.mark.parametrize("size", [1, 15, 70_001, 300_000])
def test_masks_are_the_aes_keystream(bits: int, size: int) -> None:
    word, key = word_of(bits), seeded_key(1)
    expected = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(size * word.itemsize))
    pieces = [words.copy() for _, words in uniform_blocks(key, word, size)]
    assert np.concatenate(pieces).tobytes() == expected
    total = np.arange(size).astype(word)
    add_mask(total, key, 1)
    np.testing.assert_array_equal(total - np.arange(size).astype(word), np.frombuffer(expected, word))
    add_mask(total, key, -1)
    np.testing.assert_array_equal(total, np.arange(size).astype(word))


def test_any_threshold_shares_recover_and_fewer_do_not() -> None:
    secret = bytes(range(32))
    shares = dict(enumerate(split_secret(secret, 3, 5), start=1))
    for some in ((1, 2, 3), (2, 4, 5), (1, 2, 3, 4, 5)):
        assert combine_shares({number: shares[number] for number in some}, 3) == secret
    with pytest.raises(OSError, match="2 shares of a secret came back, 3 are needed"):
        combine_shares({1: shares[1], 2: shares[2]}, 3)
    assert combine_shares({1: shares[1], 2: shares[2]}, 2) != secret
    # Two shares fit every secret: with any third share they recover some other one.
    others = {combine_shares({1: shares[1], 2: shares[2], 3: bytes([byte]) * 32}, 3) for byte in range(20)}
    assert len(others) == 20
    assert secret not in others


@pytest.mark.parametrize(("devices", "neighbours"), [(3, 2), (5, 4), (21, 20), (22, 20), (30, 8), (100, 6)])
def test_the_graph_is_regular_mutual_connected_and_new_every_round(devices: int, neighbours: int) -> None:
    graph = circulant(devices, neighbours, 3, 0)
    for own, others in enumerate(graph):
        assert len(set(others)) == len(others) == neighbours
        assert own not in others
        assert all(own in graph[other] for other in others)
    reached, front = {0}, {0}
    while front:
        front = {other for own in front for other in graph[own]} - reached
        reached |= front
    assert len(reached) == devices
    assert graph == circulant(devices, neighbours, 3, 0)
    if neighbours < devices - 1:
        assert graph != circulant(devices, neighbours, 3, 1)


def test_a_cohort_no_larger_than_a_neighbourhood_is_refused() -> None:
    with pytest.raises(ValueError, match="1 devices in a round are too few for masks shared with 2 others"):
        check_graph(1, secagg_neighbours(1))
    for goal in range(3, 200):
        neighbours = secagg_neighbours(goal)
        check_graph(goal, neighbours)
        assert (neighbours % 2, 0 < neighbours <= 20) == (0, True)
        assert neighbours < 2 * secagg_threshold(neighbours) <= 2 * neighbours
    assert secagg_neighbours(100) == secagg_neighbours(6500) == 20


# The whole.


def _updates(count: int) -> list[np.ndarray | None]:
    rng = np.random.default_rng(7)
    rows = rng.normal(size=(count, P))
    return list(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def _run(updates: list[np.ndarray | None], bits: int = 24, round_number: int = 2, key: int = 0) -> np.ndarray:
    encoding = plan_encoding(P, 12, bits)
    done = secure_sum(iter(updates), len(updates), encoding, round_number, seeded_key(key), 5, 6)
    assert done.survivors + done.dropped == len(updates)
    assert done.dropped == sum(update is None for update in updates)
    return done.unnoised_sum_P


@pytest.mark.slow
@pytest.mark.parametrize("bits", [10, 16, 24, 32, 62])
def test_a_secure_sum_is_the_sum_up_to_rounding(bits: int) -> None:
    updates = _updates(12)
    updates[3] = updates[8] = None
    plain = np.sum([update for update in updates if update is not None], axis=0)
    std = float(np.std(_run(updates, bits) / FIXED_POINT - plain))
    encoding = plan_encoding(P, 12, bits)
    assert std <= encoding.rounding_std * 1.1 + 1 / FIXED_POINT
    if bits < 50:
        assert std >= 0.6 * encoding.rounding_std


def test_a_retry_is_the_same_release_and_another_round_is_not() -> None:
    updates = _updates(12)
    first = _run(updates)
    np.testing.assert_array_equal(first, _run(updates))
    assert (first != _run(updates, round_number=3)).any()
    assert (first != _run(updates, key=1)).any()


def test_a_cohort_beyond_the_plan_is_refused_and_a_short_one_too() -> None:
    encoding = plan_encoding(P, 11, 24)
    with pytest.raises(ValueError, match="num_devices: 12, but the encoding holds sums over 11"):
        secure_sum(iter(_updates(12)), 12, encoding, 0, seeded_key(0), 0, 6)
    with pytest.raises(ValueError, match="shorter"):
        secure_sum(iter(_updates(10)), 11, encoding, 0, seeded_key(0), 0, 6)
