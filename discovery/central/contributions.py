"""The words that each device contributes to a central discovery: a bounded number, chosen by key.

Shape legend: V distinct words of a shard, D its devices, N occurrences, P pairs of a device and one of its words.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from discovery.device.keystream import words_at
from discovery.device.typed import TypedWords

# A word, or a word and the number of a form.
Name = TypeVar("Name", str, tuple[str, int])
# Longest word, in characters. Keyboards suggest no longer words, and people type them only by accident.
MOST_LETTERS = 40
_STREAM = "central discovery, order"
# Random bits of a pair's sort key; equal keys of one device, which fall back to the order of typing, are very rare.
_RANDOM = 40


@dataclass(frozen=True)
class Contributions:
    """Distinct words of some devices, at most C of each. Private.

    Attributes:
      words: V of them.
      device_P: int64, ascending; rows of the shard.
      word_P: int64, indices into ``words``; pairs are distinct.
      degree_D: int64, words of each device.
    """

    words: tuple[str, ...]
    device_P: np.ndarray
    word_P: np.ndarray
    degree_D: np.ndarray


def contribute(
    typed: TypedWords, known_words: Collection[str], most: int, key: bytes, first_device: int = 0, *, stream: int = 1
) -> Contributions:
    """Distinct words of each device outside the known ones; ``most`` of them, by key, where there are more.

    The words of a device are sorted by an order that depends only on the key, the device and their number, and the
    first ones count. So a device's contribution depends neither on other devices nor on the sharding, and a retry makes
    the same contribution.

    Guarantee: a row of ``typed`` is in at most ``most`` pairs, for any content, and no pair depends on another row.

    Args:
      typed: words of devices in their order of typing, at most 2^24 of them.
      key: 32 secret bytes.
      first_device: number of row 0 in the whole population.
      stream: number of the pass; each pass has its own order.
    """
    assert len(typed) <= 2 ** (64 - _RANDOM), "a shard is smaller"
    spoken_V = np.array([word not in known_words and 0 < len(word) <= MOST_LETTERS for word in typed.distinct], bool)
    device_N = np.repeat(np.arange(len(typed)), np.diff(typed.starts))
    numbers_N = typed.numbers.astype(np.int64)
    spoken_N = spoken_V[numbers_N] if len(numbers_N) else np.zeros(0, dtype=bool)
    device_N, numbers_N = device_N[spoken_N], numbers_N[spoken_N]
    _, first_P = np.unique(device_N * max(len(spoken_V), 1) + numbers_N, return_index=True)
    first_P.sort()  # in the order of typing, independent of the sharding
    device_P, word_P = device_N[first_P], numbers_N[first_P]
    held_D = np.bincount(device_P, minlength=len(typed))
    crowded = np.flatnonzero(held_D[device_P] > most)
    if len(crowded):
        place_P = np.arange(len(device_P)) - (np.cumsum(held_D) - held_D)[device_P]
        bits = words_at(key, f"{_STREAM} {stream}", device_P[crowded] + first_device, place_P[crowded]).view("<u8")[
            :, 0
        ]
        # Sort key: device, then random bits; device numbers within a shard leave room for enough bits.
        order = np.argsort(device_P[crowded].astype(np.uint64) << np.uint64(_RANDOM) | bits >> np.uint64(64 - _RANDOM))
        # Pairs are ordered by device already, so the ranges of a device's pairs do not change by sorting.
        kept_P = np.ones(len(device_P), dtype=bool)
        kept_P[crowded[order]] = place_P[crowded] < most
        device_P, word_P = device_P[kept_P], word_P[kept_P]
    return Contributions(typed.distinct, device_P, word_P, np.bincount(device_P, minlength=len(typed)))


SHARD_DEVICES = 200_000


@dataclass(frozen=True)
class Shard:
    """Some devices and the number of the first of them in the whole population."""

    first_device: int
    typed: TypedWords


def shards_of(typed: TypedWords, size: int = SHARD_DEVICES) -> Iterator[Shard]:
    """A population in shards of ``size`` devices."""
    for first in range(0, len(typed), size):
        yield Shard(first, typed.take(np.arange(first, min(first + size, len(typed)))))


def add_to(total: dict[Name, int], names: Sequence[Name], units_V: np.ndarray) -> None:
    """Add a shard's whole numbers by name; exact, so neither shards nor their order changes a sum."""
    held = np.flatnonzero(units_V)
    for place, units in zip(held.tolist(), units_V[held].tolist(), strict=True):
        total[names[place]] = total.get(names[place], 0) + units
