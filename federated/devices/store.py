"""The device store: the text of each device of a population, in a private folder.

Shape legend: D devices, N tokens.
"""

import hashlib
import hmac
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from federated.config.population import (
    VALIDATION_FRACTION,
    ChitchatPopulation,
    FilePopulation,
    MadeUpFilePopulation,
    PopulationConfig,
    PopulationKey,
    Retention,
    SyntheticPopulation,
    key_of,
)
from federated.devices import parts, pieces, synthetic
from federated.devices import readers as sources
from federated.devices.files import FIELD
from federated.devices.ids import require_distinct
from federated.devices.withdrawals import NOBODY, Withdrawals
from pretrain.files import PRIVATE, atomic, private_directory, undamaged, write_array, write_text
from pretrain.text.tokenise import require_spaced_script
from pretrain.text.vocabulary import TokenStream, Vocabulary
from pretrain.text.words import SENTENCE_END, WordStore
from pretrain.writing import case

SPLITS = ("train", "validation", "test")
_FORMAT = "tacit-devices-1"
_SUMMARY_FILE, _SPLIT_FILE = "store.json", "split.npy"
_FIX = "build it again"


@dataclass(frozen=True)
class StoreSummary:
    """Publishable facts about a population. Device counts are rounded down to tens.

    Attributes:
      population: its key in the ledger: kind and name.
      source: ``files``, or that of a simulation.
      synthetic: nobody typed the text; every report says so.
      devices: all devices of the population, including silent ones.
      digest: SHA-256 over text, client ids and splits.
      schema: column -> type, as read.
      devices_by_split: split -> devices.
      other_locales: rows of other locales that were left out, rounded down to hundreds.
      older: rows outside the retention window, rounded down to hundreds.
      unreadable: rows that could not be read, left out, rounded down to hundreds.
    """

    population: PopulationKey
    source: str
    synthetic: bool
    devices: int
    digest: str
    schema: dict[str, str]
    devices_by_split: dict[str, int]
    other_locales: int = 0
    older: int = 0
    unreadable: int = 0


@dataclass(frozen=True)
class DeviceStore:
    """An open store. Private: everything in it is client data.

    Attributes:
      words: one owner per device, sorted by client id, memory-mapped.
      split_D: uint8, 0 train, 1 validation, 2 test.
      directory: folder of the store. Mapped copies are written there as hidden files, which may be removed at any time.
      digest: over words, splits, ids and forms.
      forms_N: uint8, memory-mapped, index in ``case.FORMS`` of the form of each of ``words.tokens_N``.
    """

    words: WordStore
    split_D: np.ndarray
    directory: Path
    digest: str
    forms_N: np.ndarray

    def devices(self, split: str) -> np.ndarray:
        """Indices of the devices of a split, ascending."""
        if split not in SPLITS:
            raise ValueError(f"split: {split!r} is not one of {', '.join(SPLITS)}")
        return np.flatnonzero(self.split_D == SPLITS.index(split))

    def speaking(self, split: str) -> int:
        """Number of devices of a split with at least one word."""
        return int(np.count_nonzero(np.diff(self.words.offsets_D1)[self.devices(split)]))

    def encode(self, vocabulary: Vocabulary, split: str, more: TokenStream | None = None) -> TokenStream:
        """The devices of a split in a vocabulary's ids, memory-mapped, followed by those of ``more``."""
        devices = self.devices(split)
        others = TokenStream(np.empty(0, np.int32), np.zeros(1, np.int64)) if more is None else more
        named = hashlib.sha256(f"{self.digest} {vocabulary.digest} {split}".encode())
        named.update(others.tokens_N.tobytes())
        tokens = chain(self.words.encoded(vocabulary, devices), [others.tokens_N])
        tokens_N = mapped(self.directory / f".encoded-{named.hexdigest()[:32]}.bin", tokens)
        lengths_D = np.diff(self.words.offsets_D1)[devices]
        return TokenStream(tokens_N, np.cumsum(np.concatenate([[0], lengths_D, np.diff(others.offsets_D1)])))

    def device_words(self, split: str) -> Iterator[list[str]]:
        """The words of each device of a split, in order, without sentence ends."""
        for device in self.devices(split):
            yield [self.words.lexicon[number - 1] for number in self.words.owner(device) if number != SENTENCE_END]

    def typed_words(self, split: str) -> Iterator[list[str]]:
        """``device_words`` for discovery: each word with the sign of its written form."""
        signs = ("", *case.SIGNS[1:])
        for device in self.devices(split):
            first, last = self.words.offsets_D1[device], self.words.offsets_D1[device + 1]
            pairs = zip(self.words.tokens_N[first:last].tolist(), self.forms_N[first:last].tolist(), strict=True)
            yield [self.words.lexicon[number - 1] + signs[form] for number, form in pairs if number != SENTENCE_END]


