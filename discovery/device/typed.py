"""Typed words of devices, each distinct word stored once: a word table and, for each device, indices into it.

Shape legend: V distinct words, D devices, N occurrences.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pretrain.ngrams.columns import Column
from pretrain.writing import case

_PENDING = 1 << 20


@dataclass(frozen=True)
class TypedWords:
    """The words of each device, in its order of typing. Private: never leaves the private directory or the process.

    Attributes:
      distinct: V words, each once.
      starts: int64 ``[D + 1]``; device i typed the occurrences from ``starts[i]`` up to ``starts[i + 1]``.
      numbers: int32 ``[N]``, the word of each occurrence.
    """

    distinct: tuple[str, ...]
    starts: np.ndarray
    numbers: np.ndarray

    def __len__(self) -> int:
        """Number of devices."""
        return len(self.starts) - 1

    def of(self, device: int) -> list[str]:
        """The words of one device."""
        return [self.distinct[word] for word in self.numbers[self.starts[device] : self.starts[device + 1]].tolist()]

    def parted(self) -> tuple["TypedWords", np.ndarray]:
        """The same without the signs of forms, and the form of each occurrence, uint8 ``[N]``."""
        number_of: dict[str, int] = {}
        pairs = [case.parted(word) for word in self.distinct]
        numbers = np.array([number_of.setdefault(word, len(number_of)) for word, _ in pairs], dtype=np.int32)
        forms = np.array([form for _, form in pairs], dtype=np.uint8)
        words = TypedWords(tuple(number_of), self.starts, numbers[self.numbers] if len(pairs) else self.numbers)
        return words, forms[self.numbers] if len(pairs) else np.zeros(0, np.uint8)

    def take(self, devices: np.ndarray) -> "TypedWords":
        """Keep only these devices, in this order, with only their words."""
        lengths = self.starts[devices + 1] - self.starts[devices]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        places = np.repeat(self.starts[devices] - starts[:-1], lengths) + np.arange(starts[-1])
        numbers = self.numbers[places]
        used = np.flatnonzero(np.bincount(numbers, minlength=1))
        renumbered = np.zeros(max(len(self.distinct), 1), dtype=np.int32)
        renumbered[used] = np.arange(len(used))
        distinct = tuple(self.distinct[word] for word in used.tolist()) if len(numbers) else ()
        return TypedWords(distinct, starts, renumbered[numbers])

    @staticmethod
    def gather(device_words: Iterable[Sequence[str]], folder: Path | None = None) -> "TypedWords":
        """Store a list of words for each device.

        Args:
          folder: private folder; many numbers are mapped from an unnamed file in it.
        """
        number_of: dict[str, int] = {}
        numbers, pending, starts = Column(np.int32, folder), array("i"), array("q", [0])
        for words in device_words:
            pending.extend([number_of.setdefault(word, len(number_of)) for word in words])
            starts.append(len(numbers) + len(pending))
            if len(pending) >= _PENDING:
                numbers.append(np.array(pending))
                del pending[:]
        numbers.append(np.array(pending))
        return TypedWords(tuple(number_of), np.array(starts), numbers.closed())
