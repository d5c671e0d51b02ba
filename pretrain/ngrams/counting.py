"""Count k-grams of a corpus of any size: sorted runs on the disk, merged.

Text is read in blocks of sentences, and no more than a run of k-grams is in memory at a time. A k-gram is one whole
number that sorts as its words do: their ids as the digits of a number, or, where an int64 has no room for that, the
number of the first k - 1 words among the (k - 1)-grams and the id of the last.

Shape legend: N tokens of a block, G distinct k-grams of one length, V vocabulary.
"""

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pretrain.ngrams.columns import Column
from pretrain.text.vocabulary import BOS, EOS

BLOCK_TOKENS, RUN_GRAMS = 1 << 21, 1 << 24
MERGED_GRAMS, SAMPLED = 1 << 23, 1 << 16


@dataclass(frozen=True)
class LevelCounts:
    """All k-grams of one length, sorted by their words.

    Attributes:
      sorted_G: int64, each as one number; empty of the longest.
      key: int64, number of the first k - 1 words among the (k - 1)-grams times V, plus the last word.
      suffix: int64, number of the last k - 1 words among the (k - 1)-grams; 0 of single words.
      begins: whether the first word is ``<bos>``; empty of the longest.
      count: how often each occurs; below the longest, unless it begins a sentence, how many words stand before it.
    """

    sorted_G: np.ndarray
    key: Column
    suffix: Column
    begins: Column
    count: Column


def blocks(tokens_N: np.ndarray) -> Iterator[np.ndarray]:
    """Parts of a stream, each of whole sentences; one sentence is never cut, however long."""
    first, size = 0, len(tokens_N)
    # Tokens without a following end belong to the last sentence.
    last_end = size
    while last_end and tokens_N[last_end - 1] != EOS:
        last_end -= 1
    while first < size:
        end, ends = first, np.empty(0, np.int64)
        while end < last_end and not len(ends):
            end = min(end + BLOCK_TOKENS, size)
            ends = np.flatnonzero(tokens_N[first:end] == EOS)
        end = first + int(ends[-1]) + 1 if len(ends) else size
        end = size if end >= last_end else end
        yield tokens_N[first:end]
        first = end