def split_key(population: PopulationKey, secret: bytes) -> bytes:
    """Key of a population's splits, from its key and the secret of its registration."""
    return hmac.digest(secret, f"tacit split {population}".encode(), hashlib.sha256)


def keyed_digest(digest: str, key: bytes, launch_id: str) -> str:
    """A store's digest for publication by one launch.

    Guarantee: without ``split_key`` it is indistinguishable from a random number, and the digests that two launches
    publish of one store are two of them.
    """
    return hmac.digest(key, f"tacit store {launch_id} {digest}".encode(), hashlib.sha256).hex()


def stored_digest(directory: Path) -> str:
    """Read the digest that a finished store states of itself; ``open_store`` checks it. Private.

    Raises:
      ValueError: the store is unfinished or damaged.
    """
    path = directory / _SUMMARY_FILE
    if not path.exists():
        raise ValueError(f"{directory.name}: no {_SUMMARY_FILE}, so the device store is unfinished; {_FIX}")
    with undamaged(path, _FIX):
        content = json.loads(path.read_text(encoding="utf-8"))
        form, digest = content.get("format"), content["summary"]["digest"]
    if form != _FORMAT:
        raise ValueError(f"{directory.name}: format {form!r}, not {_FORMAT!r}; {_FIX}")
    return digest


def require_readable(config: PopulationConfig, locale: str) -> None:
    """Raise ValueError for a locale without spaces between words, or fractions that leave no training device."""
    require_spaced_script(locale)
    if VALIDATION_FRACTION + config.test_fraction >= 1:
        raise ValueError(
            f"private_text.test_fraction: {config.test_fraction} and the validation share {VALIDATION_FRACTION} "
            "leave no device to train on; lower it"
        )


def build_store(
    config: PopulationConfig,
    locale: str,
    seed: int,
    directory: Path,
    key: bytes | None = None,
    retention: Retention | None = None,
    read: Path | None = None,
    withdrawn: Withdrawals = NOBODY,
) -> StoreSummary:
    """Read a population and write its store.

    ``pretrain.text.tokenise`` tokenises the text, and each device is capped: whole sentences in the order typed while
    they fit into ``max_words_per_device`` (a longer first sentence is cut). A device without words is kept and takes
    part without contributing: if it were left out, its presence would reveal its content, and no guarantee against an
    empty device would hold. The split of a device is a keyed hash of its client id. It never depends on other
    devices, stays when the population grows, and is the same in every launch on the population: a device held out in
    one launch has never trained in another. Without the key, the split of a device is unknown.

    Args:
      seed: of made-up typists and, without a key, of the splits: for measurements that publish nothing.
      key: ``split_key`` of the population.
      retention: window of people's text; None for all. Made-up text has no window.
      read: folder of the pieces of several readers (``parts``), joined instead of reading: the same store.
      withdrawn: devices to leave out, for any source.

    The summary file is written last: an unfinished store does not open.

    Raises:
      ValueError: locale without spaces between words, bad columns (names file, column and fix), no device at all, or
        two spellings of one id (``ids.require_distinct``).
      OSError: a file cannot be read.
    """
    require_readable(config, locale)
    private_directory(directory)
    if read is None:
        typed = _typed(config, locale, seed, retention, directory, withdrawn)
        source = typed.read
        (directory / _SUMMARY_FILE).unlink(missing_ok=True)
        whole = pieces.write_piece(directory, withdrawn.without(typed.devices), locale, config.max_words_per_device)
    else:
        made, source = parts.pieces_of(read)
        (directory / _SUMMARY_FILE).unlink(missing_ok=True)
        whole = pieces.join_pieces(directory, made)
    if not whole.clients:
        raise ValueError(
            f"private_text: population {config.name!r} has no device with text of {locale}"
            + ("" if retention is None else f" typed in the {retention.days} days before {retention.as_of}")
            + "; check the source"
        )
    require_distinct(whole.clients, FIELD, case_sensitive=withdrawn.case_sensitive_ids)
    split_D = _splits(whole.clients, key or f"tacit split {seed}".encode(), config)
    write_array(directory / _SPLIT_FILE, split_D, PRIVATE)
    summary = StoreSummary(
        population=key_of(config),
        source=config.source,
        synthetic=config.synthetic,
        devices=sources.tens(len(whole.clients)),
        digest=_digest(whole, split_D),
        schema=source.schema,
        devices_by_split=_by_split(split_D),
        other_locales=sources.hundreds(source.other_locales),
        older=sources.hundreds(source.older),
        unreadable=sources.hundreds(source.unreadable),
    )
    content = {"format": _FORMAT, "summary": asdict(summary)}
    write_text(directory / _SUMMARY_FILE, json.dumps(content), PRIVATE)
    return summary


