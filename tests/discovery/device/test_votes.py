"""The batched route sends what devices send one by one, bit for bit, and what travels comes back whole."""

import itertools
import math
import os
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

import numpy as np
import pytest

from discovery.config import TrieConfig
from discovery.device import votes as shards
from discovery.device.answer import END, Broadcast, Question
from discovery.device.keystream import Keystream, first_words
from discovery.device.randomizer import of_size, subset_selection
from discovery.device.typed import TypedWords
from tests.helpers.text.tries import trie_config

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


def config(**changes) -> TrieConfig:
    usual = {"epsilon0": 4.0, "messages_per_device": 3, "layers": 6, "max_prefixes": 50}
    return trie_config(**usual | changes)


def asked(broadcast: Broadcast, randomizer, settings: TrieConfig) -> Question:
    return Question(broadcast, randomizer, KNOWN, settings)


def both_routes(question: Question, devices: np.ndarray, monkeypatch) -> list[np.ndarray]:
    typed, routes = TypedWords.gather(people(len(devices))), []
    for worth in (10**9, 0):
        monkeypatch.setattr(shards, "WORTH_COMPILING", worth)
        routes.append(shards.votes_of_shard(question, devices, typed, KEY).votes_d)
    return routes


@pytest.mark.parametrize("worth", [10**9, pytest.param(0, marks=pytest.mark.slow)], ids=["one by one", "together"])
def test_the_secret_key_decides_what_is_sent(worth, monkeypatch):
    monkeypatch.setattr(shards, "WORTH_COMPILING", worth)
    broadcast = Broadcast(1, ("",), LETTERS)
    question = asked(broadcast, subset_selection(2.0, broadcast.domain), config(epsilon0=2.0))
    typed, devices = TypedWords.gather(people(60)), np.arange(60)
    first, again, other = (
        shards.votes_of_shard(question, devices, typed, key).votes_d for key in (KEY, KEY, bytes(32))
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["random", "greedy"])
@pytest.mark.parametrize("contributions", [1, 3, 10])
@pytest.mark.parametrize("epsilon0", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("layer", [1, 2, 3])
def test_batches_send_the_same_bits(layer, epsilon0, contributions, sampler, monkeypatch):
    prefixes = tuple(sorted("".join(letters) for letters in itertools.product("abcd", repeat=layer - 1)))
    broadcast = Broadcast(layer, prefixes, LETTERS)
    randomizer = subset_selection(epsilon0, broadcast.domain)
    settings = config(epsilon0=epsilon0, messages_per_device=contributions, sampler=sampler)
    alone, together = both_routes(asked(broadcast, randomizer, settings), np.arange(80) * 7 + 5, monkeypatch)
    assert np.array_equal(alone, together)
    assert together.sum() == 80 * contributions * randomizer.size


FIRST = Broadcast(1, ("",), LETTERS)


@pytest.mark.parametrize("size", [1, 4, 5, 8, 9])
def test_subsets_of_most_of_the_domain_too(size, monkeypatch):
    assert np.array_equal(*both_routes(asked(FIRST, of_size(1.0, 10, size), config()), np.arange(60), monkeypatch))


@pytest.mark.slow
def test_devices_whose_words_run_out_still_answer(monkeypatch):
    question = asked(FIRST, of_size(1.0, 10, 4), config())
    expected, _ = both_routes(question, np.arange(60), monkeypatch)
    for width in (1, 6, 14, 19, 31):
        monkeypatch.setattr(shards, "words_needed", lambda *_, width=width: width)
        assert np.array_equal(both_routes(question, np.arange(60), monkeypatch)[1], expected)


def silent(count: int) -> TypedWords:
    return TypedWords((), np.zeros(count + 1, dtype=np.int64), np.empty(0, dtype=np.int32))


@pytest.mark.parametrize("contributions", [1, 10])
def test_next_to_no_device_runs_out(contributions, monkeypatch):
    broadcast = Broadcast(2, tuple("abcdefgh"), LETTERS * 30)
    question = asked(broadcast, subset_selection(3.0, broadcast.domain), config(messages_per_device=contributions))
    late = []
    monkeypatch.setattr(shards, "one_by_one", lambda votes_d, question, devices_N, *_: late.extend(devices_N))
    shard = shards.votes_of_shard(question, np.arange(20_000), silent(20_000), KEY)
    assert len(late) <= 2
    assert shard.votes_d.sum() == (20_000 - len(late)) * contributions * question.randomizer.size


@pytest.mark.statistical
def test_the_batched_votes_follow_the_law():
    count, word = 40_000, 11
    broadcast = Broadcast(2, tuple("abcdefgh"), LETTERS)
    randomizer = subset_selection(2.0, broadcast.domain)
    question = asked(broadcast, randomizer, config(messages_per_device=1))
    typed = TypedWords((broadcast.candidate(word),), np.arange(count + 1), np.zeros(count, dtype=np.int32))
    votes_d = shards.votes_of_shard(question, np.arange(count), typed, KEY).votes_d

    def accepted(true_rate: float, other_rate: float) -> bool:
        rates = np.full(broadcast.domain, other_rate)
        rates[word] = true_rate
        return bool(np.all(np.abs(votes_d - count * rates) < 5 * np.sqrt(count * rates * (1 - rates))))

    p, q = randomizer.inclusion, randomizer.background
    assert accepted(p, q)
    for wrong in ((p + 0.02, q), (p - 0.02, q), (p, q * 1.1), (p, q * 0.9), (p * 2 / 3, q)):
        assert not accepted(*wrong)


def test_a_wrong_number_of_votes_stops_the_layer():
    question = asked(FIRST, of_size(1.0, 10, 4), config())
    good = shards.votes_of_shard(question, np.arange(30), TypedWords.gather(people(30)), KEY)
    assert np.array_equal(shards.merge(question, [good]).votes_d, good.votes_d)
    with pytest.raises(ArithmeticError, match="votes"):
        shards.merge(question, [replace(good, devices=31)])
    with pytest.raises(ValueError, match="another question"):
        shards.merge(asked(FIRST, of_size(1.0, 10, 4), config(messages_per_device=4)), [good])


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 2, 7])
def test_shards_add_up_to_one_process(parts):
    question = asked(FIRST, of_size(1.0, 10, 4), config())
    group, typed = np.arange(5, 95), TypedWords.gather(people(100))
    whole = shards.ask(question, group, typed, KEY)
    pieces = [
        shards.votes_of_shard(question, part, typed.take(part), KEY) for part in np.array_split(group[::-1], parts)
    ]
    merged = shards.merge(question, pieces)
    assert merged.devices == whole.devices == 90
    assert np.array_equal(merged.votes_d, whole.votes_d)
    # Numbers of devices matter: the same words under other numbers are other messages.
    assert not np.array_equal(shards.votes_of_shard(question, group + 1, typed.take(group), KEY).votes_d, whole.votes_d)


