"""``WordStore``: tokenised text before any vocabulary exists, memory-mapped.

Public shards and the private device store are both word stores. Words are ids into the
store's own lexicon, so one table turns a whole store into any later vocabulary's ids.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pretrain.files import PUBLIC, atomic, undamaged, write_array, write_text
from pretrain.text.vocabulary import EOS, UNK, TokenStream, Vocabulary

SENTENCE_END = 0
_FORMAT = "tacit-words-1"
FLUSH_TOKENS = 1 << 20
_FIX = "write it again"


@dataclass(frozen=True)
class WordStore:
    """Text of many owners as lexicon ids.

    Attributes:
      tokens_N: uint32, memory-mapped; ``SENTENCE_END`` ends a sentence, ``i >= 1`` is ``lexicon[i - 1]``.
      offsets_D1: int64; owner ``d`` has ``tokens_N[offsets_D1[d]:offsets_D1[d + 1]]``.
      lexicon: every distinct word, in order of first use. Private if the text is.
      digest: SHA-256 over tokens, offsets and lexicon.
    """

    tokens_N: np.ndarray
    offsets_D1: np.ndarray
    lexicon: tuple[str, ...]
    digest: str

    def __len__(self) -> int:
        return len(self.offsets_D1) - 1

    @property
    def num_words(self) -> int:
        """Words in the store, sentence ends not counted."""
        return int(np.count_nonzero(self.tokens_N))

    def owner(self, number: int) -> np.ndarray:
        """Lexicon ids of one owner."""
        return self.tokens_N[self.offsets_D1[number] : self.offsets_D1[number + 1]]

    def word_counts(self) -> dict[str, int]:
        """Count of each word."""
        counts = np.bincount(self.tokens_N, minlength=len(self.lexicon) + 1)[1:]
        return {word: int(count) for word, count in zip(self.lexicon, counts, strict=True)}

    def first_sentences(self, tokens: int) -> Iterator[list[str]]:
        """Words of each sentence among the first ``tokens`` tokens."""
        first_N = self.tokens_N[:tokens]
        for sentence in np.split(first_N, np.flatnonzero(first_N == SENTENCE_END)):
            yield [self.lexicon[word - 1] for word in sentence if word != SENTENCE_END]

    def encode(self, vocabulary: Vocabulary, owners: np.ndarray | None = None) -> TokenStream:
        """The chosen owners (all if None) in a vocabulary's ids, in the given order."""
        if owners is None:
            return TokenStream(self._table(vocabulary)[self.tokens_N], self.offsets_D1)
        pieces = [np.empty(0, dtype=np.int32), *self.encoded(vocabulary, owners)]
        return TokenStream(np.concatenate(pieces), np.cumsum([0, *np.diff(self.offsets_D1)[owners]], dtype=np.int64))

    def encoded(self, vocabulary: Vocabulary, owners: np.ndarray) -> Iterator[np.ndarray]:
        """The tokens of ``encode``, some at a time."""
        table = self._table(vocabulary)
        ends = np.cumsum(np.diff(self.offsets_D1)[owners])
        first = 0
        while first < len(owners):
            begun = ends[first - 1] if first else 0
            last = max(first + 1, int(np.searchsorted(ends, begun + FLUSH_TOKENS, side="right")))
            yield table[np.concatenate([self.owner(number) for number in owners[first:last]])]
            first = last

    def _table(self, vocabulary: Vocabulary) -> np.ndarray:
        table = np.full(len(self.lexicon) + 1, UNK, dtype=np.int32)
        table[SENTENCE_END] = EOS
        table[1:] = vocabulary.ids(self.lexicon)
        return table


def encode_all(stores: Sequence[WordStore], vocabulary: Vocabulary) -> TokenStream:
    """All owners of all stores in a vocabulary's ids, held once."""
    ends = np.cumsum([0, *(len(store.tokens_N) for store in stores)])
    tokens_N = np.empty(ends[-1], dtype=np.int32)
    for store, first in zip(stores, ends, strict=False):
        tokens_N[first : first + len(store.tokens_N)] = store._table(vocabulary)[store.tokens_N]
    offsets = [first + store.offsets_D1[1:] for store, first in zip(stores, ends, strict=False)]
    return TokenStream(tokens_N, np.concatenate([np.zeros(1, dtype=np.int64), *offsets]))


