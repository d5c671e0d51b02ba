"""Votes of many devices at once: bit for bit what ``device.report`` sends, summed as it comes.

No message is kept: one device's subsets live in a scratch row until they are added.
Legend: N devices, W random words of a device, C messages of a device, k items of a message, d domain.
"""

import math

import numba
import numpy as np

from discovery.keystream import first_words
from discovery.randomizer import SubsetSelection

_CHUNK_WORDS = 2**21  # 16 MiB of random words at a time


def add_votes(
    votes_d: np.ndarray,
    randomizer: SubsetSelection,
    devices_N: np.ndarray,
    starts: np.ndarray,
    items: np.ndarray,
    counts: np.ndarray,
    contributions: int,
    greedy: bool,
    key: bytes,
    name: str,
) -> np.ndarray:
    """Add every device's C messages to ``votes_d``, int64 ``[d]``, in place.

    Guarantee: that of ``device.report``, message by message; adding votes up is post-processing.

    Args:
      devices_N: numbers of the devices, each the number of its keystream.
      starts: device i has the candidates ``items[starts[i]:starts[i + 1]]``, ascending, each typed
        ``counts`` times.
      greedy: the most frequent candidates, instead of random ones, fill the C messages.

    Returns:
      Numbers of devices whose words ran out before they had answered. They added nothing: let
      ``device.report`` answer for them, whose stream has no end. Next to none.
    """
    width = _words_needed(randomizer, contributions)
    step = max(_CHUNK_WORDS // width, 1)
    stamps_d = np.zeros(randomizer.domain, dtype=np.int64)  # who drew an item last: cleared by counting on
    unanswered = []
    for first in range(0, len(devices_N), step):
        chunk = devices_N[first : first + step]
        words_NW = first_words(key, name, chunk, width)
        answered_N = _answer(
            votes_d, stamps_d, words_NW, starts[first : first + step + 1], items, counts, contributions, greedy,
            randomizer.domain, randomizer.size, int(randomizer.inclusion * 2.0**53),
        )  # fmt: skip
        stamps_d[:] = 0
        unanswered.append(chunk[~answered_N])
    return np.concatenate(unanswered) if unanswered else np.empty(0, dtype=np.int64)


def _words_needed(randomizer: SubsetSelection, contributions: int) -> int:
    """Words that nearly every device gets by with: draws until k distinct, and six deviations more."""
    population = randomizer.domain - 1
    drawn = min(randomizer.size, population - randomizer.size + 1)
    mean = population * math.log(population / (population - drawn)) if drawn < population else 4.0 * population
    spread = math.sqrt(mean * drawn / population * contributions)
    return math.ceil(contributions * (2 + mean) + 6 * spread + 3 * contributions + 8)


@numba.njit(nogil=True)
def _answer(votes_d, stamps_d, words_NW, starts, items, counts, contributions, greedy, domain, size, inclusion):
    """``inclusion``: p in units of 2^-53, which it is a multiple of."""
    answered_N = np.ones(len(words_NW), dtype=np.bool_)
    scratch = np.empty(contributions * size, dtype=np.int64)
    subset = np.empty(max(size, contributions), dtype=np.int64)
    filled = np.empty(contributions, dtype=np.int64)
    stamp = 0
    for device in range(len(words_NW)):
        words_W = words_NW[device]
        own = items[starts[device] : starts[device + 1]]
        at = 0
        held = min(len(own), contributions)
        if len(own) <= contributions:
            filled[:held] = own
        elif greedy:
            filled[:] = own[np.argsort(-counts[starts[device] : starts[device + 1]], kind="mergesort")[:held]]
        else:
            stamp += 1
            at = _subset(subset, stamps_d, stamp, words_W, at, len(own), held)
            if at >= 0:
                filled[:] = own[subset[:held]]
        filled[held:] = domain - 1
        if at < 0 or at + contributions > len(words_W):
            answered_N[device] = False
            continue
        order = np.argsort(words_W[at : at + contributions], kind="mergesort")
        at += contributions
        for message in range(contributions):
            if at >= len(words_W):
                at = -1
                break
            value = filled[order[message]]
            included = (words_W[at] >> np.uint64(11)) < np.uint64(inclusion)
            others = size - 1 if included else size
            stamp += 1
            at = _subset(subset, stamps_d, stamp, words_W, at + 1, domain - 1, others)
            if at < 0:
                break
            row = scratch[message * size : (message + 1) * size]
            for place in range(others):
                row[place] = subset[place] + (subset[place] >= value)
            if included:
                row[others] = value
        if at < 0:
            answered_N[device] = False
            continue
        for item in scratch:
            votes_d[item] += 1
    return answered_N


@numba.njit(nogil=True)
def _subset(subset, stamps_d, stamp, words_W, at, population, count):
    """``Keystream.subset`` into ``subset``; the next place in the stream, or -1 where it ended too early."""
    complement = 2 * count > population
    wanted = population - count if complement else count
    fair = np.uint64(2**64 - 1) - (np.uint64(2**64 - 1) % np.uint64(population) + np.uint64(1)) % np.uint64(population)
    drawn = 0
    while drawn < wanted:
        if at >= len(words_W):
            return -1
        word = words_W[at]
        at += 1
        if word > fair:
            continue
        number = np.int64(word % np.uint64(population))
        if stamps_d[number] != stamp:
            stamps_d[number] = stamp
            if not complement:
                subset[drawn] = number
            drawn += 1
    if complement:
        place = 0
        for number in range(population):
            if stamps_d[number] != stamp:
                subset[place] = number
                place += 1
    return at
