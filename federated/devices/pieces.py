"""Pieces: tokenised text of some devices, as files in a folder; several pieces joined end to end are one piece.

Shape legend: N tokens.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pretrain.files import PRIVATE, atomic, private_directory, undamaged
from pretrain.text.tokenise import sentences, written
from pretrain.text.words import WordStore, join_words, open_words, write_words
from pretrain.writing import case

_WORDS, _FORMS, _CLIENTS = "words", "forms.bin", "clients.parquet"
_LOG_EVERY = 100_000
_log = logging.getLogger(__name__)
_log.setLevel(logging.INFO)  # for any log level, as the progress of long work


@dataclass(frozen=True)
class Piece:
    """Some devices by ascending id. Private.

    Attributes:
      words: one owner per device, memory-mapped.
      clients: their ids, as in the source.
      forms_N: uint8, memory-mapped, index in ``case.FORMS`` of the form of each of ``words.tokens_N``.
    """

    words: WordStore
    clients: list[str]
    forms_N: np.ndarray


def write_piece(directory: Path, devices: Iterable[tuple[str, Iterable[str]]], locale: str, max_words: int) -> Piece:
    """Tokenise the texts of devices, keeping whole sentences while they fit into ``max_words`` per device.

    A device without words is kept.
    """
    clients: list[str] = []
    with atomic(directory / _FORMS, PRIVATE) as temporary, temporary.open("wb") as forms:
        capped = _with_words(devices, locale, max_words, clients, forms)
        words = write_words(private_directory(directory / _WORDS), capped, PRIVATE)
    return _with_ids(directory, words, clients)


def join_pieces(directory: Path, pieces: Sequence[Piece]) -> Piece:
    """Join pieces end to end: equal to the result of ``write_piece`` for all their devices."""
    with atomic(directory / _FORMS, PRIVATE) as temporary, temporary.open("wb") as file:
        for piece in pieces:
            file.write(piece.forms_N.data)
    words = join_words(private_directory(directory / _WORDS), [piece.words for piece in pieces], PRIVATE)
    return _with_ids(directory, words, [client for piece in pieces for client in piece.clients])


def open_piece(directory: Path) -> Piece:
    """Open a piece that was written.

    Raises:
      ValueError: unfinished or damaged.
    """
    return Piece(open_words(directory / _WORDS), device_ids(directory), _forms(directory))


def device_ids(directory: Path) -> list[str]:
    """The ids of a piece's devices, as in the source. Private.

    Raises:
      ValueError: damaged.
    """
    with undamaged(directory / _CLIENTS, "build it again"):
        return pq.read_table(directory / _CLIENTS)["client_id"].to_pylist()


def _with_ids(directory: Path, words: WordStore, clients: list[str]) -> Piece:
    with atomic(directory / _CLIENTS, PRIVATE) as temporary:
        pq.write_table(pa.table({"client_id": pa.array(clients, pa.string())}), temporary)
    return Piece(words, clients, _forms(directory))


def _with_words(
    devices: Iterable[tuple[str, Iterable[str]]], locale: str, max_words: int, clients: list[str], forms: BinaryIO
) -> Iterator[list[list[str]]]:
    """Capped sentences of each device, none for a silent one; appends its id to ``clients`` and forms to a file.

    Args:
      forms: receives a byte for each word and for the end of each sentence, in the order of ``write_words``.
    """
    for client, texts in devices:
        clients.append(client)
        capped = _capped((words for text in texts for words in _typed_sentences(text, locale)), max_words)
        forms.write(bytes(form for words in capped for form in (*(case.parted(word)[1] for word in words), 0)))
        yield [case.plain(words) for words in capped]
        if len(clients) % _LOG_EVERY == 0:
            _log.info("device store: %d devices so far", len(clients))


def _typed_sentences(text: str, locale: str) -> list[list[str]]:
    lowered = sentences(text, locale)
    # Most typed text is lower-case already, and needs no second tokenisation.
    return lowered if text == text.lower() else case.signed(lowered, written(text, locale), locale)


def _forms(directory: Path) -> np.ndarray:
    path = directory / _FORMS
    with undamaged(path, "build it again"):
        # An empty file cannot be mapped.
        return np.memmap(path, dtype=np.uint8, mode="r") if path.stat().st_size else np.empty(0, dtype=np.uint8)


def _capped(texts: Iterable[list[str]], max_words: int) -> list[list[str]]:
    capped: list[list[str]] = []
    room = max_words
    for words in texts:
        if len(words) > room:
            return capped or [words[:max_words]]
        capped.append(words)
        room -= len(words)
        if not room:
            break
    return capped
