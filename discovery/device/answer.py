"""What one device does in one layer, from the question to its messages. Nothing else sees its words."""

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

END = "\x03"  # ends a word; outside every alphabet, so no typed character can stand for it


def letters_of(alphabet: str) -> str:
    """The letters of a question: the alphabet's, sorted, then ``END``.

    Raises:
      ValueError: no letters.
    """
    letters = "".join(sorted(set(alphabet) - {END}))
    if not letters:
        raise ValueError("alphabet: it is empty; give the letters that words of this locale hold")
    return letters + END


@dataclass(frozen=True)
class Broadcast:
    """What the server tells every device of a layer.

    Items of the domain: ``prefix number * len(letters) + letter number``, then one None item.

    Attributes:
      layer: 1, 2, ...; candidates of layer l have l characters, ``END`` counted.
      prefixes: those that survived the previous layer, sorted.
      letters: the alphabet, sorted, then ``END``.
    """

    layer: int
    prefixes: tuple[str, ...]
    letters: str

    @property
    def domain(self) -> int:
        """Number of items that a message may hold, the None item included."""
        return len(self.prefixes) * len(self.letters) + 1

    @property
    def none(self) -> int:
        """The item that stands for having nothing to say."""
        return self.domain - 1

    def item(self, candidate: str) -> int | None:
        """Number of a candidate; None if its prefix did not survive or a letter is foreign."""
        prefix = self._prefix_numbers.get(candidate[:-1])
        letter = self._letter_numbers.get(candidate[-1])
        return None if prefix is None or letter is None else prefix * len(self.letters) + letter

    def candidate(self, item: int) -> str:
        """The candidate with this number."""
        prefix, letter = divmod(item, len(self.letters))
        return self.prefixes[prefix] + self.letters[letter]

    @cached_property
    def typed(self) -> frozenset[str]:
        """Letters that words may hold: the alphabet without ``END``."""
        return frozenset(self.letters) - {END}

    @cached_property
    def _prefix_numbers(self) -> dict[str, int]:
        return {prefix: number for number, prefix in enumerate(self.prefixes)}

    @cached_property
    def _letter_numbers(self) -> dict[str, int]:
        return {letter: number for number, letter in enumerate(self.letters)}


def spoken_item(word: str, known_words: frozenset[str], broadcast: Broadcast, config: TrieConfig) -> int | None:
    """The item that a word stands for in this layer; None where the device keeps silent about it.

    Words that can never be finished (too long, empty, a foreign letter, ``END`` inside) are left
    out here, on the device, as are known words and words whose prefix did not survive.
    """
    long_enough = max(broadcast.layer - 1, 1) <= len(word) <= config.layers - 1
    if not long_enough or word in known_words or not broadcast.typed.issuperset(word):
        return None
    return broadcast.item((word + END)[: broadcast.layer])


def sample(
    counts: Mapping[int, int], contributions: int, kind: Literal["random", "greedy"], none: int, bits: Keystream
) -> np.ndarray:
    """Which candidates fill the C messages: exactly ``contributions`` items, int64, in random order.

    Distinct candidates and copies of ``none``; if there are more candidates, a random subset of them, or those that
    the device has most often (Sun & Sun 2024, section 3: Random and Greedy).

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


@dataclass(frozen=True)
class Question:
    """All that a layer asks, the same for every device of its group; public.

    Attributes:
      pass_number: 1, 2, ...; a device is asked in one layer of one pass only.
      known_words: those that every device leaves out: the base vocabulary and what earlier passes found.
    """

    pass_number: int
    broadcast: Broadcast
    randomizer: SubsetSelection
    known_words: frozenset[str]
    config: TrieConfig

    @cached_property
    def stream(self) -> str:
        """Name of the random bits that answer it.

        It changes with everything asked, so an answer to another question never shares bits with
        this one. To the same question a device gives the same answer again.
        """
        content = [
            self.pass_number, self.broadcast.layer, self.broadcast.letters, self.broadcast.prefixes,
            sorted(self.known_words),
            self.randomizer.epsilon0, self.randomizer.size, self.config.messages_per_device, self.config.layers,
            self.config.sampler,
        ]  # fmt: skip
        return f"answers {hashlib.sha256(json.dumps(content).encode()).hexdigest()}"

    def item(self, word: str) -> int:
        """The item that a word stands for; -1 for silence."""
        item = spoken_item(word, self.known_words, self.broadcast, self.config)
        return -1 if item is None else item

    def answer(self, words: Sequence[str], device: int, key: bytes) -> np.ndarray:
        """``report`` of one device, int64 ``[C, k]``, with its own random bits."""
        bits = Keystream(key, self.stream, device)
        return report(words, self.known_words, self.broadcast, self.randomizer, self.config, bits)