@pytest.fixture(scope="module")
def two_processes():
    with shards.workers(2) as shared:
        yield shared


@pytest.mark.slow
def test_real_processes_give_the_votes_of_one(two_processes, monkeypatch):
    monkeypatch.setattr(shards, "WORTH_COMPILING", 10)
    question = asked(FIRST, of_size(1.0, 10, 4), config())
    group, typed = np.arange(0, 100, 2), TypedWords.gather(people(100))
    handed_out = []
    original = shards.in_processes
    monkeypatch.setattr(
        shards,
        "in_processes",
        lambda asked, chunks, *rest: handed_out.append(len(chunks)) or original(asked, chunks, *rest),
    )
    for most in (23, 50_000):  # three shards by size, two because there are two processes
        monkeypatch.setattr(shards, "SHARD_DEVICES", most)
        handed_out.clear()
        shared = shards.ask(question, group, typed, KEY, two_processes)
        assert handed_out == [-(-50 // min(most, 25))]
        assert np.array_equal(shared.votes_d, shards.ask(question, group, typed, KEY).votes_d)


def test_few_devices_are_not_worth_a_process(two_processes, monkeypatch):
    question, typed = asked(FIRST, of_size(1.0, 10, 4), config()), TypedWords.gather(people(100))
    monkeypatch.setattr(shards, "in_processes", None)  # calling it would fail
    assert shards.ask(question, np.arange(100), typed, KEY, two_processes).devices == 100


def test_a_killed_process_is_a_temporary_failure(monkeypatch):
    monkeypatch.setattr(shards, "WORTH_COMPILING", 10)
    question, typed = asked(FIRST, of_size(1.0, 10, 4), config()), TypedWords.gather(people(100))
    with shards.workers(2) as shared:
        killed = shared.pool.submit(os._exit, 9)
        assert isinstance(killed.exception(), BrokenProcessPool)
        with pytest.raises(OSError, match="run the stage again"):
            shards.ask(question, np.arange(100), typed, KEY, shared)


def test_typed_words_come_back():
    words = people(20)
    typed = TypedWords.gather(words)
    assert [typed.of(device) for device in range(20)] == words
    some = np.array([7, 0, 19])
    assert [typed.take(some).of(row) for row in range(3)] == [words[device] for device in some]
    assert set(typed.take(some).distinct) == {word for device in some for word in words[device]}
    assert len(TypedWords.gather([])) == 0


@pytest.mark.parametrize("count", [1, 2, 7, 300])
def test_first_words_are_those_of_each_device(count):
    devices = np.array([0, 3, 2**40])
    rows = first_words(KEY, "x", devices, count)
    for device, row in zip(devices.tolist(), rows, strict=True):
        assert np.array_equal(row, Keystream(KEY, "x", device).words(count))
    assert len(np.unique(rows)) == rows.size


@pytest.mark.slow
@pytest.mark.parametrize(
    ("domain", "size", "bits"), [(2, 1, 1), (3, 2, 2), (256, 5, 8), (257, 5, 9), (1_000_000, 335, 20)]
)
def test_a_message_is_its_item_numbers_and_nothing_else(domain, size, bits):
    assert of_size(2.0, domain, size).message_bytes == math.ceil(size * bits / 8)
