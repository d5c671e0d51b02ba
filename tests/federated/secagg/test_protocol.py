"""Masks, shares and the server: exact sums, uniform messages, and attacks that only broken variants allow."""

from collections import Counter

import numpy as np
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from federated.config.mechanism import secagg_neighbours, secagg_threshold
from federated.secagg.bounds import plan_encoding
from federated.secagg.device import Device, RevealedShares, pair_seed, pair_sign
from federated.secagg.encode import low_bits
from federated.secagg.masks import combine_shares, split_secret, word_of
from federated.secagg.protocol import check_graph, circulant, exchange_keys, opens, run_protocol, secure_sum
from federated.secagg.server import Server
from federated.workers.streams import add_mask, uniform_blocks
from pretrain.randomness.noise import FIXED_POINT, seeded_key

ROUND = 4
SIZE = 4096


class Recorder(Server):
    """Keeps what devices sent."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self.seen: dict[int, np.ndarray] = {}

    def add(self, index: int, masked_N: np.ndarray) -> None:
        self.seen[index] = masked_N.copy()
        super().add(index, masked_N)


class NoSelfMask(Device):
    """A seeded bug: pairwise masks alone."""

    def masked(self, vector_N: np.ndarray) -> np.ndarray:
        masked_N = super().masked(vector_N)
        add_mask(masked_N, self._self_mask, -1)
        return masked_N & low_bits(self._bits)


class Credulous(Device):
    """A seeded bug: answers whatever it is asked."""

    def open(self, alive: frozenset[int], dropped: frozenset[int]) -> RevealedShares:
        self._opened = False
        self_masks = super().open(alive, frozenset()).self_masks
        self._opened = False
        return RevealedShares(self_masks, super().open(frozenset(), dropped).private_keys)


def _graph(count: int, neighbours: int) -> list[tuple[int, ...]]:
    """The graph of a round, or everybody with everybody as in Bonawitz et al. 2017."""
    if neighbours < count - 1:
        return circulant(count, neighbours, 1, ROUND)
    return [tuple(other for other in range(count) if other != index) for index in range(count)]


def _cohort(
    count: int, bits: int, neighbours: int, threshold: int, kind: type[Device] = Device, size: int = SIZE
) -> tuple[Recorder, list[Device]]:
    devices = [kind(own, ROUND, bits, threshold, seeded_key(own)) for own in range(count)]
    return Recorder(size, bits, _graph(count, neighbours), threshold, ROUND), devices


def _vectors(count: int, bits: int, size: int = SIZE) -> list[np.ndarray | None]:
    words = np.random.default_rng(bits).integers(0, 1 << bits, size=(count, size), dtype=np.uint64)
    return list(words.astype(word_of(bits)))


# Sums.


@pytest.mark.slow
@pytest.mark.parametrize("bits", [8, 13, 16, 31, 32, 33, 62])
@pytest.mark.parametrize(("count", "neighbours", "threshold"), [(6, 20, 3), (12, 4, 3), (13, 6, 4)])
def test_the_sum_of_survivors_is_the_plain_modular_sum(bits: int, count: int, neighbours: int, threshold: int) -> None:
    for dropped in ((), (2,), (1, 5)):
        vectors = _vectors(count, bits, 300)
        for own in dropped:
            vectors[own] = None
        server, devices = _cohort(count, bits, neighbours, threshold, size=300)
        total = run_protocol(server, devices, vectors)
        kept = [vector.tolist() for vector in vectors if vector is not None]
        assert total.tolist() == [sum(column) % (1 << bits) for column in zip(*kept, strict=True)]
        assert server.survivors == count - len(dropped)


def test_without_its_self_mask_a_device_spoils_the_sum() -> None:
    vectors = _vectors(6, 32)
    assert (
        run_protocol(*_cohort(6, 32, 4, 3, NoSelfMask), vectors) != np.sum(vectors, axis=0, dtype="u4")
    ).mean() > 0.9


@pytest.mark.parametrize(("answers", "works"), [(3, True), (2, False)])
def test_one_share_too_few_loses_the_round(answers: int, works: bool) -> None:
    server, devices = _cohort(6, 32, 5, 3)
    vectors = _vectors(6, 32)
    exchange_keys(server, devices)
    # Devices 3 to 5 drop out before sending, and of those alive some do not answer.
    alive = devices[: 3 if answers == 2 else 4]
    for device, vector in zip(alive, vectors, strict=False):
        server.add(device.index, device.masked(vector))
    for device in alive:
        server.collect(device.index, device.open(*server.question(device.index)))
    if works:
        total = np.sum([vectors[device.index] for device in alive], axis=0, dtype="u4")
        np.testing.assert_array_equal(server.unmasked_sum(), total)
    else:
        with pytest.raises(OSError, match="lost this round: 2 shares of a secret came back, 3 are needed"):
            server.unmasked_sum()


def test_a_sum_opens_exactly_where_the_protocol_opens_it() -> None:
    outcomes = set()
    for number in range(40):
        staying, dropped = 5 + number % 4, number % 6
        everybody, threshold = staying + dropped, secagg_threshold(4)
        devices = [Device(own, number, 16, threshold, seeded_key(own)) for own in range(everybody)]
        server = Server(SIZE, 16, circulant(everybody, 4, 1, number), threshold, number)
        vectors = [*_vectors(staying, 16), *[None] * dropped]
        opened = opens(4, 1, staying, dropped, number)
        outcomes.add(opened)
        if opened:
            assert (
                run_protocol(server, devices, vectors).tolist()
                == np.sum(vectors[:staying], axis=0, dtype="u2").tolist()
            )
        else:
            with pytest.raises(OSError, match="lost this round"):
                run_protocol(server, devices, vectors)
    assert outcomes == {True, False}
    # A cohort no larger than a neighbourhood sends nothing, whoever stays.
    assert not opens(4, 1, 4, 0, 0)


def test_nobody_left_loses_the_round() -> None:
    server, devices = _cohort(4, 16, 3, 2)
    with pytest.raises(OSError, match="no device stayed"):
        run_protocol(server, devices, [None] * 4)


def test_a_vector_counts_once_and_not_after_secrets_were_opened() -> None:
    server, devices = _cohort(4, 16, 3, 2)
    exchange_keys(server, devices)
    vector = devices[0].masked(_vectors(4, 16)[0])
    server.add(0, vector)
    with pytest.raises(ValueError, match="device 0 came twice or too late"):
        server.add(0, vector)
    server.question(0)
    with pytest.raises(ValueError, match="device 1 came twice or too late"):
        server.add(1, vector)


# What the server sees.


def _uniform(words_N: np.ndarray, bits: int) -> float:
    """Chi-square probability of evenly filled sixteenths of [0, 2^bits), and of the lowest four bits."""
    top = np.bincount((words_N >> word_of(bits).type(bits - 4)).astype(int), minlength=16)
    low = np.bincount((words_N & word_of(bits).type(15)).astype(int), minlength=16)
    return min(stats.chisquare(top).pvalue, stats.chisquare(low).pvalue)


def _independent(words_N: np.ndarray, plain_N: np.ndarray, bits: int) -> float:
    """Chi-square probability that the top bits tell nothing about the plaintext's."""
    table = np.zeros((8, 8))
    shift = word_of(bits).type(bits - 3)
    np.add.at(table, ((words_N >> shift).astype(int), (plain_N >> shift).astype(int)), 1)
    return stats.chi2_contingency(table).pvalue


