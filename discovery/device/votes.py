"""Votes of many devices, added up in batches, shards and processes, with the same bits in every case.

Processes of the one discovery task handle shards, not tasks of a scheduler. A layer needs the survivors of the previous
one, so there would be a round of tasks per layer, each with its start-up, and votes of single shards, in which fewer
people hide than in their sum, would have to be stored on disk. In one task they are never stored, the ledger holds one
reservation, and a killed run resumes after its last finished layer.

Legend: N devices of a shard, W random words of a device, d domain.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from discovery.device.answer import Question
from discovery.device.keystream import BLOCK_WORDS, first_words
from discovery.device.typed import TypedWords
from pretrain import processes

_CHUNK_WORDS = 2**22  # 16 MiB of random words at a time
SHARD_DEVICES = 50_000
# Below this number, devices answer one by one, faster than the batched route compiles.
WORTH_COMPILING = 1_000
# Sums the votes of a number of devices for a number of items, under a stream's name.
AddUp = Callable[[Iterable[np.ndarray], int, int, str], np.ndarray]


@dataclass(frozen=True)
class ShardVotes:
    """Summed messages of some devices of one layer.

    Each message is randomised, but the central guarantee covers the sum of all shards, and fewer
    people hide in one shard. Free shards after the merge.

    Attributes:
      stream: stream of the question.
      devices: number of devices that answered.
      votes_d: int64 ``[d]``.
    """

    stream: str
    devices: int
    votes_d: np.ndarray


def votes_of_shard(question: Question, devices_N: np.ndarray, typed: TypedWords, key: bytes) -> ShardVotes:
    """Votes of some devices; the shards of a group add up to the group's votes, for any division.

    Guarantee: that of ``answer.report``, message by message; adding votes up is post-processing.

    Args:
      devices_N: int64 indices of the devices in the whole population, which number their keystreams.
      typed: their words, row i of device ``devices_N[i]``.
      key: 32 secret bytes.
    """
    votes_d = np.zeros(question.broadcast.domain, dtype=np.int64)
    if len(devices_N) < WORTH_COMPILING:
        one_by_one(votes_d, question, devices_N, typed, key)
    else:
        unanswered = _together(votes_d, question, devices_N, typed, key)
        one_by_one(votes_d, question, devices_N[unanswered], typed.take(unanswered), key)
    return ShardVotes(question.stream, len(devices_N), votes_d)


def merge(question: Question, shards: Iterable[ShardVotes]) -> ShardVotes:
    """The sum of all shards; each is freed after it is added.

    Raises:
      ValueError: a shard of another question.
      ArithmeticError: the votes are not k for every message.
    """
    votes_d, devices = np.zeros(question.broadcast.domain, dtype=np.int64), 0
    for shard in shards:
        if shard.stream != question.stream:
            raise ValueError("shards: one answers another question; make all shards of a layer from one question")
        votes_d += shard.votes_d
        devices += shard.devices
    expected = devices * question.config.messages_per_device * question.randomizer.size
    if votes_d.sum() != expected:
        raise ArithmeticError(f"layer {question.broadcast.layer}: {votes_d.sum()} votes, expected {expected}")
    return ShardVotes(question.stream, devices, votes_d)


@dataclass(frozen=True)
class Workers:
    """Processes that share the devices of each layer; ``pool`` is None if this process handles all."""

    count: int = 1
    pool: Executor | None = None


@contextmanager
def workers(count: int) -> Iterator[Workers]:
    """Processes for a whole discovery: each compiles the batched route once, not once per layer."""
    if count == 1:
        yield Workers()
        return
    with processes.pool(count) as pool:
        yield Workers(count, pool)


def ask(
    question: Question,
    group: np.ndarray,
    typed: TypedWords,
    key: bytes,
    shared: Workers = Workers(),
    add_up: AddUp | None = None,
) -> ShardVotes:
    """Votes of a group, given by int64 indices of devices, which are rows of ``typed``.

    The votes do not depend on the processes: a device's random bits come from the key, the question and its own
    index.

    Args:
      add_up: sums votes device by device, such as by secure aggregation; None: plain sums.

    Raises:
      OSError: a worker process was killed; finished layers stay.
    """
    if add_up is not None:
        each = _each(question, group, typed.take(group), key)
        votes_d = add_up(each, len(group), question.broadcast.domain, question.stream)
        return merge(question, [ShardVotes(question.stream, len(group), votes_d)])
    size = min(SHARD_DEVICES, max(-(-len(group) // shared.count), WORTH_COMPILING))
    chunks = [group[first : first + size] for first in range(0, len(group), size)]
    if shared.pool is None or len(chunks) == 1:
        return merge(question, (votes_of_shard(question, chunk, typed.take(chunk), key) for chunk in chunks))
    try:
        return merge(question, in_processes(question, chunks, typed, key, shared.pool, shared.count))
    except BrokenProcessPool as error:
        raise OSError("discovery: a worker process was killed; run the stage again, finished layers stay") from error


def in_processes(
    question: Question, chunks: list[np.ndarray], typed: TypedWords, key: bytes, pool: Executor, count: int
) -> Iterator[ShardVotes]:
    for first in range(0, len(chunks), count):  # keep only the chunks in progress in memory
        waiting = [
            pool.submit(votes_of_shard, question, chunk, typed.take(chunk), key)
            for chunk in chunks[first : first + count]
        ]
        yield from (future.result() for future in waiting)


def _each(question: Question, devices_N: np.ndarray, typed: TypedWords, key: bytes) -> Iterator[np.ndarray]:
    """The votes ``[d]`` of each device alone."""
    for row in range(len(devices_N)):
        votes_d = np.zeros(question.broadcast.domain, dtype=np.int64)
        one_by_one(votes_d, question, devices_N[row : row + 1], typed.take(np.array([row])), key)
        yield votes_d


def one_by_one(votes_d: np.ndarray, question: Question, devices_N: np.ndarray, typed: TypedWords, key: bytes) -> None:
    for row, device in enumerate(devices_N.tolist()):
        np.add.at(votes_d, question.answer(typed.of(row), device, key).ravel(), 1)


def _together(
    votes_d: np.ndarray, question: Question, devices_N: np.ndarray, typed: TypedWords, key: bytes
) -> np.ndarray:
    """Add the votes of all devices except the returned rows, int64, which are very few."""
    # Imported here: numba takes a second that small discoveries do not need.
    from discovery.device.kernel import add_answers

    item_V = np.fromiter(map(question.item, typed.distinct), dtype=np.int64, count=len(typed.distinct))
    randomizer, contributions = question.randomizer, question.config.messages_per_device
    width = words_needed(question)
    step = max(_CHUNK_WORDS // width, 1)
    answered = []
    for first in range(0, len(devices_N), step):
        words_NW = first_words(key, question.stream, devices_N[first : first + step], width)
        answered.append(
            add_answers(
                votes_d, words_NW, typed.starts[first : first + step + 1], typed.numbers, item_V, contributions,
                question.config.sampler == "greedy", randomizer.size, int(randomizer.inclusion * 2.0**53),
            )
        )  # fmt: skip
    return np.flatnonzero(~np.concatenate(answered))


def words_needed(question: Question) -> int:
    """Random words that suffice for nearly every device: draws until k distinct items, plus six deviations."""
    contributions, size = question.config.messages_per_device, question.randomizer.size
    population = question.broadcast.domain - 1
    drawn = min(size, population - size + 1)
    mean = population * math.log(population / (population - drawn)) if drawn < population else 4.0 * population
    spread = math.sqrt((mean * drawn / population + 1) * contributions)
    # Per message: two words for inclusion, two for the order, two for the sampler and its redraws.
    needed = math.ceil(contributions * (6 + mean) + 6 * spread + 8)
    return -(-needed // BLOCK_WORDS) * BLOCK_WORDS