def open_store(directory: Path) -> DeviceStore:
    """Open a store that ``build_store`` wrote.

    Raises:
      ValueError: unfinished or damaged.
    """
    digest = stored_digest(directory)
    whole = pieces.open_piece(directory)
    with undamaged(directory / _SPLIT_FILE, _FIX):
        split_D = np.load(directory / _SPLIT_FILE)
    if _digest(whole, split_D) != digest:
        raise ValueError(f"{directory.name}: the digest does not match; the device store is damaged, {_FIX}")
    return DeviceStore(whole.words, split_D, directory, digest, whole.forms_N)


def _typed(
    config: PopulationConfig, locale: str, seed: int, retention: Retention | None, folder: Path, withdrawn: Withdrawals
) -> sources.DeviceTexts:
    match config:
        case FilePopulation() | MadeUpFilePopulation():
            return sources.from_files(config.paths, locale, retention, folder, withdrawn=withdrawn)
        case ChitchatPopulation():
            return sources.from_chitchat(locale, folder)
        case SyntheticPopulation():
            return synthetic.typists(config, locale, seed)


def identity(config: PopulationConfig) -> object:
    """Identity of a population's text, in addition to its configuration, locale and seed, as JSON values. Private.

    Raises:
      ValueError: a file pattern matches nothing; the package is not installed.
      OSError: a file cannot be read.
    """
    match config:
        case FilePopulation() | MadeUpFilePopulation():
            return sources.identity(config.paths)
        case ChitchatPopulation():
            return sources.chitchat_version()
        case SyntheticPopulation():
            return None


def devices_by_split(clients: Iterable[str], key: bytes, config: PopulationConfig) -> dict[str, int]:
    """Devices of each split, rounded down to tens, as a store of these clients states them.

    Args:
      key: ``split_key`` of the population.
    """
    return _by_split(_splits(clients, key, config))


def _by_split(split_D: np.ndarray) -> dict[str, int]:
    return {name: sources.tens(int(np.sum(split_D == number))) for number, name in enumerate(SPLITS)}


def _splits(clients: Iterable[str], key: bytes, config: PopulationConfig) -> np.ndarray:
    return np.array([_split(client, key, config) for client in clients], dtype=np.uint8)


def _split(client: str, key: bytes, config: PopulationConfig) -> int:
    digest = hashlib.blake2b(client.encode(), digest_size=8, key=key).digest()
    position = int.from_bytes(digest, "big") / 2**64
    if position < config.test_fraction:
        return SPLITS.index("test")
    if position < config.test_fraction + VALIDATION_FRACTION:
        return SPLITS.index("validation")
    return SPLITS.index("train")


def _digest(whole: pieces.Piece, split_D: np.ndarray) -> str:
    total = hashlib.sha256(whole.words.digest.encode() + split_D.tobytes())
    total.update(hashlib.sha256(whole.forms_N.data).digest())
    total.update(json.dumps(whole.clients).encode())
    return total.hexdigest()


_TYPE = np.dtype("<i4")
_DIGEST_TOKENS = hashlib.sha256().digest_size // _TYPE.itemsize
_READ_BYTES = 1 << 24


def mapped(path: Path, pieces: Iterable[np.ndarray]) -> np.ndarray:
    """int32 ``[N]``: the pieces end to end, from the file if it holds them whole, which otherwise is written.

    The file ends with the SHA-256 of the tokens. Concurrent processes write the same content.

    Args:
      path: its name identifies everything that determines the tokens; private.
    """
    if not _whole(path):
        total = hashlib.sha256()
        with atomic(path, PRIVATE) as temporary, temporary.open("wb") as file:
            for piece in pieces:
                content = np.ascontiguousarray(piece, dtype=_TYPE).tobytes()
                total.update(content)
                file.write(content)
            file.write(total.digest())
    return np.memmap(path, dtype=_TYPE, mode="r")[:-_DIGEST_TOKENS]


def _whole(path: Path) -> bool:
    if not path.is_file():
        return False
    left, total = path.stat().st_size - _DIGEST_TOKENS * _TYPE.itemsize, hashlib.sha256()
    if left < 0:
        return False
    with path.open("rb") as file:
        while left:
            content = file.read(min(left, _READ_BYTES))
            total.update(content)
            left -= len(content)
        return file.read() == total.digest()