def write_words(directory: Path, owners: Iterable[Sequence[Sequence[str]]], mode: int = PUBLIC) -> WordStore:
    """Write a store from owners, each a sequence of sentences, each a sequence of words.

    Empty sentences are left out. ``meta.json`` is written last, so a store without it is
    unfinished and ``open_words`` refuses it.

    Args:
      mode: of every file; ``PRIVATE`` for people's text.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "meta.json").unlink(missing_ok=True)
    index: dict[str, int] = {}
    offsets = [0]
    pending: list[int] = []
    written = 0
    with atomic(directory / "tokens.bin", mode) as temporary, temporary.open("wb") as file:
        for sentences in owners:
            for sentence in sentences:
                if sentence:
                    pending.extend(index.setdefault(word, len(index) + 1) for word in sentence)
                    pending.append(SENTENCE_END)
            offsets.append(written + len(pending))
            if len(pending) >= FLUSH_TOKENS:
                file.write(np.asarray(pending, dtype="<u4").tobytes())
                written += len(pending)
                pending.clear()
        file.write(np.asarray(pending, dtype="<u4").tobytes())
    return _finished(directory, np.asarray(offsets, dtype=np.int64), index, mode)


def join_words(directory: Path, pieces: Sequence[WordStore], mode: int = PUBLIC) -> WordStore:
    """Write the store that ``write_words`` would of the owners of all pieces, one piece after the other."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "meta.json").unlink(missing_ok=True)
    index: dict[str, int] = {}
    lengths = [np.zeros(1, dtype=np.int64)]
    with atomic(directory / "tokens.bin", mode) as temporary, temporary.open("wb") as file:
        for piece in pieces:
            # A word that is new to all pieces so far is first used where its own piece first uses it.
            numbers = [index.setdefault(word, len(index) + 1) for word in piece.lexicon]
            table = np.array([SENTENCE_END, *numbers], dtype="<u4")
            for first in range(0, len(piece.tokens_N), FLUSH_TOKENS):
                file.write(table[piece.tokens_N[first : first + FLUSH_TOKENS]].tobytes())
            lengths.append(np.diff(piece.offsets_D1))
    return _finished(directory, np.cumsum(np.concatenate(lengths)), index, mode)


def _finished(directory: Path, offsets_D1: np.ndarray, index: dict[str, int], mode: int) -> WordStore:
    """Finish the store after its tokens are written, and open it."""
    write_array(directory / "offsets.npy", offsets_D1, mode)
    write_text(directory / "lexicon.json", json.dumps(list(index), ensure_ascii=False), mode)
    meta = {"format": _FORMAT, "owners": len(offsets_D1) - 1, "tokens": int(offsets_D1[-1])}
    write_text(directory / "meta.json", json.dumps(meta | {"digest": _digest(directory)}), mode)
    return open_words(directory)


def open_words(directory: Path) -> WordStore:
    """Open a store and check its digest.

    Raises:
      ValueError: unfinished, damaged or of another format.
    """
    path = directory / "meta.json"
    if not path.exists():
        raise ValueError(f"{directory.name}: no meta.json, so the word store is unfinished; write it again")
    with undamaged(path, _FIX):
        meta = json.loads(path.read_text(encoding="utf-8"))
        form, digest = meta.get("format"), meta["digest"]
    if form != _FORMAT:
        raise ValueError(f"{directory.name}: format {form!r}, expected {_FORMAT!r}; {_FIX}")
    if _digest(directory) != digest:
        raise ValueError(f"{directory.name}: the digest does not match meta.json; the store is damaged, {_FIX}")
    tokens = directory / "tokens.bin"
    return WordStore(
        # An empty file cannot be mapped.
        np.memmap(tokens, dtype="<u4", mode="r") if tokens.stat().st_size else np.empty(0, dtype="<u4"),
        np.load(directory / "offsets.npy"),
        tuple(json.loads((directory / "lexicon.json").read_text(encoding="utf-8"))),
        digest,
    )


def _digest(directory: Path) -> str:
    total = hashlib.sha256()
    for name in ("tokens.bin", "offsets.npy", "lexicon.json"):
        with undamaged(directory / name, _FIX), (directory / name).open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()
