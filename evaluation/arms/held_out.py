"""Sentences of held-out devices with their spellings, for simulated typists to type again.

Shape legend: P typed words, S sentences, D devices.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from pretrain.text.vocabulary import Vocabulary
from pretrain.text.words import SENTENCE_END, WordStore

# Numerator and denominator ``[D]`` of a metric by device; the metric is the ratio of their sums. Private: only
# ``evaluation.comparison.intervals`` turns them into public aggregates.
Ratio = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class HeldOut:
    """Typed text of held-out devices. Private.

    Attributes:
      spellings: every distinct word, including OOV words.
      word_P: int64, index of each typed word's spelling.
      starts_S, lengths_S: int64, start and number of words of each sentence; none is empty.
      device_S: int64, ascending.
      devices: number of devices, including silent ones.
    """

    spellings: tuple[str, ...]
    word_P: np.ndarray
    starts_S: np.ndarray
    lengths_S: np.ndarray
    device_S: np.ndarray
    devices: int

    @cached_property
    def sentence_P(self) -> np.ndarray:
        """Sentence of each word."""
        return np.repeat(np.arange(len(self.lengths_S)), self.lengths_S)

    @cached_property
    def device_P(self) -> np.ndarray:
        """Device of each word."""
        return self.device_S[self.sentence_P]

    @cached_property
    def place_P(self) -> np.ndarray:
        """Position of each word in its sentence, from 0."""
        return np.arange(len(self.word_P)) - self.starts_S[self.sentence_P]

    @cached_property
    def number_S(self) -> np.ndarray:
        """Index of each sentence on its device, from 0, independent of other devices."""
        first = np.searchsorted(self.device_S, self.device_S)
        return np.arange(len(self.device_S)) - first

    def begins_P(self, words: float) -> np.ndarray:
        """``[P]`` bool: the first words of each device, whole sentences until there are so many."""
        before_S = self.starts_S - self.starts_S[np.searchsorted(self.device_S, self.device_S)]
        return (before_S < words)[self.sentence_P]

    def only(self, chosen_P: np.ndarray) -> "HeldOut":
        """Some of the words, whole sentences, with the same numbers of spellings and devices."""
        keep_S = chosen_P[self.starts_S]
        lengths_S = self.lengths_S[keep_S]
        return replace(
            self,
            word_P=self.word_P[chosen_P],
            starts_S=np.cumsum(lengths_S) - lengths_S,
            lengths_S=lengths_S,
            device_S=self.device_S[keep_S],
        )

    def ids(self, vocabulary: Vocabulary) -> np.ndarray:
        """``[P]`` int64 ids of the words in a vocabulary, ``<unk>`` included."""
        return vocabulary.ids(self.spellings).astype(np.int64)[self.word_P]


def held_out(words: WordStore, owners: np.ndarray, max_words: int | None = None) -> HeldOut:
    """Sentences of the given owners of a store, all or up to ``max_words`` words.

    Args:
      max_words: stop after the sentence that reaches this many, sentence by sentence over all devices
        (the first of each, then the second of each), so that a small number still covers many devices.
    """
    lexicon_N = np.concatenate([np.empty(0, words.tokens_N.dtype), *(words.owner(int(owner)) for owner in owners)])
    ends_S = np.flatnonzero(lexicon_N == SENTENCE_END)
    lengths_S = np.diff(ends_S, prepend=-1) - 1
    device_S = np.searchsorted(np.cumsum(np.diff(words.offsets_D1)[owners]), ends_S, side="right")
    keep_S = np.arange(len(ends_S))
    if max_words is not None:
        number_S = keep_S - np.searchsorted(device_S, device_S)
        keep_S = np.flatnonzero(_in_turn(device_S, number_S, lengths_S, max_words))
    keep_N = np.repeat(np.isin(np.arange(len(ends_S)), keep_S), lengths_S + 1)
    lexicon_P = lexicon_N[: len(keep_N)][keep_N]
    lexicon_P = lexicon_P[lexicon_P != SENTENCE_END]
    used, word_P = np.unique(lexicon_P, return_inverse=True)
    lengths_S = lengths_S[keep_S]
    return HeldOut(
        spellings=tuple(words.lexicon[number - 1] for number in used),
        word_P=word_P.astype(np.int64),
        starts_S=np.cumsum(lengths_S) - lengths_S,
        lengths_S=lengths_S,
        device_S=device_S[keep_S],
        devices=len(owners),
    )


def _in_turn(device_S: np.ndarray, number_S: np.ndarray, lengths_S: np.ndarray, max_words: int) -> np.ndarray:
    """Sentences up to a number of words, taken from each device in turn."""
    turn_S = np.lexsort((device_S, number_S))
    before_S = np.cumsum(lengths_S[turn_S]) - lengths_S[turn_S]
    keep_S = np.zeros(len(lengths_S), dtype=bool)
    keep_S[turn_S[before_S < max_words]] = True
    return keep_S
