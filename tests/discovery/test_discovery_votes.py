"""The batched route sends what devices send one by one, bit for bit, and what travels comes back whole."""

import itertools

import numpy as np
import pytest

from discovery import trie, votes
from discovery.config import DiscoveryConfig
from discovery.device import END, Broadcast
from discovery.encoding import decode, encode, message_bytes
from discovery.keystream import Keystream, first_words
from discovery.randomizer import of_size, randomise, subset_selection

KEY = bytes(range(32))
LETTERS = "abcdefgh" + END
KNOWN = frozenset({"ab", "cab"})


def people(count: int) -> list[list[str]]:
    rng = np.random.default_rng(3)
    alphabet = list("abcdefghx")
    return [
        ["".join(rng.choice(alphabet, size=rng.integers(0, 7))) for _ in range(rng.integers(0, 25))]
        for _ in range(count)
    ]


def config(**changes) -> DiscoveryConfig:
    values = {"epsilon0": 4.0, "delta": 1e-6, "messages_per_device": 3, "layers": 6, "max_prefixes": 50}
    return DiscoveryConfig(**(values | changes))


def both_routes(broadcast: Broadcast, randomizer, settings: DiscoveryConfig, devices: np.ndarray):
    words = dict(zip(devices.tolist(), people(len(devices)), strict=True))
    asked = (devices, words, KNOWN, broadcast, randomizer, settings, KEY)
    return trie.ask_one_by_one(*asked), trie.ask_together(*asked)


@pytest.mark.parametrize("sampler", ["random", "greedy"])
@pytest.mark.parametrize("contributions", [1, 3, 10])
@pytest.mark.parametrize("epsilon0", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("layer", [1, 2, 3])
def test_batches_send_the_same_bits(layer, epsilon0, contributions, sampler):
    prefixes = tuple(sorted("".join(letters) for letters in itertools.product("abcd", repeat=layer - 1)))
    broadcast = Broadcast(layer, prefixes, LETTERS)
    randomizer = subset_selection(epsilon0, broadcast.domain)
    settings = config(epsilon0=epsilon0, messages_per_device=contributions, sampler=sampler)
    alone, together = both_routes(broadcast, randomizer, settings, np.arange(80) * 7 + 5)
    assert np.array_equal(alone, together)
    assert together.sum() == 80 * contributions * randomizer.size


@pytest.mark.parametrize("size", [1, 4, 5, 8, 9])
def test_subsets_of_most_of_the_domain_too(size):
    broadcast = Broadcast(1, ("",), LETTERS)
    assert np.array_equal(*both_routes(broadcast, of_size(1.0, 10, size), config(), np.arange(60)))


def test_devices_whose_words_run_out_still_answer(monkeypatch):
    broadcast = Broadcast(1, ("",), LETTERS)
    randomizer = of_size(1.0, 10, 4)
    expected, _ = both_routes(broadcast, randomizer, config(), np.arange(60))
    for width in (1, 6, 14, 19):
        monkeypatch.setattr(votes, "_words_needed", lambda *_, width=width: width)
        assert np.array_equal(both_routes(broadcast, randomizer, config(), np.arange(60))[1], expected)


def test_next_to_no_device_runs_out():
    randomizer, count = subset_selection(3.0, 2000), 20_000
    votes_d = np.zeros(2000, dtype=np.int64)
    nothing = np.empty(0, dtype=np.int64)
    starts = np.zeros(count + 1, dtype=np.int64)
    left = votes.add_votes(votes_d, randomizer, np.arange(count), starts, nothing, nothing, 2, False, KEY, "n")
    assert len(left) <= 2
    assert votes_d.sum() == (count - len(left)) * 2 * randomizer.size


@pytest.mark.statistical
def test_the_batched_votes_follow_the_law():
    randomizer, count, value = subset_selection(2.0, 60), 40_000, 11
    votes_d = np.zeros(60, dtype=np.int64)
    items, ones = np.full(count, value), np.ones(count, dtype=np.int64)
    votes.add_votes(votes_d, randomizer, np.arange(count), np.arange(count + 1), items, ones, 1, False, KEY, "l")

    def accepted(true_rate: float, other_rate: float) -> bool:
        rates = np.full(60, other_rate)
        rates[value] = true_rate
        return bool(np.all(np.abs(votes_d - count * rates) < 5 * np.sqrt(count * rates * (1 - rates))))

    p, q = randomizer.inclusion, randomizer.background
    assert accepted(p, q)
    for wrong in ((p + 0.02, q), (p - 0.02, q), (p, q * 1.1), (p, q * 0.9), (p * 2 / 3, q)):
        assert not accepted(*wrong)


def test_a_wrong_number_of_votes_stops_the_layer(monkeypatch):
    monkeypatch.setattr(trie, "ask_one_by_one", lambda *asked: np.ones(asked[3].domain, dtype=np.int64))
    with pytest.raises(ArithmeticError, match="votes"):
        trie.run_layer(Broadcast(1, ("",), LETTERS), np.arange(30), people(30), KNOWN, config(), KEY)


@pytest.mark.parametrize("count", [1, 2, 7, 300])
def test_first_words_are_those_of_each_device(count):
    devices = np.array([0, 3, 2**40])
    rows = first_words(KEY, "x", devices, count)
    for device, row in zip(devices.tolist(), rows, strict=True):
        assert np.array_equal(row, Keystream(KEY, "x", device).words(count))
    assert len(np.unique(rows)) == rows.size


@pytest.mark.parametrize(("domain", "size"), [(2, 1), (3, 2), (256, 5), (257, 5), (100_001, 33)])
def test_a_message_comes_back_from_its_bytes(domain, size):
    randomizer = of_size(2.0, domain, size)
    bits = Keystream(KEY, f"{domain}")
    for value in (0, domain // 2, domain - 1):
        message = randomise(randomizer, value, bits)
        content = encode(randomizer, message)
        assert len(content) == message_bytes(randomizer)
        assert np.array_equal(decode(randomizer, content), message)
    assert message_bytes(of_size(8.0, 1_000_000, 335)) == 838  # 335 numbers of 20 bits


@pytest.mark.parametrize(
    "content",
    [b"", bytes(3), b"\x00\x00", b"\x21\x00", b"\x01\xa0", b"\x01\x21"],
    ids=["short", "long", "twice the same", "descending", "outside", "padding"],
)
def test_what_no_device_sends_is_refused(content):
    randomizer = of_size(1.0, 10, 3)  # three numbers of 4 bits, 4 bits of padding
    assert decode(randomizer, b"\x01\x20").tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="message"):
        decode(randomizer, content)
