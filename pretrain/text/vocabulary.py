"""``Vocabulary``: the words a model knows, and ``TokenStream``: text written in them."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from pretrain.files import write_text
from pretrain.reading.paths import read_json

PAD, BOS, EOS, UNK = 0, 1, 2, 3
MOST_WORDS = 2_000_000
SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")


@dataclass(frozen=True)
class Vocabulary:
    """Words by id; ids 0 to 3 are ``<pad> <bos> <eos> <unk>``."""

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.words[: len(SPECIALS)] != SPECIALS:
            raise ValueError(f"words: the first four must be {SPECIALS}, got {self.words[:4]}")
        if len(self.index) != len(self.words):
            raise ValueError("words: a word stands twice; every word needs one id")

    @cached_property
    def index(self) -> dict[str, int]:
        """Id of each word."""
        return {word: number for number, word in enumerate(self.words)}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the words in order: the snapshot that models and audits refer to."""
        return hashlib.sha256("\n".join(self.words).encode()).hexdigest()

    def __len__(self) -> int:
        return len(self.words)

    def ids(self, words: Iterable[str]) -> np.ndarray:
        """int32 ids of words; unknown ones become ``<unk>``."""
        return np.fromiter((self.index.get(word, UNK) for word in words), dtype=np.int32)


def from_counts(counts: Mapping[str, int], size: int) -> Vocabulary:
    """The ``size - 4`` most frequent words, ties in alphabetical order.

    Only public counts belong here: the cut-off depends on every count exactly.
    """
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return Vocabulary(SPECIALS + tuple(word for word, _ in ranked[: size - len(SPECIALS)]))


def extend(vocabulary: Vocabulary, new_words: Iterable[str], max_new: int) -> Vocabulary:
    """The vocabulary with at most ``max_new`` new words appended in the given order; old ids stay."""
    fresh = [word for word in dict.fromkeys(new_words) if word not in vocabulary.index]
    return Vocabulary(vocabulary.words + tuple(fresh[:max_new]))


def save(vocabulary: Vocabulary, path: Path) -> None:
    """Write the words as a JSON list."""
    write_text(path, json.dumps(vocabulary.words, ensure_ascii=False, indent=0))


def _whole(text: str) -> bool:
    """Return whether text is one line of whole characters."""
    return not any(character in "\n\r\0" or "\ud800" <= character <= "\udfff" for character in text)


def load(path: Path) -> Vocabulary:
    """Read what ``save`` wrote.

    Raises:
      ValueError: no list of words.
    """
    fix = "publish or build it again"
    words = read_json(path, "vocabulary", fix)
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words) or not _whole("".join(words)):
        raise ValueError(f"vocabulary: {path.name} is no list of words; {fix}")
    if not len(SPECIALS) <= len(words) <= MOST_WORDS:
        raise ValueError(f"vocabulary: {path.name} has {len(words):,} words, not 4 to {MOST_WORDS:,}; {fix}")
    try:
        return Vocabulary(tuple(words))
    except ValueError as error:
        raise ValueError(f"vocabulary: {path.name}: {error}; {fix}") from error


@dataclass(frozen=True)
class TokenStream:
    """Encoded text of many owners (documents or devices), end to end.

    Attributes:
      tokens_N: int32 vocabulary ids. Every sentence ends with ``EOS``; ``BOS`` and ``PAD`` never occur.
      offsets_D1: int64; owner ``d`` has ``tokens_N[offsets_D1[d]:offsets_D1[d + 1]]``.
    """

    tokens_N: np.ndarray
    offsets_D1: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets_D1) - 1

    def owner(self, number: int) -> np.ndarray:
        """Tokens of one owner."""
        return self.tokens_N[self.offsets_D1[number] : self.offsets_D1[number + 1]]

    def select(self, owners: np.ndarray) -> "TokenStream":
        """The given owners in the given order."""
        return join_owners([self.owner(number) for number in owners])


def join_streams(streams: list[TokenStream]) -> TokenStream:
    """All owners of all streams in order, copied once."""
    starts = np.cumsum([0, *(len(stream.tokens_N) for stream in streams)])
    offsets = [start + stream.offsets_D1[1:] for start, stream in zip(starts, streams, strict=False)]
    return TokenStream(
        np.concatenate([stream.tokens_N for stream in streams]),
        np.concatenate([np.zeros(1, dtype=np.int64), *offsets]),
    )


def join_owners(owners: list[np.ndarray]) -> TokenStream:
    """A stream from one token array per owner."""
    tokens = np.concatenate(owners) if owners else np.empty(0)
    return TokenStream(tokens.astype(np.int32), np.cumsum([0, *(len(owner) for owner in owners)], dtype=np.int64))
