"""One device's answer in one layer, from the question to its messages. No other code sees its words."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from discovery.config import TrieConfig
from discovery.device.keystream import Keystream
from discovery.device.randomizer import SubsetSelection, randomise
from pretrain.writing import case

END = "\x03"  # ends a word; outside every alphabet, so no typed character can stand for it
DIGIT = "\x04"  # stands for any digit until the word has ended
_DIGITS = "0123456789"
_HIDE = str.maketrans(dict.fromkeys(_DIGITS, DIGIT))


def spelling(typed: str) -> str:
    """A typed word's path through the trie: its characters, digits as ``DIGIT``; ``END``; its digits; its form.

    So *Gr8* shares all votes with *gr8*, and with *gr9* up to its end, and ten digits and three forms do not enlarge
    the question of a prefix. Only found words are asked for the characters after their end.
    """
    word, form = case.parted(typed)
    return word.translate(_HIDE) + END + "".join(filter(_DIGITS.__contains__, word)) + case.SIGNS[form]


def spelt(candidate: str) -> str:
    """The word of a finished candidate with all its digits, without its form."""
    letters, _, rest = candidate.partition(END)
    digits = iter(rest)
    return "".join(next(digits) if character == DIGIT else character for character in letters)


def letters_of(alphabet: str) -> str:
    """The letters of a question: the alphabet's, sorted, then ``DIGIT`` and ``END``.

    Raises:
      ValueError: no letters.
    """
    letters = "".join(sorted(set(alphabet) - {END, DIGIT, *_DIGITS}))
    if not letters:
        raise ValueError("alphabet: it is empty; give the letters that words of this locale hold")
    return letters + DIGIT + END


@dataclass(frozen=True)
class Broadcast:
    """Message from the server to every device of a layer.

    Items of the domain: those of each prefix in turn, one for each letter after it, then one None item.

    Attributes:
      layer: 1, 2, ...; candidates of layer l have l characters, ``END`` counted.
      prefixes: those that survived the previous layer, sorted; one that holds ``END`` is a found word, and
        asks for its next digit or, if it has all of them, for its form.
      letters: the alphabet, sorted, then ``DIGIT`` if words may hold digits, then ``END``.
    """

    layer: int
    prefixes: tuple[str, ...]
    letters: str

    @property
    def domain(self) -> int:
        """Number of items, including the None item."""
        return int(self._starts[-1]) + 1

    @property
    def none(self) -> int:
        """The None item, for a message without a candidate."""
        return self.domain - 1

    def item(self, candidate: str) -> int | None:
        """Number of a candidate; None if its prefix did not survive or a letter is foreign."""
        prefix = self._prefix_numbers.get(candidate[:-1])
        letter = -1 if prefix is None else self.letters_after(candidate[:-1]).find(candidate[-1])
        return None if prefix is None or letter < 0 else int(self._starts[prefix]) + letter

    def candidate(self, item: int) -> str:
        """The candidate with this number."""
        prefix = int(np.searchsorted(self._starts, item, side="right")) - 1
        return self.prefixes[prefix] + self.letters_after(self.prefixes[prefix])[item - int(self._starts[prefix])]

    def letters_after(self, prefix: str) -> str:
        """Characters that may follow a prefix: letters, or behind the end of a word its digits, then its forms."""
        word, end, digits = prefix.partition(END)
        if not end:
            return self.letters
        return _DIGITS if len(digits) < word.count(DIGIT) else case.SIGNS

    @cached_property
    def ends(self) -> np.ndarray:
        """Items that finish a word or determine one of its digits; int64, ascending."""
        return np.array(
            [
                start + place
                for start, prefix in zip(self._starts[:-1].tolist(), self.prefixes, strict=True)
                for place, letter in enumerate(self.letters_after(prefix))
                if letter == END or letter in _DIGITS
            ],
            dtype=np.int64,
        )

    @cached_property
    def typed(self) -> frozenset[str]:
        """Letters that words may hold: the question's without ``END``."""
        return frozenset(self.letters) - {END}

    @cached_property
    def _prefix_numbers(self) -> dict[str, int]:
        return {prefix: number for number, prefix in enumerate(self.prefixes)}

    @cached_property
    def _starts(self) -> np.ndarray:
        """The first item of each prefix, and the None item; int64."""
        return np.cumsum([0, *(len(self.letters_after(prefix)) for prefix in self.prefixes)], dtype=np.int64)


