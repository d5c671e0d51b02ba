"""Messages of many devices at once: bit for bit what ``device.report`` sends, summed as they come.

No message is kept: one device's subsets live in a scratch row until they are added.
Legend: N devices, W random words of a device, V distinct words typed, d domain.
"""

import numba
import numpy as np

_HIGH = np.uint64(32)


@numba.njit(nogil=True)
def add_answers(
    votes_d, seen, words_NW, starts, numbers, item_V, contributions, greedy, domain, size, inclusion
):  # fmt: skip
    """Add the C messages of every device to ``votes_d``; bool ``[N]``: False where the words ran out.

    Such a device has added nothing, and ``device.report``, whose stream has no end, answers for it.

    Args:
      votes_d: int64, changed in place.
      seen: uint64, one bit an item, all zero before and after.
      words_NW: uint32, the first words of each device's keystream.
      starts: int64 ``[N + 1]`` into ``numbers``, the words that each device typed.
      item_V: int64, item of each distinct word, -1 for silence.
      inclusion: p in units of 2^-53, of which it is a multiple.
    """
    answered_N = np.ones(len(words_NW), dtype=np.bool_)
    scratch = np.empty(contributions * size, dtype=np.int64)
    subset = np.empty(max(size, contributions) + 1, dtype=np.int64)
    filled = np.empty(contributions, dtype=np.int64)
    longest = 1
    for device in range(len(words_NW)):
        longest = max(longest, starts[device + 1] - starts[device])
    spoken = np.empty(longest, dtype=np.int64)
    often = np.empty(longest, dtype=np.int64)
    for device in range(len(words_NW)):
        words_W = words_NW[device]
        held = _candidates(spoken, often, numbers[starts[device] : starts[device + 1]], item_V)
        at = 0
        if held <= contributions:
            filled[:held] = spoken[:held]
            filled[held:] = domain - 1
        elif greedy:
            filled[:] = spoken[np.argsort(-often[:held], kind="mergesort")[:contributions]]
        else:
            at = _subset(subset, seen, words_W, at, held, contributions)
            if at >= 0:
                filled[:] = spoken[subset[:contributions]]
        if at < 0 or at + 2 * contributions > len(words_W):
            answered_N[device] = False
            continue
        order = np.argsort(_keys(words_W[at : at + 2 * contributions]), kind="mergesort")
        at += 2 * contributions
        for message in range(contributions):
            if at + 2 > len(words_W):
                at = -1
                break
            value = filled[order[message]]
            drawn = (np.uint64(words_W[at]) << _HIGH | np.uint64(words_W[at + 1])) >> np.uint64(11)
            included = drawn < np.uint64(inclusion)
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


@numba.njit(nogil=True)
def _candidates(spoken, often, numbers, item_V):
    """A device's distinct items, ascending, into ``spoken`` and how often each into ``often``; their count."""
    count = 0
    for number in numbers:
        if item_V[number] >= 0:
            spoken[count] = item_V[number]
            count += 1
    if count == 0:
        return 0
    spoken[:count].sort()
    held = 0
    often[0] = 0
    for place in range(count):
        if spoken[place] != spoken[held]:
            held += 1
            spoken[held] = spoken[place]
            often[held] = 0
        often[held] += 1
    return held + 1


@numba.njit(nogil=True)
def _keys(words):
    """Pairs of words as numbers of 64 bits."""
    keys = np.empty(len(words) // 2, dtype=np.uint64)
    for place in range(len(keys)):
        keys[place] = np.uint64(words[2 * place]) << _HIGH | np.uint64(words[2 * place + 1])
    return keys


@numba.njit(nogil=True)
def _subset(subset, seen, words_W, at, population, count):
    """``Keystream.subset`` into ``subset``; the next place in the stream, or -1 where it ended too early."""
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
        for number in range(population):
            if enough and not (seen[number >> 6] >> np.uint64(number & 63)) & np.uint64(1):
                subset[place] = number
                place += 1
        seen[: (population >> 6) + 1] = 0
    else:
        for place in range(drawn):
            seen[subset[place] >> 6] = 0
    return at if enough else -1