@pytest.mark.statistical
@pytest.mark.parametrize("bits", [8, 32, 45])
def test_the_server_sees_uniform_words_whatever_the_plaintext(bits: int) -> None:
    size = 20_000
    vectors = _vectors(6, bits, size)
    vectors[1], vectors[2] = np.zeros(size, word_of(bits)), None
    server, devices = _cohort(6, bits, 4, 3, size=size)
    run_protocol(server, devices, vectors)
    assert sorted(server.seen) == [0, 1, 3, 4, 5]
    words = list(server.seen.values())
    # Sums and differences of two messages too: no pair shares more than half of its masks.
    pairs = [(a + b) & low_bits(bits) for i, a in enumerate(words) for b in words[:i]]
    assert min(_uniform(vector, bits) for vector in [*words, *pairs]) > 1e-4
    for own in (0, 3, 4, 5):
        assert _independent(server.seen[own], vectors[own], bits) > 1e-4
    # The checks reject a plaintext, a mask of half the range, and a plaintext that shows through.
    half = words[0] >> word_of(bits).type(1)
    assert _uniform(vectors[1], bits) < 1e-6
    assert _uniform(half, bits) < 1e-6
    assert _independent((vectors[0] + (half >> word_of(bits).type(1))) & low_bits(bits), vectors[0], bits) < 1e-6


