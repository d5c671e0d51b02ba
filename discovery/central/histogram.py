"""Sums by word over shards of devices, for a vocabulary that nobody knows beforehand."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from discovery.device.typed import TypedWords

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


def summed(parts: Iterable[tuple[Sequence[str], np.ndarray]]) -> dict[str, int]:
    """Whole numbers by word, added up over shards; exact, so neither their size nor their order changes a sum.

    Args:
      parts: words of a shard, and a whole number for each.
    """
    total: dict[str, int] = {}
    for words, units_V in parts:
        held = np.flatnonzero(units_V)
        for place, units in zip(held.tolist(), units_V[held].tolist(), strict=True):
            total[words[place]] = total.get(words[place], 0) + units
    return total
