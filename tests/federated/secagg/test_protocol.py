"""Masks, shares and the server: exact sums, uniform messages, and attacks that only broken variants allow."""

from collections import Counter

import numpy as np
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from scipy import stats

from federated.config.mechanism import secagg_threshold
from federated.secagg.device import Device, Opened, pair_seed, pair_sign
from federated.secagg.encode import low_bits
from federated.secagg.masks import combine_shares, word_of
from federated.secagg.protocol import circulant, exchange_keys, run_protocol
from federated.secagg.server import Server
from federated.workers.streams import add_mask
from pretrain.randomness.noise import seeded_key

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

    def open(self, alive: frozenset[int], dropped: frozenset[int]) -> Opened:
        self._opened = False
        self_masks = super().open(alive, frozenset()).self_masks
        self._opened = False
        return Opened(self_masks, super().open(frozenset(), dropped).private_keys)


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
        server.collect(device.index, Opened(opened.self_masks, wrong if device.index == 1 else opened.private_keys))
    with pytest.raises(ArithmeticError, match="a share is wrong"):
        server.unmasked_sum()