def spoken_item(word: str, known_words: frozenset[str], broadcast: Broadcast, config: TrieConfig) -> int | None:
    """The item of a word in this layer; None if the device does not report it.

    The device leaves out words that can never be finished (too long, empty, a foreign letter, ``END``
    inside), known words, and words whose prefix did not survive.

    Args:
      word: as typed, with the sign of its form (``pretrain.writing.case``); known words have none.
    """
    lowered, path = case.parted(word)[0], spelling(word)
    long_enough = 1 <= len(lowered) <= config.layers - 1 and broadcast.layer <= len(path)
    if not long_enough or lowered in known_words or not broadcast.typed.issuperset(path[: len(lowered)]):
        return None
    return broadcast.item(path[: broadcast.layer])


def sample(
    counts: Mapping[int, int], contributions: int, kind: Literal["random", "greedy"], none: int, bits: Keystream
) -> np.ndarray:
    """Candidates that fill the C messages: exactly ``contributions`` items, int64, in random order.

    Distinct candidates and copies of ``none``; if there are more candidates, a random subset of them, or the most
    frequent ones of the device (Sun & Sun 2024, section 3: Random and Greedy).

    Guarantee: changing one occurrence on a device changes at most one of the C items (random: as a coupling;
    greedy: of two counts that move one falls, so one candidate at most leaves the first C), which makes C messages
    of epsilon0 each item-level epsilon0-LDP. Neither the number of messages nor the order among equals may depend
    on the data: every device sends exactly C, and equals are ordered by item number. The random order of the C items
    is what makes this hold for messages one by one: in a sorted row, one new item would move others too.

    Args:
      counts: candidate item -> how often the device has it.
    """
    chosen = np.array(sorted(counts), dtype=np.int64)
    if len(chosen) > contributions and kind == "random":
        chosen = chosen[bits.subset(len(chosen), contributions)]
    elif len(chosen) > contributions:
        often = np.array([counts[item] for item in chosen.tolist()])
        chosen = chosen[np.argsort(-often, kind="stable")[:contributions]]
    items = np.concatenate([chosen, np.full(contributions - len(chosen), none, dtype=np.int64)])
    return items[bits.permutation(contributions)]


def report(
    words: Sequence[str],
    known_words: frozenset[str],
    broadcast: Broadcast,
    randomizer: SubsetSelection,
    config: TrieConfig,
    bits: Keystream,
) -> np.ndarray:
    """The device's C randomised messages, int64 ``[C, k]``.

    Guarantee: each message is ``epsilon0``-LDP for the item in it; changing one occurrence of a
    word changes at most one item (``sample``). Device level: ``C * epsilon0``.
    """
    spoken = (spoken_item(word, known_words, broadcast, config) for word in words)
    counts = Counter(item for item in spoken if item is not None)
    items = sample(counts, config.messages_per_device, config.sampler, broadcast.none, bits)
    return np.stack([randomise(randomizer, int(item), bits) for item in items])


# First number of every question's stream; repeating a question with other bits needs another number.
_SERIES = 1


@dataclass(frozen=True)
class Question:
    """The question of a layer, the same for every device of its group; public.

    Attributes:
      known_words: words that every device leaves out: the base vocabulary.
    """

    broadcast: Broadcast
    randomizer: SubsetSelection
    known_words: frozenset[str]
    config: TrieConfig

    @cached_property
    def stream(self) -> str:
        """Name of the random bits of its answers.

        The name depends on the whole question, so answers to different questions never share bits. A
        device answers the same question with the same bits again.
        """
        content = [
            _SERIES, self.broadcast.layer, self.broadcast.letters, self.broadcast.prefixes,
            sorted(self.known_words),
            self.randomizer.epsilon0, self.randomizer.size, self.config.messages_per_device, self.config.layers,
            self.config.sampler,
        ]  # fmt: skip
        return f"answers {hashlib.sha256(json.dumps(content).encode()).hexdigest()}"

    def item(self, word: str) -> int:
        """The item of a word; -1 if the device does not report it."""
        item = spoken_item(word, self.known_words, self.broadcast, self.config)
        return -1 if item is None else item

    def answer(self, words: Sequence[str], device: int, key: bytes) -> np.ndarray:
        """``report`` of one device, int64 ``[C, k]``, with its own random bits."""
        bits = Keystream(key, self.stream, device)
        return report(words, self.known_words, self.broadcast, self.randomizer, self.config, bits)