def test_no_mask_is_used_in_two_rounds() -> None:
    """The same devices with the same vectors: the difference of two rounds' messages is uniform again."""
    rounds = []
    for number in (0, 1):
        devices = [Device(own, number, 32, 3, seeded_key(own)) for own in range(5)]
        server = Recorder(SIZE, 32, circulant(5, 4, 1, number), 3, number)
        run_protocol(server, devices, _vectors(5, 32))
        rounds.append(server.seen)
    for own in range(5):
        assert _uniform(rounds[0][own] - rounds[1][own], 32) > 1e-4
    assert _uniform(rounds[0][0] - rounds[0][0], 32) < 1e-6


# Attacks.


def _peeled(
    server: Server, victim: int, masked_N: np.ndarray, private_key: bytes, self_mask: bytes | None
) -> np.ndarray:
    """A device's message with all masks taken off that the server could know of."""

    plain_N = masked_N.copy()
    private = X25519PrivateKey.from_private_bytes(private_key)
    for other, keys in server.keys_for(victim).items():
        add_mask(plain_N, pair_seed(private, keys.masks, ROUND), -pair_sign(victim, other))
    if self_mask is not None:
        add_mask(plain_N, self_mask, -1)
    return plain_N & low_bits(server.bits)


@pytest.mark.parametrize(("kind", "leaks"), [(Device, False), (NoSelfMask, True)])
def test_a_vector_that_comes_late_stays_hidden(kind: type[Device], leaks: bool) -> None:
    """The server takes a slow device for dropped, recovers its private key, and then gets its vector."""
    server, devices = _cohort(6, 32, 5, 3, kind)
    vectors = _vectors(6, 32)
    late = 2
    exchange_keys(server, devices)
    slow = devices[late].masked(vectors[late])
    for device in devices:
        if device.index != late:
            server.add(device.index, device.masked(vectors[device.index]))
    for device in devices:
        if device.index != late:
            server.collect(device.index, device.open(*server.question(device.index)))
    private_key = combine_shares(server.private_keys[late], 3)
    assert not server.self_masks[late]
    recovered = _peeled(server, late, slow, private_key, None)
    assert bool((recovered == vectors[late]).all()) == leaks
    assert (_uniform((recovered - vectors[late]) & low_bits(32), 32) > 1e-4) != leaks


def test_no_device_opens_both_secrets_of_another() -> None:
    server, devices = _cohort(6, 32, 5, 3)
    exchange_keys(server, devices)
    both = frozenset({1})
    with pytest.raises(ValueError, match="asked for both secrets"):
        devices[0].open(both, both)
    devices[0].open(both, frozenset())
    with pytest.raises(ValueError, match="asked for both secrets"):
        devices[0].open(frozenset(), both)


def test_a_device_that_opens_both_gives_its_neighbour_away() -> None:
    server, devices = _cohort(6, 32, 5, 3, Credulous)
    exchange_keys(server, devices)
    vector = _vectors(6, 32)[1]
    masked = devices[1].masked(vector)
    for device in devices:
        if device.index != 1:
            server.collect(device.index, device.open(frozenset({1}), frozenset({1})))
    private_key = combine_shares(server.private_keys[1], 3)
    self_mask = combine_shares(server.self_masks[1], 3)
    np.testing.assert_array_equal(_peeled(server, 1, masked, private_key, self_mask), vector)


@pytest.mark.parametrize(("threshold", "leaks"), [(3, True), (4, False)])
def test_a_server_that_tells_two_stories_needs_a_low_threshold(threshold: int, leaks: bool) -> None:
    """Half of the neighbours hear that device 0 dropped, the others that it lives."""
    server, devices = _cohort(7, 32, 6, threshold)
    exchange_keys(server, devices)
    vector = _vectors(7, 32)[0]
    masked = devices[0].masked(vector)
    victim, nobody = frozenset({0}), frozenset[int]()
    for device in devices[1:]:
        server.collect(device.index, device.open(*((victim, nobody) if device.index <= 3 else (nobody, victim))))
    if leaks:
        private_key = combine_shares(server.private_keys[0], threshold)
        self_mask = combine_shares(server.self_masks[0], threshold)
        np.testing.assert_array_equal(_peeled(server, 0, masked, private_key, self_mask), vector)
    else:
        with pytest.raises(OSError, match="3 shares of a secret came back, 4 are needed"):
            combine_shares(server.private_keys[0], threshold)
        assert threshold == secagg_threshold(6)


def test_messages_between_devices_cannot_be_changed_or_swapped() -> None:
    server, devices = _cohort(4, 16, 3, 2)
    for device in devices:
        server.advertise(device.index, device.advertise())
    messages = {device.index: device.share(server.keys_for(device.index)) for device in devices}
    sent = messages[0][1]
    for wrong in (sent[:-1] + bytes([sent[-1] ^ 1]), messages[0][2], messages[1][0]):
        with pytest.raises(InvalidTag):
            devices[1].receive(0, wrong)
    assert len(Counter(message for own in messages.values() for message in own.values())) == 12


