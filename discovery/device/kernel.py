"""Compiled messages of many devices: bit for bit those of ``answer.report``, summed immediately.

No message is kept: one device's subsets live in a scratch row until they are added.
Legend: N devices, W random words of a device, V distinct words typed, d domain.
"""

import numba
import numpy as np

_HIGH = np.uint64(32)


@numba.njit(nogil=True, cache=True)
def add_answers(
    votes_d: np.ndarray,
    words_NW: np.ndarray,
    starts: np.ndarray,
    numbers: np.ndarray,
    item_V: np.ndarray,
    contributions: int,
    greedy: bool,
    size: int,
    inclusion: int,
) -> np.ndarray:
    """Add the C messages of every device to ``votes_d``; bool ``[N]``: False where the random words ran out.

    Such a device added nothing; the caller uses ``answer.report``, whose stream has no end.

    Args:
      votes_d: int64 by item of the domain, changed in place.
      words_NW: uint32, the first words of each device's keystream.
      starts: int64 ``[N + 1]`` into ``numbers``, the typed words of each device.
      item_V: int64, item of each distinct word, -1 if not reported.
      greedy: selection of a device's candidates, see ``answer.sample``.
      size: items in a message.
      inclusion: p in units of 2^-53, of which it is a multiple.
    """
    answered_N, domain = np.ones(len(words_NW), dtype=np.bool_), len(votes_d)
    seen = np.zeros(domain // 64 + 2, dtype=np.uint64)  # one bit per item, all zero between draws
    scratch = np.empty(contributions * size, dtype=np.int64)
    subset = np.empty(max(size, contributions) + 1, dtype=np.int64)
    filled = np.empty(contributions, dtype=np.int64)
    longest = 1
    for device in range(len(words_NW)):
        longest = max(longest, starts[device + 1] - starts[device])
    spoken, often = np.empty(longest, dtype=np.int64), np.empty(longest, dtype=np.int64)
    keys = np.empty(max(longest, contributions), dtype=np.uint64)
    order = np.empty(max(longest, contributions), dtype=np.int64)
    for device in range(len(words_NW)):
        words_W = words_NW[device]
        held = _candidates(spoken, often, keys, order, numbers[starts[device] : starts[device + 1]], item_V)
        at = 0
        if held <= contributions:
            filled[:held] = spoken[:held]
            filled[held:] = domain - 1
        elif greedy:
            for place in range(held):
                keys[place], order[place] = np.uint64(longest - often[place]), place
            _sort(keys, order, held)
            for place in range(contributions):
                filled[place] = spoken[order[place]]
        else:
            at = _subset(subset, seen, words_W, at, held, contributions)
            if at >= 0:
                for place in range(contributions):
                    filled[place] = spoken[subset[place]]
        if at < 0 or at + 2 * contributions > len(words_W):
            answered_N[device] = False
            continue
        for place in range(contributions):
            keys[place], order[place] = _pair(words_W, at + 2 * place), place
        _sort(keys, order, contributions)
        at += 2 * contributions
        for message in range(contributions):
            if at + 2 > len(words_W):
                at = -1
                break
            value = filled[order[message]]
            included = _pair(words_W, at) >> np.uint64(11) < np.uint64(inclusion)
            others = size - 1 if included else size
            at = _subset(subset, seen, words_W, at + 2, domain - 1, others)
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


@numba.njit(nogil=True, cache=True)
def _candidates(
    spoken: np.ndarray,
    often: np.ndarray,
    keys: np.ndarray,
    order: np.ndarray,
    numbers: np.ndarray,
    item_V: np.ndarray,
) -> int:
    """Write a device's distinct items, ascending, to ``spoken`` and their counts to ``often``; return their number."""
    count = 0
    for number in numbers:
        if item_V[number] >= 0:
            keys[count], order[count] = np.uint64(item_V[number]), count
            count += 1
    _sort(keys, order, count)
    held = 0
    for place in range(count):
        item = np.int64(keys[place])
        if held == 0 or item != spoken[held - 1]:
            spoken[held], often[held] = item, 0
            held += 1
        often[held - 1] += 1
    return held


@numba.njit(nogil=True, cache=True)
def _sort(keys: np.ndarray, order: np.ndarray, count: int) -> None:
    """Sort the first ``count`` keys with their ``order``, equals by ``order``: Shell sort, which compiles quickly."""
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for place in range(gap, count):
            key, number, hole = keys[place], order[place], place
            while hole >= gap and (keys[hole - gap] > key or (keys[hole - gap] == key and order[hole - gap] > number)):
                keys[hole], order[hole] = keys[hole - gap], order[hole - gap]
                hole -= gap
            keys[hole], order[hole] = key, number
        gap //= 3


@numba.njit(nogil=True, cache=True)
def _pair(words_W: np.ndarray, at: int) -> np.uint64:
    """Two words as a number of 64 bits."""
    return np.uint64(words_W[at]) << _HIGH | np.uint64(words_W[at + 1])


@numba.njit(nogil=True, cache=True)
def _subset(subset: np.ndarray, seen: np.ndarray, words_W: np.ndarray, at: int, population: int, count: int) -> int:
    """``Keystream.subset`` into ``subset``; return the next position in the stream, or -1 if it ended too early."""
    complement = 2 * count > population
    wanted = population - count if complement else count
    unfair = np.uint64(2**32 % population)
    drawn = 0
    while drawn < wanted and at < len(words_W):
        product = np.uint64(words_W[at]) * np.uint64(population)
        at += 1
        if product & np.uint64(0xFFFFFFFF) < unfair:
            continue
        number = product >> _HIGH
        bit = np.uint64(1) << (number & np.uint64(63))
        if not seen[number >> np.uint64(6)] & bit:
            seen[number >> np.uint64(6)] |= bit
            if not complement:
                subset[drawn] = np.int64(number)
            drawn += 1
    enough = drawn == wanted
    if complement:
        place = 0
        for item in range(population):
            if enough and not (seen[item >> 6] >> np.uint64(item & 63)) & np.uint64(1):
                subset[place] = item
                place += 1
        seen[: (population >> 6) + 1] = 0
    else:
        for place in range(drawn):
            seen[subset[place] >> 6] = 0
    return at if enough else -1
