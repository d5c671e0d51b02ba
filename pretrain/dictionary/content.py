"""``Dictionary``: the content of a LatinIME word list, text or binary.

The two files are those that AOSP's ``makedict`` knows: the text that ``CombinedInputOutput`` reads
(``combined.py``) and the binary that ``Ver2DictEncoder`` writes and keyboards load (``binary.py``).
"""

import math
from dataclasses import dataclass, field

import numpy as np

MAX_FREQUENCY = 255
# Keyboards read at most 48 code points, and AOSP's encoder passes over words that long.
MAX_WORD_LENGTH = 47
NAMED = ("dictionary", "locale", "version")
# Frequency lost when a probability halves: the scale of LatinIME's own encoder (``ProbabilityUtils::
# encodeRawProbability``), which the published dictionaries follow too. A step is a factor of 1.084.
_PER_HALVING = 8.58923700372
_LEVELS = 16


@dataclass(frozen=True)
class Word:
    """One word: its frequency and its followers.

    Attributes:
      frequency: 0 to 255, logarithmic; 255 means probability 1 and 0 a word that is never suggested.
      bigrams: word that follows -> its frequency there, 0 to 255.
      not_a_word: accepted as typed by no spell checker.
      possibly_offensive: suggested only where the user allows it.
    """

    frequency: int
    bigrams: dict[str, int] = field(default_factory=dict)
    not_a_word: bool = False
    possibly_offensive: bool = False


@dataclass(frozen=True)
class Dictionary:
    """Header attributes in the order of the file, and words in any order.

    Raises:
      ValueError: an attribute is missing, or a word, frequency or bigram that no dictionary can hold.
    """

    attributes: dict[str, str]
    words: dict[str, Word]

    def __post_init__(self) -> None:
        missing = [name for name in NAMED if name not in self.attributes]
        if missing:
            raise ValueError(f"attributes: lack {', '.join(missing)}; keyboards refuse a dictionary without them")
        for text, word in self.words.items():
            if not fits(text):
                raise ValueError(f"words: no dictionary can hold {text!r}; leave it out (content.fits)")
            wrong = [value for value in (word.frequency, *word.bigrams.values()) if not 0 <= value <= MAX_FREQUENCY]
            if wrong:
                raise ValueError(f"words: {text!r} has frequency {wrong[0]}; give 0 to {MAX_FREQUENCY}")
            unknown = [follower for follower in word.bigrams if follower not in self.words]
            if unknown:
                raise ValueError(f"words: {text!r} is followed by {unknown[0]!r}, which is no word; add it first")

    def as_keyboards_read_it(self) -> "Dictionary":
        """The same with each bigram's frequency as LatinIME gets it back from the four bits it is kept in."""
        words = {
            text: Word(
                word.frequency,
                {
                    follower: read_frequency(unigram, bigram_level(unigram, frequency))
                    for follower, frequency in word.bigrams.items()
                    for unigram in (self.words[follower].frequency,)
                },
                word.not_a_word,
                word.possibly_offensive,
            )
            for text, word in self.words.items()
        }
        return Dictionary(self.attributes, words)


def fits(text: str) -> bool:
    """Return whether both files can hold a word: 1 to 47 characters, none that ends a field, no space at an end."""
    plain = text == text.strip() and not any(character == "," or ord(character) < 0x20 for character in text)
    return plain and 1 <= len(text) <= MAX_WORD_LENGTH


def frequency(probability: float) -> int:
    """A word's probability on LatinIME's scale, 1 to 255: 255 for certainty, 8.6 less each time it halves."""
    if not 0 <= probability <= 1:
        raise ValueError(f"probability: {probability!r} lies outside 0 to 1")
    scaled = MAX_FREQUENCY + _PER_HALVING * math.log2(max(probability, 1e-30))
    return min(max(round(scaled), 1), MAX_FREQUENCY)


def bigram_level(unigram: int, bigram: int) -> int:
    """The four bits a bigram is kept in: how far it lifts the word that follows above its own frequency.

    ``BinaryDictEncoderUtils.getBigramFrequencyDiff``: 16.5 steps from ``unigram`` to 255, level 0 for what
    lifts by half a step to one and a half, and also for less.
    """
    return int(_LEVEL[unigram, bigram])


def read_frequency(unigram: int, level: int) -> int:
    """Frequency that a keyboard computes from the four bits (``ProbabilityUtils::computeProbabilityForBigram``)."""
    return int(_READ[unigram, level])


def _tables() -> tuple[np.ndarray, np.ndarray]:
    """Both directions for every unigram frequency, in float32 as both of AOSP's programs compute them."""
    unigram = np.arange(MAX_FREQUENCY + 1, dtype=np.float32)[:, None]
    step = (MAX_FREQUENCY - unigram) / np.float32(_LEVELS + 0.5)
    bigram = np.maximum(unigram, unigram.T)
    with np.errstate(divide="ignore", invalid="ignore"):
        level = (bigram - (1 + unigram + step / 2)) / step
    # A certain word leaves no room above it: its bigrams are level 0.
    level = np.where(step > 0, np.clip(np.trunc(level), 0, _LEVELS - 1), 0)
    read = unigram + np.trunc(np.arange(1, _LEVELS + 1, dtype=np.float32) * step)
    return level.astype(np.uint8), read.astype(np.uint8)


_LEVEL, _READ = _tables()