def test_a_wrong_share_of_a_private_key_is_noticed() -> None:
    server, devices = _cohort(5, 16, 4, 3)
    vectors = _vectors(5, 16)
    exchange_keys(server, devices)
    for device in devices[1:]:
        server.add(device.index, device.masked(vectors[device.index]))
    for device in devices[1:]:
        opened = device.open(*server.question(device.index))
        wrong = {own: (number, bytes(32)) for own, (number, _) in opened.private_keys.items()}
        server.collect(
            device.index, RevealedShares(opened.self_masks, wrong if device.index == 1 else opened.private_keys)
        )
    with pytest.raises(ArithmeticError, match="a share is wrong"):
        server.unmasked_sum()


# Keystream, shares and graph.


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


P = 700


def _updates(count: int) -> list[np.ndarray | None]:
    rng = np.random.default_rng(7)
    rows = rng.normal(size=(count, P))
    return list(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def _sent(updates: list[np.ndarray | None]) -> list[tuple[np.ndarray, int] | None]:
    """Each update with twice its bit: of three devices one below, one above, one that contributes nothing."""
    return [None if update is None else (update, (1, -1, 0)[index % 3]) for index, update in enumerate(updates)]


def _secure_sum(updates: list[np.ndarray | None], bits: int = 24, round_number: int = 2, key: int = 0) -> np.ndarray:
    encoding, sent = plan_encoding(P, 12, bits), _sent(updates)
    done = secure_sum(iter(sent), len(updates), encoding, round_number, seeded_key(key), 5, 6)
    assert done.survivors + done.dropped == len(updates)
    assert done.dropped == sum(update is None for update in updates)
    assert done.unnoised_below == sum(each[1] for each in sent if each is not None) / 2
    return done.unnoised_sum_P


@pytest.mark.parametrize("bits", [8, 24, 62])
@pytest.mark.parametrize("bit", [1, -1])
def test_the_sum_of_bits_is_exact_where_all_are_alike(bits: int, bit: int) -> None:
    encoding = plan_encoding(P, 12, bits)
    done = secure_sum(((update, bit) for update in _updates(12)), 12, encoding, 2, seeded_key(0), 5, 6)
    assert done.unnoised_below == 6 * bit


@pytest.mark.slow
@pytest.mark.parametrize("bits", [10, 16, 24, 32, 62])
def test_a_secure_sum_is_the_sum_up_to_rounding(bits: int) -> None:
    updates = _updates(12)
    updates[3] = updates[8] = None
    plain = np.sum([update for update in updates if update is not None], axis=0)
    std = float(np.std(_secure_sum(updates, bits) / FIXED_POINT - plain))
    encoding = plan_encoding(P, 12, bits)
    assert std <= encoding.rounding_std * 1.1 + 1 / FIXED_POINT
    if bits < 50:
        assert std >= 0.6 * encoding.rounding_std


def test_devices_that_drop_out_beside_the_cohort_leave_its_sum_as_it_is() -> None:
    encoding, sent = plan_encoding(P, 12, 62), _sent(_updates(12))
    stayed, dropped = (
        secure_sum(iter(sent), 12, encoding, 2, seeded_key(0), 5, 6, dropped=number) for number in (0, 3)
    )
    assert (stayed.dropped, dropped.dropped, dropped.survivors) == (0, 3, 12)
    np.testing.assert_array_equal(stayed.unnoised_sum_P, dropped.unnoised_sum_P)


def test_a_retry_is_the_same_release_and_another_round_is_not() -> None:
    updates = _updates(12)
    first = _secure_sum(updates)
    np.testing.assert_array_equal(first, _secure_sum(updates))
    assert (first != _secure_sum(updates, round_number=3)).any()
    assert (first != _secure_sum(updates, key=1)).any()


def test_a_cohort_beyond_the_plan_is_refused_and_a_short_one_too() -> None:
    encoding = plan_encoding(P, 11, 24)
    with pytest.raises(ValueError, match="num_devices: 12, but the encoding holds sums over 11"):
        secure_sum(iter(_sent(_updates(12))), 12, encoding, 0, seeded_key(0), 0, 6)
    with pytest.raises(ValueError, match="shorter"):
        secure_sum(iter(_sent(_updates(10))), 11, encoding, 0, seeded_key(0), 0, 6)