def with_starts(tokens_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tokens with ``<bos>`` before every sentence, and each one's place in its sentence (``<bos>`` is 0)."""
    tokens_N = np.asarray(tokens_N, dtype=np.int64)
    ends = np.flatnonzero(tokens_N == EOS) + 1
    starts = np.concatenate([[0], ends[:-1]])[: len(ends)]
    whole = np.insert(tokens_N, starts, BOS)
    begins = np.flatnonzero(whole == BOS)
    place = np.arange(len(whole)) - np.repeat(begins, np.diff(np.append(begins, len(whole))))
    return whole, place


def count(tokens_N: np.ndarray, vocabulary_size: int, order: int, folder: Path | None) -> list[LevelCounts]:
    """All k-grams of lengths 1 to ``order``.

    Args:
      tokens_N: of the stream; may be mapped.
      folder: for files that are gone when it returns, or when nothing refers to them any more; the system's for
        temporary files if None.
    """
    total_V = np.zeros(vocabulary_size, dtype=np.int64)
    for block in blocks(tokens_N):
        total_V += np.bincount(with_starts(block)[0], minlength=vocabulary_size)
    words_V = np.arange(vocabulary_size)
    columns = (words_V, np.zeros_like(words_V), words_V == BOS, total_V)
    levels = [LevelCounts(words_V, *(_column(values, folder) for values in columns))]
    for k in range(2, order + 1):
        neighbours_G = np.zeros(len(levels[-1].key), dtype=np.uint32)
        longer = _level(tokens_N, vocabulary_size, k, levels, neighbours_G, folder, longest=k == order)
        levels[-1] = _by_neighbours(levels[-1], neighbours_G, folder)
        levels.append(longer)
    return levels


def pieces(size: int, at_once: int) -> Iterator[tuple[int, int]]:
    """Ends of parts of a column."""
    for first in range(0, size, at_once):
        yield first, min(first + at_once, size)


def _column(values: np.ndarray, folder: Path | None) -> Column:
    column = Column(values.dtype.type, folder)
    column.append(values)
    return column


def _level(
    tokens_N: np.ndarray,
    vocabulary_size: int,
    k: int,
    shorter: Sequence[LevelCounts],
    neighbours_G: np.ndarray,
    folder: Path | None,
    *,
    longest: bool,
) -> LevelCounts:
    """The k-grams, from those that are shorter; counts in ``neighbours_G`` the words before each of the longest."""
    before, packed = shorter[-1], _packs(vocabulary_size, k)
    begins_C = before.begins.array()
    sorted_, key, suffix = (Column(np.int64, folder) for _ in range(3))
    begins, raw = Column(np.bool_, folder), Column(np.int64, folder)
    runs = _runs(tokens_N, vocabulary_size, k, shorter, folder)
    key_G = before.key.array()
    for gram_G, count_G in _merged(runs):
        prefix_G, word_G = np.divmod(gram_G, vocabulary_size)
        context_G = np.searchsorted(before.sorted_G, prefix_G) if packed else prefix_G
        suffix_G = word_G
        if k > 2:
            first, last = int(context_G[0]), int(context_G[-1]) + 1
            middle_G = before.suffix.read(first, last)[context_G - first]
            suffix_G = np.searchsorted(key_G, middle_G * vocabulary_size + word_G)
        np.add.at(neighbours_G, suffix_G, 1)
        key.append(context_G * vocabulary_size + word_G)
        suffix.append(suffix_G)
        raw.append(count_G)
        if not longest:
            sorted_.append(gram_G)
            begins.append(begins_C[context_G])
    return LevelCounts(sorted_.closed(), key, suffix, begins, raw)


def _by_neighbours(level: LevelCounts, neighbours_G: np.ndarray, folder: Path | None) -> LevelCounts:
    """A level whose counts are numbers of preceding words, except for k-grams at the start of a sentence."""
    changed = Column(np.int64, folder)
    for first, last in pieces(len(level.count), MERGED_GRAMS):
        raw_G = level.count.read(first, last)
        changed.append(np.where(level.begins.read(first, last), raw_G, neighbours_G[first:last]))
    level.count.closed()
    return replace(level, count=changed)


def _packs(vocabulary_size: int, k: int) -> bool:
    """Return whether the ids of k words fit into an int64 side by side."""
    return vocabulary_size**k < 1 << 63


def _grams(
    tokens_N: np.ndarray, place_N: np.ndarray, vocabulary_size: int, k: int, shorter: Sequence[LevelCounts]
) -> np.ndarray:
    """Every k-gram of a block, in its order, as one number."""
    last = np.flatnonzero(place_N >= k - 1)
    if _packs(vocabulary_size, k):
        gram = tokens_N[last - (k - 1)]
        for back in range(k - 2, -1, -1):
            gram = gram * vocabulary_size + tokens_N[last - back]
        return gram
    number_N = np.empty(len(tokens_N), dtype=np.int64)
    before = _grams(tokens_N, place_N, vocabulary_size, k - 1, shorter)
    number_N[place_N >= k - 2] = np.searchsorted(shorter[k - 2].sorted_G, before)
    return number_N[last - 1] * vocabulary_size + tokens_N[last]


@dataclass(frozen=True)
class _Run:
    """Distinct k-grams of a part of the text, ascending, with their counts, and a sparse index of them."""

    gram: Column
    count: Column
    sample: np.ndarray


def _runs(
    tokens_N: np.ndarray, vocabulary_size: int, k: int, shorter: Sequence[LevelCounts], folder: Path | None
) -> list[_Run]:
    runs: list[_Run] = []
    gathered: list[np.ndarray] = []

    def close() -> None:
        gram_M = np.concatenate([np.empty(0, np.int64), *gathered])
        gathered.clear()
        gram_M.sort()
        first_G = np.flatnonzero(np.diff(gram_M, prepend=-1))
        run = _Run(Column(np.int64, folder), Column(np.uint32, folder), gram_M[first_G[::SAMPLED]])
        run.count.append(np.diff(first_G, append=len(gram_M)))
        run.gram.append(gram_M[first_G])
        runs.append(run)

    for block in blocks(tokens_N):
        gathered.append(_grams(*with_starts(block), vocabulary_size, k, shorter))
        if sum(map(len, gathered)) >= RUN_GRAMS:
            close()
    close()
    return runs


def _merged(runs: list[_Run]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Distinct k-grams of all runs, ascending, and how often each occurs; some at a time. The runs are over then."""
    sample = np.sort(np.concatenate([run.sample for run in runs]))
    bounds = np.unique(sample[:: max(MERGED_GRAMS // SAMPLED, 1)])[1:]
    before = [0] * len(runs)
    for bound in [*bounds.tolist(), None]:
        ends = [len(run.gram) if bound is None else _place(run.gram, bound) for run in runs]
        spans = list(zip(runs, before, ends, strict=True))
        gram_M = np.concatenate([run.gram.read(first, last) for run, first, last in spans])
        count_M = np.concatenate([run.count.read(first, last) for run, first, last in spans]).astype(np.int64)
        order = np.argsort(gram_M, kind="stable")
        gram_M, count_M = gram_M[order], count_M[order]
        first_G = np.flatnonzero(np.diff(gram_M, prepend=-1))
        if len(first_G):
            yield gram_M[first_G], np.add.reduceat(count_M, first_G)
        before = ends
    for run in runs:
        run.gram.closed()
        run.count.closed()


def _place(column: Column, bound: int) -> int:
    """Number of values of an ascending column below a bound."""
    return bisect.bisect_left(range(len(column)), bound, key=lambda place: int(column.read(place, place + 1)[0]))
